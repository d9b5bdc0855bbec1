"""What kafka-python's consumer promises, over a cluster in memory and one on Delta tables."""

import logging
import threading
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import pytest

from kafkalike.consumer import ConsumerRebalanceListener, KafkaConsumer
from kafkalike.errors import (
    CommitFailedError,
    IllegalArgumentError,
    IllegalGenerationError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    TopicDeletedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.chunk import ARROW_SCHEMA
from kafkalike.log.port import Cluster
from kafkalike.model.batch import Headers, RecordBatch
from kafkalike.model.structs import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

T0 = TopicPartition("orders", 0)
T1 = TopicPartition("orders", 1)


class HandClock:
    """Time that passes only by sleeping; `tasks` are done one per sleep."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.tasks: list[Callable[[], object]] = []

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        if self.tasks:
            self.tasks.pop(0)()


class Diary(ConsumerRebalanceListener):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, set[TopicPartition]]] = []
        self.on_assigned: Callable[[], object] = lambda: None

    def on_partitions_revoked(self, revoked: AbstractSet[TopicPartition]) -> None:
        self.entries.append(("revoked", set(revoked)))

    def on_partitions_assigned(self, assigned: AbstractSet[TopicPartition]) -> None:
        self.entries.append(("assigned", set(assigned)))
        self.on_assigned()

    def on_partitions_lost(self, lost: AbstractSet[TopicPartition]) -> None:
        self.entries.append(("lost", set(lost)))


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def consumer_of(cluster: Cluster, clock: HandClock, request: pytest.FixtureRequest) -> Callable[..., KafkaConsumer]:
    """Makes consumers of the cluster that begin at the log start, and closes them at the end."""

    def make(*topics: str, **configs: Any) -> KafkaConsumer:
        consumer = KafkaConsumer(
            *topics, clock=clock, **{"bootstrap_servers": cluster, "auto_offset_reset": "earliest", **configs}
        )
        request.addfinalizer(lambda: consumer.close(autocommit=False))
        return consumer

    return make


Make = Callable[..., KafkaConsumer]


def write(
    cluster: Cluster, *values: bytes | None, topic: str = "orders", partition: int = 0, headers: Headers | None = None
) -> None:
    batch = RecordBatch()
    for nth, value in enumerate(values):
        batch.add(partition, b"key", value, 1000 + nth, headers)
    cluster.log(topic).append(batch)


def values(polled: dict[TopicPartition, list[ConsumerRecord]]) -> list[Any]:
    return [record.value for records in polled.values() for record in records]


def drain(consumer: KafkaConsumer) -> list[Any]:
    found: list[Any] = []
    while polled := consumer.poll():
        found += values(polled)
    return found


def poll_often(consumer: KafkaConsumer, found: list[Any]) -> None:
    for _ in range(5):
        found += values(consumer.poll())


# --- poll --------------------------------------------------------------------------------------


def test_a_record_comes_with_every_field(cluster: Cluster, consumer_of: Make) -> None:
    """Every field of kafka-python's ConsumerRecord is filled as there."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"value", headers=[("h", b"xyz"), ("h", None)])

    polled = consumer_of("orders").poll()

    headers = [("h", b"xyz"), ("h", None)]
    assert polled == {T0: [ConsumerRecord("orders", 0, -1, 0, 1000, 0, b"key", b"value", headers, None, 3, 5, 5)]}


def test_none_and_empty_are_told_apart(cluster: Cluster, consumer_of: Make) -> None:
    """A tombstone has size -1, empty bytes have size 0, and a record without headers an empty list of its own."""
    cluster.create_topic("orders", 1, {})
    batch = RecordBatch()
    batch.add(0, None, None, 1)
    batch.add(0, b"", b"", 2)
    cluster.log("orders").append(batch)

    first, second = consumer_of("orders").poll()[T0]

    assert (first.key, first.value, first.serialized_key_size, first.serialized_value_size) == (None, None, -1, -1)
    assert (second.key, second.value, second.serialized_key_size, second.serialized_value_size) == (b"", b"", 0, 0)
    assert first.headers == []
    assert first.headers is not second.headers
    assert first.serialized_header_size == -1


def test_poll_hands_out_at_most_max_poll_records_and_keeps_the_rest(cluster: Cluster, consumer_of: Make) -> None:
    """What was read and not handed out comes next, in order."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b", b"c", b"d", b"e")
    consumer = consumer_of("orders", max_poll_records=2)

    polls = [values(consumer.poll()), values(consumer.poll(max_records=1)), values(consumer.poll())]

    assert polls == [[b"a", b"b"], [b"c"], [b"d", b"e"]]


def test_partitions_take_turns(cluster: Cluster, consumer_of: Make) -> None:
    """A long partition does not keep a short one waiting."""
    cluster.create_topic("orders", 2, {})
    write(cluster, *[b"long"] * 10)
    write(cluster, b"short", partition=1)
    consumer = consumer_of("orders", max_poll_records=2)

    found = values(consumer.poll()) + values(consumer.poll())

    assert b"short" in found


def test_a_poll_waits_for_a_record(cluster: Cluster, consumer_of: Make, clock: HandClock) -> None:
    """A record that is written while poll waits is handed out by that poll."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of("orders")
    clock.tasks = [lambda: None, lambda: write(cluster, b"late")]

    polled = consumer.poll(timeout_ms=60_000)

    assert values(polled) == [b"late"]


def test_a_poll_gives_up_when_time_is_over(cluster: Cluster, consumer_of: Make, clock: HandClock) -> None:
    """An empty answer comes after the timeout, not before and not much after."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of("orders")

    polled = consumer.poll(timeout_ms=1500)

    assert polled == {}
    assert clock.seconds == pytest.approx(1001.5)


def test_a_waiting_poll_looks_less_and_less_often(cluster: Cluster, consumer_of: Make, clock: HandClock) -> None:
    """Waits between looks grow up to ten times the tail interval."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of("orders")
    times: list[float] = []
    clock.tasks = [lambda: times.append(clock.seconds) for _ in range(12)]

    consumer.poll(timeout_ms=60_000)

    assert times[0] - 1000 == pytest.approx(cluster.tail_interval, rel=1e-3)
    assert times[-1] - times[-2] == pytest.approx(10 * cluster.tail_interval, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"timeout_ms": -1}, ValueError),
        ({"timeout_ms": float("nan")}, ValueError),
        ({"timeout_ms": "5"}, TypeError),
        ({"max_records": 0}, ValueError),
        ({"max_records": True}, TypeError),
        ({"max_records": 1.5}, TypeError),
    ],
)
def test_poll_refuses_bad_arguments(consumer_of: Make, arguments: dict[str, Any], error: type[Exception]) -> None:
    """kafka-python's error types."""
    consumer = consumer_of()

    with pytest.raises(error):
        consumer.poll(**arguments)


