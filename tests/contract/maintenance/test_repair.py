"""`kafkalike verify --repair`: what is damaged goes aside, the rest is readable and writable again, and is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kafkalike
from kafkalike import KafkaConsumer
from kafkalike.connect import connect
from kafkalike.errors import DataLossError, UnknownTopicOrPartitionError
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from tests.tools.cli import Done, call
from tests.tools.consumer import read_to_end
from tests.tools.damage import DAMAGES, checkpointed, commits, cut_off, data_file_of, empty, flip, place_hole
from tests.tools.findings import errors_of
from tests.tools.records import all_records, batch, fill, open_log

if TYPE_CHECKING:
    from collections.abc import Callable

METADATA = "__cluster_metadata"
OFFSETS = "__consumer_offsets"
TABLES = ["last", METADATA, OFFSETS]


@pytest.fixture(autouse=True)
def made(root: str) -> None:
    """Topics `first` and `last` with two appends each, and a group that has committed 1, then 2 in `first`."""
    cluster = connect(root)
    for topic in ("first", "last"):
        cluster.create_topic(topic, 1, {})
        fill(cluster, topic, "a")
        fill(cluster, topic, "b")
    commit(root, 1)
    commit(root, 2)


def commit(root: str, offset: int) -> None:
    with KafkaConsumer(bootstrap_servers=root, group_id="g") as consumer:
        where = TopicPartition("first", 0)
        consumer.assign([where])
        consumer.commit({where: OffsetAndMetadata(offset, "", -1)})


def committed(root: str) -> int | None:
    with KafkaConsumer(bootstrap_servers=root, group_id="g") as consumer:
        return consumer.committed(TopicPartition("first", 0))


def verify(root: str, *args: str) -> Done:
    return call(connect(root), "verify", *args)


def contents(root: str) -> dict[str, bytes]:
    """All files below the root but its locks."""
    return {
        str(file.relative_to(root)): file.read_bytes()
        for file in sorted(Path(root).rglob("*"))
        if file.is_file() and "__locks" not in file.parts
    }


def kept(root: str) -> list[bytes]:
    """What is kept of damaged files."""
    return [content for name, content in contents(root).items() if name.startswith("__damaged/")]


def test_repair_of_a_sound_cluster_reports_no_damage_and_changes_nothing(root: str) -> None:
    before = contents(root)

    assert kafkalike.repair(root) == kafkalike.RepairReport(
        sound=True, lines=("There is no damage that a repair could mend.",)
    )
    assert kafkalike.repair(root, "first", dry_run=False) == kafkalike.RepairReport(sound=True, lines=())
    assert contents(root) == before


def test_repair_of_an_unknown_topic_is_refused(root: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        kafkalike.repair(root, ["first", "missing"], dry_run=False)


@pytest.mark.slow
def test_repair_by_name_reports_first_and_repairs_when_asked(root: str) -> None:
    """With the root's address, as any other call of the package."""
    version = Path(root, "first", "_delta_log", f"{2:020d}.json")
    version.write_bytes(b"not JSON")

    told = kafkalike.repair(root, "first")
    done = kafkalike.repair(root, ["first"], dry_run=False)

    assert (told.sound, done.sound) == (False, True)
    assert [line.split()[0] for line in told.lines] == ["DAMAGED", "WARN:"]
    assert {line.split()[0] for line in done.lines} == {"DAMAGED", "REPAIRED"}
    assert b"not JSON" in kept(root)
    assert [str(found) for found in kafkalike.verify(root).findings] == [
        "ERROR first-0 [1, 2): gap: no file holds these offsets: their records are lost"
    ]


