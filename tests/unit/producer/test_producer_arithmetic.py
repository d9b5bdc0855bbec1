"""Properties of the producer's arithmetic: offsets, partitions, and which records of a batch are bad."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import KafkaError
from kafkalike.log.topic.record_rules import check_batch, refused_rows
from kafkalike.model.config.topic_config import TopicConfig
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.partitioner import DefaultPartitioner, partition_for_key
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.topic import TopicInfo
from kafkalike.producer.future import BatchResult
from kafkalike.producer.producer_batch import UNROUTED, PartitionRouter

INFO = TopicInfo(name=TopicName("orders"), topic_id=TopicId("1"), location="orders", num_partitions=3)
STRICT = TopicConfig.from_properties(
    {"max.message.bytes": "100", "message.timestamp.before.max.ms": "50", "cleanup.policy": "compact"}
)
KEYS = st.none() | st.binary(max_size=40)
ROWS = st.lists(st.tuples(st.integers(0, 2), KEYS, KEYS, st.integers(900, 1000)), min_size=1, max_size=40)


def batch_of(rows: list[tuple[int, bytes | None, bytes | None, int]]) -> RecordBatch:
    """Rows as columns."""
    batch = RecordBatch()
    for partition, key, value, timestamp in rows:
        batch.add(partition, key, value, timestamp)
    return batch


def verdict(row: tuple[int, bytes | None, bytes | None, int]) -> str:
    """What the check says of a record alone."""
    try:
        check_batch(batch_of([row]), INFO, STRICT, 1000)
    except KafkaError as error:
        return repr(error)
    return ""


@given(ROWS)
def test_the_bad_records_of_a_batch_are_those_that_are_bad_alone(
    rows: list[tuple[int, bytes | None, bytes | None, int]],
) -> None:
    """And each for its own reason."""
    found = refused_rows(batch_of(rows), INFO, STRICT, 1000)

    assert {row: repr(error) for row, error in found.items()} == {
        number: said for number, row in enumerate(rows) if (said := verdict(row))
    }


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1), st.integers(0, 99))
def test_offsets_are_dense_over_the_records_that_were_written(rows: list[tuple[int, bool]], start: int) -> None:
    """A refused record leaves no gap, whatever partitions the others go to."""
    written = [[n for n, (p, bad) in enumerate(rows) if p == partition and not bad] for partition in range(4)]
    ranges = {p: range(start, start + len(numbers)) for p, numbers in enumerate(written) if numbers}
    outcome = BatchResult("orders", 0)

    outcome.succeed(
        [p for p, _ in rows], ranges, None, {n: KafkaError("bad") for n, (_, bad) in enumerate(rows) if bad}
    )

    assert [[outcome.place_of(n, 0)[1] for n in numbers] for numbers in written] == [
        list(range(start, start + len(numbers))) for numbers in written
    ]


@given(st.lists(st.tuples(st.just(UNROUTED) | st.integers(0, 4), KEYS), min_size=1), st.integers(1, 5))
def test_a_batch_is_routed_as_its_records_would_be(rows: list[tuple[int, bytes | None]], num_partitions: int) -> None:
    """Explicit partitions stay, keys go by their hash, the rest goes to some partition of the topic."""
    rows = [(partition % num_partitions if partition != UNROUTED else UNROUTED, key) for partition, key in rows]
    batch = batch_of([(partition, key, b"v", 0) for partition, key in rows])

    PartitionRouter(DefaultPartitioner(rng=Random(1)), 1).route(batch, num_partitions)

    for (before, key), after in zip(rows, batch.partitions, strict=True):
        if before != UNROUTED:
            assert after == before
        elif key is not None:
            assert after == partition_for_key(key, num_partitions)
        else:
            assert 0 <= after < num_partitions
