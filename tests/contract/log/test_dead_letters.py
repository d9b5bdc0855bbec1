"""Dead letters of consumers: what becomes one, when it is written, and that it is once; over both clusters."""

from __future__ import annotations

import gzip
import pickle
from typing import Any

import httpx
import pytest

import kafkalike
from kafkalike.admin.testing import ManualClock
from kafkalike.errors import (
    CommitFailedError,
    KafkaConfigurationError,
    RecordDeserializationError,
    TransactionAbortableError,
)
from kafkalike.log import dead_letter_buffer as box
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.dead_letter import PREFIX
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from tests.tools.consumer import T0, T1, Make, drain, outlive, values, write
from tests.tools.letters import lettered, letters, number

TOLERANT: dict[str, Any] = {"group_id": "g", "value_deserializer": number, "errors_tolerance": "all"}


@pytest.fixture
def orders(cluster: Cluster) -> Cluster:
    """A topic with two bad records among good ones."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"1", b"two", b"3", b"four", b"5")
    return cluster


def test_a_record_that_cannot_be_read_becomes_a_letter_and_the_poll_goes_on(orders: Cluster, consumer_of: Make) -> None:
    with consumer_of("orders", **TOLERANT) as consumer:
        assert drain(consumer) == [1, 3, 5]
        assert lettered(orders) == []  # nothing is committed yet

    assert lettered(orders) == [(0, 1), (0, 3)]
    assert consumer_of("orders", group_id="g").committed(T0) == 5


def test_a_letter_is_the_record_and_says_why(orders: Cluster, consumer_of: Make) -> None:
    """Key, value, headers and time are the record's; the other headers are Connect's, as text."""
    write(orders, b"six", headers=[("id", b"6"), ("id", None)])
    with consumer_of("orders", client_id="me", **TOLERANT) as consumer:
        drain(consumer)

    with consumer_of("orders.dlq") as reader:
        found = [record for records in reader.poll().values() for record in records][-1]
    about = {name.removeprefix(PREFIX): (content or b"").decode() for name, content in found.headers[2:]}
    stack = about.pop("exception.stacktrace")
    assert (found.key, found.value, found.timestamp) == (b"key", b"six", 1000)
    assert found.headers[:2] == [("id", b"6"), ("id", None)]
    assert about == {
        "topic": "orders",
        "partition": "0",
        "offset": "5",
        "connector.name": "g",
        "task.id": "me",
        "stage": "VALUE_CONVERTER",
        "class.name": "tests.tools.letters.number",
        "exception.class.name": "builtins.ValueError",
        "exception.message": "invalid literal for int() with base 10: b'six'",
    }
    assert stack.startswith("Traceback") and "ValueError" in stack  # noqa: PT018


def test_without_context_headers_a_letter_is_the_record_alone(orders: Cluster, consumer_of: Make) -> None:
    with consumer_of("orders", errors_deadletterqueue_context_headers_enable=False, **TOLERANT) as consumer:
        drain(consumer)

    with consumer_of("orders.dlq") as reader:
        found = [record for records in reader.poll().values() for record in records]
    assert [(record.value, record.headers) for record in found] == [(b"two", []), (b"four", [])]


def test_a_key_that_cannot_be_read_makes_a_letter_too(orders: Cluster, consumer_of: Make) -> None:
    settings = {**TOLERANT, "key_deserializer": number, "value_deserializer": None}
    with consumer_of("orders", **settings) as consumer:
        assert drain(consumer) == []

    assert {context.stage for _, context in letters(orders)} == {"KEY_CONVERTER"}
    assert len(lettered(orders)) == 5


def test_a_commit_writes_the_letters_below_its_offsets(orders: Cluster, consumer_of: Make) -> None:
    """The others wait for the commit that passes their records."""
    consumer = consumer_of("orders", enable_auto_commit=False, **TOLERANT)
    drain(consumer)

    consumer.commit({T0: OffsetAndMetadata(1)})
    none = lettered(orders)
    consumer.commit({T0: OffsetAndMetadata(2, "note")})
    one = lettered(orders)
    consumer.commit()
    consumer.commit()

    assert (none, one, lettered(orders)) == ([], [(0, 1)], [(0, 1), (0, 3)])


def test_what_was_never_committed_is_read_again_and_is_no_letter_yet(orders: Cluster, consumer_of: Make) -> None:
    with consumer_of("orders", enable_auto_commit=False, **TOLERANT) as first:
        drain(first)
    with consumer_of("orders", **TOLERANT) as second:
        assert drain(second) == [1, 3, 5]

    assert lettered(orders) == [(0, 1), (0, 3)]


def test_an_exception_inside_with_writes_no_letters(orders: Cluster, consumer_of: Make) -> None:
    def fail() -> None:
        with consumer_of("orders", **TOLERANT) as consumer:
            drain(consumer)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert lettered(orders) == []


def test_records_read_again_after_a_seek_are_letters_once(orders: Cluster, consumer_of: Make) -> None:
    """Before a commit and after it; also where the deserializer has changed its mind."""
    fails = {b"two", b"four"}

    def moody(data: bytes) -> bytes:
        if data in fails:
            raise LookupError(data)
        return data

    consumer = consumer_of("orders", **{**TOLERANT, "value_deserializer": moody, "enable_auto_commit": False})
    drain(consumer)
    consumer.seek(T0, 0)
    fails.remove(b"two")
    again = drain(consumer)
    consumer.commit()
    consumer.seek(T0, 0)
    drain(consumer)
    consumer.commit()

    assert again == [b"1", b"two", b"3", b"5"]
    assert lettered(orders) == [(0, 3)]


def test_a_poll_that_leaves_positions_makes_no_letters_twice(orders: Cluster, consumer_of: Make) -> None:
    consumer = consumer_of("orders", **TOLERANT)
    assert values(consumer.poll(update_offsets=False)) == [1, 3, 5]
    consumer.commit()
    assert lettered(orders) == []
    assert values(consumer.poll()) == [1, 3, 5]
    consumer.commit()

    assert lettered(orders) == [(0, 1), (0, 3)]


def test_an_iteration_passes_letters_when_the_record_behind_is_handed_out(orders: Cluster, consumer_of: Make) -> None:
    consumer = consumer_of("orders", consumer_timeout_ms=0, enable_auto_commit=False, **TOLERANT)
    found = [next(consumer).value]
    consumer.commit()
    none = lettered(orders)
    found.append(next(consumer).value)
    consumer.commit()
    one = lettered(orders)
    found += [record.value for record in consumer]
    consumer.commit()

    assert (found, none, one) == ([1, 3, 5], [], [(0, 1)])
    assert lettered(orders) == [(0, 1), (0, 3)]


def test_max_poll_records_counts_what_is_handed_out(orders: Cluster, consumer_of: Make) -> None:
    consumer = consumer_of("orders", max_poll_records=1, **TOLERANT)

    assert [values(consumer.poll()) for _ in range(4)] == [[1], [3], [5], []]
    assert consumer.position(T0) == 5


def test_poll_arrow_reads_bytes_and_makes_no_letters(orders: Cluster, consumer_of: Make) -> None:
    with consumer_of("orders", **TOLERANT) as consumer:
        table = consumer.poll_arrow()

    assert table is not None
    assert table.num_rows == 5
    assert lettered(orders) == []


def test_a_paused_partition_keeps_its_letters_for_the_commit(orders: Cluster, consumer_of: Make) -> None:
    consumer = consumer_of("orders", max_poll_records=2, enable_auto_commit=False, **TOLERANT)
    assert values(consumer.poll()) == [1, 3]
    consumer.pause(T0)
    assert consumer.poll() == {}
    consumer.commit()
    consumer.resume(T0)

    assert (lettered(orders), consumer.committed(T0)) == ([(0, 1)], 3)
    assert drain(consumer) == [5]


def test_where_every_record_fails_positions_go_on_and_all_are_letters(orders: Cluster, consumer_of: Make) -> None:
    def never(data: bytes) -> None:
        raise LookupError(data)

    with consumer_of("orders", **{**TOLERANT, "value_deserializer": never}) as consumer:
        assert consumer.poll(timeout_ms=1000) == {}
        assert consumer.position(T0) == 5
        write(orders, b"6")
        assert consumer.poll() == {}

    assert lettered(orders) == [(0, offset) for offset in range(6)]


@pytest.mark.slow
def test_more_letters_than_are_held_are_committed_by_an_automatic_commit(
    orders: Cluster, consumer_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box, "MOST_LETTERS", 1)
    write(orders, b"six", b"seven", b"8")
    consumer = consumer_of("orders", **TOLERANT)

    found = [value for _ in range(4) for value in values(consumer.poll(timeout_ms=1000))]

    assert found == [1, 3, 5, 8]
    assert lettered(orders) == [(0, 1), (0, 3), (0, 5), (0, 6)]


def test_more_letters_than_are_held_wait_for_a_commit_of_the_user(
    orders: Cluster, consumer_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is that of the record without room, whose position stays."""
    monkeypatch.setattr(box, "MOST_LETTERS", 1)
    consumer = consumer_of("orders", enable_auto_commit=False, **TOLERANT)
    assert values(consumer.poll()) == [1, 3]

    with pytest.raises(RecordDeserializationError, match=r"offset 3 .* 1 dead letters wait for a commit"):
        consumer.poll()
    consumer.commit()

    assert drain(consumer) == [5]


