"""A Spark writer is killed or refused at each step of its table commit; a new process sends the same again."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkalike.spark import write
from tests.spark.workers.spark_write import VALUES
from tests.tools.children import run
from tests.tools.findings import errors_of
from tests.tools.records import all_records, make_topic
from tests.tools.shim import fault, preloaded

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

WORKER = "tests.spark.workers.spark_write"
OLD = {0: [(0, "old")], 1: []}
BOTH = {0: [(0, "old"), (1, "new-0"), (2, "new-2")], 1: [(0, "new-1"), (1, "new-3")]}
OFFSETS = {"0": [1, 2], "1": [0, 1]}
DATA = "/t/partition=0/part-"
COMMIT = "/t/_delta_log/0"


def send(root: str, env: Mapping[str, str], *, expected: int = 0, **orders: object) -> list[dict[str, object]]:
    """What a writer in a process of its own reports; nothing when it was killed."""
    output = run(WORKER, {"root": root, "tries": 1, "kills": "", **orders}, env, expected=expected)
    return json.loads(output.splitlines()[-1]) if expected == 0 else []


def assert_sent_once_more_is_there_once(spark: SparkSession, root: str) -> None:
    """A new process sends the same under the same id: old offsets or new ones, never both."""
    frame = spark.createDataFrame(VALUES, "partition INT, value STRING").coalesce(1)

    done = write(frame, "t", root, txn_id="app", txn_version=1)

    assert {str(tp.partition): list(run) for tp, run in done.items()} == OFFSETS
    assert all_records(root) == BOTH
    assert errors_of(root) == []


@pytest.mark.soak
@pytest.mark.parametrize("killed", ["worker", "jvm"])
def test_a_job_that_is_killed_while_it_stages_has_written_nothing(spark: SparkSession, root: str, killed: str) -> None:
    """Rows 1 and 2: a Python worker, or the JVM with all of them; the driver lives on, and is told so."""
    make_topic(root, (0, "old"))

    outcomes = send(root, {}, kills=killed)

    assert [outcome.get("error") for outcome in outcomes] == ["KafkaStorageError"]
    assert all_records(root) == OLD
    assert_sent_once_more_is_there_once(spark, root)


@pytest.mark.full
@pytest.mark.parametrize(
    ("place", "there"),
    [
        pytest.param("append.staged", OLD, marks=pytest.mark.soak),
        ("append.before_commit", OLD),
        ("append.after_commit", BOTH),
    ],
)
def test_a_driver_killed_at_its_commit_leaves_all_records_or_none_and_no_lock(
    spark: SparkSession, root: str, place: str, there: dict[int, list[tuple[int, str]]]
) -> None:
    """Rows 1 to 3 without anybody to ask: only the stable id keeps the rerun from adding a copy."""
    make_topic(root, (0, "old"))

    send(root, {"KAFKALIKE_FAULT": f"{place}:kill"}, expected=-9)

    assert all_records(root) == there
    assert len(list(Path(root, "__staging").glob("*/*.arrows"))) == 1
    assert_sent_once_more_is_there_once(spark, root)
    write(spark.createDataFrame([(0, "next")], "partition INT, value STRING"), "t", root)
    assert list(Path(root, "__staging").iterdir()) == []


@pytest.mark.soak
def test_a_full_disk_refuses_a_spark_write_and_the_next_one_works(
    spark: SparkSession, root: str, faultshim: Path
) -> None:
    """Row 27: the same process and session go on."""
    make_topic(root, (0, "old"))

    outcomes = send(root, preloaded(faultshim, fault("open", "enospc", DATA, nth=1)), tries=2)

    assert outcomes[0]["error"] == "KafkaStorageError"
    assert outcomes[1] == {"done": OFFSETS}
    assert_sent_once_more_is_there_once(spark, root)


@pytest.mark.soak
def test_a_commit_that_fails_at_first_is_there_once(spark: SparkSession, root: str, faultshim: Path) -> None:
    """The same put is tried again, and the rerun finds it."""
    make_topic(root, (0, "old"))

    outcomes = send(root, preloaded(faultshim, fault("link", "eio", COMMIT, nth=1)), tries=2)

    assert outcomes == [{"done": OFFSETS}] * 2
    assert_sent_once_more_is_there_once(spark, root)
