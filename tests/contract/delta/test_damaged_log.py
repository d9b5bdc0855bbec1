"""Row 23: a copy of a table whose log is damaged gives an error that names the file, or all records; never fewer."""

import contextlib
import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kafkalike import KafkaConsumer
from kafkalike.connect import connect
from kafkalike.errors import CorruptRecordError, DataLossError, KafkaStorageError, LogCorruptError
from kafkalike.log.topic.data_file import WHOLE_BYTES
from kafkalike.log.topic.data_file import open_files as kept_open
from kafkalike.log.topic.reader import PartitionReader
from kafkalike.log.topic.segment_rows import read_segment
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import OffsetAndTimestamp
from kafkalike.spark.format.input_partitions import FIELDS, plan_range, read_range
from kafkalike.storage.local import LocalStorage
from tests.tools.findings import errors_of
from tests.tools.interrupts import Interrupt, visits
from tests.tools.records import NOW_MS, all_records, batch, make_topic, open_log
from tests.tools.upkeep import AT_ONCE, EAGER, open_cluster, topic

RECORDS = 6


@pytest.fixture
def log_folder(root: str) -> Path:
    """The `_delta_log` of a topic with six records in six table versions."""
    log = make_topic(root, partitions=1)
    for number in range(RECORDS):
        log.append(batch((0, f"v{number}")))
    return Path(root, "t", "_delta_log")


def version(folder: Path, number: int) -> Path:
    return folder / f"{number:020d}.json"


def empty(folder: Path) -> Path:
    version(folder, 3).write_bytes(b"")
    return version(folder, 3)


def cut_off(folder: Path) -> Path:
    file = version(folder, 3)
    file.write_bytes(file.read_bytes()[:-40])
    return file


def no_json(folder: Path) -> Path:
    version(folder, 3).write_bytes(b"\x00" * 64)
    return version(folder, 3)


def removed(folder: Path) -> Path:
    version(folder, 3).unlink()
    return version(folder, 3)


def test_storage_that_fails_behind_a_damaged_commit_gives_the_error_of_the_storage(log_folder: Path, root: str) -> None:
    """Clients retry at it; any other error would end them."""
    log = open_log(connect(root))
    log.refresh()
    following = log.version + 1
    version(log_folder, following).write_bytes(b"")
    version(log_folder, following + 1).symlink_to(version(log_folder, following + 1))

    with pytest.raises(KafkaStorageError):
        log.refresh()


DAMAGES = [empty, cut_off, no_json, removed]
Damage = Callable[[Path], Path]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_new_reader_names_a_damaged_commit_file(log_folder: Path, root: str, damage: Damage) -> None:
    """Whoever loads the table anew cannot know what was in the file, so it must not go on."""
    broken = damage(log_folder)

    with pytest.raises(LogCorruptError) as caught:
        all_records(root)

    assert str(log_folder.parent) in str(caught.value)
    assert damage is removed or broken.name in str(caught.value) or "3" in str(caught.value)


@pytest.mark.parametrize("damage", DAMAGES)
def test_verify_reports_a_damaged_commit_file(log_folder: Path, root: str, damage: Damage) -> None:
    """The operator's tool must not fail over what it is there to find."""
    damage(log_folder)

    assert errors_of(root) != []


@pytest.mark.parametrize("damage", [empty, cut_off, no_json])
def test_a_reader_that_follows_the_log_stops_at_a_damaged_commit_file(
    log_folder: Path, root: str, damage: Damage, tmp_path: Path
) -> None:
    """It has the table up to the version before, and must neither skip the file nor go on from half of it."""
    later = tmp_path / "later"
    later.mkdir()
    for number in range(3, RECORDS + 1):
        version(log_folder, number).rename(later / version(log_folder, number).name)
    log = connect(root).log("t")
    for file in later.iterdir():
        file.rename(log_folder / file.name)
    damage(log_folder)

    for _ in range(2):
        with pytest.raises(LogCorruptError, match=version(log_folder, 3).name):
            log.refresh()

    assert log.log_end(0) == 2


