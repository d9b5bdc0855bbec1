"""Writes of Spark to several topics: all or nothing, once, and a snapshot shows no part of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import kafkalike.spark as ks
from kafkalike import TopicPartition, snapshot
from kafkalike.connect import connect
from kafkalike.errors import (
    IllegalArgumentError,
    IllegalStateError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    TransactionAbortableError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.log.snapshots import Snapshot
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.spark.files.consume import FileTarget, consume
from kafkalike.spark.files.topic_export import export_topic
from tests.spark.workers.stream_together import TOPICS, copies
from tests.spark.workers.stream_together import copy as copy_stream
from tests.tools.children import Child, run, started
from tests.tools.clusters import on_disk
from tests.tools.findings import errors_of
from tests.tools.records import all_records, batch, make_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

WORKER = "tests.spark.workers.stream_together"


def frame(spark: SparkSession, *values: str, topic: str | None = None) -> DataFrame:
    rows = [(0, value, topic) for value in values]
    return spark.createDataFrame(rows, "partition INT, value STRING, topic STRING").coalesce(1)


def values(root: str, topic: str) -> list[str]:
    return [value for _, value in all_records(root, topic)[0]]


def committed(cluster: Cluster, group: str = "g", topic: str = "in") -> int:
    """The offset of partition 0 that a group has committed; 0 for none."""
    tp = TopicPartition(topic, 0)
    ids = {topic: cluster.topic(topic).topic_id}
    found = GroupOffsets.of(cluster, SYSTEM_CLOCK).committed(group, [tp], ids)
    return found[tp].offset if found else 0


@pytest.fixture
def topics(root: str) -> str:
    """A root with the three topics, and one that is read."""
    make_topic(root, *[(0, str(n)) for n in range(6)], partitions=1, topic="in")
    for topic in TOPICS:
        make_topic(root, partitions=1, topic=topic)
    return root


# --- the context manager -----------------------------------------------------------------------


def test_writes_and_offsets_are_there_together_at_the_end(spark: SparkSession, topics: str) -> None:
    """Nothing of them before; several writes to a topic keep their order; the id may be used again."""
    with ks.transaction("job", topics) as t:
        t.write(frame(spark, "1", "2"), "a")
        t.write(frame(spark, "3"), "b")
        t.write(frame(spark, "4"), "a")
        t.commit_offsets("g", {TopicPartition("in", 0): 5})
        assert [values(topics, topic) for topic in TOPICS] == [[], [], []]
        assert committed(on_disk(topics)) == 0

    assert t.written == {TopicPartition("a", 0): range(3), TopicPartition("b", 0): range(1)}
    assert [values(topics, topic) for topic in TOPICS] == [["1", "2", "4"], ["3"], []]
    assert committed(on_disk(topics)) == 5

    with t:
        t.write(frame(spark, "5"), "c")

    assert t.written == {TopicPartition("c", 0): range(1)}
    assert values(topics, "c") == ["5"]
    assert not list(Path(topics, "__transactions").rglob("*.*"))
    assert errors_of(topics) == []


def test_an_error_inside_leaves_nothing_and_the_next_one_works(spark: SparkSession, topics: str) -> None:
    """Also one of a record that its topic does not take; then the transaction may go on without the DataFrame."""
    on_disk(topics).set_configs("b", {"max.message.bytes": "200"})
    t = ks.transaction("job", topics)

    def fails() -> None:
        with t:
            t.write(frame(spark, "1"), "a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()

    with t:
        t.write(frame(spark, "2"), "a")
        with pytest.raises(MessageSizeTooLargeError):
            t.write(frame(spark, "x" * 500), "b")

    assert [values(topics, topic) for topic in TOPICS] == [["2"], [], []]
    assert not list(Path(topics, "__transactions").rglob("*.*"))


def once(patch: pytest.MonkeyPatch, place: str, error: BaseException) -> None:
    """Let the first visit of a place raise."""
    real, left = faults.point, [error]

    def point(name: str) -> None:
        real(name)
        if name == place and left:
            raise left.pop()

    patch.setattr(faults, "point", point)


@pytest.mark.parametrize("error", [KafkaStorageError("full"), KeyboardInterrupt()], ids=["storage", "ctrl-c"])
def test_a_dataframe_that_was_staged_in_part_is_not_committed_in_part(
    spark: SparkSession, topics: str, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """One of its topics has its rows when the error comes, which the program catches within the block."""
    t = ks.transaction("job", topics)
    once(monkeypatch, "together.staged", error)

    def goes_on() -> None:
        with t:
            with pytest.raises(type(error)):
                t.write(copies(frame(spark, "1")))
            t.write(frame(spark, "2"), "a")

    with pytest.raises(TransactionAbortableError, match="in part"):
        goes_on()
    assert [values(topics, topic) for topic in TOPICS] == [[], [], []]

    with t:
        t.write(copies(frame(spark, "3")))

    assert [values(topics, topic) for topic in TOPICS] == [["3"], ["3"], ["3"]]


@pytest.mark.parametrize("place", ["transaction.before_commit", "transaction.after_commit", "transaction.after_apply"])
def test_a_block_whose_end_was_interrupted_may_be_entered_again(
    spark: SparkSession, topics: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Ctrl-C in a notebook; what was decided by then is finished first."""
    t = ks.transaction("job", topics)
    once(monkeypatch, place, KeyboardInterrupt())

    def interrupted() -> None:
        with t:
            t.write(frame(spark, "1"), "a")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with t:
        t.write(frame(spark, "2"), "a")

    assert values(topics, "a") == (["2"] if place == "transaction.before_commit" else ["1", "2"])
    assert errors_of(topics) == []


