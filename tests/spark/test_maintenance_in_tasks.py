"""Maintenance whose files are read and written by Spark's tasks: the same result, through retries and crashes."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafkalike.cli.jobs import retention as job
from kafkalike.errors import KafkaStorageError
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.file_tasks import SparkTasks, Tasks
from kafkalike.maintenance.maintenance_report import FAILED
from kafkalike.maintenance.maintenance_run import TopicReport, maintain
from kafkalike.maintenance.works.topic_compaction import Compacted, DuePass, checkpoints_of, compact
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.maintenance.log_cleanup import Cleaned, CompactionPlan
from tests.tools.children import run as run_worker
from tests.tools.findings import errors_of
from tests.tools.upkeep import AT_ONCE, EAGER, HOUR_MS, open_cluster, pairs_of, topic, turns, upkeep

NOW = SYSTEM_CLOCK.now_ms()
PARTITIONS = 3


def fill(root: str, settings: dict[str, str]) -> TopicLog:
    """Six appends to three partitions: keys that come again, tombstones, headers, a key of one partition only."""
    log = topic(root, "t", PARTITIONS, settings)
    for made in turns(60, PARTITIONS, NOW):
        log.append(made, codec="zstd")
    return log


@pytest.fixture
def keys(root: str) -> TopicLog:
    return fill(root, EAGER)


@pytest.fixture
def twin(root: str, tmp_path: Path) -> Callable[[], TopicLog]:
    """A copy of the root as it is now."""

    def copy() -> TopicLog:
        shutil.copytree(root, tmp_path / "twin")
        return open_cluster(str(tmp_path / "twin")).log("t")

    return copy


def root_of(log: TopicLog) -> str:
    return str(Path(log.files.uri).parent)


def records_of(log: TopicLog) -> list[list[tuple[int, str | None, str | None]]]:
    return [pairs_of(log, p) for p in range(PARTITIONS)]


def layout_of(log: TopicLog) -> list[tuple[int, int, int, int]]:
    """Partition, offsets and number of records of each file."""
    log.refresh()
    return [(s.partition, s.start, s.stop, s.num_records) for p in range(PARTITIONS) for s in log.segments(p)]


def files_on_disk(log: TopicLog) -> set[str]:
    folder = Path(log.files.uri)
    return {str(path.relative_to(folder)) for path in folder.glob("partition=*/*.parquet")}


def spark_jobs(spark: SparkSession) -> set[int]:
    """Numbers of the jobs that Spark knows: it forgets the oldest of a thousand."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    return set(context.statusTracker().getJobIdsForGroup(None))


# --- the same result -------------------------------------------------------------------------------


def test_compaction_in_tasks_leaves_what_compaction_in_this_process_leaves(
    spark: SparkSession, root: str, keys: TopicLog, twin: Callable[[], TopicLog]
) -> None:
    """Records, offsets, files, checkpoints and counts; a second run goes on from there."""
    here = twin()
    cluster = open_cluster(root)

    for _ in range(2):
        (done,) = maintain(cluster, ["t"], clock=SYSTEM_CLOCK, works=["compaction"], spark=spark).topics
        expected = upkeep(root_of(here), works=["compaction"])

        assert records_of(keys) == records_of(here)
        assert layout_of(keys) == layout_of(here)
        assert [checkpoints_of(keys)[p].dirty for p in range(PARTITIONS)] == [100] * PARTITIONS
        assert counts_of(done) == counts_of(expected)
        # The first time keys go, the second time tombstones.
        assert done.compacted_records > 0
    assert errors_of(root) == []


def counts_of(done: TopicReport) -> list[object]:
    return [done.compacted_records, done.compacted_tombstones, done.compacted_segments, done.compaction_reasons]


def test_merging_in_tasks_leaves_what_merging_in_this_process_leaves(
    spark: SparkSession, root: str, twin: Callable[[], TopicLog]
) -> None:
    """Records and files; nothing stays behind."""
    log = fill(root, {**AT_ONCE, "retention.ms": "-1"})
    here = twin()
    before = records_of(log)

    (done,) = maintain(open_cluster(root), ["t"], clock=SYSTEM_CLOCK, spark=spark).topics
    upkeep(root_of(here))

    assert (done.merged_segments, done.merged_files) == (6 * PARTITIONS, PARTITIONS)
    assert records_of(log) == before
    assert layout_of(log) == layout_of(here)
    assert files_on_disk(log) == log.live_paths()


def test_a_dry_run_in_tasks_counts_and_writes_nothing(spark: SparkSession, root: str, keys: TopicLog) -> None:
    """No file and no version."""
    before, files = keys.version, files_on_disk(keys)

    (planned,) = maintain(open_cluster(root), ["t"], clock=SYSTEM_CLOCK, dry_run=True, spark=spark).topics
    keys.refresh()

    assert planned.compacted_records > 0
    assert (keys.version, files_on_disk(keys)) == (before, files)


def test_the_job_uses_the_session_at_hand(spark: SparkSession, root: str, keys: TopicLog) -> None:
    """Without one it would start none."""
    before = spark_jobs(spark)

    assert job.main(["--bootstrap-server", root, "--only", "compaction"]) == 0

    assert len(spark_jobs(spark) - before) == PARTITIONS
    assert errors_of(root) == []


