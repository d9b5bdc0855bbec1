"""A damaged file at the end of a table: reads go on at the last good version, writes are refused by name."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.connect import connect
from kafkalike.delta.table_state import TableState, load_table
from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.topic_commits import segment_of
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.storage.local import LocalStorage
from tests.tools.cli import call
from tests.tools.damage import DAMAGES, checkpointed, commits, cut_off, data_file_of, empty, flip, place_hole
from tests.tools.effort import examples
from tests.tools.records import all_records, batch, fill, open_log

if TYPE_CHECKING:
    from collections.abc import Callable


METADATA = "__cluster_metadata"
OFFSETS = "__consumer_offsets"


@pytest.fixture
def cluster(root: str) -> Cluster:
    """Topics `first` and `last` with two appends each, and a group that has committed 1, then 2 in both."""
    cluster = connect(root)
    assert isinstance(cluster, Cluster)
    for topic in ("first", "last"):
        cluster.create_topic(topic, 1, {})
        fill(cluster, topic, "a")
        fill(cluster, topic, "b")
    for offset in (1, 2):
        commit(root, "first", offset)
        commit(root, "last", offset)
    assert isinstance(cluster, Cluster)
    return cluster


def commit(root: str, topic: str, offset: int) -> None:
    with KafkaConsumer(bootstrap_servers=root, group_id="g") as consumer:
        where = TopicPartition(topic, 0)
        consumer.assign([where])
        consumer.commit({where: OffsetAndMetadata(offset, "", -1)})


def committed(root: str, topic: str) -> int | None:
    with KafkaConsumer(bootstrap_servers=root, group_id="g") as consumer:
        return consumer.committed(TopicPartition(topic, 0))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_last_commit_of_the_metadata_leaves_the_topics_before_it(
    cluster: Cluster, root: str, damage: Callable[[Path], None]
) -> None:
    """Readers, appends to the topics that are known, and groups go on."""
    damage(commits(root, METADATA)[-1])

    assert set(connect(root).topics()) == {"first"}
    assert all_records(root, "first") == {0: [(0, "a"), (1, "b")]}
    assert committed(root, "first") == 2
    with KafkaProducer(bootstrap_servers=root) as producer:
        assert producer.send("first", b"c").get(10).offset == 2


@pytest.mark.parametrize("damage", DAMAGES)
def test_nothing_is_written_to_metadata_whose_last_commit_is_damaged(
    cluster: Cluster, root: str, damage: Callable[[Path], None]
) -> None:
    """Who wrote now would go on from a state that others have moved past; and no topic's folder is touched."""
    last = commits(root, METADATA)[-1]
    damage(last)

    for change in (
        lambda: connect(root).create_topic("new", 1, {}),
        lambda: connect(root).create_topic("last", 1, {}),
        lambda: connect(root).delete_topic("first"),
    ):
        with pytest.raises(LogCorruptError, match=rf"{METADATA}.*{last.name}.*kafkalike verify --repair"):
            change()

    assert commits(root, METADATA)[-1] == last
    assert Path(root, "last", "_delta_log").is_dir()
    assert Path(root, "first", "_delta_log").is_dir()


