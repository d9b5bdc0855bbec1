"""What the consumer hands out: deserialised records, Arrow tables, answers; over both clusters."""

from collections.abc import Sequence

import pytest

from kafkalike.errors import (
    RecordDeserializationError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.chunk import ARROW_SCHEMA
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import OffsetAndTimestamp, TopicPartition
from kafkalike.schemas.serialization import deserializer_for
from tests.tools.consumer import T0, T1, Make, poll_often, write

# --- deserialisers ---------------------------------------------------------------------------


def test_deserialisers_take_every_form_of_kafka_pythons(cluster: Cluster, consumer_of: Make) -> None:
    """A callable and a 3.x object, also for a tombstone; sizes are those of the bytes."""

    class Upper:
        def deserialize(self, topic: str, headers: Sequence[tuple[str, bytes]], data: bytes) -> str:
            return f"{topic}/{len(headers)}/{data.decode().upper()}"

    cluster.create_topic("orders", 1, {})
    write(cluster, b"7", None, headers=[("h", b"1")])
    consumer = consumer_of(
        "orders", key_deserializer=Upper(), value_deserializer=lambda data: "none" if data is None else int(data)
    )

    first, second = consumer.poll()[T0]

    assert (first.key, first.value, first.serialized_value_size) == ("orders/1/KEY", 7, 1)
    assert (second.value, second.serialized_value_size) == ("none", -1)


def test_a_ready_made_deserialiser_leaves_none_alone(cluster: Cluster, consumer_of: Make) -> None:
    """Kafka's formats have no bytes for None, so none stays none."""
    cluster.create_topic("orders", 1, {})
    write(cluster, b"7", None)
    consumer = consumer_of("orders", value_deserializer=deserializer_for("json"))

    assert [record.value for record in consumer.poll()[T0]] == [7, None]


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


# --- Arrow -----------------------------------------------------------------------------------


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


# --- questions -------------------------------------------------------------------------------


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