# --- failures --------------------------------------------------------------------------------------


class Troubled:
    """Spark's tasks, each of which does its work and then fails; once, or every time."""

    def __init__(self, spark: SparkSession, folder: Path, *, always: bool = False) -> None:
        self._tasks = SparkTasks(spark)
        self._folder = str(folder)
        self._always = always

    def run(self, work: Any, jobs: Iterable[Any], budget: Deadline) -> Iterator[Any]:
        folder, always = self._folder, self._always

        def fails(given: Any, left: Deadline) -> Iterator[Any]:
            import os

            yield from work(given, left)
            marker = f"{folder}/failed-{given.plan.partition}"
            if always or not os.path.exists(marker):  # noqa: PTH110 - runs in Spark's Python
                open(marker, "w").close()  # noqa: PTH123
                message = "the disk of this executor is full"
                raise OSError(message)

        yield from self._tasks.run(fails, jobs, budget)


def passes(log: TopicLog) -> list[DuePass]:
    """All but the last file of each partition are dirty."""
    log.refresh()
    return [
        DuePass(
            plan=CompactionPlan(
                partition=p,
                clean=(),
                dirty=tuple(log.segments(p)[:-1]),
                untouched=tuple(log.segments(p)[-1:]),
                tombstones_below=0,
                reason="asked",
            ),
            cleaned=Cleaned(),
        )
        for p in log.info.partitions
    ]


def compacted(log: TopicLog, tasks: Tasks, budget_ms: float | None = None) -> list[Compacted]:
    budget = Deadline(SYSTEM_CLOCK, budget_ms)
    options: dict[str, Any] = {"clock": SYSTEM_CLOCK, "buffer_bytes": 1 << 20, "budget": budget, "tasks": tasks}
    return list(compact(log, log.files, passes(log), "run", **options))


def test_a_task_that_is_tried_again_leaves_each_record_once(
    spark: SparkSession, root: str, tmp_path: Path, keys: TopicLog, twin: Callable[[], TopicLog]
) -> None:
    """The files of the first attempts have names of their own, which no table version has ever known."""
    here = twin()
    upkeep(root_of(here), works=["compaction"])
    before = files_on_disk(keys)

    done = compacted(keys, Troubled(spark, tmp_path))

    assert len(list(tmp_path.glob("failed-*"))) == PARTITIONS
    assert all(d.complete for d in done)
    assert records_of(keys) == records_of(here)
    assert errors_of(root) == []
    orphans = files_on_disk(keys) - before - keys.live_paths()
    assert len(orphans) == sum(d.files for d in done)


def test_a_task_that_always_fails_fails_the_work_and_changes_nothing(
    spark: SparkSession, root: str, tmp_path: Path, keys: TopicLog
) -> None:
    """The next run does it."""
    before = records_of(keys)

    with pytest.raises(KafkaStorageError, match="the disk of this executor is full"):
        compacted(keys, Troubled(spark, tmp_path, always=True))

    assert records_of(keys) == before
    assert upkeep(root, works=["compaction"]).compacted_records > 0
    assert errors_of(root) == []


def test_a_damaged_file_is_named_and_not_tried_again(spark: SparkSession, root: str, keys: TopicLog) -> None:
    """Trying again would not mend it; nothing readable is lost."""
    keys.refresh()
    victim = keys.segments(1)[0]
    Path(keys.files.uri, victim.path).write_bytes(b"damage")

    (done,) = maintain(open_cluster(root), ["t"], clock=SYSTEM_CLOCK, works=["compaction"], spark=spark).topics

    keys.refresh()
    assert done.status == FAILED
    assert victim.path in done.problems[0]
    assert victim.path in keys.live_paths()


def test_a_pass_in_tasks_ends_when_time_is_out(spark: SparkSession, keys: TopicLog) -> None:
    """It has done nothing and counts nothing as clean."""
    version = keys.version

    done = compacted(keys, SparkTasks(spark), budget_ms=0)

    keys.refresh()
    assert [(d.complete, d.files) for d in done] == [(False, 0)] * PARTITIONS
    assert keys.version == version


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_driver_that_is_killed_leaves_the_table_whole_and_the_next_run_finishes(
    root: str, twin: Callable[[], TopicLog]
) -> None:
    """Killed when it would commit what a second task has written: that file is named by nobody."""
    keys = fill(root, {**EAGER, "delete.retention.ms": str(HOUR_MS)})
    here = twin()
    upkeep(root_of(here), works=["compaction"])
    before = files_on_disk(keys)
    latest = {(p, key): last for p, found in enumerate(records_of(keys)) for last, key, _ in found}

    fault = {"KAFKALIKE_FAULT": "compaction.before_commit:kill@3"}
    orders = {"root": root, "master": "local[2]", "runs": [["compaction"]]}
    run_worker("tests.spark.workers.maintain", orders, fault, expected=-9)

    between = {(p, key): last for p, found in enumerate(records_of(keys)) for last, key, _ in found}
    assert between == latest
    assert sorted(c.dirty for c in checkpoints_of(keys).values()) == [0, 0, 100]
    assert errors_of(root) == []
    assert files_on_disk(keys) - before - keys.live_paths()
    upkeep(root, works=["compaction"])
    assert records_of(keys) == records_of(here)
    assert errors_of(root) == []
