"""What only the log on Delta tables has to prove: long histories, damaged files, other processes."""

from __future__ import annotations

import json
import shutil
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafkalike.connect import connect
from kafkalike.delta.actions import log_name, parse_commit
from kafkalike.delta.log_files import CHECKPOINT_INTERVAL, LAST_CHECKPOINT, last_checkpoint
from kafkalike.errors import (
    CorruptRecordError,
    DataLossError,
    KafkaStorageError,
    KafkaTimeoutError,
    LogCorruptError,
    UnsupportedVersionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic import topic_log
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.model.clock import SYSTEM_CLOCK, SystemClock
from kafkalike.model.names import TopicName
from kafkalike.model.record_batch import TxnId
from kafkalike.producer import KafkaProducer
from kafkalike.storage.memory import MemoryStorage
from kafkalike.storage.parquet import open_parquet
from kafkalike.storage.table_lock import TableLock
from tests.tools.clusters import on_disk
from tests.tools.partitions import partition_values
from tests.tools.records import batch
from tests.tools.upkeep import ShiftedClock

MIB = 1024 * 1024


@pytest.fixture
def cluster(root: str) -> Cluster:
    return on_disk(root)


@pytest.fixture
def log(cluster: Cluster) -> TopicLog:
    """The log of a topic with 2 partitions."""
    cluster.create_topic("orders", 2, {})
    return cluster.log("orders")


# --- long histories ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_topic_with_300_commits_is_opened_afresh(cluster: Cluster, log: TopicLog) -> None:
    """Checkpoints included: offsets, records and reruns are what they were."""
    running = cluster.log("orders")
    for n in range(300):
        log.append(batch(str(n).encode(), partition=n % 2), txn=TxnId("early", 0) if n == 3 else None)

    cluster.settle()
    fresh = cluster.log("orders")
    running.refresh()

    assert Path(log.files.uri, "_delta_log", "_last_checkpoint").exists()
    for seen in (fresh, running, log):
        assert [seen.log_end(0), seen.log_end(1)] == [150, 150]
        assert partition_values(seen, 1) == [str(n).encode() for n in range(1, 300, 2)]
    rerun = fresh.append(batch(b"3", partition=1), txn=TxnId("early", 0))
    assert (rerun.duplicate, dict(rerun.ranges)) == (True, {1: range(1, 2)})


@pytest.mark.slow
@pytest.mark.parametrize("by", ["a writer", "maintenance"])
def test_a_log_that_names_a_checkpoint_it_does_not_have_gets_another_one(
    cluster: Cluster, log: TopicLog, by: str
) -> None:
    """As a copy of older files over newer ones may: else its log would grow for ever."""
    for n in range(CHECKPOINT_INTERVAL - 1):
        log.append(batch(str(n).encode()))
    log.files.replace(LAST_CHECKPOINT, b'{"version": 5000, "size": 1}')

    if by == "a writer":
        log.append(batch(b"99"))
        cluster.settle()
    else:
        log.clean_log()

    assert last_checkpoint(log.files) == log.version


@pytest.mark.slow
def test_control_tables_keep_their_state_over_checkpoints(cluster: Cluster, root: str) -> None:
    """More than a hundred changes of one topic, seen by a handle that starts now."""
    cluster.create_topic("orders", 1, {})
    for n in range(110):
        cluster.set_configs("orders", {"retention.ms": str(n)})

    cluster.settle()
    fresh = on_disk(root)

    assert Path(root, "__cluster_metadata", "_delta_log", "_last_checkpoint").exists()
    assert dict(fresh.topic("orders").configs) == {"retention.ms": "109"}


@pytest.mark.slow
def test_a_reader_survives_the_cleaning_of_the_log(cluster: Cluster, log: TopicLog) -> None:
    """A handle whose next version was cleaned away loads the table anew."""

    class Clock:
        ahead = 0.0

        def now_ms(self) -> int:
            return SYSTEM_CLOCK.now_ms()

        def monotonic(self) -> float:
            return SYSTEM_CLOCK.monotonic() + self.ahead

        def sleep(self, seconds: float) -> None:
            SYSTEM_CLOCK.sleep(seconds)

    clock = Clock()
    slow = on_disk(cluster.root, clock=clock).log("orders")
    for n in range(100):
        log.append(batch(str(n).encode()))
    cluster.settle()
    for version in range(60):
        Path(log.files.uri, log_name(version)).unlink()

    clock.ahead = 60.0
    slow.refresh()

    assert slow.log_end(0) == 100
    assert partition_values(slow) == [str(n).encode() for n in range(100)]


# --- checkpoints, which a thread of its own makes ------------------------------------------------


def append_past_a_checkpoint(log: TopicLog) -> None:
    """As many commits as make a checkpoint due."""
    for n in range(CHECKPOINT_INTERVAL):
        log.append(batch(str(n).encode()))


@pytest.mark.slow
def test_an_append_does_not_wait_for_a_checkpoint(cluster: Cluster, log: TopicLog) -> None:
    """While somebody else is at it no other is made either, and the next one that is due comes."""
    with TableLock(f"{cluster.root}/__locks", "condense~orders").held():
        append_past_a_checkpoint(log)
        cluster.settle()
    skipped = last_checkpoint(log.files)

    append_past_a_checkpoint(log)
    cluster.settle()

    assert skipped == -1
    assert last_checkpoint(log.files) == 2 * CHECKPOINT_INTERVAL
    assert cluster.log("orders").log_end(0) == 2 * CHECKPOINT_INTERVAL


@pytest.mark.slow
def test_checkpoint_with_many_removed_files_is_followed_by_another_one_later(cluster: Cluster, log: TopicLog) -> None:
    """Each writes all files that merging has removed in a week."""
    append_past_a_checkpoint(log)
    cluster.settle()
    log.files.replace(LAST_CHECKPOINT, b'{"version": 100, "size": 2500}')

    append_past_a_checkpoint(log)
    append_past_a_checkpoint(log)
    cluster.settle()
    early = last_checkpoint(log.files)
    append_past_a_checkpoint(log)
    cluster.settle()

    assert (early, last_checkpoint(log.files)) == (CHECKPOINT_INTERVAL, 4 * CHECKPOINT_INTERVAL)


@pytest.mark.slow
def test_a_producer_that_is_closed_writes_no_more(cluster: Cluster, log: TopicLog) -> None:
    """So its root may be removed at once: a checkpoint that is under way is waited for."""
    for _ in range(CHECKPOINT_INTERVAL - 1):
        log.append(batch(b"v"))
    producer = KafkaProducer(bootstrap_servers=cluster.root)
    producer.send("orders", b"the hundredth", partition=0)

    producer.close()

    assert last_checkpoint(log.files) == CHECKPOINT_INTERVAL


def test_a_checkpoint_that_comes_late_does_not_bring_a_deleted_topic_back(cluster: Cluster, log: TopicLog) -> None:
    """Nor does it get into the table of a new topic of that name."""
    log.append(batch(b"old"))
    cluster.delete_topic("orders")

    late = log.clean_log()
    gone = not Path(log.files.uri).exists()
    cluster.create_topic("orders", 1, {})
    later = log.clean_log()

    assert (late, gone, later) == (False, True, False)
    assert last_checkpoint(log.files) == -1


def test_a_topic_is_not_deleted_while_its_log_is_written_to(cluster: Cluster, log: TopicLog) -> None:
    """Who makes a checkpoint holds no other lock; the deletion waits for him, here no time at all."""
    log.append(batch(b"kept"))

    with (
        TableLock(f"{cluster.root}/__locks", "condense~orders").held(),
        pytest.raises(KafkaTimeoutError),
    ):
        on_disk(cluster.root, clock=OutOfTime()).delete_topic("orders")

    assert partition_values(cluster.log("orders")) == [b"kept"]


class OutOfTime(SystemClock):
    """Two minutes pass at each look."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 120.0
        return self._now


# --- what Delta shows others ---------------------------------------------------------------------


def test_other_delta_readers_see_topic_tables_as_plain_tables(log: TopicLog) -> None:
    """Lowest reader version, statistics of every file, and the columns in their order."""
    log.append(batch(b"a", b"b"))
    log.append(batch(b"c", partition=1))

    table = DeltaTable(log.files.uri)

    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 7)
    names = ["partition", "offset", "timestamp", "timestampType", "key", "value", "headers"]
    assert [field.name for field in table.schema().fields] == names
    rows = table.to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert rows.column("value").to_pylist() == [b"a", b"b", b"c"]
    assert rows.column("partition").to_pylist() == [0, 0, 1]


@pytest.mark.parametrize(("codec", "found"), [("none", "UNCOMPRESSED"), ("gzip", "GZIP"), ("zstd", "ZSTD")])
def test_a_topics_own_codec_wins_over_the_producers(cluster: Cluster, codec: str, found: str) -> None:
    """`compression.type` other than `producer`."""
    cluster.create_topic("packed", 1, {"compression.type": codec})
    log = cluster.log("packed")

    log.append(batch(b"x" * 1000), codec="snappy")

    (segment,) = log.segments(0)
    group = open_parquet(log.files, segment.path).metadata.row_group(0)
    assert {group.column(at).compression for at in range(group.num_columns)} == {found}


# --- several writers ---------------------------------------------------------------------------


def test_an_append_gives_up_when_others_hold_the_topic(log: TopicLog, root: str) -> None:
    """After its timeout, and nothing was written."""
    with TableLock(f"{root}/__locks", "orders").held(), pytest.raises(KafkaTimeoutError):
        log.append(batch(b"a"), timeout_ms=30)

    log.refresh()
    assert log.log_end(0) == 0


@pytest.mark.slow
def test_an_append_goes_on_while_a_stopped_process_holds_the_topic(
    cluster: Cluster, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version's file decides, not the lock; after the first wait it is only tried for a moment."""
    cluster.create_topic("orders", 1, {})
    monkeypatch.setattr(topic_log, "PATIENCE_SECONDS", 0.5)
    log = connect(root).log("orders")
    with TableLock(f"{root}/__locks", "orders").held():
        for value in (b"a", b"b"):
            log.append(batch(value), timeout_ms=30_000)
        connect(root).log("orders").append(batch(b"c"), timeout_ms=30_000)

    assert partition_values(on_disk(root).log("orders")) == [b"a", b"b", b"c"]


def test_one_that_waits_for_a_lock_does_something_else_meanwhile(root: str) -> None:
    """Between two tries, of which there is one more as long as somebody holds it."""
    holder = ExitStack()
    holder.enter_context(TableLock(f"{root}/__locks", "orders").held())
    done: list[str] = []

    def meanwhile() -> None:
        done.append("something")
        if len(done) == 3:
            holder.close()

    with TableLock(f"{root}/__locks", "orders").held(meanwhile=meanwhile):
        done.append("held")

    assert done == ["something"] * 3 + ["held"]


@pytest.mark.slow
def test_a_topic_created_while_another_is_deleted_keeps_its_table(
    cluster: Cluster, log: TopicLog, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deleter removes the old table's files only, however late it gets to it."""
    log.append(batch(b"old"))
    monkeypatch.setenv("KAFKALIKE_FAULT", "delete.after_forget:delay:400")
    deleter = threading.Thread(target=cluster.delete_topic, args=("orders",))
    deleter.start()

    other = on_disk(root)
    while "orders" in other.topics():
        SYSTEM_CLOCK.sleep(0.005)
    other.create_topic("orders", 1, {})
    deleter.join()

    created = other.log("orders")
    created.append(batch(b"new"))
    assert partition_values(created) == [b"new"]
    assert list(Path(root, "__deleted").iterdir()) == []


def test_a_leftover_folder_of_a_killed_creation_is_no_hindrance(root: str) -> None:
    """Its table has no topic, so it is made anew."""
    other = on_disk(root, queue=False)
    other._tables.create(TopicName("orders"), "orders", None, closed=True)

    info = connect(root).create_topic("orders", 1, {})

    assert connect(root).log("orders").info == info


def test_a_leftover_table_in_an_object_store_is_taken_over(root: str) -> None:
    """The same where folders cannot be locked."""
    remote = Cluster(MemoryStorage())
    leftover = remote._tables.create(TopicName("orders"), "orders", None, closed=True)

    assert remote.create_topic("orders", 1, {}).topic_id == leftover


def test_a_table_that_holds_records_is_never_taken_over(root: str) -> None:
    """In an object store another table at the topic's place is an error, and stays as it is."""
    on_disk(root).create_topic("orders", 1, {})
    on_disk(root).log("orders").append(batch(b"precious"))
    for name in ("__cluster_metadata", "__locks"):
        Path(root, name).rename(Path(root, f"gone{name}"))

    with pytest.raises(KafkaStorageError):
        on_disk(root, queue=False).create_topic("orders", 1, {})

    assert DeltaTable(f"{root}/orders").to_pyarrow_table().num_rows == 1


@pytest.mark.usefixtures("foreign_writes")
def test_an_append_that_may_not_be_tried_again_leaves_no_file(root: str) -> None:
    """Here it loses against a rival, and then a foreign writer rewinds the table."""

    class Meddling(ShiftedClock):
        rivals = 0

        def now_ms(self) -> int:
            if self.rivals:
                self.rivals -= 1
                on_disk(root, queue=False).log("orders").append(batch(b"rival"))
            return super().now_ms()

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            DeltaTable(f"{root}/orders").restore(1)

    clock = Meddling()
    cluster = on_disk(root, queue=False, clock=clock)
    cluster.create_topic("orders", 1, {})
    log = cluster.log("orders")
    log.append(batch(b"first"))
    clock.rivals = 1

    with pytest.raises(LogCorruptError, match="took records back"):
        log.append(batch(b"late"))

    found = {str(path.relative_to(log.files.uri)) for path in Path(log.files.uri).glob("partition=0/*.parquet")}
    named = {add.path for n in (1, 2) for add in parse_commit(n, log.files.read(log_name(n)), "").adds}
    assert found == named


# --- damage ------------------------------------------------------------------------------------


def test_a_missing_data_file_is_named(log: TopicLog) -> None:
    """With the offsets that are lost."""
    log.append(batch(b"a", b"b"))
    (segment,) = log.segments(0)
    Path(log.files.uri, segment.path).unlink()

    with pytest.raises(CorruptRecordError, match=r"\[0, 2\).*is missing"):
        log.reader(0, 0).read(MIB)


def test_a_truncated_data_file_is_named(log: TopicLog) -> None:
    """Instead of an error of the Parquet reader."""
    made = batch(b"a")
    made.add(0, None, b"b", 2_000)
    log.append(made)
    (segment,) = log.segments(0)
    Path(log.files.uri, segment.path).write_bytes(b"PAR1")

    with pytest.raises(CorruptRecordError, match="cannot be read"):
        log.reader(0, 0).read(MIB)
    with pytest.raises(CorruptRecordError, match="cannot be read"):
        log.offset_for_time(0, 0)


@pytest.mark.usefixtures("foreign_writes")
def test_a_hole_in_the_log_is_data_loss(log: TopicLog) -> None:
    """A foreign writer removed a file by a commit of its own; the reader does not skip it in silence."""
    for value in (b"a", b"b", b"c"):
        log.append(batch(value))
    DeltaTable(log.files.uri).delete("offset = 1")
    log.refresh()
    reader = log.reader(0, 0)

    reader.read(1)

    with pytest.raises(DataLossError, match=r"offsets \[1, 2\) are missing"):
        reader.read(1)

    assert reader.position == 1


@pytest.mark.parametrize("content", [b"", b"\n", b"{", b'{"add":{}}', b"[]"])
def test_a_damaged_commit_is_named(log: TopicLog, content: bytes) -> None:
    """Empty, cut off or nonsense: whoever wants to write must know what was in it."""
    Path(log.files.uri, log_name(1)).write_bytes(content)
    log.refresh()

    with pytest.raises(LogCorruptError, match=r"00000000000000000001\.json"):
        log.append(batch(b"a"))


@pytest.mark.usefixtures("foreign_writes")
def test_a_table_that_was_replaced_is_refused(log: TopicLog) -> None:
    """Another table in the topic's folder has another id."""
    log.append(batch(b"a"))
    table = DeltaTable(log.files.uri)
    DeltaTable.create(log.files.uri, table.schema(), mode="overwrite", partition_by=["partition"])

    with pytest.raises(LogCorruptError):
        log.append(batch(b"b"))


@pytest.mark.usefixtures("foreign_writes")
def test_a_table_that_was_rewound_takes_no_more_records(cluster: Cluster, log: TopicLog) -> None:
    """After RESTORE the log end would give offsets out again; reading still works."""
    log.append(batch(b"a"))
    log.append(batch(b"b"))
    DeltaTable(log.files.uri).restore(1)

    for seen in (log, cluster.log("orders")):
        with pytest.raises(LogCorruptError, match="RESTORE"):
            seen.append(batch(b"c"))


def test_a_newer_table_format_is_refused(log: TopicLog) -> None:
    """A protocol that this package does not know, by an open log and by a new one."""
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []}}
    Path(log.files.uri, log_name(1)).write_text(json.dumps(protocol))

    with pytest.raises(UnsupportedVersionError, match="table feature"):
        log.refresh()