def test_records_wait_for_fetch_min_bytes_but_not_longer_than_fetch_max_wait(
    cluster: Cluster, consumer_of: Make, clock: HandClock
) -> None:
    """Too few bytes are held back until the wait is over, then handed out together."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    consumer = consumer_of("orders", fetch_min_bytes=1_000_000, fetch_max_wait_ms=300)

    at_once = consumer.poll()
    clock.tasks = [lambda: write(cluster, b"b")]
    later = consumer.poll(timeout_ms=10_000)

    assert at_once == {}
    assert values(later) == [b"a", b"b"]
    assert clock.seconds == pytest.approx(1000.3, abs=11 * cluster.tail_interval)


def test_an_interrupt_inside_poll_loses_no_record(cluster: Cluster, consumer_of: Make) -> None:
    """Positions move when records are handed out, not when they are read."""
    cluster.create_topic("orders", 2, {})
    write(cluster, b"a", b"b")
    write(cluster, b"c", partition=1)
    interrupts = [b"b"]

    def deserialize(data: bytes) -> bytes:
        if data in interrupts:
            interrupts.remove(data)
            raise KeyboardInterrupt
        return data

    consumer = consumer_of("orders", value_deserializer=deserialize)
    with pytest.raises(KeyboardInterrupt):
        drain(consumer)

    assert {b"a", b"b"} <= set(drain(consumer))


# --- where it begins ---------------------------------------------------------------------------


def test_latest_passes_over_what_is_there(cluster: Cluster, consumer_of: Make) -> None:
    """A consumer without committed offsets and `latest` gets what is written after its first poll."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"old")
    consumer = consumer_of("orders", auto_offset_reset="latest")

    before = consumer.poll()
    write(cluster, b"new")

    assert before == {}
    assert values(consumer.poll()) == [b"new"]


def test_none_raises_when_nothing_was_committed(cluster: Cluster, consumer_of: Make) -> None:
    """`auto_offset_reset='none'` asks the user, naming the partition."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of("orders", auto_offset_reset="none", group_id="g")

    with pytest.raises(NoOffsetForPartitionError, match="orders-0"):
        consumer.poll()


def test_none_raises_when_the_position_is_out_of_range(cluster: Cluster, consumer_of: Make) -> None:
    """A seek beyond the end is refused by the read, and a seek back helps."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    consumer = consumer_of(auto_offset_reset="none")
    consumer.assign([T0])
    consumer.seek(T0, 5)

    with pytest.raises(OffsetOutOfRangeError, match=r"orders-0: offset 5 is not in \[0, 1\)"):
        consumer.poll()

    consumer.seek(T0, 0)
    assert values(consumer.poll()) == [b"a"]