def test_the_same_for_the_bytes_of_letters(orders: Cluster, consumer_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """One alone is held however long it is."""
    monkeypatch.setattr(box, "MOST_BYTES", 1)
    consumer = consumer_of("orders", **TOLERANT)

    assert drain(consumer) == [1, 3, 5]


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("registry"),
        MemoryError(),
        kafkalike.errors.KafkaTimeoutError("r"),
        kafkalike.errors.SchemaRegistryError(503, 50003, "away"),
        httpx.ConnectError("of Confluent's client"),
    ],
    ids=repr,
)
def test_a_failure_that_is_not_the_records_is_raised(orders: Cluster, consumer_of: Make, error: Exception) -> None:
    """A registry that does not answer must not turn a topic into dead letters."""
    # The bulk attempt, and record by record.
    failures = [error, error]

    def asks(data: bytes) -> bytes:
        if data == b"two" and failures:
            raise failures.pop()
        return data

    consumer = consumer_of("orders", **{**TOLERANT, "value_deserializer": asks})
    assert values(consumer.poll()) == [b"1"]

    failures += [error, error]
    with pytest.raises(RecordDeserializationError, match="offset 1 cannot be read"):
        consumer.poll()
    assert drain(consumer) == [b"two", b"3", b"four", b"5"]
    assert lettered(orders) == []