@pytest.mark.parametrize("damage", DAMAGES)
def test_nothing_is_appended_to_a_table_with_a_damaged_commit_file(log_folder: Path, root: str, damage: Damage) -> None:
    """An append would have to guess the log end."""
    before = {file.name for file in log_folder.iterdir()}
    gone = damage(log_folder)

    with pytest.raises(LogCorruptError):
        open_log(connect(root)).append(batch((0, "new")))

    assert {file.name for file in log_folder.iterdir()} >= before - {gone.name}
    assert not version(log_folder, RECORDS + 1).exists()


def with_checkpoint(folder: Path) -> Path:
    DeltaTable(folder.parent).create_checkpoint()
    return next(folder.glob("*.checkpoint.parquet"))


def cut_pointer(folder: Path) -> None:
    with_checkpoint(folder)
    (folder / "_last_checkpoint").write_text('{"version": 6, "si', encoding="utf-8")


def empty_pointer(folder: Path) -> None:
    with_checkpoint(folder)
    (folder / "_last_checkpoint").write_bytes(b"")


def pointer_to_nowhere(folder: Path) -> None:
    with_checkpoint(folder).unlink()


def pointer_beyond(folder: Path) -> None:
    with_checkpoint(folder)
    pointer = folder / "_last_checkpoint"
    told = json.loads(pointer.read_text(encoding="utf-8"))
    pointer.write_text(json.dumps({**told, "version": 60}), encoding="utf-8")


def cut_checkpoint(folder: Path) -> None:
    file = with_checkpoint(folder)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty_checkpoint(folder: Path) -> None:
    with_checkpoint(folder).write_bytes(b"")


@pytest.mark.parametrize(
    "damage", [cut_pointer, empty_pointer, pointer_to_nowhere, pointer_beyond, cut_checkpoint, empty_checkpoint]
)
def test_a_damaged_checkpoint_gives_all_records_or_an_error(
    log_folder: Path, root: str, damage: Callable[[Path], None]
) -> None:
    """A checkpoint is a cache of the commit files, all of which are there."""
    damage(log_folder)

    try:
        found = all_records(root)
    except LogCorruptError:
        return

    assert found == {0: [(n, f"v{n}") for n in range(RECORDS)]}


def test_a_checkpoint_without_the_commits_before_it_gives_all_records(log_folder: Path, root: str) -> None:
    """What log cleanup leaves behind."""
    with_checkpoint(log_folder)
    for number in range(RECORDS):
        version(log_folder, number).unlink()

    assert all_records(root) == {0: [(n, f"v{n}") for n in range(RECORDS)]}


def data_files(root: str) -> list[Path]:
    return sorted(Path(root, "t", "partition=0").glob("*.parquet"))


def test_a_missing_data_file_is_named_with_its_offsets(log_folder: Path, root: str) -> None:
    """Not skipped: the records are lost, and the reader says which."""
    data_files(root)[2].unlink()

    with pytest.raises(CorruptRecordError, match=r"offsets \[2, 3\) are lost"):
        all_records(root)

    assert errors_of(root) != []


@pytest.mark.parametrize("size", [0, 100])
def test_a_cut_off_data_file_is_named_with_its_offsets(log_folder: Path, root: str, size: int) -> None:
    """As it is left by a disk that lost its cache."""
    file = data_files(root)[2]
    file.write_bytes(file.read_bytes()[:size])

    with pytest.raises(CorruptRecordError, match=r"offsets \[2, 3\)"):
        all_records(root)

    assert errors_of(root) != []


@pytest.mark.slow
def test_every_flipped_byte_of_a_data_file_is_an_error_or_changes_a_value_only(log_folder: Path, root: str) -> None:
    """A reader over a damaged file ends: with the records at their offsets, or with an error of ours."""
    file = data_files(root)[2]
    sound = file.read_bytes()
    for place in range(4, len(sound), 97):
        file.write_bytes(sound[:place] + bytes([sound[place] ^ 0xFF]) + sound[place + 1 :])

        try:
            found = all_records(root)
        except (CorruptRecordError, DataLossError):
            continue

        assert [o for o, _ in found[0]] == list(range(RECORDS)), place


