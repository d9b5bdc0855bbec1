"""What kafka-python's consumer promises of polling, over a cluster in memory and one on Delta tables."""

import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.errors import (
    IllegalStateError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.member import GroupMember
from kafkalike.model.groups.roster import Roster
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import ConsumerRecord
from tests.tools.consumer import T0, Make, drain, values, write
from tests.tools.kinds import only_in_memory

# --- poll ------------------------------------------------------------------------------------


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


def test_a_poll_waits_for_a_record(cluster: Cluster, consumer_of: Make, clock: ManualClock) -> None:
    """A record that is written while poll waits is handed out by that poll."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of("orders")
    clock.tasks = [lambda: None, lambda: write(cluster, b"late")]

    polled = consumer.poll(timeout_ms=60_000)

    assert values(polled) == [b"late"]


def test_a_poll_gives_up_when_time_is_over(cluster: Cluster, consumer_of: Make, clock: ManualClock) -> None:
    """An empty answer comes after the timeout, not before and not much after."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of("orders")

    polled = consumer.poll(timeout_ms=1500)

    assert polled == {}
    assert clock.seconds == pytest.approx(1001.5)


@pytest.mark.slow
def test_a_waiting_poll_looks_less_and_less_often(cluster: Cluster, consumer_of: Make, clock: ManualClock) -> None:
    """Waits between looks grow up to ten times the tail interval."""
    cluster.create_topic("orders", 1, {})
    consumer = consumer_of("orders")
    times: list[float] = []
    clock.tasks = [lambda: times.append(clock.seconds) for _ in range(12)]

    consumer.poll(timeout_ms=60_000)

    assert times[0] - 1000 == pytest.approx(cluster.tail_interval, rel=1e-3)
    assert times[-1] - times[-2] == pytest.approx(10 * cluster.tail_interval, rel=1e-3)


@only_in_memory("cluster")
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
    cluster: Cluster, consumer_of: Make, clock: ManualClock
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


# --- where it begins -------------------------------------------------------------------------


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
    assert values(consumer.poll()) == [b"first"]


def test_topic_created_between_the_look_and_the_join_of_a_poll_is_read(
    cluster: Cluster, consumer_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poll has looked at the topics before it joins; the join looks again, and its assignment has the new topic."""
    join = GroupMember.try_join

    def late(member: GroupMember, topics: tuple[str, ...]) -> Roster | None:
        monkeypatch.undo()
        cluster.create_topic("orders", 1, {})
        write(cluster, b"first")
        return join(member, topics)

    monkeypatch.setattr(GroupMember, "try_join", late)
    consumer = consumer_of("orders", group_id="g")

    polled = values(consumer.poll())

    assert (polled or values(consumer.poll())) == [b"first"]
    assert consumer.position(T0) == 1


def test_without_automatic_creation_the_reset_policy_holds_for_a_new_topic(cluster: Cluster, consumer_of: Make) -> None:
    """`allow_auto_create_topics=False` and `latest` pass over what was written before the topic was noticed."""
    consumer = consumer_of("orders", auto_offset_reset="latest", allow_auto_create_topics=False)

    consumer.poll()
    cluster.create_topic("orders", 1, {})
    write(cluster, b"first")

    assert consumer.poll() == {}


# --- positions -------------------------------------------------------------------------------


def test_seek_moves_the_position_and_drops_what_was_read(cluster: Cluster, consumer_of: Make) -> None:
    """Forward and back, within the buffer and outside."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b", b"c", b"d")
    consumer = consumer_of("orders", max_poll_records=1)
    consumer.poll()

    consumer.seek(T0, np.int64(3))  # type: ignore[arg-type]
    forward = values(consumer.poll())
    consumer.seek_to_beginning()
    back = values(consumer.poll())
    consumer.seek_to_end(T0)

    assert (forward, back) == ([b"d"], [b"a"])
    assert consumer.position(T0) == 4
    assert type(consumer.position(T0)) is int


@only_in_memory("cluster")
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


# --- iteration -------------------------------------------------------------------------------


def test_iteration_ends_when_no_record_comes_in_time(cluster: Cluster, consumer_of: Make, clock: ManualClock) -> None:
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


# --- the end, and threads --------------------------------------------------------------------


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


def test_a_deserialiser_cannot_poll_its_consumer(cluster: Cluster, consumer_of: Make) -> None:
    """It is an error of the deserialiser, and no record is lost by it."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    polls: list[Callable[[], object]] = []

    def deserialize(data: bytes) -> bytes:
        while polls:
            polls.pop()()
        return data

    consumer = consumer_of("orders", value_deserializer=deserialize)
    polls.append(consumer.poll)
    with pytest.raises(RecordDeserializationError) as caught:
        consumer.poll()

    assert isinstance(caught.value.__cause__, IllegalStateError)
    assert values(consumer.poll()) == [b"a"]


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


# --- other threads and processes -------------------------------------------------------------


def test_any_thread_may_ask_for_the_assignment_and_the_membership(cluster: Cluster, consumer_of: Make) -> None:
    """As in kafka-python, they are snapshots: also while another thread is inside `poll`."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a")
    heard: list[Any] = []

    def ask() -> None:
        heard.append((consumer.assignment(), consumer.group_metadata().generation_id))

    def deserialize(data: bytes) -> bytes:
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        return data

    consumer = consumer_of("orders", group_id="g", value_deserializer=deserialize)
    consumer.poll()

    assert heard == [({T0}, 1)]


def test_poll_without_update_offsets_leaves_the_positions(cluster: Cluster, consumer_of: Make) -> None:
    """The next poll returns the same records."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b")
    consumer = consumer_of("orders")

    looked = values(consumer.poll(update_offsets=False))

    assert looked == values(consumer.poll()) == [b"a", b"b"]
    assert consumer.poll() == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_consumer_is_refused_in_a_child_process(cluster: Cluster, consumer_of: Make) -> None:
    """It is the parent's: a child that closed it would leave the group in the parent's name."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"a", b"b")
    consumer = consumer_of("orders", group_id="g", max_poll_records=1)
    consumer.poll()

    def use() -> str:
        said = []
        for call in (consumer.poll, consumer.assignment, lambda: next(consumer), consumer.commit):
            try:
                call()
            except IllegalStateError as error:
                said.append(str(error))
        consumer.close()
        return "|".join(said)

    said = in_child(use).split("|")

    assert len(said) == 4
    assert all("before a fork" in text for text in said)
    assert values(consumer.poll()) == [b"b"]
    assert len(cluster.groups.refresh().group("g").roster.members) == 1


def in_child(call: Callable[[], str]) -> str:
    """What a call says in a forked process."""
    read, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        child = os.fork()
    if child == 0:
        try:
            os.write(write_end, call().encode())
        finally:
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read) as said:
        return said.read()
