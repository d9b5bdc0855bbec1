"""A topic whose commits stand together for who opens it: it is the same topic, however few requests that takes."""

from __future__ import annotations

import pytest

from kafkalike.delta.actions import log_name
from kafkalike.delta.commit_bundles import CommitBundle, unpacked
from kafkalike.delta.log_files import HOUR_MS, LAST_CHECKPOINT, LogFiles, clean_log, joined_name, last_checkpoint
from kafkalike.errors import LogCorruptError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.verify.repair import repair_table
from kafkalike.maintenance.verify.table_damage import damaged_tables
from tests.tools.far import FarStore, tag_of
from tests.tools.groups import commit
from tests.tools.records import batch, everything


@pytest.fixture
def store() -> FarStore:
    return FarStore()


def cluster_of(store: FarStore) -> Cluster:
    return Cluster(store)


def filled(store: FarStore, appends: int, topic: str = "t", first: int = 0) -> None:
    cluster = cluster_of(store)
    if topic not in cluster.topics():
        cluster.create_topic(topic, 1, {})
    log = cluster.log(topic)
    for number in range(first, first + appends):
        log.append(batch(f"v{number:03d}"))
        cluster.settle()


def asked_to_open(store: FarStore, topic: str = "t") -> list[str]:
    """What a client asks for of the topic's own files."""
    store.asked.clear()
    cluster_of(store).log(topic)
    return [name for name in store.asked if name.partition(" ")[2].startswith(f"{topic}/")]


def as_long_as(other: bytes, content: bytes) -> bytes:
    """The same JSON with spaces, which no checksum covers."""
    return content.replace(b"{", b"{" + b" " * (len(other) - len(content)), 1)


def known(store: FarStore) -> tuple[int, int]:
    """Version of the topic's table, and how many data files it has."""
    log = cluster_of(store).log("t")
    return log.version, len(log.segments(0))


def values(store: FarStore, topic: str = "t") -> list[str]:
    return [value for _, value in everything(cluster_of(store).log(topic))[0]]


@pytest.mark.slow
@pytest.mark.parametrize("appends", [4, 5, 64, 99])
def test_a_topic_that_is_written_to_is_opened_with_few_requests(store: FarStore, appends: int) -> None:
    """The name of the last checkpoint, a list, joined commits, and at most three by themselves; or the first five."""
    filled(store, appends)

    assert len(asked_to_open(store)) <= 6
    assert values(store) == [f"v{number:03d}" for number in range(appends)]


@pytest.mark.slow
def test_beyond_a_checkpoint_the_next_commits_are_joined(store: FarStore) -> None:
    filled(store, 113)

    asked = asked_to_open(store)

    assert last_checkpoint(store.at("t")) == 100
    assert f"get t/{joined_name(100)}" in asked
    assert len(asked) == 3 + 1 + 1


@pytest.mark.slow
def test_a_checkpoint_is_made_of_joined_commits(store: FarStore) -> None:
    filled(store, 99)
    cluster = cluster_of(store)
    log = cluster.log("t")
    store.asked.clear()
    log.append(batch("v099"))
    cluster.settle()

    assert last_checkpoint(store.at("t")) == 100
    assert len([name for name in store.asked if name.startswith("get t/_delta_log/0") and name.endswith(".json")]) < 15


@pytest.mark.slow
def test_a_checkpoint_whose_writer_was_killed_costs_a_request(store: FarStore) -> None:
    filled(store, 132)
    files = store.at("t")
    files.remove(LAST_CHECKPOINT)
    for names in LogFiles.listed(files).checkpoints.values():
        files.remove(f"_delta_log/{names[0]}")

    asked = asked_to_open(store)

    assert {f"get t/{joined_name(0)}", f"get t/{joined_name(100)}"} <= set(asked)
    assert len(asked) <= 2 + 2 + 2
    assert len(values(store)) == 132


@pytest.mark.parametrize("content", [b"", b"1 00000000\n", None])
def test_where_joined_commits_are_damaged_each_is_read_by_itself(store: FarStore, content: bytes | None) -> None:
    filled(store, 23)
    files = store.at("t")
    whole = files.read(joined_name(0))
    files.replace(joined_name(0), whole[:-9] if content is None else content)

    assert values(store) == [f"v{number:03d}" for number in range(23)]
    assert f"get t/{log_name(7)}" in asked_to_open(store)