@pytest.mark.parametrize(("policy", "found"), [("earliest", [b"b", b"c"]), ("latest", [])])
def test_a_position_below_the_log_start_is_reset_with_a_warning(
    cluster: Cluster, consumer_of: Make, caplog: pytest.LogCaptureFixture, policy: str, found: list[bytes]
) -> None:
    """The warning names offset, live range and who moved the log start."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b", b"c")
    consumer = consumer_of(auto_offset_reset=policy)
    consumer.assign([T0])
    consumer.seek(T0, 0)
    cluster.move_log_start("orders", {0: 1}, "retention", "run-7")

    polled = consumer.poll()

    assert values(polled) == found
    assert "offset 0 is not in [1, 3)" in caplog.text
    assert "run-7" in caplog.text


def test_a_topic_that_is_missing_is_read_from_its_beginning_once_it_is_there(
    cluster: Cluster, consumer_of: Make
) -> None:
    """What automatic creation comes to: nothing written after subscribing is passed over, even with `latest`."""
    consumer = consumer_of("orders", auto_offset_reset="latest")

    before = consumer.poll()
    cluster.create_topic("orders", 1, {})
    write(cluster, b"first")

    assert before == {}
    assert "orders" not in before
    assert values(consumer.poll()) == [b"first"]


def test_without_automatic_creation_the_reset_policy_holds_for_a_new_topic(cluster: Cluster, consumer_of: Make) -> None:
    """`allow_auto_create_topics=False` and `latest` pass over what was written before the topic was noticed."""
    consumer = consumer_of("orders", auto_offset_reset="latest", allow_auto_create_topics=False)

    consumer.poll()
    cluster.create_topic("orders", 1, {})
    write(cluster, b"first")

    assert consumer.poll() == {}


# --- subscribe and assign ----------------------------------------------------------------------


def test_subscribe_and_assign_exclude_each_other(cluster: Cluster, consumer_of: Make) -> None:
    """One way until unsubscribe."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of("orders")

    with pytest.raises(IllegalStateError):
        consumer.assign([T0])
    consumer.unsubscribe()
    consumer.assign([T0])
    with pytest.raises(IllegalStateError):
        consumer.subscribe(["orders"])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, ValueError),
        ({"topics": "orders"}, TypeError),
        ({"topics": ["orders"], "pattern": "o.*"}, IllegalStateError),
        ({"topics": ["a b"]}, InvalidTopicError),
        ({"topics": ["__consumer_offsets"]}, InvalidTopicError),
        ({"topics": [None]}, InvalidTopicError),
        ({"pattern": "("}, ValueError),
        ({"pattern": "x" * 1025}, ValueError),
        ({"topics": ["orders"], "listener": object()}, TypeError),
    ],
)
def test_subscribe_refuses_bad_arguments_and_stays_as_it_was(
    consumer_of: Make, arguments: dict[str, Any], error: type[Exception]
) -> None:
    """The consumer is not half subscribed after a refusal."""
    consumer = consumer_of()

    with pytest.raises(error):
        consumer.subscribe(**arguments)

    assert consumer.subscription() is None
    consumer.assign([T0])


def test_a_pattern_takes_topics_and_partitions_as_they_come(cluster: Cluster, consumer_of: Make) -> None:
    """New topics that match, and added partitions, are noticed by poll; the pattern is matched at the begin."""
    cluster.create_topic("orders", 1, {})
    cluster.create_topic("old-orders", 1, {})
    consumer = consumer_of()
    consumer.subscribe(pattern="ord")
    consumer.poll()
    first = consumer.assignment()

    cluster.create_topic("order-lines", 1, {})
    cluster.add_partitions("orders", 2)
    consumer.poll()

    assert first == {T0}
    assert consumer.assignment() == {T0, T1, TopicPartition("order-lines", 0)}
    assert consumer.subscription() == {"orders", "order-lines"}


def test_a_listener_hears_of_changes_in_kafkas_order(cluster: Cluster, consumer_of: Make) -> None:
    """Revoked with all that was held, then assigned with all that is; close revokes."""
    cluster.create_topic("orders", 1, {})
    consumer, diary = consumer_of(group_id="g"), Diary()
    consumer.subscribe(["orders"], listener=diary)

    consumer.poll()
    cluster.add_partitions("orders", 2)
    consumer.poll()
    consumer.close()

    assert diary.entries == [
        ("revoked", set()),
        ("assigned", {T0}),
        ("revoked", {T0}),
        ("assigned", {T0, T1}),
        ("revoked", {T0, T1}),
    ]


def test_a_partition_held_before_and_after_a_change_keeps_its_position(cluster: Cluster, consumer_of: Make) -> None:
    """A change of the assignment hands nothing out twice and nothing over."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    consumer = consumer_of("orders")
    before = values(consumer.poll())
    cluster.add_partitions("orders", 2)
    write(cluster, b"b")
    write(cluster, b"c", partition=1)

    after = drain(consumer)

    assert before == [b"a"]
    assert sorted(after) == [b"b", b"c"]


def test_a_listener_may_seek_but_not_poll(cluster: Cluster, consumer_of: Make) -> None:
    """Seeking takes effect in the same poll; polling inside a callback is refused, and the consumer goes on."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b")
    consumer, diary = consumer_of(), Diary()
    consumer.subscribe(["orders"], listener=diary)

    diary.on_assigned = consumer.poll
    with pytest.raises(KafkaError) as caught:
        consumer.poll()
    diary.on_assigned = lambda: consumer.seek(T0, 1)
    cluster.add_partitions("orders", 2)

    assert isinstance(caught.value.__cause__, IllegalStateError)
    assert values(consumer.poll()) == [b"b"]