@pytest.mark.parametrize("status", [404, 422])
def test_what_a_registry_says_for_good_makes_a_letter(orders: Cluster, consumer_of: Make, status: int) -> None:
    """There is no such schema: a record with its id can be read when it is registered, and the letter replayed."""

    def asks(data: bytes) -> bytes:
        raise kafkalike.errors.SchemaRegistryError(status, 40403, "Schema 7 not found")

    with consumer_of("orders", **{**TOLERANT, "value_deserializer": asks}) as consumer:
        drain(consumer)

    assert len(lettered(orders)) == 5


# --- the dead-letter topic ---------------------------------------------------------------------


def test_the_topic_of_letters_may_be_named(orders: Cluster, consumer_of: Make) -> None:
    with consumer_of("orders", errors_deadletterqueue_topic_name="bad", **TOLERANT) as consumer:
        drain(consumer)

    assert lettered(orders, "bad") == [(0, 1), (0, 3)]
    assert "orders.dlq" not in orders.topics()


def test_a_topic_that_must_not_be_created_is_an_error_before_anything_is_passed_over(
    orders: Cluster, consumer_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(orders.server), "auto_create_topics", property(lambda _: False))
    consumer = consumer_of("orders", **TOLERANT)
    assert values(consumer.poll()) == [1]

    with pytest.raises(RecordDeserializationError, match=r"'orders\.dlq': UnknownTopicOrPartitionError"):
        consumer.poll()
    orders.create_topic("orders.dlq", 3, {})

    assert drain(consumer) == [3, 5]


