"""Row 27: another Delta writer rewrites a topic's files; each record stays at its offset, or its loss is named.

`OPTIMIZE`, `UPDATE` and `MERGE` are ordinary acts of Delta's users. They leave files whose rows are in any order.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafkalike import KafkaConsumer
from kafkalike.connect import connect
from kafkalike.errors import CorruptRecordError, DataLossError, KafkaError
from kafkalike.log.topic import segment_rows as unsorted_file
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.maintenance_report import FAILED
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format.input_partitions import plan_range, read_range
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.parquet import open_parquet
from tests.tools.findings import errors_of, kinds_of
from tests.tools.partitions import READ_BYTES
from tests.tools.records import NOW_MS, all_records, open_log
from tests.tools.upkeep import AT_ONCE, topic, upkeep

pytestmark = pytest.mark.usefixtures("foreign_writes")

SIZES = (5, 40, 1, 17, 2, 33)
RECORDS = sum(SIZES)
P0 = TopicPartition("t", 0)
WHOLE = [(offset, f"v{offset}") for offset in range(RECORDS)]


@pytest.fixture
def log(root: str) -> TopicLog:
    """A topic of one partition in files of very different sizes, with keys and headers and times that go to and fro."""
    made = topic(root, "t", 1, {**AT_ONCE, "retention.ms": "-1"})
    offset = 0
    for size in SIZES:
        rows = RecordBatch()
        for _ in range(size):
            time = NOW_MS + offset * 37 % 101
            rows.add(0, b"k%d" % (offset % 7), b"v%d" % offset, time, [("h", b"%d" % offset)])
            offset += 1
        made.append(rows)
    return made


def table(root: str) -> DeltaTable:
    return DeltaTable(f"{root}/t")


def optimize(root: str) -> None:
    table(root).optimize.compact()


def z_order(root: str) -> None:
    table(root).optimize.z_order(["timestamp"])


def update(root: str) -> None:
    table(root).update(updates={"key": "NULL"}, predicate="timestampType = 0")


def update_then_optimize(root: str) -> None:
    table(root).update(updates={"key": "NULL"}, predicate="offset % 10 = 3")
    table(root).optimize.compact()


def merge(root: str) -> None:
    offsets = pa.table({"o": pa.array(range(0, RECORDS, 3), pa.int64())})
    merging = table(root).merge(offsets, predicate="t.offset = s.o", source_alias="s", target_alias="t")
    merging.when_matched_update(updates={"key": "NULL"}).execute()


Rewrite = Callable[[str], None]
REWRITES = [optimize, z_order, update, update_then_optimize, merge]
rewritten = pytest.mark.parametrize("rewrite", REWRITES)


def test_a_foreign_optimize_leaves_a_file_out_of_order(root: str, log: TopicLog) -> None:
    """What the other tests rest on."""
    optimize(root)
    log.refresh()
    (segment,) = log.segments(0)

    offsets = open_parquet(log.files, segment.path).read(columns=["offset"]).column("offset").to_pylist()

    assert offsets != sorted(offsets)


@pytest.mark.slow
@rewritten
def test_every_seek_lands_at_its_offset(root: str, log: TopicLog, rewrite: Rewrite) -> None:
    """And all records follow, each once, with their own values and headers."""
    rewrite(root)
    log.refresh()

    for offset in range(RECORDS):
        chunk = log.reader(0, offset).read(READ_BYTES)
        assert chunk is not None
        columns = chunk.columns()
        assert columns.headers == [[("h", b"%d" % o)] for o in columns.offsets]
        found = [(o, (v or b"").decode()) for o, v in zip(columns.offsets, columns.values, strict=True)]
        assert found == WHOLE[offset:], offset


@pytest.mark.slow
@rewritten
def test_a_group_that_resumes_in_the_middle_gets_every_record(root: str, log: TopicLog, rewrite: Rewrite) -> None:
    """It has read and committed some before the rewrite."""
    settings: dict[str, Any] = {"bootstrap_servers": root, "group_id": "g", "auto_offset_reset": "earliest"}
    found: list[int] = []

    for before in (None, rewrite):
        if before is not None:
            before(root)
        with KafkaConsumer("t", enable_auto_commit=False, **settings) as consumer:
            while len(found) < (30 if before is None else RECORDS):
                got = consumer.poll(timeout_ms=5000, max_records=15)
                assert got, found
                found += [record.offset for records in got.values() for record in records]
                consumer.commit()

    assert found == list(range(RECORDS))


@rewritten
def test_sparks_reader_gives_each_range_in_order(root: str, log: TopicLog, rewrite: Rewrite) -> None:
    """Ranges that begin and end anywhere."""
    rewrite(root)
    log.refresh()

    for begin, end in ((0, RECORDS), (3, 60), (44, 47), (60, RECORDS)):
        batches = list(read_range(plan_range(log, LocalStorage(root), 0, range(begin, end)), ["value", "offset"]))
        rows = [(r["offset"], r["value"].decode()) for b in batches for r in b.to_pylist()]
        assert rows == WHOLE[begin:end]


@rewritten
def test_looking_up_times_finds_the_first_record_in_offset_order(root: str, log: TopicLog, rewrite: Rewrite) -> None:
    """The same answers as before the rewrite."""
    times = range(NOW_MS - 1, NOW_MS + 103, 5)
    before = [log.offset_for_time(0, time) for time in times], log.max_timestamp(0)

    rewrite(root)
    log.refresh()

    assert ([log.offset_for_time(0, time) for time in times], log.max_timestamp(0)) == before


@pytest.mark.slow
@rewritten
def test_verify_calls_it_no_loss_and_merging_writes_it_sorted(root: str, log: TopicLog, rewrite: Rewrite) -> None:
    """Maintenance reads it in order as well, beside what is appended later."""
    rewrite(root)
    log.refresh()
    kinds = kinds_of(root)
    assert not {line for line in errors_of(root) if "foreign-commit" not in line}
    for value in range(RECORDS, RECORDS + 5):
        rows = RecordBatch()
        rows.add(0, None, b"v%d" % value, NOW_MS)
        log.append(rows)

    done = upkeep(root)

    assert done.merged_files == 1
    assert done.problems == []
    assert "foreign-commit" in kinds
    log.refresh()
    (segment,) = log.segments(0)
    stored = open_parquet(log.files, segment.path).read(columns=["offset"]).column("offset").to_pylist()
    assert stored == list(range(RECORDS + 5))


@pytest.mark.slow
def test_a_file_that_is_sorted_in_pieces_gives_the_same_records(
    root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that is larger than what is sorted at a time."""
    monkeypatch.setattr(unsorted_file, "SORT_BYTES", 300)
    optimize(root)
    connected = connect(root).log("t")
    assert isinstance(connected, TopicLog)
    connected.fetch_bytes = 100

    reader = connected.reader(0, 7)
    found: list[int] = []
    while (chunk := reader.read(150)) is not None:
        found += chunk.columns().offsets

    assert found == list(range(7, RECORDS))