def test_a_damaged_file_is_told_once(root: str, cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """One warning, with the table, the file and the version."""
    last = commits(root, METADATA)[-1]
    empty(last)

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            connect(root).topics()

    told = [r.getMessage() for r in caplog.records if METADATA in r.getMessage()]
    assert len(told) == 1
    assert last.name in told[0]
    assert f"last good version {int(last.stem) - 1}" in told[0]


def test_several_damaged_commits_at_the_end_are_passed_over(root: str, cluster: Cluster) -> None:
    """A power failure takes what the page cache held, not only the last file."""
    empty(commits(root, "first")[-2])
    cut_off(commits(root, "first")[-1])

    assert all_records(root, "first") == {0: []}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_client_that_follows_metadata_goes_on_when_the_next_commit_is_damaged(
    cluster: Cluster, root: str, damage: Callable[[Path], None]
) -> None:
    """It keeps what it knows, and sees the repair."""
    follower = connect(root)
    assert set(follower.topics()) == {"first", "last"}
    cluster.create_topic("third", 1, {})
    last = commits(root, METADATA)[-1]
    sound = last.read_bytes()
    damage(last)

    assert set(follower.topics()) == {"first", "last"}
    with pytest.raises(LogCorruptError, match="verify --repair"):
        follower.create_topic("fourth", 1, {})

    last.write_bytes(sound)
    assert set(follower.topics()) == {"first", "last", "third"}
    follower.create_topic("fourth", 1, {})


@pytest.mark.slow
@pytest.mark.parametrize("damage", [empty, cut_off, flip, Path.unlink])
def test_a_damaged_data_file_of_the_metadata_leaves_the_topics_before_it(
    cluster: Cluster, root: str, damage: Callable[[Path], None]
) -> None:
    """The commit is sound, and what it names is not."""
    file = data_file_of(root, METADATA, commits(root, METADATA)[-1])
    damage(file)

    assert set(connect(root).topics()) == {"first"}
    assert all_records(root, "first") == {0: [(0, "a"), (1, "b")]}
    with pytest.raises(LogCorruptError, match=rf"{METADATA}.*{file.name}.*kafkalike verify --repair"):
        connect(root).create_topic("new", 1, {})


@pytest.mark.slow
@pytest.mark.parametrize("damage", [empty, cut_off, flip, Path.unlink])
def test_a_damaged_data_file_of_the_offsets_leaves_the_commits_before_it(
    cluster: Cluster, root: str, damage: Callable[[Path], None]
) -> None:
    """The last commit is gone, and the one before is in force; nothing can be committed."""
    damage(data_file_of(root, OFFSETS, commits(root, OFFSETS)[-1]))

    assert committed(root, "first") == 2
    assert committed(root, "last") == 1
    with pytest.raises(LogCorruptError, match=rf"{OFFSETS}.*kafkalike verify --repair"):
        commit(root, "first", 2)


def test_a_client_that_follows_the_offsets_goes_on_when_the_next_file_is_damaged(cluster: Cluster, root: str) -> None:
    """It had no part of the damaged file, and falls back to the same version as a new client."""
    groups = connect(root).groups
    groups.refresh()
    commit(root, "first", 1)
    empty(data_file_of(root, OFFSETS, commits(root, OFFSETS)[-1]))

    state = groups.refresh()

    assert state.groups["g"].offsets[TopicPartition("first", 0)].position.offset == 2
    assert groups.refresh() is state


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_topic_with_a_damaged_last_commit_is_read_and_not_appended_to(
    cluster: Cluster, root: str, damage: Callable[[Path], None]
) -> None:
    """Only that topic: others are not touched."""
    last = commits(root, "last")[-1]
    damage(last)

    assert all_records(root, "last") == {0: [(0, "a")]}
    with pytest.raises(LogCorruptError, match=rf"last.*{last.name}.*kafkalike verify --repair"):
        open_log(connect(root), "last").append(batch("new"))
    assert commits(root, "last")[-1] == last
    fill(connect(root), "first", "c")
    assert all_records(root, "first")[0][-1] == (2, "c")


def test_maintenance_removes_nothing_from_a_topic_with_a_damaged_last_commit(cluster: Cluster, root: str) -> None:
    """The data files of the damaged commit look like leftovers, and are what a repair is about."""
    before = set(Path(root, "last").rglob("*.parquet"))
    empty(commits(root, "last")[-1])

    log = open_log(connect(root), "last")
    with pytest.raises(LogCorruptError, match="verify --repair"):
        log.live_paths()

    call(connect(root), "maintain")
    assert set(Path(root, "last").rglob("*.parquet")) == before


@pytest.mark.slow
@pytest.mark.parametrize("damage", [empty, cut_off, flip])
@pytest.mark.parametrize("table", ["last", METADATA, OFFSETS])
def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(
    cluster: Cluster, root: str, table: str, damage: Callable[[Path], None]
) -> None:
    """And the commits since then; nothing is lost, and the table can be written."""
    checkpointed(root, table, 1)
    damage(checkpointed(root, table, 2))
    commits(root, table)[0].unlink()

    assert all_records(root, "last") == {0: [(0, "a"), (1, "b")]}
    assert committed(root, "last") == 2
    connect(root).create_topic("new", 1, {})
    fill(connect(root), "last", "c")
    commit(root, "last", 1)


@pytest.mark.slow
def test_a_flipped_bit_of_a_checkpoint_changes_nothing_or_is_told(cluster: Cluster, root: str) -> None:
    """Where the log begins with it, nothing else says what it has lost."""
    checkpoint = checkpointed(root, "last", 2)
    for commit_file in commits(root, "last"):
        commit_file.unlink()
    store = LocalStorage(root).at("last")
    content = checkpoint.read_bytes()
    right = said_of(load_table(store, segment_of))
    believed = []

    for place in random.Random(1).sample(range(8 * len(content)), examples(4_000, 400)):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        checkpoint.write_bytes(flipped)
        with contextlib.suppress(KafkaError):
            if said_of(load_table(store, segment_of)) != right:
                believed.append(place)

    assert believed == []


def said_of(state: TableState) -> object:
    """All that a checkpoint says of a table."""
    segments = [state.index.segments(partition) for partition in state.index.ends]
    return state.version, state.table_id, state.txns, dict(state.properties), state.schema, segments


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [b"", b'{"version": 2, "si', b"[]", b'{"version": "x"}', b'{"version": 1e999}', b"\xff\x00", b"[" * 99999],
)
@pytest.mark.parametrize("table", ["last", METADATA, OFFSETS])
def test_a_damaged_pointer_to_the_last_checkpoint_changes_nothing(
    cluster: Cluster, root: str, table: str, content: bytes
) -> None:
    """The folder is listed; the pointer only spares foreign readers that."""
    checkpointed(root, table, 2)
    Path(root, table, "_delta_log", "_last_checkpoint").write_bytes(content)

    assert all_records(root, "last") == {0: [(0, "a"), (1, "b")]}
    assert committed(root, "last") == 2
    fill(connect(root), "last", "c")