def test_where_joined_commits_are_damaged_the_next_writer_makes_them_anew(store: FarStore) -> None:
    filled(store, 23)
    files = store.at("t")
    files.replace(joined_name(0), b"damaged")

    filled(store, 2, first=23)

    assert len(unpacked(files.read(joined_name(0))).contents) == 25


@pytest.mark.slow
def test_joined_commits_of_another_topic_are_not_used(store: FarStore) -> None:
    """Each commit is as long as this topic's, and said to have the same content."""
    filled(store, 20)
    filled(store, 20, "u")
    files, other = store.at("t"), store.at("u")
    contents = [other.read(log_name(version)) for version in range(1, 21)]
    for version, content in enumerate(contents, 1):
        files.replace(log_name(version), as_long_as(bytes(1000), files.read(log_name(version))))
        contents[version - 1] = as_long_as(bytes(1000), content)
    table_id = cluster_of(store).topics()["u"].topic_id
    tags = [tag_of(files.read(log_name(version))) for version in range(1, 21)]
    files.replace(joined_name(0), CommitBundle(table_id=table_id, first=1, contents=contents, tags=tags).packed())

    assert len(values(store)) == 20
    filled(store, 5, first=20)
    assert values(store) == [f"v{number:03d}" for number in range(25)]


@pytest.mark.slow
def test_what_a_repair_has_put_into_a_damaged_commits_place_counts(store: FarStore) -> None:
    """Also where a writer that was stopped all the while puts the old commits later."""
    filled(store, 20)
    files = store.at("t")
    late = files.read(joined_name(0))
    files.remove(joined_name(0))
    files.replace(log_name(20), b"{")
    cluster = cluster_of(store)
    (damaged,) = damaged_tables(cluster, [cluster.topics()["t"]])
    repair_table(cluster, damaged)
    files.replace(log_name(20), as_long_as(unpacked(late).contents[-1], files.read(log_name(20))))
    repaired = known(store)

    files.replace(joined_name(0), late)

    assert known(store) == repaired
    assert known(store)[1] == 19


def test_a_damaged_commit_is_found_although_it_is_joined(store: FarStore) -> None:
    """And whoever lists the log sees that its content is another one."""
    filled(store, 20)
    cluster = cluster_of(store)
    content = store.at("t").read(log_name(7))
    store._disk.files[f"t/{log_name(7)}"] = (content[:-9] + b"x" * 9, 0)

    (damaged,) = damaged_tables(cluster, [cluster.topics()["t"]])

    assert [flaw.file for flaw in damaged.flaws] == [log_name(7)]
    with pytest.raises(LogCorruptError):
        values(store)


@pytest.mark.slow
def test_joined_commits_go_with_the_commits(store: FarStore) -> None:
    filled(store, 230)
    files = store.at("t")
    store._ticks[0] += 2 * HOUR_MS

    clean_log(files, store._ticks[0], {"delta.logRetentionDuration": "interval 1 hours"})

    found = LogFiles.listed(files)
    assert found.commits[0] == 200
    assert set(found.joined) == {100, 200}
    assert values(store) == [f"v{number:03d}" for number in range(230)]


def test_who_looks_for_a_table_that_is_not_there_asks_for_its_first_version(store: FarStore) -> None:
    """As each consumer does for the offsets of groups, in a root that has none; a list costs as much as a write."""
    cluster, other = cluster_of(store), cluster_of(store)
    cluster.create_topic("t", 1, {})
    cluster.groups.refresh()
    store.asked.clear()

    for _ in range(3):
        assert cluster.groups.refresh().seq == 0
    assert store.asked == [f"get __consumer_offsets/{log_name(0)}"] * 3
    commit(other, 7)
    assert cluster.groups.refresh().seq == 1


def test_topics_of_a_cluster_that_were_made_by_many_changes_are_known_after_few_requests(store: FarStore) -> None:
    cluster = cluster_of(store)
    for number in range(18):
        cluster.create_topic(f"t{number}", 1, {})
        cluster.settle()
    store.asked.clear()

    assert len(cluster_of(store).topics()) == 18

    assert store.asked == ["list __cluster_metadata/_delta_log", f"get __cluster_metadata/{joined_name(0)}"]
