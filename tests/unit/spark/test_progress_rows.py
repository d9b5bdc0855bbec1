"""Rows of `stream_progress`: a progress report of Spark in, the lag by topic out; without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalike.admin.group_lag import Lags
from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.model.segments import MARK
from kafkalike.spark.checkpoint_progress import progress_rows
from tests.tools.records import fill


@pytest.fixture
def cluster(clock: ManualClock) -> MemoryCluster:
    """Three records of partition 0, 10 s apart, and two of partition 1, in two commits."""
    made = MemoryCluster(clock=clock)
    made.create_topic("t", 2, {})
    fill(made, "t", *"abc", at_ms=1_000, step_ms=10_000)
    fill(made, "t", *"de", at_ms=1_000, partition=1)
    return made


def report(end: object, **given: Any) -> dict[str, Any]:
    """A progress report of Spark 4.2, shortened."""
    return {
        "id": "q",
        "runId": "r",
        "name": "copy",
        "timestamp": "2026-11-27T00:00:00.000Z",
        "batchId": 7,
        "durationMs": {"triggerExecution": 90, "walCommit": 20, "commitOffsets": 10},
        "sources": [{"description": "DeltaSource[t]", "endOffset": end, "numInputRows": 2}],
        "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
        **given,
    }


def test_offsets_of_the_format_give_records_and_seconds_behind(cluster: MemoryCluster) -> None:
    ends = {"t": {"0": 1, "1": 2}, MARK: {"version": 2, "topics": {}}}
    observed = {"kafkalike_sink": {"numOutputRows": 2}}

    assert [dict(row) for row in progress_rows(report(ends, observedMetrics=observed), Lags(cluster))] == [
        {
            "time": "2026-11-27T00:00:00.000Z",
            "query": "copy",
            "query_id": "q",
            "run_id": "r",
            "batch_id": 7,
            "topic": "t",
            "engine": "kafkalike",
            "input_rows": 2,
            "lag_records": 2,
            "lag_seconds": 20.0,
            "output_rows": 2,
            "batch_ms": 90,
            "commit_ms": 30,
            "sink": "ForeachBatchSink",
        }
    ]


def test_offsets_of_deltas_source_give_the_lag_of_its_topic(cluster: MemoryCluster) -> None:
    log = cluster.log("t")
    after_first = log.version - 1
    end = {
        "sourceVersion": 1,
        "reservoirId": log.info.table_id,
        "reservoirVersion": after_first + 1,
        "index": -1,
        "isStartingVersion": False,
    }

    (row,) = progress_rows(report(end), Lags(cluster))

    assert (row["topic"], row["engine"], row["lag_records"], row["output_rows"]) == ("t", "delta", 2, None)


def test_source_of_another_format_has_no_lag(cluster: MemoryCluster) -> None:
    (row,) = progress_rows(report({"logOffset": 3}), Lags(cluster))

    assert (row["topic"], row["engine"], row["lag_records"], row["lag_seconds"]) == (None, "DeltaSource[t]", None, None)