def test_a_table_that_vanished_is_named(log_folder: Path, root: str) -> None:
    """Someone removed the folder of a topic that exists."""
    log = connect(root).log("t")
    shutil.rmtree(Path(root, "t"))

    for attempt in (lambda: log.append(batch((0, "new"))), lambda: all_records(root)):
        with pytest.raises(LogCorruptError, match="is missing though the topic exists"):
            attempt()

    assert not Path(root, "t", "partition=0").exists()


def test_a_table_that_was_replaced_is_refused(log_folder: Path, root: str, tmp_path: Path) -> None:
    """Row 25: someone put another table in its place; a writer that knew the old one must not add to it."""
    log = connect(root).log("t")
    make_topic(str(tmp_path / "other"))
    shutil.rmtree(Path(root, "t"))
    shutil.copytree(tmp_path / "other" / "t", Path(root, "t"))

    for attempt in (lambda: log.append(batch((0, "new"))), lambda: all_records(root)):
        with pytest.raises(LogCorruptError, match="someone has replaced the table"):
            attempt()

    assert not version(log_folder, 1).exists()


def test_an_empty_last_commit_does_not_take_the_log_end_of_a_partition_back(root: str) -> None:
    """A power failure may leave files without content; the offset in the lost commit must not be given out again."""
    log = make_topic(root, (0, "a"), (1, "b"))
    log.append(batch((1, "lost")))
    log.append(batch((0, "c")))
    version(Path(root, "t", "_delta_log"), 2).write_bytes(b"")

    with pytest.raises(LogCorruptError, match="is empty"):
        open_log(connect(root)).append(batch((1, "again")))


HEADED = 20


@pytest.fixture
def headed(root: str) -> TopicLog:
    """A topic of two files of twenty records with keys, values, headers and times of their own."""
    log = topic(root, "t", 1, {**AT_ONCE, "retention.ms": "-1"})
    for begin in (0, HEADED):
        rows = RecordBatch()
        for number in range(begin, begin + HEADED):
            rows.add(0, b"k%d" % number, b"value-%d" % number * 3, NOW_MS + number, [("h", b"x%d" % number)])
        log.append(rows)
    return log


def consumed(root: str) -> list[tuple[object, ...]]:
    """What a consumer gets, record by record."""
    with KafkaConsumer("t", bootstrap_servers=root, group_id=None, auto_offset_reset="earliest") as consumer:
        found: list[tuple[object, ...]] = []
        while got := consumer.poll(timeout_ms=0):
            found += [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for run in got.values() for r in run]
        return found


def ranged(root: str) -> list[object]:
    """What Spark's tasks get."""
    log = open_log(connect(root))
    plan = plan_range(log, LocalStorage(root), 0, range(log.log_end(0)))
    return [row for part in read_range(plan, list(FIELDS)) for row in part.to_pylist()]


def footer_and_headers(file: Path) -> list[int]:
    """Places of a file that no checksum guards: its footer, and the bytes before and at the begin of each page."""
    whole = file.read_bytes()
    metadata = pq.ParquetFile(file).metadata
    chunks = [metadata.row_group(0).column(at) for at in range(metadata.num_columns)]
    pages = {c.data_page_offset for c in chunks} | {c.dictionary_page_offset or c.data_page_offset for c in chunks}
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    return sorted({place for page in pages for place in range(page, page + 24)} | set(range(footer, len(whole))))


def flips(places: list[int], stride: int) -> list[tuple[int, int]]:
    """One bit of each of some places: another one from place to place."""
    return [(place, 1 << number % 8) for number, place in enumerate(places[::stride])]


def flip(file: Path, sound: bytes, place: int, bit: int) -> None:
    file.write_bytes(sound[:place] + bytes([sound[place] ^ bit]) + sound[place + 1 :])