def test_a_control_file_that_is_missing_is_an_error_each_time(cluster: Cluster, root: str) -> None:
    """Not a cluster without topics, in which they could be created again."""
    cluster.create_topic("orders", 1, {})
    (data,) = Path(root, "__cluster_metadata").glob("*.parquet")
    data.unlink()
    fresh = on_disk(root)

    for _ in range(2):
        with pytest.raises(LogCorruptError, match="missing"):
            fresh.topics()


def test_a_control_file_that_cannot_be_read_for_a_while_costs_no_rows(cluster: Cluster, root: str) -> None:
    """A running handle that went on without it has all rows once the file is there again."""
    cluster.create_topic("orders", 1, {})
    running = on_disk(root)
    running.topics()
    cluster.create_topic("more", 1, {})
    (data,) = Path(root, "__cluster_metadata").glob("part-0000000002-*.parquet")
    content = data.read_bytes()
    data.write_bytes(b"not now")

    assert set(running.topics()) == {"orders"}

    data.write_bytes(content)
    assert set(running.topics()) == {"orders", "more"}


# --- places ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "folder", ["a b", "a'b", "a`b", "100%", "é漢", "a#b", "a?b", "a;b", "a[1]b", "a*b", "{a}", "$x"]
)
def test_a_root_may_have_any_name(tmp_path: Path, folder: str) -> None:
    """Folders are names, not patterns or addresses."""
    cluster = connect(str(tmp_path / folder))
    cluster.create_topic("orders", 1, {})
    cluster.log("orders").append(batch(b"a"))

    again = connect(str(tmp_path / folder)).log("orders")

    assert isinstance(again, TopicLog)
    assert partition_values(again) == [b"a"]
    assert [entry.name for entry in tmp_path.iterdir()] == [folder]