def test_a_run_that_comes_again_under_its_version_computes_and_adds_nothing(spark: SparkSession, topics: str) -> None:
    failing = frame(spark, "1").selectExpr("partition", "CAST(raise_error('computed') AS STRING) AS value")
    with ks.transaction("job", topics, version=7) as first:
        first.write(frame(spark, "1"), "a")
        first.write(frame(spark, "2"), "b")

    with ks.transaction("job", topics, version=7) as again:
        again.write(failing, "a")
        again.write(failing, "b")

    assert not first.duplicate
    assert again.duplicate
    assert again.written == first.written
    assert [values(topics, topic) for topic in TOPICS] == [["1"], ["2"], []]
    third = ks.transaction("job", topics, version=6)
    with pytest.raises(OutOfOrderSequenceNumberError), third:
        pass
    with third.at(8) as later:
        later.write(frame(spark, "3"), "a")
    assert values(topics, "a") == ["1", "3"]


def test_whoever_begins_later_fences_the_others(spark: SparkSession, topics: str) -> None:
    """As `init_transactions` does, whatever kind of program it is."""

    def both() -> None:
        with ks.transaction("job", topics) as old:
            old.write(frame(spark, "1"), "a")
            with ks.transaction("job", topics) as new:
                new.write(frame(spark, "2"), "a")

    with pytest.raises(ProducerFencedError):
        both()

    assert values(topics, "a") == ["2"]


def test_calls_in_the_wrong_order_are_refused(spark: SparkSession, topics: str) -> None:
    t = ks.transaction("job", topics)
    with pytest.raises(IllegalStateError, match="no transaction"):
        t.write(frame(spark, "1"), "a")
    with pytest.raises(IllegalStateError, match="no transaction"):
        t.commit_offsets("g", {})
    with t, pytest.raises(IllegalStateError, match="open already"):
        t.__enter__()
    with t, pytest.raises(IllegalStateError, match="is open"):
        t.at(3)
    for bad in (-1, "1", True):
        with pytest.raises(IllegalArgumentError, match="version"):
            ks.transaction("job", topics, version=bad)  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="transactional id"):
        ks.transaction("", topics)


# --- a column of topics ------------------------------------------------------------------------