@pytest.mark.parametrize("table", ["last", METADATA, OFFSETS])
def test_a_hole_in_the_log_is_an_error_that_names_the_repair(cluster: Cluster, root: str, table: str) -> None:
    """What comes after the hole rests on what was in it: neither reads nor writes can go on."""
    hole = place_hole(root, table)

    with pytest.raises(LogCorruptError, match=rf"{hole.name} is missing.*kafkalike verify --repair"):
        committed(root, "last") if table == OFFSETS else all_records(root, "last")


# What JSON can say and no writer of Delta does: too large for a number, of another kind, or with too many digits.
ODD: list[Any] = [None, "x", float("inf"), float("nan"), -1, [], {"a": []}, "9" * 5000]
PLACES = {
    "commitInfo": ("timestamp", "operation", "userMetadata"),
    "add": ("path", "partitionValues", "size", "modificationTime", "dataChange"),
    "stats": ("numRecords", "minValues", "maxValues"),
    "bounds": ("offset", "timestamp"),
    "txn": ("appId", "version"),
}
CASES = [(kind, name, odd) for kind, names in PLACES.items() for name in names for odd in ODD]


@pytest.mark.slow
def test_a_commit_that_says_what_no_writer_says_is_refused_by_name(cluster: Cluster, root: str) -> None:
    """A program that catches `KafkaError` catches it; where it makes no difference, records are read."""
    sound, bare = Path(root).with_suffix(".sound"), []
    shutil.copytree(root, sound)
    lines = commits(root, "last")[-1].read_text().splitlines()
    record = next(action["add"] for action in map(json.loads, lines) if "add" in action)

    for kind, name, value in CASES[:: examples(1, 7)]:
        shutil.rmtree(root)
        shutil.copytree(sound, root)
        add = {**record, "path": "partition=0/foreign.parquet"}
        stats = json.loads(add["stats"])
        stats["minValues"]["offset"] = stats["maxValues"]["offset"] = 2
        actions: dict[str, dict[str, Any]] = {
            "commitInfo": {"timestamp": 1, "operation": "WRITE"},
            "txn": {"appId": "a", "version": 1},
            "add": add,
        }
        {**actions, "stats": stats, "bounds": stats["minValues"]}[kind][name] = value
        add["stats"] = json.dumps(stats)
        shutil.copy(Path(root, "last", record["path"]), Path(root, "last", "partition=0", "foreign.parquet"))
        known = open_log(connect(root), "last")
        content = "\n".join(json.dumps({action: body}) for action, body in actions.items())
        commits(root, "last")[-1].with_stem(f"{3:020d}").write_text(content)
        for use in (
            known.refresh,
            lambda: all_records(root, "last"),
            lambda: fill(connect(root), "last", "c"),
            lambda: call(connect(root), "verify"),
            lambda: call(connect(root), "maintain"),
        ):
            try:
                use()
            except KafkaError:
                pass
            except Exception as error:  # noqa: BLE001 - what must not come
                bare.append((kind, name, str(value)[:20], repr(error)[:120]))

    assert bare == []