@pytest.mark.slow
@pytest.mark.parametrize("predicate", ["offset = 20", "offset >= 44 AND offset < 50", "offset = 0"])
def test_deleted_records_are_named_before_and_after_an_optimize(root: str, log: TopicLog, predicate: str) -> None:
    """Inside a file, at its edges, or over several: no reader goes past them in silence."""
    table(root).delete(predicate)

    for _ in range(2):
        with pytest.raises(DataLossError, match="are missing"):
            all_records(root)
        log.refresh()
        with pytest.raises(DataLossError):
            list(read_range(plan_range(log, LocalStorage(root), 0, range(RECORDS)), ["offset"]))
        assert errors_of(root) != []
        optimize(root)


def test_records_before_a_deleted_one_are_read_and_those_behind_it_after_a_seek(root: str, log: TopicLog) -> None:
    """The loss is named where it is."""
    table(root).delete("offset = 20")
    log.refresh()

    chunk = log.reader(0, 0).read(READ_BYTES)
    behind = log.reader(0, 21).read(READ_BYTES)

    assert chunk is not None
    assert chunk.columns().offsets == list(range(20))
    assert behind is not None
    assert behind.columns().offsets == list(range(21, RECORDS))


def test_sparks_reader_skips_deleted_records_where_that_is_asked_for(root: str, log: TopicLog) -> None:
    """`failOnDataLoss=false`: all others arrive."""
    table(root).delete("offset = 20 OR offset = 24")
    log.refresh()

    plan = plan_range(log, LocalStorage(root), 0, range(RECORDS))
    batches = list(read_range(plan, ["offset"], fail_on_data_loss=False))

    found = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert found == [offset for offset in range(RECORDS) if offset not in {20, 24}]