def test_a_root_that_cannot_be_is_a_storage_error(tmp_path: Path) -> None:
    """A file is in the way."""
    (tmp_path / "file").write_text("")
    cluster = connect(str(tmp_path / "file" / "cluster"))

    with pytest.raises(KafkaStorageError):
        cluster.create_topic("orders", 1, {})


def test_nothing_is_made_before_the_first_write(root: str) -> None:
    """Asking for topics leaves no folder behind."""
    cluster = connect(root)

    assert cluster.topics() == {}
    assert not Path(root).exists()


def test_a_root_is_for_its_owners_eyes(cluster: Cluster, root: str) -> None:
    """Records may be private; mode 0700."""
    cluster.create_topic("orders", 1, {})

    assert Path(root).stat().st_mode & 0o777 == 0o700


def test_a_flipped_bit_in_a_page_is_named_and_not_read(root: str) -> None:
    """Pages carry checksums: a bit that storage has flipped is damage with a name, never another value."""
    cluster = connect(root)
    cluster.create_topic("t", 1, {})
    cluster.log("t").append(batch(b"a value that stands in the file as it is"))
    (file,) = Path(root, "t").rglob("part-*.parquet")
    content = file.read_bytes()
    at = content.index(b"a value that stands")
    file.write_bytes(content[:at] + b"A" + content[at + 1 :])

    with pytest.raises(CorruptRecordError, match=file.name):
        connect(root).log("t").reader(0, 0).read(1_000)


def test_a_folder_of_somebody_else_is_not_replaced_by_a_topic(root: str) -> None:
    """A root may hold other things: a topic never takes the place of data that are not a deleted topic's."""
    cluster = connect(root)
    cluster.create_topic("first", 1, {})
    Path(root, "notes").mkdir()
    Path(root, "notes", "notes.txt").write_text("mine")

    with pytest.raises(KafkaStorageError, match="did not make"):
        cluster.create_topic("notes", 1, {})

    assert Path(root, "notes", "notes.txt").read_text() == "mine"
    assert "notes" not in cluster.topics()


def test_records_are_not_replaced_when_the_metadata_were_lost(root: str) -> None:
    """A topic table with records that the metadata do not know stays where it is."""
    cluster = connect(root)
    cluster.create_topic("t", 1, {})
    cluster.log("t").append(batch(b"v"))
    shutil.rmtree(Path(root, "__cluster_metadata"))

    with pytest.raises(KafkaStorageError, match="metadata do not know"):
        connect(root).create_topic("t", 1, {})

    assert DeltaTable(f"{root}/t").version() == 1