@pytest.mark.parametrize("name", ["orders", None])
def test_a_topic_is_not_its_own_dead_letter_topic(cluster: Cluster, consumer_of: Make, name: str | None) -> None:
    """Not by its name, and not where it is one of dead letters itself."""
    topic = name or "orders.dlq"
    cluster.create_topic(topic, 1, {})
    write(cluster, b"one", topic=topic)
    consumer = consumer_of(topic, errors_deadletterqueue_topic_name=name, **TOLERANT)

    with pytest.raises(RecordDeserializationError, match="is the dead-letter topic itself"):
        consumer.poll()


def test_a_pattern_passes_over_the_topics_that_the_letters_go_to(orders: Cluster, consumer_of: Make) -> None:
    consumer = consumer_of(**TOLERANT)
    consumer.subscribe(pattern="orders.*")
    drain(consumer)
    consumer.commit()
    assert len(lettered(orders)) == 2
    drain(consumer)

    assert consumer.assignment() == {T0}


@pytest.mark.parametrize(
    "configs", [{"max.message.bytes": "100"}, {"message.timestamp.before.max.ms": "1"}], ids=["size", "time"]
)
def test_a_topic_that_refuses_a_letter_is_an_error_before_the_record_is_passed(
    orders: Cluster, consumer_of: Make, configs: dict[str, str]
) -> None:
    orders.create_topic("orders.dlq", 1, configs)
    consumer = consumer_of("orders", **TOLERANT)
    assert values(consumer.poll()) == [1]

    for _ in range(2):
        with pytest.raises(RecordDeserializationError, match="cannot become a dead letter"):
            consumer.poll()
    consumer.seek(T0, 2)
    assert values(consumer.poll()) == [3]


def test_a_topic_that_refuses_letters_later_is_an_error_of_the_commit(orders: Cluster, consumer_of: Make) -> None:
    """Nothing is committed; once the topic takes them again, the next commit writes them."""
    consumer = consumer_of("orders", enable_auto_commit=False, **TOLERANT)
    drain(consumer)
    orders.set_configs("orders.dlq", {"max.message.bytes": "100"})

    with pytest.raises(kafkalike.errors.MessageSizeTooLargeError):
        consumer.commit()
    assert (consumer.committed(T0), lettered(orders)) == (None, [])
    orders.set_configs("orders.dlq", {})
    consumer.commit()

    assert (consumer.committed(T0), lettered(orders)) == (5, [(0, 1), (0, 3)])


def test_a_topic_made_for_letters_takes_what_its_source_took(cluster: Cluster, consumer_of: Make) -> None:
    """A record of the longest that is allowed, and old ones, which retention keeps by when they became letters."""
    cluster.create_topic("orders", 1, {"max.message.bytes": "200000", "cleanup.policy": "compact"})
    write(cluster, b"x" * 199_900)
    with consumer_of("orders", **TOLERANT) as consumer:
        drain(consumer)

    made = cluster.topic("orders.dlq").configs
    assert lettered(cluster) == [(0, 0)]
    assert (made["kafkalike.retention.clock"], made["cleanup.policy"]) == ("append", "delete")


def test_a_topic_of_letters_that_was_deleted_is_made_again_by_the_commit(orders: Cluster, consumer_of: Make) -> None:
    consumer = consumer_of("orders", enable_auto_commit=False, **TOLERANT)
    drain(consumer)
    orders.delete_topic("orders.dlq")
    consumer.commit()

    assert lettered(orders) == [(0, 1), (0, 3)]