def test_partitions_assigned_by_hand_are_waited_for(cluster: Cluster, consumer_of: Make) -> None:
    """A partition that does not exist yet gives nothing, then its records."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of()
    consumer.assign([T1])

    before = consumer.poll()
    cluster.add_partitions("orders", 2)
    write(cluster, b"a", partition=1)

    assert before == {}
    assert values(consumer.poll()) == [b"a"]


# --- a topic that goes away --------------------------------------------------------------------


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_topic_created_again_is_told_and_never_mixed_with_the_old_one(
    cluster: Cluster, consumer_of: Make, *, by_hand: bool
) -> None:
    """The error names both ids; the next poll reads the new topic from its beginning."""
    old = cluster.create_topic("orders", 1, {})
    write(cluster, b"old", b"old", b"old")
    consumer = consumer_of(max_poll_records=1)
    consumer.assign([T0]) if by_hand else consumer.subscribe(["orders"])
    consumer.poll()
    cluster.delete_topic("orders")
    new = cluster.create_topic("orders", 1, {})
    write(cluster, b"new")

    found: list[bytes] = []
    with pytest.raises(TopicDeletedError) as caught:
        poll_often(consumer, found)

    assert (caught.value.topic_id, caught.value.current_id) == (old.topic_id, new.topic_id)
    assert set(found) <= {b"old"}
    assert drain(consumer) == [b"new"]


def test_offsets_committed_for_a_deleted_topic_do_not_count_for_its_namesake(
    cluster: Cluster, consumer_of: Make
) -> None:
    """The next topic of the name begins at auto_offset_reset."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b")
    first = consumer_of("orders", group_id="g")
    first.poll()
    first.close()
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 1, {})
    write(cluster, b"new")

    second = consumer_of("orders", group_id="g")

    assert second.committed(T0) is None
    assert values(second.poll()) == [b"new"]


def test_positions_of_a_deleted_topic_are_not_committed_to_its_namesake(cluster: Cluster, consumer_of: Make) -> None:
    """An explicit commit says that the topic is gone."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b")
    consumer = consumer_of("orders", group_id="g")
    consumer.poll()
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 1, {})

    with pytest.raises(TopicDeletedError):
        consumer.commit()

    assert consumer.committed(T0) is None


# --- positions ---------------------------------------------------------------------------------


def test_seek_moves_the_position_and_drops_what_was_read(cluster: Cluster, consumer_of: Make) -> None:
    """Forward and back, within the buffer and outside."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b", b"c", b"d")
    consumer = consumer_of("orders", max_poll_records=1)
    consumer.poll()

    consumer.seek(T0, np.int64(3))
    forward = values(consumer.poll())
    consumer.seek_to_beginning()
    back = values(consumer.poll())
    consumer.seek_to_end(T0)

    assert (forward, back) == ([b"d"], [b"a"])
    assert consumer.position(T0) == 4
    assert type(consumer.position(T0)) is int


@pytest.mark.parametrize("offset", [-1, 2**63, True, "5", 1.0, None])
def test_seek_refuses_bad_offsets(cluster: Cluster, consumer_of: Make, offset: Any) -> None:
    """kafka-python's ValueError."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of()
    consumer.assign([T0])

    with pytest.raises(ValueError, match="offset must be"):
        consumer.seek(T0, offset)


def test_calls_on_partitions_that_are_not_held_are_refused(consumer_of: Make) -> None:
    """kafka-python's error types, for each method."""
    consumer = consumer_of()

    with pytest.raises(ValueError, match="not assigned"):
        consumer.seek(T0, 0)
    with pytest.raises(ValueError, match="no partitions"):
        consumer.seek_to_end()
    with pytest.raises(IllegalStateError):
        consumer.position(T0)
    with pytest.raises(IllegalStateError):
        consumer.pause(T0)
    with pytest.raises(TypeError):
        consumer.highwater(("orders", 0))  # type: ignore[arg-type]


def test_a_paused_partition_gives_nothing_and_goes_on_where_it_was(cluster: Cluster, consumer_of: Make) -> None:
    """Pause leaves position and buffer alone."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b")
    consumer = consumer_of("orders", max_poll_records=1)
    consumer.poll()

    consumer.pause(T0)
    paused, held = consumer.poll(), consumer.paused()
    consumer.resume(T0)

    assert (paused, held) == ({}, {T0})
    assert values(consumer.poll()) == [b"b"]


def test_highwater_and_position_give_the_lag(cluster: Cluster, consumer_of: Make) -> None:
    """Both name the next offset."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b", b"c")
    consumer = consumer_of("orders", max_poll_records=1)

    consumer.poll()

    assert (consumer.position(T0), consumer.highwater(T0)) == (1, 3)
    metrics = consumer.metrics()
    assert metrics is not None
    assert metrics["consumer-fetch-manager-metrics"]["records-lag-max"] == 2