@pytest.mark.slow
@pytest.mark.parametrize("read", [consumed, ranged])
def test_a_flipped_bit_gives_the_right_records_or_an_error_with_the_files_name(
    headed: TopicLog, root: str, read: Callable[[str], list[object]]
) -> None:
    """Wherever it is: in page headers and in the footer too, which have no checksum of their own."""
    file = data_files(root)[0]
    sound, whole = file.read_bytes(), read(root)
    refused = 0

    for place, bit in flips(footer_and_headers(file), 5) + flips(list(range(len(sound))), 97):
        flip(file, sound, place, bit)
        try:
            found = read(root)
        except CorruptRecordError as error:
            named = file.name in str(error) and "t-0" in str(error)
            refused += named
            found = whole if named else [error]
        assert found == whole, (place, bit)

    assert len(whole) == 2 * HEADED
    assert refused > 50


def test_a_segment_that_reads_as_empty_is_not_skipped(headed: TopicLog, root: str) -> None:
    """The second byte of the first page's header says how long the page is: 0 is as good as any for Parquet."""
    file = data_files(root)[0]
    flip(file, file.read_bytes(), 5, 1)

    with pytest.raises(CorruptRecordError, match=r"t-0: offsets \[0, 20\) are lost"):
        consumed(root)


@pytest.mark.slow
def test_maintenance_and_verify_notice_a_flipped_bit_or_it_does_no_harm(headed: TopicLog, root: str) -> None:
    """What is merged is right; what is not right stays where it is, and is named."""
    file = data_files(root)[0]
    sound, whole = file.read_bytes(), consumed(root)

    for place, bit in flips(footer_and_headers(file), 29):
        flip(file, sound, place, bit)
        parts = list(read_or_none(headed))

        if parts:
            rows = pa.concat_tables(parts).to_pylist()
            assert [row["value"] for row in rows] == [record[3] for record in whole[:HEADED]], (place, bit)
            assert [[(h["key"], h["value"]) for h in row["headers"]] for row in rows] == [
                list(cast("tuple[object, ...]", record[4])) for record in whole[:HEADED]
            ], (place, bit)
        else:
            assert errors_of(root) != [], (place, bit)


def read_or_none(log: TopicLog) -> list[pa.Table]:
    """What maintenance reads of the first file; nothing when it refuses the file."""
    try:
        return list(read_segment(log.files, log.segments(0)[0]))
    except CorruptRecordError:
        return []


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_maintenance_leaves_a_file_alone_whose_footer_lost_a_name(root: str, policy: str) -> None:
    """`value` inside of the headers is `velue`: the headers would come out without values, and the file be removed."""
    log = topic(root, "t", 1, EAGER if policy == "compact" else {**AT_ONCE, "retention.ms": "-1"})
    for number in range(8):
        rows = RecordBatch()
        rows.add(0, b"k%d" % (number % 2), b"v", NOW_MS + 10 * number, [("h", b"x")])
        log.append(rows)
    file = data_files(root)[2]
    sound = file.read_bytes()
    at = sound.index(b"value", sound.index(b"element", sound.index(b"PAR1", 4) - 1700))
    file.write_bytes(sound[: at + 1] + b"e" + sound[at + 2 :])
    before = {path.name for path in data_files(root)}

    (report,) = maintain(open_cluster(root), clock=SYSTEM_CLOCK).topics

    assert file.name in " ".join(report.problems)
    assert {path.name for path in data_files(root)} >= {file.name}
    log.refresh()
    assert any(path.endswith(file.name) for path in log.live_paths())
    assert errors_of(root) != []
    for read in (consumed, ranged):
        with pytest.raises(CorruptRecordError, match="headers is list<struct<key: string, velue: binary>>"):
            read(root)
    assert before >= {file.name}
    file.write_bytes(sound)
    assert consumed(root)[-1][0] == 7