def test_letters_of_several_partitions_and_topics_are_one_commit(cluster: Cluster, consumer_of: Make) -> None:
    cluster.create_topic("orders", 2, {})
    cluster.create_topic("bills", 1, {})
    write(cluster, b"a", partition=0)
    write(cluster, b"b", b"c", partition=1)
    write(cluster, b"d", topic="bills")
    with consumer_of("orders", "bills", **TOLERANT) as consumer:
        drain(consumer)

    assert lettered(cluster) == [(0, 0), (1, 0), (1, 1)]
    assert lettered(cluster, "bills.dlq") == [(0, 0)]


# --- settings --------------------------------------------------------------------------------


def test_what_is_not_gzip_is_a_letter_though_its_error_is_an_oserror(orders: Cluster, consumer_of: Make) -> None:
    with consumer_of("orders", **{**TOLERANT, "value_deserializer": gzip.decompress}) as consumer:
        assert drain(consumer) == []

    assert [value for value, _ in letters(orders)] == [b"1", b"two", b"3", b"four", b"5"]


def test_letters_need_a_group(cluster: Cluster, consumer_of: Make) -> None:
    with pytest.raises(KafkaConfigurationError, match="needs 'group_id'"):
        consumer_of("orders", errors_tolerance="all")


@pytest.mark.parametrize("settings", [{}, {"group_id": "g"}])
def test_with_an_empty_name_records_are_passed_over(
    orders: Cluster, consumer_of: Make, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """As in Connect; each may be logged."""
    about = {"errors_deadletterqueue_topic_name": "", "errors_log_enable": True, "errors_log_include_messages": True}
    with consumer_of("orders", errors_tolerance="all", value_deserializer=number, **about, **settings) as consumer:
        assert drain(consumer) == [1, 3, 5]
        metrics = consumer.metrics() or {}

    assert sorted(orders.topics()) == ["orders"]
    assert metrics["task-error-metrics"] == {
        "total-records-skipped": 2,
        "deadletterqueue-produce-requests": 0,
        "total-errors-logged": 2,
    }
    assert next(r.message for r in caplog.records if "skipped" in r.message).startswith(
        "kafkalike: a record was skipped: orders-0: offset 1"
    )


@pytest.mark.parametrize(
    "settings",
    [{"errors_tolerance": "some"}, {"errors_deadletterqueue_topic_name": "a b"}, {"errors_log_enable": "yes"}],
)
def test_bad_settings_are_named(cluster: Cluster, consumer_of: Make, settings: dict[str, Any]) -> None:
    with pytest.raises(KafkaConfigurationError, match=next(iter(settings))):
        consumer_of("orders", **settings)


# --- rebalances ------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_rebalance_in_the_middle_writes_each_letter_once(
    cluster: Cluster, consumer_of: Make, clock: ManualClock, assignor: str
) -> None:
    """Who gives a partition up commits what it has read; who gets it goes on there."""
    cluster.create_topic("orders", 2, {})
    for partition in range(2):
        write(cluster, b"1", b"two", b"3", b"four", partition=partition)
    settings = {**TOLERANT, "partition_assignment_strategy": [assignor]}
    first = consumer_of("orders", max_poll_records=2, **settings)
    got = values(first.poll())
    second = consumer_of("orders", **settings)
    for _ in range(6):
        got += values(second.poll()) + values(first.poll())
    assert first.assignment() | second.assignment() == {T0, T1}
    first.close()
    second.close()

    assert sorted(got) == [1, 1, 3, 3]
    assert lettered(cluster) == [(0, 1), (0, 3), (1, 1), (1, 3)]