# --- iteration ---------------------------------------------------------------------------------


def test_iteration_ends_when_no_record_comes_in_time(cluster: Cluster, consumer_of: Make, clock: HandClock) -> None:
    """The wait begins anew with each record."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b")
    consumer = consumer_of("orders", consumer_timeout_ms=700)

    found = [record.value for record in consumer]

    assert found == [b"a", b"b"]
    assert clock.seconds == pytest.approx(1000.7)


def test_iteration_moves_the_position_with_each_record(cluster: Cluster, consumer_of: Make) -> None:
    """A poll after an iteration that was left goes on at the next record."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b", b"c")
    consumer = consumer_of("orders")

    first = next(consumer)
    position = consumer.position(T0)

    assert (first.value, position) == (b"a", 1)
    assert values(consumer.poll()) == [b"b", b"c"]


def test_a_seek_inside_an_iteration_takes_effect_at_the_next_record(cluster: Cluster, consumer_of: Make) -> None:
    """What the iteration had left is dropped."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b", b"c")
    consumer = consumer_of("orders", consumer_timeout_ms=0)

    next(consumer)
    consumer.seek(T0, 2)

    assert [record.value for record in consumer] == [b"c"]


def test_a_pause_inside_an_iteration_skips_the_partition_until_it_is_resumed(
    cluster: Cluster, consumer_of: Make
) -> None:
    """Nothing is lost by it."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b", b"c")
    consumer = consumer_of("orders", consumer_timeout_ms=0)

    next(consumer)
    consumer.pause(T0)
    paused = list(consumer)
    consumer.resume(T0)

    assert paused == []
    assert [record.value for record in consumer] == [b"b", b"c"]


# --- deserialisers -----------------------------------------------------------------------------


def test_deserialisers_take_every_form_of_kafka_pythons(cluster: Cluster, consumer_of: Make) -> None:
    """A callable and a 3.x object; None stays None; sizes are those of the bytes."""

    class Upper:
        def deserialize(self, topic: str, headers: Sequence[tuple[str, bytes]], data: bytes) -> str:
            return f"{topic}/{len(headers)}/{data.decode().upper()}"

    cluster.create_topic("orders", 1, {})
    write(cluster, b"7", None, headers=[("h", b"1")])
    consumer = consumer_of("orders", key_deserializer=Upper(), value_deserializer=int)

    first, second = consumer.poll()[T0]

    assert (first.key, first.value, first.serialized_value_size) == ("orders/1/KEY", 7, 1)
    assert second.value is None


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_deserialiser_that_fails_loses_no_record(cluster: Cluster, consumer_of: Make, part: str) -> None:
    """Those before are handed out first, the error names the record, and a seek past it goes on."""
    cluster.create_topic("orders", 1, {})
    batch = RecordBatch()
    for content in (b"1", b"2", b"bad", b"4"):
        batch.add(0, content, content, 1)
    cluster.log("orders").append(batch)
    consumer = consumer_of("orders", **{f"{part}_deserializer": int})

    before = [record.offset for record in consumer.poll()[T0]]
    errors = []
    for _ in range(2):
        with pytest.raises(RecordDeserializationError) as caught:
            consumer.poll()
        errors.append(caught.value)
    consumer.seek(T0, errors[0].offset + 1)

    assert before == [0, 1]
    assert [(e.topic, e.partition, e.offset, e.part) for e in errors] == [("orders", 0, 2, part)] * 2
    assert isinstance(errors[0].__cause__, ValueError)
    assert [record.offset for record in consumer.poll()[T0]] == [3]


def test_a_failing_record_is_told_though_other_partitions_have_records(cluster: Cluster, consumer_of: Make) -> None:
    """Its partition is the first in turn at the next poll."""
    cluster.create_topic("orders", 2, {})
    write(cluster, b"1", b"bad")
    write(cluster, *[b"5"] * 50, partition=1)
    consumer = consumer_of("orders", value_deserializer=int, max_poll_records=3)

    with pytest.raises(RecordDeserializationError, match="orders-0: the value of the record at offset 1"):
        poll_often(consumer, [])


# --- Arrow -------------------------------------------------------------------------------------


def test_poll_arrow_gives_sparks_columns_and_moves_the_positions(cluster: Cluster, consumer_of: Make) -> None:
    """It mixes with poll, record by record."""
    cluster.create_topic("orders", 2, {})
    write(cluster, b"a", b"b", b"c", headers=[("h", b"1")])
    write(cluster, b"d", partition=1)
    consumer = consumer_of("orders", value_deserializer=bytes.decode)

    limited = consumer.poll_arrow(max_records=2)
    rest = consumer.poll_arrow()

    assert limited is not None
    assert rest is not None
    assert limited.schema.equals(ARROW_SCHEMA)
    rows = limited.to_pylist() + rest.to_pylist()
    assert sorted((row["partition"], row["offset"], row["value"]) for row in rows) == [
        (0, 0, b"a"),
        (0, 1, b"b"),
        (0, 2, b"c"),
        (1, 0, b"d"),
    ]
    assert rows[0]["topic"] == "orders"
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}]
    assert consumer.poll_arrow() is None
    assert consumer.poll() == {}


