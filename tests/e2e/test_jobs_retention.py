"""`jobs/retention.py` by spark-submit: a root with much to do in; all of it done, and told as it is, out."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafkalike.maintenance.maintenance_report import DONE, NOTHING
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch
from tests.e2e.conftest import Run
from tests.tools.records import all_records, batch
from tests.tools.submit import submit
from tests.tools.upkeep import AT_ONCE, EAGER, HOUR_MS, open_cluster, pairs_of, topic

NOW = SYSTEM_CLOCK.now_ms()
TURNS = 8
OLD = 2
"""Turns past `retention.ms`."""


def fill(root: str) -> None:
    """`orders` has old records, `users` the same two keys per partition in each append; both have small files."""
    orders = topic(root, "orders", 2, {**AT_ONCE, "retention.ms": str(HOUR_MS)})
    users = topic(root, "users", 2, {**EAGER, "delete.retention.ms": str(HOUR_MS)})
    for turn in range(TURNS):
        orders.append(batch((0, f"a{turn}"), (1, f"b{turn}"), at_ms=NOW - (2 * HOUR_MS if turn < OLD else 0)))
        made = RecordBatch()
        for number in range(4):
            made.add(number % 2, b"user-%d" % number, b"%d" % turn, NOW + 10 * turn)
        users.append(made)


def files_of(root: str, name: str) -> tuple[set[str], set[str]]:
    """Data files of a topic: on the disk, and those that the table names."""
    folder = Path(root, name)
    on_disk = {str(path.relative_to(folder)) for path in folder.glob("partition=*/*.parquet")}
    return on_disk, set(open_cluster(root).log(name).live_paths())


def retention(root: str, events: Path) -> tuple[dict[str, Any], int]:
    """The job's report, and how many jobs Spark has run for it."""
    events.mkdir()
    told = {"enabled": "true", "compress": "false", "rolling.enabled": "false", "dir": events.as_uri()}
    conf = {f"spark.eventLog.{name}": value for name, value in told.items()}
    done = submit("retention", "--bootstrap-server", root, "--max-minutes", "20", "--json", conf=conf)
    assert done.returncode == 0, done.stderr
    (log,) = events.iterdir()
    happened = [json.loads(line)["Event"] for line in log.read_text().splitlines()]
    report: dict[str, Any] = json.loads(done.stdout)
    return report, happened.count("SparkListenerJobStart")


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_spark_submit_does_what_is_due_and_finds_nothing_the_second_time(
    root: str, kafkalike: Run, tmp_path: Path
) -> None:
    """Deleted, compacted, merged and vacuumed as the report says; `kafkalike verify` finds a sound cluster."""
    fill(root)

    first, jobs = retention(root, tmp_path / "first")
    users = [pairs_of(open_cluster(root).log("users"), p) for p in range(2)]
    second, later_jobs = retention(root, tmp_path / "second")
    verified = kafkalike("verify")

    orders_told, users_told = first["topics"]
    assert [t["status"] for t in first["topics"]] == [DONE, DONE]
    assert orders_told["log_starts"] == {"0": [0, OLD], "1": [0, OLD]}
    assert (orders_told["deleted_records"], orders_told["deleted_segments"]) == (2 * OLD, 2 * OLD)
    assert (orders_told["merged_segments"], orders_told["merged_files"]) == (2 * (TURNS - OLD), 2)
    assert all_records(root, "orders") == {p: [(n, f"{'ab'[p]}{n}") for n in range(OLD, TURNS)] for p in range(2)}
    # All but the last append of a compacted topic are clean, and each has two keys in a partition.
    assert users_told["compacted_records"] == 2 * 2 * (TURNS - 2)
    tail = range(2 * (TURNS - 2), 2 * TURNS)
    assert users == [[(n, f"user-{2 * (n % 2) + p}", str(n // 2)) for n in tail] for p in range(2)]
    for name in ("orders", "users"):
        on_disk, named = files_of(root, name)
        assert on_disk == named
    assert (second["exit_code"], [t["status"] for t in second["topics"]]) == (0, [NOTHING, NOTHING])
    # A job for each partition that was compacted, one for the merges.
    assert (jobs, later_jobs) == (3, 0)
    assert verified.returncode == 0, verified.stdout