def test_a_dataframe_for_several_topics_is_written_whole_or_not_at_all(spark: SparkSession, topics: str) -> None:
    """One record that its topic does not take keeps the others out, too; and a rerun adds nothing."""
    on_disk(topics).set_configs("b", {"max.message.bytes": "200"})
    good = copies(frame(spark, "1", "2"))
    with pytest.raises(MessageSizeTooLargeError):
        ks.write(good.union(copies(frame(spark, "x" * 500))), None, topics)
    assert [values(topics, topic) for topic in TOPICS] == [[], [], []]

    done = ks.write(good, None, topics, txn_id="job", txn_version=1)
    again = ks.write(good, None, topics, txn_id="job", txn_version=1)

    assert again == done == {TopicPartition(topic, 0): range(2) for topic in TOPICS}
    assert again.duplicate
    ks.write(good, None, topics)
    ks.write(good, "a", topics, txn_id="job", txn_version=2)
    options = {"kafka.bootstrap.servers": topics, "txnAppId": "job", "txnVersion": "3"}
    for _ in range(2):
        good.write.format("kafkalike").mode("append").options(**options).save()
    assert [len(values(topics, topic)) for topic in TOPICS] == [12, 6, 6]
    assert errors_of(topics) == []


def test_a_write_to_one_topic_stays_one_table_commit(spark: SparkSession, topics: str) -> None:
    """Also where a column names it."""
    ks.write(frame(spark, "1", topic="a"), None, topics)
    ks.write(frame(spark, "2"), "a", topics, txn_id="job", txn_version=1)

    cluster = on_disk(topics)
    assert cluster.groups.refresh().seq == 0
    assert connect(topics).log("a").version == 2


# --- snapshots ---------------------------------------------------------------------------------


def test_topics_are_read_joined_consumed_and_exported_as_of_a_snapshot(
    spark: SparkSession, topics: str, tmp_path: Path
) -> None:
    """What comes later is not seen, nor a topic that is not part of it."""
    with ks.transaction("job", topics) as t:
        t.write(frame(spark, "1"), "a")
        t.write(frame(spark, "1"), "b")
        t.commit_offsets("g", {TopicPartition("in", 0): 1})
    taken = snapshot(["a", "b"], topics, groups="g")
    with t:
        t.write(frame(spark, "2"), "a")
        t.write(frame(spark, "2"), "b")
        t.commit_offsets("g", {TopicPartition("in", 0): 2})
    now = datetime.now(UTC)
    connect(topics).log("a").append(batch("3"))

    kept = Snapshot.from_json(taken.to_json())
    assert ks.read(spark, ["a", "b"], topics, as_of=kept).count() == 2
    assert ks.read(spark, ["a", "b"], topics, as_of=snapshot(["a", "b"], topics, as_of=now)).count() == 4
    views = ks.register_sql(spark, topics, as_of=kept, temporary=True)
    assert set(views) == {"a", "b"}
    joined = "SELECT CAST(a.value AS STRING) AS value FROM a FULL JOIN b ON a.value = b.value"
    assert [row.value for row in spark.sql(joined).collect()] == ["1"]
    offsets = spark.sql("SELECT group_id, committed_offset FROM kafkalike_consumer_offsets").collect()
    assert [tuple(row) for row in offsets] == [("g", 1)]
    copied = consume(spark, "a", FileTarget(format="json", path=str(tmp_path / "a")), topics, as_of=kept)
    exported = export_topic(spark, "a", str(tmp_path / "b"), topics, as_of=kept)
    assert copied.records == exported.records == 1
    with pytest.raises(IllegalArgumentError, match="no topic 'c'"):
        ks.read(spark, "c", topics, as_of=kept)
    with pytest.raises(IllegalArgumentError, match="as_of must be"):
        ks.read(spark, "a", topics, as_of=(kept, 1))  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="snapshot"):
        ks.read(spark, "a", topics, as_of=1.5)  # type: ignore[arg-type]


# --- streams -----------------------------------------------------------------------------------

