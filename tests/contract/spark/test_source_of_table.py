"""The stream reader that continues a query of Delta's source, and the one that waits for news; without Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kafkalike.admin.testing import ManualClock
from kafkalike.connect import connect
from kafkalike.errors import CheckpointMismatchError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.spark.format.source_options import parse_options
from kafkalike.spark.format.stream_reader import MarkedReader, marked_ids, unmarked
from tests.tools.records import batch, fill


@pytest.fixture
def cluster(root: str) -> Cluster:
    """A topic of two partitions: three records, then a commit with two files, then one more record."""
    made: Any = connect(root)
    made.create_topic("t", 2, {})
    fill(made, "t", *"abc")
    made.log("t").append(batch((0, "d"), (1, "e")))
    fill(made, "t", "f", partition=1)
    assert isinstance(made, Cluster)
    return made


def reader(root: str, clock: ManualClock | None = None) -> MarkedReader:
    options = {"kafka.bootstrap.servers": root, "subscribe": "t", "startingOffsets": "earliest"}
    return MarkedReader(parse_options(options), clock or ManualClock())


def table_offsets(cluster: Cluster, version: int, index: int = -1, **given: Any) -> Any:
    """Offsets as Delta's source writes them: the next version to read, and the last file of it that was read."""
    return {
        "sourceVersion": 1,
        "reservoirId": cluster.log("t").info.table_id,
        "reservoirVersion": version,
        "index": index,
        "isStartingVersion": False,
        **given,
    }


def values(made: MarkedReader, start: Any, end: Any) -> list[str]:
    return sorted(
        row["value"].decode()
        for part in made.partitions(start, end)
        for rows in made.read(part)
        for row in rows.to_pylist()
    )


CASES = {
    "nothing read": (1, -1, [*"abcdef"]),
    "one version": (2, -1, [*"def"]),
    "one file of the next": (2, 0, [*"ef"]),
    "both files of it": (2, 1, ["f"]),
    "all": (4, -1, []),
}


@pytest.mark.parametrize(("version", "index", "expected"), CASES.values(), ids=CASES)
def test_query_of_deltas_source_continues_at_its_record(
    root: str, cluster: Cluster, version: int, index: int, expected: list[str]
) -> None:
    made, start = reader(root), table_offsets(cluster, version, index)

    end = made.latestOffset(start, ReadAllAvailable())

    assert values(made, start, end) == expected
    assert end == start if not expected else unmarked(end) == {"t": {"0": 4, "1": 2}}


def test_batch_that_deltas_source_planned_is_read_as_planned(root: str, cluster: Cluster) -> None:
    assert values(reader(root), table_offsets(cluster, 2), table_offsets(cluster, 3)) == ["d", "e"]


def test_ids_of_the_table_are_kept(root: str, cluster: Cluster) -> None:
    end = reader(root).latestOffset(table_offsets(cluster, 2), ReadAllAvailable())

    assert marked_ids(end) == {"t": cluster.log("t").info.table_id}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"isStartingVersion": True}, "first snapshot, which have no order", id="snapshot"),
        pytest.param({"reservoirId": "other"}, "not the table of a topic of this query", id="another table"),
        pytest.param({"index": None}, "first snapshot", id="damaged"),
    ],
)
def test_offsets_that_do_not_tell_the_records_are_refused(
    root: str, cluster: Cluster, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointMismatchError, match=message):
        reader(root).latestOffset(table_offsets(cluster, 2, **given), ReadAllAvailable())


def test_topic_created_again_is_refused(root: str, cluster: Cluster) -> None:
    start = table_offsets(cluster, 2)
    cluster.delete_topic("t")
    cluster.create_topic("t", 2, {})

    with pytest.raises(CheckpointMismatchError, match="deleted, or created again"):
        reader(root).latestOffset(start, ReadAllAvailable())


def test_idle_query_waits_for_news_between_looks(root: str, cluster: Cluster) -> None:
    """Not at its first calls, so that a query with little to do ends at once."""
    clock = ManualClock()
    made = reader(root, clock)
    start = made.latestOffset(made.initialOffset(), ReadAllAvailable())
    took = []
    for _ in range(4):
        before = clock.monotonic()
        assert made.latestOffset(start, ReadAllAvailable()) == start
        took.append(round(clock.monotonic() - before, 3))
        clock.sleep(0.5)

    assert took == [0, 0, 0, 0.05]
    fill(cluster, "t", "g")
    assert unmarked(made.latestOffset(start, ReadAllAvailable())) == {"t": {"0": 5, "1": 2}}
