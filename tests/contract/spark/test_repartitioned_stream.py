"""Streams whose topic is repartitioned read each record once, through restarts before and after it."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from kafkalike import repartition
from kafkalike.connect import connect
from kafkalike.errors import DataLossError
from kafkalike.model.record_batch import RecordBatch
from tests.contract.spark.test_source_stream_reader import Query

Values = list[str]


@pytest.fixture
def root(any_root: str) -> str:
    connect(any_root).create_topic("t", 2, {})
    return any_root


def fill(root: str, numbers: range) -> None:
    """Records with keys; in partition 1 they are even."""
    log = connect(root).log("t")
    made = RecordBatch()
    for n in numbers:
        made.add(n % log.info.num_partitions, b"key-%d" % (n % 7), b"%d" % n, log.clock.now_ms())
    log.append(made)


def values(found: list[tuple[str, int, int, str]] | None) -> Values:
    return sorted((value for *_, value in found or ()), key=int)


def numbers(wanted: range) -> Values:
    return [str(n) for n in wanted]


def test_stream_goes_on_at_its_offsets_in_all_partitions(root: str) -> None:
    fill(root, range(20))
    query = Query(root, startingOffsets="earliest")
    first = query.batch(ReadMaxRows(8))
    repartition("t", 4, root)
    fill(root, range(20, 30))

    rest = query.batch()

    assert values(first) + values(rest) == sorted(numbers(range(30)), key=lambda v: (v not in values(first), int(v)))
    assert query.batch() is None


def test_restart_after_the_repartition_reads_the_logged_batch_and_goes_on(root: str) -> None:
    """The batch was planned before it, with the old topic's id at both ends: a rerun has exactly its records."""
    fill(root, range(10))
    before = Query(root, startingOffsets="earliest")
    assert values(before.batch()) == numbers(range(10))
    fill(root, range(10, 16))
    before.log_next()
    repartition("t", 4, root)
    fill(root, range(16, 20))

    after = Query(root, before, startingOffsets="earliest")

    assert values(after.run_logged()) == numbers(range(10, 16))
    assert values(after.batch()) == numbers(range(16, 20))
    assert after.batch() is None


def test_query_up_to_now_reads_the_rest_after_the_repartition(root: str) -> None:
    """Its end is found in the new partitions, before it knows that its checkpoint has offsets of the old ones."""
    fill(root, range(10))
    before = Query(root, startingOffsets="earliest")
    before.batch()
    repartition("t", 4, root)
    fill(root, range(10, 20))
    after = Query(root, before, startingOffsets="earliest")
    after.reader.prepareForTriggerAvailableNow()
    fill(root, range(20, 30))

    assert values(after.batch()) == numbers(range(10, 20))
    assert after.batch() is None


def test_stream_of_partitions_by_number_fails_because_records_moved_away(root: str) -> None:
    fill(root, range(10))
    query = Query(root, assign='{"t": [0, 1]}', startingOffsets="earliest")
    query.batch()
    repartition("t", 4, root)

    with pytest.raises(DataLossError, match="topic id"):
        query.batch()
