"""The planner of streams in the driver's process: the files that an idle query awaits, and small batches it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkalike import repartition
from kafkalike.connect import connect
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.spark.format import input_partitions
from kafkalike.spark.format.source_options import parse_options
from kafkalike.spark.reads.driver_stream import StreamPlanner, output_columns
from tests.tools.records import fill


class Query:
    """Asks a planner as `TopicStream` does."""

    def __init__(self, root: str, folder: Path | None = None, **given: str) -> None:
        options = {"kafka.bootstrap.servers": root, "startingOffsets": "earliest", **given}
        if "subscribePattern" not in given:
            options["subscribe"] = "t"
        parsed = parse_options(options)
        self._planner = StreamPlanner(parsed, None if folder is None else str(folder), output_columns(parsed))
        self.at: str = self.ask("initial")["offset"]

    def ask(self, call: str, first: str | None = None, second: str | None = None) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self._planner.apply(json.dumps({"call": call, "first": first, "second": second}))
        )
        assert "error" not in found, found
        return found

    def awaited(self) -> list[Path]:
        """Read everything; returns the files that the query then waits for."""
        while True:
            found = self.ask("latest", self.at)
            if found["offset"] == self.at:
                return [Path(file) for file in found["awaited"]]
            self.at = found["offset"]

    def batch(self) -> dict[str, Any]:
        """Plan the next batch, and go to its end."""
        start, self.at = self.at, self.ask("latest", self.at)["offset"]
        return self.ask("partitions", start, self.at)


@pytest.fixture
def topic(root: str) -> Cluster:
    cluster = connect(root)
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", "a", "b", "c")
    fill(cluster, "t", "d", partition=1)
    return cluster


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "scratch"
    made.mkdir()
    return made


NEWS: dict[str, Callable[[Cluster], object]] = {
    "records": lambda cluster: fill(cluster, "t", "e"),
    "retention": lambda cluster: cluster.move_log_start("t", {0: 2}, "retention", "r"),
    "deletion": lambda cluster: cluster.delete_topic("t"),
    "another topic": lambda cluster: cluster.create_topic("t2", 1, {}),
    "more partitions": lambda cluster: repartition("t", 4, cluster.root),
}


@pytest.mark.parametrize("happen", NEWS.values(), ids=NEWS)
def test_whatever_a_query_reads_next_first_makes_a_file_that_it_awaits(
    root: str, topic: Cluster, happen: Callable[[Cluster], object]
) -> None:
    query = Query(root, subscribePattern="t.*")
    files = query.awaited()
    before = [file.exists() for file in files]

    happen(topic)

    assert before == [False, False]
    assert any(file.exists() for file in files)


def test_files_that_another_reader_has_seen_meanwhile_are_awaited(root: str, topic: Cluster) -> None:
    query = Query(root)
    first = query.awaited()
    fill(topic, "t", "e")
    topic.log("t").refresh()

    assert any(file.exists() for file in first)
    assert not any(file.exists() for file in query.awaited())


@pytest.mark.parametrize(
    ("given", "calls"), [({"minOffsetsPerTrigger": "10"}, []), ({}, ["prepare"])], ids=["a delay", "its end"]
)
def test_query_that_waits_for_something_else_awaits_no_file(
    root: str, topic: Cluster, given: dict[str, str], calls: list[str]
) -> None:
    query = Query(root, None, **given)
    for call in calls:
        query.ask(call)

    assert query.awaited() == []


def rows_of(planned: dict[str, Any]) -> list[tuple[int, int, bytes]]:
    with pa.ipc.open_stream(planned["rows"]) as stream:
        return [(row["partition"], row["offset"], row["value"]) for row in stream.read_all().to_pylist()]


def test_small_batch_is_read_into_a_file_that_stays_until_the_next_one(root: str, topic: Cluster, folder: Path) -> None:
    query = Query(root, folder)
    start = query.at

    first = query.batch()
    again = query.ask("partitions", start, query.at)
    rows = rows_of(first)
    fill(topic, "t", "e")
    second = query.batch()

    assert rows == [(0, 0, b"a"), (0, 1, b"b"), (0, 2, b"c"), (1, 0, b"d")]
    assert again == first
    assert rows_of(second) == [(0, 3, b"e")]
    assert list(folder.iterdir()) == [Path(second["rows"])]
    query.ask("stop")
    assert not list(folder.iterdir())


def test_small_batch_that_no_file_can_take_is_left_to_its_task(root: str, topic: Cluster, folder: Path) -> None:
    query = Query(root, folder)
    folder.rmdir()

    planned = query.batch()

    assert [file["until"] for file in planned["tasks"][0]] == [3, 1]


@pytest.mark.parametrize("name", ["MOST_OFFSETS", "MOST_BYTES"])
def test_large_batch_is_left_to_tasks(
    root: str, topic: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(input_partitions, name, 3)

    planned = Query(root, folder).batch()

    assert "rows" not in planned
    assert [(file["partition"], file["from"], file["until"]) for file in planned["tasks"][0]] == [(0, 0, 3), (1, 0, 1)]
