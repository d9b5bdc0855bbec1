"""Maintenance in the tasks of a Spark of several processes: executors rewrite the files, the driver commits them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalike.maintenance.maintenance_run import WORKS
from kafkalike.maintenance.verify.topic_history import topic_history
from kafkalike.maintenance.works.topic_compaction import checkpoints_of
from kafkalike.model.clock import SYSTEM_CLOCK
from tests.tools.children import run as run_worker
from tests.tools.findings import errors_of
from tests.tools.upkeep import AT_ONCE, EAGER, open_cluster, run, topic, turns

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(500)]

NOW = SYSTEM_CLOCK.now_ms()
PARTITIONS = 4
CLUSTER_PATIENCE = 400.0
"""Seconds for three JVMs and their Python workers on a machine that others use too."""


def fill(root: str) -> None:
    """Six appends to two topics: keys that come again, tombstones, headers; `keys` is compacted, `all` is merged."""
    logs = [
        topic(root, "all", PARTITIONS, {**AT_ONCE, "retention.ms": "-1"}),
        topic(root, "keys", PARTITIONS, EAGER),
    ]
    for made in turns(80, PARTITIONS, NOW):
        for log in logs:
            log.append(made, codec="zstd")


def state_of(root: str, name: str) -> dict[str, Any]:
    """All that can be read of a topic, in which files it is, how far it is clean, and what its log says was done."""
    cluster = open_cluster(root)
    log = cluster.log(name)
    records: list[dict[str, Any]] = []
    for partition in log.info.partitions:
        reader = log.reader(partition, log.log_start(partition))
        while (chunk := reader.read(1 << 20)) is not None:
            records += chunk.table.append_column("partition", [[partition] * len(chunk)]).to_pylist()
    folder = Path(log.files.uri)
    return {
        "records": records,
        "ends": [(log.log_start(p), log.log_end(p)) for p in log.info.partitions],
        "files": [(s.partition, s.start, s.stop, s.num_records) for p in log.info.partitions for s in log.segments(p)],
        "orphans": {str(path.relative_to(folder)) for path in folder.glob("partition=*/*.parquet")} - log.live_paths(),
        "clean": {p: found.dirty for p, found in checkpoints_of(log).items()},
        # Partitions are committed in the order in which their tasks end.
        "history": sorted((event.kind, event.what) for event in topic_history(cluster, name)),
    }


def figures(report: dict[str, Any]) -> list[dict[str, Any]]:
    """What a run tells about each topic, but for how long it took."""
    return [{name: value for name, value in told.items() if name != "seconds"} for told in report["topics"]]


def test_executors_of_a_local_cluster_maintain_topics_as_this_process_does(root: str, tmp_path: Path) -> None:
    """Records, files, checkpoints, commits and reports; the first run takes keys, the second one tombstones."""
    fill(root)
    here = str(shutil.copytree(root, tmp_path / "here"))

    orders = {"root": root, "master": "local-cluster[2,1,1024]", "runs": [WORKS] * 2}
    told = json.loads(run_worker("tests.spark.workers.maintain", orders, patience=CLUSTER_PATIENCE).splitlines()[-1])
    expected = [run(here).as_dict() for _ in range(2)]

    merged, compacted = told["reports"][0]["topics"]
    assert (merged["merged_segments"], merged["merged_files"]) == (6 * PARTITIONS, PARTITIONS)
    assert list(compacted["compaction_reasons"]) == [str(p) for p in range(PARTITIONS)]
    assert min(compacted["compacted_records"], told["reports"][1]["topics"][1]["compacted_tombstones"]) > 0
    # Two passes over each partition of `keys`, one round of merges: all of it on executors, as there is nowhere else.
    assert told["jobs"] == 2 * PARTITIONS + 1
    assert [figures(report) for report in told["reports"]] == [figures(report) for report in expected]
    for name in ("all", "keys"):
        assert state_of(root, name) == state_of(here, name)
        assert state_of(root, name)["orphans"] == set()
    assert errors_of(root) == []
