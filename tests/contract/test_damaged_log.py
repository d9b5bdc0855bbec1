"""Row 23: a copy of a table whose log is damaged gives an error that names the file, or all records; never fewer."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafkalike.errors import CorruptRecordError, DataLossError, LogCorruptError
from kafkalike.log.connect import connect
from tests.tools.findings import errors_of
from tests.tools.records import all_records, batch, make_topic, open_log

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
        with pytest.raises(LogCorruptError, match="is gone though the topic exists"):
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