# --- open files ------------------------------------------------------------------------------------


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.fixture
def wide(root: str) -> TopicLog:
    """A topic of 120 partitions with three records each."""
    log = topic(root, "t", 120, {})
    log.append(batch(*[(p, f"v{n}") for p in range(120) for n in range(3)]))
    return log


@pytest.mark.slow
def test_a_partition_read_to_its_end_holds_no_file_open(wide: TopicLog) -> None:
    """However many there are."""
    readers = [wide.reader(p, 0) for p in wide.info.partitions]
    before = open_files()

    for reader in readers:
        assert reader.read(1 << 20) is not None

    assert open_files() - before < 10


@pytest.mark.slow
def test_partitions_in_the_middle_of_their_files_hold_a_bounded_number_open(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are opened again where they stopped. Small files are fetched whole, and never open."""
    monkeypatch.setattr(kept_open, "_limit", 10)
    log = topic(root, "t", 40, {})
    value = os.urandom(WHOLE_BYTES // 2).hex()
    log.append(batch(*[(p, value) for p in range(40) for _ in range(3)]))
    log.fetch_bytes = 1
    readers = [log.reader(p, 0) for p in log.info.partitions]
    before = open_files()

    found: list[list[int]] = [[] for _ in readers]
    for _ in range(3):
        for partition, reader in enumerate(readers):
            chunk = reader.read(1)
            assert chunk is not None
            found[partition] += chunk.columns().offsets
        assert open_files() - before < 20

    assert found == [[0, 1, 2]] * 40


def test_running_out_of_open_files_is_an_error_that_passes(log_folder: Path, root: str) -> None:
    """It says nothing about the data: the same reader goes on as soon as there are some again."""
    log = open_log(connect(root))
    reader = log.reader(0, 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 20, hard))
    held: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    try:
        for read in (lambda: reader.read(1), lambda: log.max_timestamp(0)):
            with pytest.raises(KafkaStorageError, match="cannot be read now") as caught:
                read()
            assert caught.value.retriable
            assert "lost" not in str(caught.value)
    finally:
        for number in held:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    chunk = reader.read(1 << 20)
    assert chunk is not None
    assert chunk.columns().offsets == list(range(RECORDS))


@pytest.mark.slow
def test_running_out_of_memory_at_any_line_of_a_read_is_not_called_a_loss(root: str) -> None:
    """It says nothing about the data: a reader that has said so goes on, and hands out everything."""
    log = make_topic(root, partitions=1)
    log.append(batch(*((0, f"v{number}") for number in range(RECORDS))))
    log.reader(0, 0).read(1 << 20)  # What is kept from the first read on is no part of the others.
    counting, first = Interrupt(None, MemoryError), log.reader(0, 0)
    counting.run(lambda: first.read(1 << 20))

    said = set()
    for place in (visit for visit in visits(counting.places) if "/topic/" in visit[0][0].co_filename):
        reader = log.reader(0, 0)
        found: list[int] = []

        def read(reader: PartitionReader = reader, found: list[int] = found) -> None:
            if (chunk := reader.read(1 << 20)) is not None:
                found += chunk.columns().offsets

        try:
            Interrupt(place, MemoryError).run(read)
        except MemoryError:
            continue
        except KafkaStorageError as error:
            head, _, tail = str(error).partition(log.files.uri)
            said.add((head, tail.rpartition(".parquet ")[2]))
        read()
        assert found == list(range(RECORDS))

    assert said == {("t-0: offsets [0, 6): ", "cannot be read now: MemoryError")}


def test_times_are_looked_up_without_files_where_the_log_says_enough(wide: TopicLog) -> None:
    """All records of a file have one time, so that its first one is the answer: the files may even be gone."""
    for partition in wide.info.partitions:
        for segment in wide.segments(partition):
            Path(wide.files.uri, segment.path).unlink()

    assert wide.offset_for_time(7, NOW_MS - 5) == OffsetAndTimestamp(0, NOW_MS)
    assert wide.offset_for_time(7, NOW_MS) == OffsetAndTimestamp(0, NOW_MS)
    assert wide.offset_for_time(7, NOW_MS + 1) is None