def test_a_consumer_taken_for_dead_writes_no_letters(
    orders: Cluster, consumer_of: Make, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit is refused, letters and all; its successor has written them."""
    zombie = consumer_of("orders", enable_auto_commit=False, **TOLERANT)
    drain(zombie)
    zombie._polling.assigner._heartbeat.stop()
    successor = consumer_of("orders", **TOLERANT)
    assert outlive([successor], clock) == [1, 3, 5]
    successor.commit()

    with pytest.raises(CommitFailedError):
        zombie.commit()
    assert lettered(orders) == [(0, 1), (0, 3)]


def test_partitions_assigned_by_hand_commit_letters_outside_the_membership(orders: Cluster, consumer_of: Make) -> None:
    """As offsets: while the group has no members."""
    consumer = consumer_of(**TOLERANT)
    consumer.assign([T0])
    drain(consumer)
    member = consumer_of("orders", group_id="g")
    member.poll()
    with pytest.raises(CommitFailedError):
        consumer.commit()
    assert lettered(orders) == []
    member.close(autocommit=False)
    consumer.commit()

    assert lettered(orders) == [(0, 1), (0, 3)]


def test_letters_of_a_topic_that_was_made_anew_are_not_those_of_the_old_one(orders: Cluster, consumer_of: Make) -> None:
    consumer = consumer_of("orders", enable_auto_commit=False, **TOLERANT)
    drain(consumer)
    orders.delete_topic("orders")
    orders.create_topic("orders", 1, {})
    write(orders, b"1", b"2", b"three")
    with pytest.raises(kafkalike.errors.TopicDeletedError):
        consumer.poll()
    assert drain(consumer) == [1, 2]
    consumer.commit()

    assert lettered(orders) == [(0, 2)]


# --- consume, transform, produce -------------------------------------------------------------


@pytest.fixture
def producer(orders: Cluster) -> Any:
    orders.create_topic("bills", 1, {})
    with KafkaProducer(bootstrap_servers=orders, transactional_id="billing") as made:
        yield made


LOOP: dict[str, Any] = {**TOLERANT, "enable_auto_commit": False}


def test_a_producers_transaction_has_the_letters_below_its_offsets(
    orders: Cluster, consumer_of: Make, producer: KafkaProducer
) -> None:
    consumer = consumer_of("orders", **LOOP)
    polled = consumer.poll()
    with kafkalike.transaction(producer) as done:
        for value in values(polled):
            producer.send("bills", str(value).encode())
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(3)}, consumer.group_metadata())
        # Called again, as a program may do before it commits.
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(4)}, consumer.group_metadata())
        assert lettered(orders) == []

    assert lettered(orders) == [(0, 1), (0, 3)]
    assert done.ranges[TopicPartition("bills", 0)] == range(3)
    assert consumer._context.letters is not None
    assert not consumer._context.letters.full
    assert consumer._context.letters.held.count == 0


def test_an_aborted_transaction_has_no_letters_and_the_next_one_has(
    orders: Cluster, consumer_of: Make, producer: KafkaProducer
) -> None:
    consumer = consumer_of("orders", **LOOP)
    consumer.poll()

    def attempt() -> None:
        with kafkalike.transaction(producer):
            producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, consumer.group_metadata())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        attempt()
    assert lettered(orders) == []
    with kafkalike.transaction(producer):
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, consumer.group_metadata())
    consumer.seek(T0, 0)
    consumer.poll()
    with kafkalike.transaction(producer):
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, consumer.group_metadata())

    assert lettered(orders) == [(0, 1), (0, 3)]


def test_letters_that_their_topic_refuses_make_the_transaction_one_to_abort(
    orders: Cluster, consumer_of: Make, producer: KafkaProducer
) -> None:
    consumer = consumer_of("orders", **LOOP)
    consumer.poll()
    orders.set_configs("orders.dlq", {"max.message.bytes": "100"})

    def attempt() -> None:
        with kafkalike.transaction(producer):
            producer.send("bills", b"1")
            producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, consumer.group_metadata())

    with pytest.raises(TransactionAbortableError, match="dead letters were rejected"):
        attempt()
    assert consumer.committed(T0) is None
    orders.set_configs("orders.dlq", {})
    attempt()

    assert lettered(orders) == [(0, 1), (0, 3)]


def test_metadata_with_letters_are_equal_to_plain_ones_and_travel_as_such(orders: Cluster, consumer_of: Make) -> None:
    consumer = consumer_of("orders", **LOOP)
    found = consumer.group_metadata()

    assert found == ConsumerGroupMetadata(group_id="g")
    assert repr(found) == repr(ConsumerGroupMetadata(group_id="g"))
    assert type(pickle.loads(pickle.dumps(found))) is ConsumerGroupMetadata  # noqa: S301