def test_poll_arrow_stops_near_fetch_max_bytes(cluster: Cluster, consumer_of: Make) -> None:
    """A poll ends after the read that used the bytes up; the rest comes next."""
    cluster.create_topic("orders", 1, {})
    for _ in range(4):
        write(cluster, b"x" * 2000)
    consumer = consumer_of("orders", fetch_max_bytes=1, max_partition_fetch_bytes=1)

    sizes = []
    while (table := consumer.poll_arrow()) is not None:
        sizes.append(table.num_rows)

    assert sizes == [1, 1, 1, 1]


# --- commits -----------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_committed(cluster: Cluster, consumer_of: Make) -> None:
    """A clean end commits; the next consumer gets the rest."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b", b"c")
    with consumer_of("orders", group_id="g", max_poll_records=2) as first:
        first.poll()

    second = consumer_of("orders", group_id="g")

    assert values(second.poll()) == [b"c"]


def test_an_exception_inside_with_skips_the_last_commit(cluster: Cluster, consumer_of: Make) -> None:
    """A record that was not finished is handed out again."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")

    def fail() -> None:
        with consumer_of("orders", group_id="g") as first:
            first.poll()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert values(consumer_of("orders", group_id="g").poll()) == [b"a"]


def test_poll_commits_at_intervals_what_was_handed_out_before(
    cluster: Cluster, consumer_of: Make, clock: HandClock
) -> None:
    """Not the records that it is about to hand out."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b", b"c")
    consumer = consumer_of("orders", group_id="g", max_poll_records=1, auto_commit_interval_ms=1000)

    consumer.poll()
    consumer.poll()
    early = consumer.committed(T0)
    clock.seconds += 1
    consumer.poll()

    assert early is None
    assert (consumer.committed(T0), consumer.position(T0)) == (2, 3)


def test_an_automatic_commit_without_progress_writes_nothing(
    cluster: Cluster, consumer_of: Make, clock: HandClock
) -> None:
    """Each commit is a table version, so an idle consumer makes none but one an hour."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    consumer = consumer_of("orders", group_id="g", auto_commit_interval_ms=1000)
    consumer.poll()
    clock.seconds += 2
    consumer.poll()
    rows = cluster.groups.refresh().seq

    clock.seconds += 2
    consumer.poll()
    idle = cluster.groups.refresh().seq
    clock.seconds += 3600
    consumer.poll()

    assert idle == rows
    assert cluster.groups.refresh().seq == rows + 1


def test_committed_offsets_come_back_with_their_metadata(cluster: Cluster, consumer_of: Make) -> None:
    """Any text is data, never code; committing twice is harmless."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of("orders", group_id="g'; DROP TABLE x--\nü", enable_auto_commit=False)
    consumer.poll()
    note = 'it\'s "quoted"\n; -- ü'

    consumer.commit({T0: OffsetAndMetadata(7, note)})
    consumer.commit({T0: OffsetAndMetadata(7, note)})

    assert consumer.committed(T0) == 7
    assert consumer.committed(T0, metadata=True) == OffsetAndMetadata(7, note, -1)


@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        ({T0: 5}, TypeError),
        ({("orders", 0): OffsetAndMetadata(5)}, TypeError),
        ({T0: OffsetAndMetadata(-1)}, ValueError),
        ({T0: OffsetAndMetadata(2**63)}, ValueError),
        ({T0: OffsetAndMetadata(offset=True)}, ValueError),
        ({T0: OffsetAndMetadata("5")}, ValueError),
        ({T0: OffsetAndMetadata(5, b"x")}, TypeError),
        ({T0: OffsetAndMetadata(5, "\ud800")}, ValueError),
        ({T0: OffsetAndMetadata(5, "x" * 4097)}, OffsetMetadataTooLargeError),
        ({TopicPartition("orders", 9): OffsetAndMetadata(5)}, UnknownTopicOrPartitionError),
        ({T0: OffsetAndMetadata(5), TopicPartition("nowhere", 0): OffsetAndMetadata(5)}, UnknownTopicOrPartitionError),
    ],
)
def test_a_bad_commit_writes_nothing(cluster: Cluster, consumer_of: Make, offsets: Any, error: type[Exception]) -> None:
    """Each is refused by a named error before anything is written."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of(group_id="g")
    consumer.assign([T0])

    with pytest.raises(error):
        consumer.commit(offsets)

    assert cluster.groups.refresh().seq == 0