def test_an_offset_in_two_files_is_refused_by_every_reader(root: str, log: TopicLog) -> None:
    """Nobody can say which of the two is the record."""
    (first, *_) = log.segments(0)
    rows = open_parquet(log.files, first.path).read().slice(3, 1)
    doubled = rows.append_column("partition", pa.array([0], pa.int32()))
    write_deltalake(f"{root}/t", doubled.select([f.name for f in table(root).schema().fields]), mode="append")
    log.refresh()

    reads: list[Callable[[], object]] = [
        lambda: log.reader(0, 0).read(READ_BYTES),
        lambda: log.reader(0, 3).read(READ_BYTES),
        lambda: list(read_range(plan_range(log, LocalStorage(root), 0, range(RECORDS)), ["offset"])),
        lambda: log.offset_for_time(0, NOW_MS),
    ]
    for read in reads:
        with pytest.raises(CorruptRecordError, match=r"two files hold offsets in \[3, 4\)"):
            read()

    behind = log.reader(0, 5).read(READ_BYTES)
    assert behind is not None
    assert behind.offset_at(0) == 5
    assert [t.status for t in maintain(connect(root), ["t"], clock=SYSTEM_CLOCK).topics] == [FAILED]
    assert "overlap" in kinds_of(root)


def test_retention_drops_a_dead_file_that_a_live_one_overlaps_and_a_dry_run_counts_it(root: str, log: TopicLog) -> None:
    """The file of offsets 0 to 4 is live because of its last record; a foreign writer's file has offset 3 again."""
    (first, *_) = log.segments(0)
    doubled = (
        open_parquet(log.files, first.path).read().slice(3, 1).append_column("partition", pa.array([0], pa.int32()))
    )
    write_deltalake(f"{root}/t", doubled.select([f.name for f in table(root).schema().fields]), mode="append")
    connect(root).move_log_start("t", {0: 4}, "delete_records", "r")

    planned = upkeep(root, works=["retention"], dry_run=True)
    done = upkeep(root, works=["retention"])

    assert (planned.deleted_segments, planned.deleted_records) == (1, 1)
    assert (done.deleted_segments, done.deleted_records, done.log_starts) == (1, 1, {})
    assert all_records(root) == {0: WHOLE[4:]}
    assert upkeep(root, works=["retention"]).deleted_segments == 0


@pytest.mark.slow
def test_another_file_of_the_topic_in_the_place_of_one_is_noticed(root: str, log: TopicLog) -> None:
    """It is a sound file; the log promises other records."""
    segments = log.segments(0)
    files = [Path(log.files.uri, s.path) for s in segments]
    sound = files[1].read_bytes()
    for other in (0, 3, 5):
        files[1].write_bytes(files[other].read_bytes())

        for position in (5, 20, 44):
            reader = open_log(connect(root)).reader(0, position)
            with pytest.raises(CorruptRecordError, match=r"should hold \[5, 45\), but"):
                reader.read(READ_BYTES)
        with pytest.raises(KafkaError):
            list(read_range(plan_range(log, LocalStorage(root), 0, range(RECORDS)), ["offset"]))
        assert errors_of(root) != []
        assert [topic.status for topic in maintain(connect(root), clock=SYSTEM_CLOCK).topics] == ["failed"]

    files[1].write_bytes(sound)
    assert all_records(root) == {0: WHOLE}