@pytest.mark.slow
def test_there_is_nothing_to_repair_in_a_sound_cluster(root: str) -> None:
    """And nothing is done."""
    before = contents(root)

    told = verify(root, "--repair")
    done = verify(root, "--repair", "--execute")

    assert (told.code, done.code) == (0, 0)
    assert "There is no damage" in told.out
    assert contents(root) == before


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("table", TABLES)
def test_a_dry_run_says_what_it_would_do_and_changes_nothing(
    root: str, table: str, damage: Callable[[Path], None]
) -> None:
    """And `verify` without the flag finds the same file."""
    last = commits(root, table)[-1]
    damage(last)
    before = contents(root)

    told = verify(root, "--repair")

    assert told.code == 1
    assert f"DAMAGED {table}/_delta_log/{last.name}" in told.out
    assert "--execute option is missing" in told.out
    assert contents(root) == before
    found = verify(root)
    assert found.code == 1
    assert f"damaged-commit: {table}/_delta_log/{last.name}" in found.out


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("table", TABLES)
def test_a_repair_of_a_damaged_last_commit_makes_the_table_writable(
    root: str, table: str, damage: Callable[[Path], None]
) -> None:
    """At the version before; the damaged file is kept, and no sound file is touched."""
    last = commits(root, table)[-1]
    damage(last)
    damaged, before = last.read_bytes(), contents(root)

    done = verify(root, "--repair", "--execute")

    assert "REPAIRED" in done.out
    assert damaged in kept(root)
    changed = {name for name, content in contents(root).items() if before.get(name, content) != content}
    assert changed == {f"{table}/_delta_log/{last.name}"}
    assert before.keys() <= contents(root).keys()
    assert verify(root, "--repair").code == 0
    fill(connect(root), "first", "c")
    connect(root).create_topic("new", 1, {})
    commit(root, 1)


@pytest.mark.parametrize("damage", DAMAGES)
def test_offsets_of_a_lost_commit_are_named_and_not_given_out_again(root: str, damage: Callable[[Path], None]) -> None:
    """Somebody may have read them: what is there now would be passed over."""
    damage(commits(root, "last")[-1])

    done = verify(root, "--repair", "--execute")
    open_log(connect(root), "last").append(batch("c"))

    assert "last-0: offsets [1, 2) are lost" in done.out
    assert done.code == 1
    assert "gap" in done.out
    with pytest.raises(DataLossError, match=r"\[1, 2\)"):
        all_records(root, "last")
    with KafkaConsumer(bootstrap_servers=root, auto_offset_reset="earliest", consumer_timeout_ms=1000) as reader:
        reader.assign([TopicPartition("last", 0)])
        reader.seek(TopicPartition("last", 0), 2)
        assert next(reader).value == b"c"


def test_a_committed_offset_tells_how_far_a_lost_log_went(root: str) -> None:
    """Where not even the data files are left."""
    last = commits(root, "first")[-1]
    data_file_of(root, "first", last).unlink()
    empty(last)

    done = verify(root, "--repair", "--execute")
    open_log(connect(root), "first").append(batch("c"))

    assert "first-0: offsets [1, 2) are lost" in done.out
    assert open_log(connect(root), "first").log_end(0) == 3


def test_a_lost_row_of_the_metadata_is_named(root: str) -> None:
    """The topic is not known any more; its records stay where they are."""
    empty(commits(root, METADATA)[-1])
    before = set(Path(root, "last").rglob("*.parquet"))

    done = verify(root, "--repair", "--execute")

    assert f"{METADATA}: lost row 2: topic last created" in done.out
    assert set(connect(root).topics()) == {"first"}
    assert set(Path(root, "last").rglob("*.parquet")) == before


@pytest.mark.parametrize("damage", [empty, cut_off, flip, Path.unlink])
def test_a_damaged_data_file_of_the_metadata_is_taken_out(root: str, damage: Callable[[Path], None]) -> None:
    """Its rows are named, and the next row gets a number that none of them had."""
    damage(data_file_of(root, METADATA, commits(root, METADATA)[-1]))

    done = verify(root, "--repair", "--execute")

    assert f"{METADATA}: rows [2, 3) are lost" in done.out
    cluster = connect(root)
    assert set(cluster.topics()) == {"first"}
    cluster.create_topic("new", 1, {})
    assert cluster.metadata.state.seq == 3
    assert set(connect(root).topics()) == {"first", "new"}
    assert verify(root).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("damage", [empty, cut_off, flip, Path.unlink])
@pytest.mark.parametrize("nth", [-1, -2])
def test_a_damaged_data_file_of_the_offsets_is_taken_out(root: str, nth: int, damage: Callable[[Path], None]) -> None:
    """The last one or one before it: the commits in all others count."""
    damage(data_file_of(root, OFFSETS, commits(root, OFFSETS)[nth]))

    done = verify(root, "--repair", "--execute")

    assert "are lost" in done.out
    assert committed(root) == (1 if nth == -1 else 2)
    commit(root, 2)
    assert committed(root) == 2
    assert verify(root).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_a_hole_in_the_log_is_closed(root: str, table: str) -> None:
    """What comes after it is kept."""
    hole = place_hole(root, table)
    last = commits(root, table)[-1].read_bytes()

    told = verify(root, "--repair")
    done = verify(root, "--repair", "--execute")

    assert hole.name in told.out
    assert "REPAIRED" in done.out
    assert last in contents(root).values()
    assert verify(root, "--repair").code == 0
    if table == METADATA:
        assert f"{METADATA}: lost row 1: topic first created" in done.out
        assert set(connect(root).topics()) == {"last"}
    else:
        commit(root, 1)
    connect(root).create_topic("new", 1, {})