def test_the_largest_offset_can_be_committed(cluster: Cluster, consumer_of: Make) -> None:
    """2**63-1 goes round; a commit beyond the log end is taken, as in Kafka."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of(group_id="g")
    consumer.assign([T0])

    consumer.commit({T0: OffsetAndMetadata(np.int64(2**63 - 1))})  # type: ignore[arg-type]

    assert consumer.committed(T0) == 2**63 - 1


def test_commits_need_a_group(cluster: Cluster, consumer_of: Make) -> None:
    """A consumer without a group reads all partitions and commits nothing."""
    cluster.create_topic("orders", 2, {})
    write(cluster, b"a")
    write(cluster, b"b", partition=1)
    consumer = consumer_of("orders")

    found = drain(consumer)

    assert sorted(found) == [b"a", b"b"]
    for call in (consumer.commit, consumer.commit_async, lambda: consumer.committed(T0)):
        with pytest.raises(IllegalStateError):
            call()
    assert consumer.group_metadata().group_id is None


def test_a_commit_before_the_first_poll_is_refused(cluster: Cluster, consumer_of: Make) -> None:
    """The consumer is not the group's member yet."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of("orders", group_id="g")

    with pytest.raises(CommitFailedError):
        consumer.commit({T0: OffsetAndMetadata(1)})


def test_commit_async_is_done_at_once_and_calls_back_at_the_next_poll(cluster: Cluster, consumer_of: Make) -> None:
    """The callback gets the offsets and None, from the consumer's own thread."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    consumer = consumer_of("orders", group_id="g")
    consumer.poll()
    heard: list[Any] = []

    future = consumer.commit_async(callback=lambda *answer: heard.append(answer))
    before = list(heard)
    consumer.poll()

    assert future.is_done
    assert future.succeeded()
    assert before == []
    assert heard == [({T0: OffsetAndMetadata(1)}, None)]
    assert consumer.committed(T0) == 1


# --- who holds the group -----------------------------------------------------------------------


def test_a_member_that_was_taken_over_cannot_commit(cluster: Cluster, consumer_of: Make) -> None:
    """The check is part of the transaction; the successor's offset stays."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b")
    zombie = consumer_of("orders", group_id="g", enable_auto_commit=False)
    zombie.poll(max_records=1)
    heir = consumer_of("orders", group_id="g", enable_auto_commit=False)
    heir.poll()
    heir.commit()

    future = zombie.commit_async()
    with pytest.raises(CommitFailedError) as caught:
        zombie.commit()

    assert isinstance(caught.value.__cause__, UnknownMemberIdError)
    assert future.failed()
    assert isinstance(future.exception, CommitFailedError)
    assert heir.committed(T0) == 2
    assert heir.group_metadata().generation_id == zombie.group_metadata().generation_id + 1


def test_a_member_that_was_taken_over_loses_its_partitions_and_stands_by(cluster: Cluster, consumer_of: Make) -> None:
    """It hears `lost`, gets nothing, and takes over again when the group is free."""
    cluster.create_topic("orders", 1, {})
    first, diary = consumer_of(group_id="g"), Diary()
    first.subscribe(["orders"], listener=diary)
    first.poll()
    second = consumer_of("orders", group_id="g")
    second.poll()
    write(cluster, b"a")

    while_held = first.poll()
    second.close()
    afterwards = values(first.poll())

    assert while_held == {}
    assert ("lost", {T0}) in diary.entries
    assert afterwards == [b"a"]
    assert first.group_metadata().generation_id == 3


def test_a_client_without_membership_commits_only_to_an_empty_group(cluster: Cluster, consumer_of: Make) -> None:
    """As Kafka's broker has it."""
    cluster.create_topic("orders", 1, {})
    by_hand = consumer_of(group_id="g")
    by_hand.assign([T0])
    by_hand.commit({T0: OffsetAndMetadata(3)})
    member = consumer_of("orders", group_id="g")
    member.poll()

    with pytest.raises(CommitFailedError):
        by_hand.commit({T0: OffsetAndMetadata(4)})
    member.close(autocommit=False)
    by_hand.commit({T0: OffsetAndMetadata(5)})

    assert by_hand.committed(T0) == 5


def test_unsubscribing_leaves_the_group(cluster: Cluster, consumer_of: Make) -> None:
    """Nobody holds it afterwards, and the positions are committed."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    consumer = consumer_of("orders", group_id="g")
    consumer.poll()

    consumer.unsubscribe()

    group = cluster.groups.refresh().group("g")
    assert (group.member_id, group.offsets[T0].position.offset) == ("", 1)
    assert consumer.assignment() == set()


# --- questions ---------------------------------------------------------------------------------


def test_offsets_and_times_of_the_log_can_be_asked_without_an_assignment(cluster: Cluster, consumer_of: Make) -> None:
    """Beginning, end, first record at or after a time; None when there is none."""
    cluster.create_topic("orders", 2, {})
    write(cluster, b"a", b"b", b"c")
    cluster.move_log_start("orders", {0: 1}, "test", "run-1")
    consumer = consumer_of()

    assert consumer.beginning_offsets([T0, T1]) == {T0: 1, T1: 0}
    assert consumer.end_offsets([T0, T1]) == {T0: 3, T1: 0}
    assert consumer.offsets_for_times({T0: 1002, T1: 0}) == {T0: OffsetAndTimestamp(2, 1002), T1: None}
    assert consumer.topics() == {"orders"}
    assert consumer.partitions_for_topic("orders") == {0, 1}
    assert consumer.partitions_for_topic("nowhere") == set()
    assert consumer.bootstrap_connected()


def test_questions_about_what_does_not_exist_are_refused(cluster: Cluster, consumer_of: Make) -> None:
    """An error that names the partition, instead of a wait."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of()

    with pytest.raises(UnknownTopicOrPartitionError, match="orders-1"):
        consumer.end_offsets([T1])
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        consumer.beginning_offsets([TopicPartition("nowhere", 0)])
    with pytest.raises(ValueError, match="negative"):
        consumer.offsets_for_times({T0: -1})
    with pytest.raises(TypeError):
        consumer.end_offsets([("orders", 0)])  # type: ignore[list-item]


