"""A stream's driver is killed at each step of a batch; started again, it has written each record once, in order."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafkalike import snapshot
from kafkalike.connect import connect
from kafkalike.log.group.group_offsets import GroupOffsets, Membership
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from tests.spark.workers.format_sink import copy as copy_by_format
from tests.spark.workers.stream import copy
from tests.tools.children import run
from tests.tools.findings import errors_of
from tests.tools.letters import lettered
from tests.tools.records import all_records, batch, fill, make_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

WORKER = "tests.spark.workers.stream"
FORMAT_WORKER = "tests.spark.workers.format_sink"
LINES = [["a", "b"], ["c"], ["d", "e"]]
"""Three batches."""

BEFORE = ["stream.before_write", "append.staged", "append.before_files", "append.before_commit", "commit.before"]
"""The batch is not there yet."""
AFTER = ["commit.after", "append.after_commit", "stream.after_write"]
"""The batch is there, and Spark does not know it."""
EVERYWHERE = [f"{place}:kill@{nth}" for place in BEFORE + AFTER for nth in (1, 2, 3)]
"""Each is visited at least once in each of the three batches."""


def killed(orders: dict[str, Any], fault: str) -> None:
    """Run the worker in a process of its own until the fault."""
    run(WORKER, orders, {"KAFKALIKE_FAULT": fault}, expected=-9)


def committed(root: str, topic: str = "in") -> dict[int, int]:
    """What the group has committed, by partition."""
    cluster = connect(root)
    info = cluster.topic(topic)
    wanted = [TopicPartition(topic, p) for p in info.partitions]
    found = GroupOffsets.of(cluster, SYSTEM_CLOCK).committed("copies", wanted, {topic: info.topic_id})
    return {tp.partition: position.offset for tp, position in found.items()}


def stands(root: str, offset: int) -> None:
    """Commit an offset of the group `before` in partition 0 of `in`."""
    cluster = connect(root)
    position = {TopicPartition("in", 0): OffsetAndMetadata(offset)}
    ids = {"in": cluster.topic("in").topic_id}
    GroupOffsets.of(cluster, SYSTEM_CLOCK).commit(Membership(group_id="before", client_id="test"), position, ids)


def marks(every: list[str], chosen: set[str]) -> list[Any]:
    """All places for the soak, a few for each run."""
    return [fault if fault in chosen else pytest.param(fault, marks=pytest.mark.soak) for fault in every]


@pytest.mark.parametrize("fault", marks(EVERYWHERE, set()))
def test_a_stream_killed_anywhere_has_written_each_line_once_after_its_restart(
    spark: SparkSession, root: str, tmp_path: Path, fault: str
) -> None:
    """Files go into a topic, a batch each."""
    make_topic(root, topic="out", partitions=1)
    for nth, lines in enumerate(LINES):
        (tmp_path / f"{nth}.txt").write_text("\n".join(lines) + "\n")
    orders = {
        "source": "files",
        "root": root,
        "folder": str(tmp_path / "*.txt"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "group": None,
    }
    killed(orders, fault)
    before = [value for _, value in all_records(root, "out")[0]]

    copy(spark, orders)

    wanted = [line for lines in LINES for line in lines]
    assert before in [wanted[:2], wanted[:3], wanted, []]
    assert all_records(root, "out") == {0: list(enumerate(wanted))}
    assert errors_of(root) == []


@pytest.mark.parametrize("fault", marks(EVERYWHERE, {"stream.after_write:kill@2"}))
def test_a_topic_copied_by_a_stream_killed_anywhere_is_the_same_after_its_restart(
    spark: SparkSession, root: str, tmp_path: Path, fault: str
) -> None:
    """Offsets and order too; the group never points past what is written, and at the end it points there."""
    source = make_topic(root, (0, "a"), (1, "b"), (0, "c"), topic="in")
    source.append(batch((1, "d"), (0, "e"), (1, "f")))
    make_topic(root, topic="out")
    orders = {
        "source": "topic",
        "root": root,
        "checkpoint": str(tmp_path / "checkpoint"),
        "group": "copies",
    }
    killed(orders, fault)
    # What is decided comes into the topic as soon as somebody looks.
    taken = snapshot("out", root)
    written = {p: len(records) for p, records in all_records(root, "out").items()}
    assert written == {**dict.fromkeys(written, 0), **taken.topics["out"].ends}
    assert all(offset == written[p] for p, offset in committed(root).items())

    copy(spark, orders)

    assert all_records(root, "out") == all_records(root, "in")
    assert committed(root) == {0: 3, 1: 3}
    assert errors_of(root) == []


PLANNING = ["source.ended", "source.planned", "source.handed", "source.taken"]
SHOWING = ["source.before_progress", "source.after_progress"]
IN_THE_PLANNER = [f"{place}:kill@{nth}" for place in PLANNING + SHOWING for nth in (1, 2, 3)]
"""The process that plans the batches, and hands over the small ones; each is visited in each of the three batches."""


@pytest.mark.parametrize("fault", marks(IN_THE_PLANNER, set()))
def test_a_stream_whose_planner_is_killed_anywhere_has_each_record_once_after_its_restart(
    spark: SparkSession, root: str, tmp_path: Path, fault: str
) -> None:
    """Small batches come out of the planner: one that was handed over in part, or not at all, is handed over again."""
    source = make_topic(root, (0, "a"), (1, "b"), (0, "c"), topic="in")
    source.append(batch((1, "d"), (0, "e"), (1, "f")))
    make_topic(root, topic="out")
    orders = {"source": "shown", "root": root, "checkpoint": str(tmp_path / "checkpoint"), "group": None}
    # Otherwise the driver is the planner.
    run(WORKER, orders, {"KAFKALIKE_FAULT": fault, "KAFKALIKE_SPARK_PLANS": "0"}, expected=1)
    written = {p: len(records) for p, records in all_records(root, "out").items()}
    assert sum(written.values()) in {0, 2, 4, 6}
    assert all(offset <= written[p] for p, offset in committed(root).items())

    copy(spark, orders)

    assert all_records(root, "out") == all_records(root, "in")
    assert committed(root) == {0: 3, 1: 3}
    assert errors_of(root) == []


@pytest.mark.parametrize("fault", marks(EVERYWHERE, set()))
def test_a_stream_that_began_where_a_group_stood_has_the_rest_once_wherever_it_is_killed(
    spark: SparkSession, root: str, tmp_path: Path, fault: str
) -> None:
    """The group moves on, and back, while the query is down: it goes on by its checkpoint."""
    make_topic(root, *[(0, value) for value in "abcdefg"], topic="in", partitions=1)
    make_topic(root, topic="out", partitions=1)
    stands(root, 2)
    orders = {"source": "committed", "root": root, "checkpoint": str(tmp_path / "checkpoint"), "group": None}
    killed(orders, fault)
    stands(root, 7 if fault.endswith("2") else 0)

    copy(spark, orders)

    assert all_records(root, "out") == {0: list(enumerate("cdefg"))}
    assert errors_of(root) == []


@pytest.mark.parametrize("fault", marks(EVERYWHERE, set()))
def test_a_table_copied_by_deltas_source_killed_anywhere_is_the_same_after_its_restart(
    spark: SparkSession, root: str, tmp_path: Path, fault: str
) -> None:
    """A file in each batch; the group never points past what is written."""
    source = make_topic(root, (0, "a"), (0, "b"), topic="in", partitions=1)
    source.append(batch((0, "c")))
    source.append(batch((0, "d"), (0, "e")))
    make_topic(root, topic="out", partitions=1)
    orders = {"source": "table", "root": root, "checkpoint": str(tmp_path / "checkpoint"), "group": "copies"}
    killed(orders, fault)
    assert committed(root).get(0, 0) <= snapshot("out", root).topics["out"].ends.get(0, 0)

    copy(spark, orders)

    assert all_records(root, "out") == all_records(root, "in")
    assert committed(root) == {0: 5}
    assert errors_of(root) == []


IN_A_TRANSACTION = ["together.staged", "transaction.before_commit", "transaction.after_commit"]
IN_EACH_TOPIC = ["transaction.before_apply", "append.before_commit", "append.after_commit"]
VISITED = dict.fromkeys([*BEFORE, *IN_A_TRANSACTION, *IN_EACH_TOPIC, AFTER[-1]])
LETTERS = [f"{place}:kill@{nth}" for place in VISITED for nth in (1, 2)]


@pytest.mark.parametrize("fault", marks(LETTERS, set()))
def test_a_stream_with_dead_letters_killed_anywhere_has_each_record_or_its_letter_once(
    spark: SparkSession, root: str, tmp_path: Path, fault: str
) -> None:
    """A batch is one decision of records, letters and offsets: before the restart, all of it is there or nothing."""
    values = [b'{"id": 0}', b"bad", b"worse", b'{"id": 3}', b'{"id": 4}', b"worst"]
    make_topic(root, topic="in", partitions=1)
    fill(connect(root), "in", *values)
    make_topic(root, topic="out", partitions=1)
    orders = {"source": "letters", "root": root, "checkpoint": str(tmp_path / "checkpoint"), "group": "copies"}
    killed(orders, fault)
    names = [name for name in ("out", "in.dlq") if name in connect(root).topics()]
    taken = snapshot(names, root, groups="copies")
    at = sum(position.position.offset for position in taken.offsets["copies"].values())
    assert sum(sum(taken.topics[name].ends.values()) for name in names) == at

    copy(spark, orders)

    assert [value for _, value in all_records(root, "out")[0]] == ["0", "3", "4"]
    assert lettered(connect(root), "in.dlq") == [(0, 1), (0, 2), (0, 5)]
    assert committed(root) == {0: 6}
    assert errors_of(root) == []


@pytest.mark.soak
@pytest.mark.parametrize(
    ("fault", "until", "there"),
    [
        ("append.after_commit:delay:600000@2", f"out/_delta_log/{2:020}.json", 2),
        ("append.before_commit:delay:600000@2", f"out/partition=0/part-{2:020}-*.parquet", 1),
    ],
)
def test_a_query_of_the_format_killed_at_its_commit_has_written_each_line_once_after_its_restart(
    spark: SparkSession, root: str, tmp_path: Path, fault: str, until: str, there: int
) -> None:
    """The JVM is killed while the process that commits is held; what was staged is removed at the restart."""
    make_topic(root, topic="out", partitions=1)
    for nth, lines in enumerate(LINES):
        (tmp_path / f"{nth}.txt").write_text("\n".join(lines) + "\n")
    orders = {"root": root, "folder": str(tmp_path / "*.txt"), "checkpoint": str(tmp_path / "checkpoint")}
    run(FORMAT_WORKER, {**orders, "until": until}, {"KAFKALIKE_FAULT": fault}, expected=-9)
    before = [value for _, value in all_records(root, "out")[0]]
    left = list(Path(root, "__staging").glob("*/owner.json"))

    copy_by_format(spark, orders)

    assert before == [line for lines in LINES[:there] for line in lines]
    assert len(left) == 1
    assert all_records(root, "out") == {0: list(enumerate(line for lines in LINES for line in lines))}
    assert list(Path(root, "__staging").iterdir()) == []
    assert errors_of(root) == []