@pytest.mark.slow
def test_records_after_a_hole_are_still_there(root: str) -> None:
    """The hole's own records are the only ones that are lost."""
    place_hole(root, "last")

    verify(root, "--repair", "--execute")
    open_log(connect(root), "last").append(batch("c"))

    with KafkaConsumer(bootstrap_servers=root) as reader:
        reader.assign([TopicPartition("last", 0)])
        reader.seek(TopicPartition("last", 0), 1)
        assert [record.value for record in read_to_end(reader)] == [b"b", b"c"]


@pytest.mark.slow
@pytest.mark.parametrize("damage", [empty, cut_off, flip])
@pytest.mark.parametrize("table", TABLES)
def test_a_damaged_checkpoint_is_put_aside_and_nothing_is_lost(
    root: str, table: str, damage: Callable[[Path], None]
) -> None:
    """The pointer names the one before it."""
    checkpointed(root, table, 1)
    damage(checkpointed(root, table, 2))

    assert any("damaged-checkpoint" in error for error in errors_of(root))
    done = verify(root, "--repair", "--execute")

    assert done.code == 0
    assert all_records(root, "last") == {0: [(0, "a"), (1, "b")]}
    assert committed(root) == 2
    assert b'"version": 1' in Path(root, table, "_delta_log", "_last_checkpoint").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b'{"version": 2, "si', b'{"version": 77}'])
@pytest.mark.parametrize("table", TABLES)
def test_a_damaged_pointer_to_the_last_checkpoint_is_written_anew(root: str, table: str, content: bytes) -> None:
    """From what lies in the folder."""
    checkpointed(root, table, 2)
    pointer = Path(root, table, "_delta_log", "_last_checkpoint")
    pointer.write_bytes(content)

    assert any("damaged-last-checkpoint" in error for error in errors_of(root))
    assert verify(root, "--repair", "--execute").code == 0
    assert b'"version": 2' in pointer.read_bytes()


@pytest.mark.slow
def test_a_topics_first_version_is_made_anew(root: str) -> None:
    """It says nothing but what a topic's table is, and whose: that the metadata know."""
    empty(commits(root, "last")[0])

    assert verify(root, "--repair", "--execute").code == 0
    assert all_records(root, "last") == {0: [(0, "a"), (1, "b")]}
    fill(connect(root), "last", "c")


def test_a_table_whose_only_checkpoint_is_damaged_is_said_to_need_a_backup(root: str) -> None:
    """Its first versions were cleaned up: there is nothing to go on from."""
    damaged = checkpointed(root, "last", 1)
    empty(damaged)
    commits(root, "last")[0].unlink()
    before = contents(root)

    told = verify(root, "--repair")
    done = verify(root, "--repair", "--execute")

    assert "restore the table from a backup" in told.out
    assert "NOT REPAIRED" in done.out
    assert done.code == 1
    assert contents(root) == before


def test_a_client_that_knows_the_lost_version_loads_the_table_anew(root: str) -> None:
    """It must not write on from what nobody else can see."""
    running = connect(root)
    assert set(running.topics()) == {"first", "last"}
    empty(data_file_of(root, METADATA, commits(root, METADATA)[-1]))

    verify(root, "--repair", "--execute")

    assert set(running.topics()) == {"first"}


def test_only_the_named_topic_is_repaired(root: str) -> None:
    """`--topic` limits a repair as it limits a check."""
    empty(commits(root, "last")[-1])
    empty(commits(root, "first")[-1])

    done = verify(root, "--topic", "last", "--repair", "--execute")

    assert "first" not in done.out
    assert commits(root, "first")[-1].read_bytes() == b""


@pytest.mark.parametrize("flags", [["--execute"], ["--repair", "--json"]])
def test_flags_that_mean_nothing_together_are_refused(root: str, flags: list[str]) -> None:
    """Before anything is looked at."""
    assert verify(root, *flags).code != 0
    assert "--repair" in verify(root, *flags).err