# --- the end, and threads ----------------------------------------------------------------------


def test_a_closed_consumer_refuses_every_call_but_close(cluster: Cluster, consumer_of: Make) -> None:
    """IllegalStateError, also the second time."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of("orders", group_id="g")
    consumer.close()
    consumer.close()

    calls: list[Callable[[], object]] = [
        consumer.poll,
        consumer.poll_arrow,
        consumer.commit,
        consumer.commit_async,
        consumer.assignment,
        consumer.topics,
        consumer.unsubscribe,
        lambda: consumer.committed(T0),
        lambda: consumer.seek(T0, 0),
        lambda: consumer.subscribe(["orders"]),
    ]
    for call in calls:
        with pytest.raises(IllegalStateError):
            call()
    assert list(consumer) == []


def test_a_second_thread_inside_a_call_is_refused(cluster: Cluster, consumer_of: Make) -> None:
    """While one thread polls, another gets IllegalStateError and changes nothing."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    heard: list[Exception] = []

    def intrude(data: bytes) -> bytes:
        def call() -> None:
            try:
                consumer.poll()
            except IllegalStateError as error:
                heard.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return data

    consumer = consumer_of("orders", value_deserializer=intrude)

    polled = consumer.poll()

    assert values(polled) == [b"a"]
    assert len(heard) == 1


def test_close_closes_the_deserialisers(consumer_of: Make) -> None:
    """As kafka-python does."""

    class Closing:
        closed = False

        def deserialize(self, topic: str, data: bytes) -> bytes:
            return data + topic.encode()

        def close(self) -> None:
            self.closed = True

    deserializer = Closing()
    consumer = consumer_of(value_deserializer=deserializer)

    consumer.close()

    assert deserializer.closed


def test_a_failed_automatic_commit_is_told_to_the_callback(
    cluster: Cluster, consumer_of: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Or logged when there is none; close goes on either way."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    heard: list[Any] = []
    first = consumer_of("orders", group_id="g", default_offset_commit_callback=lambda *answer: heard.append(answer))
    second = consumer_of("orders", group_id="g")
    for consumer in (first, second, consumer_of("orders", group_id="g")):
        consumer.poll()

    with caplog.at_level(logging.WARNING):
        first.close()
        second.close()

    assert [type(error) for _, error in heard] == [CommitFailedError]
    assert "were not committed" in caplog.text


def test_an_old_generation_of_the_same_member_is_refused(cluster: Cluster, consumer_of: Make) -> None:
    """The cause says which check failed."""
    from kafkalike.clock import SYSTEM_CLOCK
    from kafkalike.group.offsets import GroupOffsets

    info = cluster.create_topic("orders", 1, {})
    groups = GroupOffsets.of(cluster, SYSTEM_CLOCK)
    old = groups.join("g", "m", "client")
    groups.join("g", "m", "client")

    with pytest.raises(CommitFailedError) as caught:
        groups.commit(old, {T0: OffsetAndMetadata(1)}, {"orders": info.topic_id})

    assert isinstance(caught.value.__cause__, IllegalGenerationError)
    assert groups.committed("g", [T0], {"orders": info.topic_id}) == {}


def test_leaving_a_group_that_another_member_holds_changes_nothing(cluster: Cluster) -> None:
    """A late leave does not throw the successor out."""
    from kafkalike.clock import SYSTEM_CLOCK
    from kafkalike.group.offsets import GroupOffsets

    groups = GroupOffsets.of(cluster, SYSTEM_CLOCK)
    first = groups.join("g", "one", "client")
    second = groups.join("g", "two", "client")

    groups.leave(first)

    group = cluster.groups.refresh().group("g")
    assert (group.member_id, group.generation, second.generation) == ("two", 2, 2)


def test_an_unusable_partition_number_is_refused(consumer_of: Make) -> None:
    """Negative, bool and text, before anything is assigned."""
    consumer = consumer_of()

    with pytest.raises(IllegalArgumentError):
        consumer.assign([TopicPartition("orders", -1)])
    for number in (True, "0", None):
        with pytest.raises(TypeError):
            consumer.assign([TopicPartition("orders", number)])  # type: ignore[arg-type]
    assert consumer.assignment() == set()
