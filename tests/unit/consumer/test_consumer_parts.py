"""The consumer's pure parts: subscription, records, futures, guard."""

import threading
from typing import Any

import pyarrow as pa
import pytest

from kafkalike.consumer.call_checks import ThreadGuard
from kafkalike.consumer.offset_commits import CommitFuture
from kafkalike.consumer.record_builders import deserialized, to_records
from kafkalike.consumer.subscription import Subscription
from kafkalike.errors import CommitFailedError, IllegalStateError, KafkaTimeoutError, RecordDeserializationError
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, Chunk
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.structs import TopicPartition
from kafkalike.model.topic import TopicInfo


def topic(name: str, partitions: int = 1, topic_id: str = "id") -> TopicInfo:
    return TopicInfo(name=TopicName(name), topic_id=TopicId(topic_id), location=name, num_partitions=partitions)


def chunk(*values: bytes | None, partition: int = 3, first: int = 10) -> Chunk:
    rows = [
        {"offset": first + n, "timestamp": 5_999, "timestampType": 1, "key": None, "value": v, "headers": None}
        for n, v in enumerate(values)
    ]
    return Chunk(partition, pa.Table.from_pylist(rows, schema=CHUNK_SCHEMA), first + len(values))


# --- subscription ------------------------------------------------------------------------------


def test_a_pattern_is_matched_at_the_begin_of_a_name() -> None:
    """kafka-python's `re.match`; internal names are passed over unless asked for."""
    known = {name: topic(name) for name in ("orders", "orders-eu", "my-orders", "__orders")}
    hidden, shown = Subscription(), Subscription(exclude_internal=False)

    for subscription in (hidden, shown):
        subscription.subscribe(pattern="(__)?orders")

    assert {tp.topic for tp in hidden.match(known)} == {"orders", "orders-eu"}
    assert {tp.topic for tp in shown.match(known)} == {"orders", "orders-eu", "__orders"}


def test_a_partition_of_another_topic_id_begins_anew() -> None:
    """Only partitions of the same life of a topic keep their position."""
    tp = TopicPartition("orders", 0)
    subscription = Subscription()
    subscription.subscribe(["orders"])
    subscription.apply({tp: "one"})
    subscription.require(tp).seek(7)

    subscription.apply({tp: "one"})
    kept = subscription.require(tp).position
    subscription.apply({tp: "two"})

    assert kept == 7
    assert subscription.require(tp).position is None


# --- records -----------------------------------------------------------------------------------


def test_timestamps_are_milliseconds_rounded_down() -> None:
    """The table keeps microseconds."""
    records, error = to_records("orders", chunk(b"a"))

    assert error is None
    assert (records[0].timestamp, records[0].timestamp_type, records[0].offset) == (5, 1, 10)


def test_headers_that_a_failing_deserializer_changed_are_whole_in_the_dead_letter() -> None:
    (raw,), _ = to_records("orders", chunk(b"a"))
    raw.headers.append(("trace", b"1"))

    def take_and_fail(topic: str, headers: Any, data: bytes | None) -> Any:
        headers.clear()
        raise ValueError(topic, data)

    with pytest.raises(RecordDeserializationError):
        deserialized(raw, None, take_and_fail)

    assert raw.headers == [("trace", b"1")]


def test_records_before_a_failure_are_made() -> None:
    """The error names the first record that could not be."""
    made, error = to_records(
        "orders", chunk(b"1", b"2", b"x", b"y"), None, lambda _topic, _headers, data: int(data or 0)
    )

    assert [record.value for record in made] == [1, 2]
    assert error is not None
    assert (error.topic, error.partition, error.offset, error.part) == ("orders", 3, 12, "value")


def test_the_earlier_one_of_two_failures_counts() -> None:
    """A key that fails at a later record than a value does not hide it."""

    def fail_at(content: bytes) -> Any:
        def deserialize(_topic: str, _headers: Any, data: bytes | None) -> bytes | None:
            if data == content:
                raise ValueError(data)
            return data

        return deserialize

    rows = chunk(b"a", b"b", b"c")
    with_keys = Chunk(3, rows.table.set_column(3, CHUNK_SCHEMA.field("key"), rows.table.column("value")), 13)

    made, error = to_records("orders", with_keys, fail_at(b"c"), fail_at(b"b"))

    assert [record.value for record in made] == [b"a"]
    assert error is not None
    assert (error.offset, error.part) == (11, "value")


# --- futures and guard -------------------------------------------------------------------------


def test_a_commit_future_answers_as_kafka_pythons() -> None:
    """Success and failure, with callbacks called at once."""
    heard: list[Any] = []
    good, bad = CommitFuture(), CommitFuture(KafkaTimeoutError("late"))

    good.add_callback(lambda value: heard.append(("ok", value))).add_errback(heard.append)
    bad.add_both(lambda outcome: heard.append(type(outcome)))
    good.chain(bad_sink := Sink())
    bad.chain(bad_sink)

    assert heard == [("ok", None), KafkaTimeoutError]
    assert bad_sink.heard == [None, bad.exception]
    assert (good.succeeded(), bad.failed(), bad.retriable(), good.retriable()) == (True, True, True, False)
    with pytest.raises(KafkaTimeoutError):
        bad.get(timeout=1)


class Sink:
    """What futures are chained to."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def success(self, value: Any) -> None:
        self.heard.append(value)

    def failure(self, e: Exception) -> None:
        self.heard.append(e)


def test_a_failing_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It does not hide the outcome."""

    def fail(outcome: object) -> None:
        raise ValueError(outcome)

    future = CommitFuture(CommitFailedError("over")).add_errback(fail)

    assert future.failed()
    assert "callback" in caplog.text


def test_a_guard_lets_one_thread_nest_and_keeps_others_out() -> None:
    """A listener may call back into the consumer; another thread may not."""
    guard = ThreadGuard("Thing")
    heard: list[Exception] = []

    def intrude() -> None:
        try:
            guard.enter()
        except IllegalStateError as error:
            heard.append(error)

    with guard, guard:
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()

    assert len(heard) == 1
    with guard:
        pass