PLACES = [
    "stream.before_write",
    "append.staged",
    "transaction.before_begin",
    "together.staged",
    "transaction.before_commit",
    "transaction.after_commit",
    "transaction.before_apply",
    "append.before_commit",
    "append.after_commit",
    "transaction.before_remove",
    "stream.after_write",
]
SEVERAL = {"together.staged", "transaction.before_apply", "append.before_commit", "append.after_commit"}
"""Visited for each topic."""
OFTEN = {("transaction.after_commit", 2)}
FAULTS = [
    pytest.param(place, nth, marks=pytest.mark.full if (place, nth) in OFTEN else pytest.mark.soak)
    for place in PLACES
    for nth in ((1,) if place == "transaction.before_begin" else (1, 2, 5) if place in SEVERAL else (1, 2))
]


def join(spark: SparkSession, root: str, taken: Snapshot) -> Sequence[Mapping[str, int]]:
    """For each value of the topics, in how many of them it is, as an analyst asks for it."""
    found = ks.read(spark, TOPICS, root, as_of=taken).groupBy("value").count().collect()
    return [{row["value"].decode(): row["count"]} for row in found]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "nth"), FAULTS)
def test_a_stream_into_three_topics_killed_anywhere_writes_each_batch_whole_and_once(
    spark: SparkSession, topics: str, tmp_path: Path, place: str, nth: int
) -> None:
    """With the offsets of its group. An analyst looks at it all the time, and never sees a part."""
    orders = {"root": topics, "checkpoint": str(tmp_path / "checkpoint")}
    with started(Child(WORKER, orders, {"KAFKALIKE_FAULT": f"{place}:kill@{nth}"})) as (driver,):
        driver.go()
        joined = -1
        while not driver.ended:
            taken = snapshot(TOPICS, topics, groups="g")
            at = sum(found.position.offset for found in taken.offsets["g"].values())
            assert {topic: sum(taken.topics[topic].ends.values()) for topic in TOPICS} == dict.fromkeys(TOPICS, at)
            if at != joined:
                # Again and again of the same moment, it would keep the cores from the driver.
                assert all(set(row.values()) == {len(TOPICS)} for row in join(spark, topics, taken))
                joined = at
            SYSTEM_CLOCK.sleep(0.02)
        driver.finish(-9)

    copy_stream(spark, orders)

    wanted = [str(n) for n in range(6)]
    assert {topic: values(topics, topic) for topic in TOPICS} == dict.fromkeys(TOPICS, wanted)
    assert committed(on_disk(topics)) == 6
    assert errors_of(topics) == []


@pytest.mark.slow
def test_a_stream_of_the_format_into_three_topics_is_decided_batch_by_batch(
    spark: SparkSession, topics: str, tmp_path: Path
) -> None:
    """A batch that runs again, as its commit was not noted, adds nothing; neither does a topic that was deleted."""
    checkpoint = tmp_path / "checkpoint"
    orders = {"root": topics, "checkpoint": str(checkpoint), "by_format": True}
    copy_stream(spark, orders)
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in newest.parent.glob(f"*{newest.name}*"):
        path.unlink()
    cluster = on_disk(topics)
    cluster.delete_topic("c")

    copy_stream(spark, orders)

    wanted = [str(n) for n in range(6)]
    assert {topic: values(topics, topic) for topic in TOPICS[:2]} == dict.fromkeys(TOPICS[:2], wanted)
    assert "c" not in on_disk(topics).topics()
    states = {listed.state.value for listed in on_disk(topics).transactions.listed()}
    assert states <= {"CompleteCommit", "Empty"}
    assert errors_of(topics) == []


@pytest.mark.full
@pytest.mark.slow
def test_a_driver_killed_after_the_decision_leaves_all_that_others_need(
    spark: SparkSession, topics: str, tmp_path: Path
) -> None:
    """A consumer, or whoever takes a snapshot, brings it into the topics: nobody starts the query again."""
    orders = {"root": topics, "checkpoint": str(tmp_path / "checkpoint")}
    run(WORKER, orders, {"KAFKALIKE_FAULT": "transaction.after_commit:kill"}, expected=-9)
    assert [values(topics, topic) for topic in TOPICS] == [[], [], []]

    taken = snapshot(TOPICS, topics)

    assert [values(topics, topic) for topic in TOPICS] == [["0", "1"]] * 3
    assert ks.read(spark, TOPICS, topics, as_of=taken).count() == 6
