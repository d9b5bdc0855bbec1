"""`kafkalike.flush`: what is acknowledged is on the disk, in the right order; and by default nothing waits for that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkalike import KafkaProducer, OffsetAndMetadata, TopicPartition
from kafkalike.admin import KafkaAdminClient
from kafkalike.connect import connect
from kafkalike.errors import KafkaStorageError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from tests.tools.records import all_records, batch, open_log
from tests.tools.upkeep import AT_ONCE

Event = tuple[str, str]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What reaches the disk (`sync`) and which names appear (`link`), in order; both are still done."""
    seen: list[Event] = []
    fsync, link = os.fsync, os.link

    def noted_sync(handle: int) -> None:
        fsync(handle)
        seen.append(("sync", str(Path(f"/proc/self/fd/{handle}").readlink())))

    def noted_link(source: str, target: str) -> None:
        link(source, target)
        seen.append(("link", str(target)))

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "link", noted_link)
    return seen


def topic(root: str, flush: str) -> Cluster:
    cluster = connect(root)
    assert isinstance(cluster, Cluster)
    cluster.create_topic("t", 2, {"kafkalike.flush": flush, "retention.ms": "-1", **AT_ONCE})
    return cluster


def check_order(events: list[Event], root: str, table: str = "t") -> None:
    """Data files and their folders come before the commit's content, that before its name, that before the folder."""
    synced = [path for kind, path in events if kind == "sync"]
    log = f"{root}/{table}/_delta_log"
    (commit,) = [at for at, (kind, path) in enumerate(events) if kind == "link" and path.startswith(f"{log}/0")]
    data = [at for at, (kind, path) in enumerate(events) if kind == "sync" and path.endswith(".parquet")]
    content = [at for at, (kind, path) in enumerate(events) if kind == "sync" and path.endswith(".tmp")]
    names = [at for at, event in enumerate(events) if event == ("sync", log)]
    assert data
    assert {path.rpartition("/")[0] for path in synced if path.endswith(".parquet")} <= set(synced)
    assert max(data) < min(content) < commit < max(names)


def test_an_append_is_on_the_disk_when_it_returns(root: str, events: list[Event]) -> None:
    """Records of two partitions: both files, before the commit."""
    log = open_log(topic(root, "true"))
    events.clear()

    log.append(batch((0, "a"), (1, "b")))

    assert len([path for kind, path in events if kind == "sync" and path.endswith(".parquet")]) == 2
    assert ("sync", f"{root}/t") in events  # the partitions' folders were made
    check_order(events, root)


def test_a_send_is_on_the_disk_when_its_future_is_done(root: str, events: list[Event]) -> None:
    """For producers."""
    topic(root, "true")
    with KafkaProducer(bootstrap_servers=root) as producer:
        events.clear()
        producer.send("t", b"a", partition=0).get(10)
        check_order(list(events), root)


def test_a_rewrite_is_on_the_disk_before_the_old_files_go(root: str, events: list[Event]) -> None:
    """Merging takes acknowledged records to another file."""
    cluster = topic(root, "true")
    for number in range(8):
        open_log(cluster).append(batch((0, f"v{number}")))
    events.clear()

    report = maintain(cluster, clock=SYSTEM_CLOCK)

    assert report.topics[0].merged_segments == 8
    check_order(events, root)
    assert all_records(root)[0] == [(number, f"v{number}") for number in range(8)]


def test_nothing_is_flushed_by_default(root: str, events: list[Event]) -> None:
    """As in Kafka: the page cache is the operating system's to write."""
    log = open_log(topic(root, "false"))
    events.clear()

    log.append(batch((0, "a"), (1, "b")))

    assert [event for event in events if event[0] == "sync"] == []


def test_the_setting_counts_from_the_next_append_on(root: str, events: list[Event]) -> None:
    """An open log follows it, on and off."""
    cluster = topic(root, "false")
    log = open_log(cluster)
    connect(root).set_configs("t", {"kafkalike.flush": "true"})
    events.clear()
    log.append(batch((0, "a")))
    check_order(events, root)

    connect(root).set_configs("t", {"kafkalike.flush": "false"})
    events.clear()
    log.append(batch((0, "b")))

    assert [event for event in events if event[0] == "sync"] == []


def test_an_append_that_cannot_be_flushed_is_refused(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves nothing: neither a version nor its files."""
    log = open_log(topic(root, "true"))
    fsync = os.fsync

    def full(handle: int) -> None:
        if str(Path(f"/proc/self/fd/{handle}").readlink()).endswith(".parquet"):
            raise OSError(28, "No space left on device")
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(KafkaStorageError, match="No space left"):
            log.append(batch((0, "a")))

    assert log.files.list(deep=True) == []
    log.append(batch((0, "b")))
    assert all_records(root)[0] == [(0, "b")]


def test_the_metadata_and_a_new_topics_table_are_always_flushed(root: str, events: list[Event]) -> None:
    """Metadata that name a table which the power failure took would be a damaged cluster."""
    topic(root, "false")

    synced = [path for kind, path in events if kind == "sync"]
    assert {f"{root}/t/_delta_log", f"{root}/t", root, f"{root}/__cluster_metadata/_delta_log"} <= set(synced)
    assert any(path.startswith(f"{root}/__cluster_metadata/part-") for path in synced)


# --- committed offsets -------------------------------------------------------------------------


def commit_offset(cluster: Cluster) -> None:
    """For a group without members, as `consumer-groups --reset-offsets` does it."""
    with KafkaAdminClient(bootstrap_servers=cluster) as admin:
        admin.alter_group_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(0)})


def flushing(root: str, value: str) -> Cluster:
    """A cluster whose file of server defaults says whether topics are flushed."""
    Path(root).mkdir()
    Path(root, "server.properties").write_text(f"log.kafkalike.flush={value}\n", encoding="utf-8")
    cluster = connect(root)
    assert isinstance(cluster, Cluster)
    cluster.create_topic("t", 1, {})
    return cluster


def test_a_committed_offset_is_on_the_disk_where_the_server_flushes_by_default(root: str, events: list[Event]) -> None:
    """The offsets table has no settings of its own: as in Kafka, what holds for all topics holds for it."""
    cluster = flushing(root, "true")
    commit_offset(cluster)  # makes the table
    assert f"{root}/__consumer_offsets" in {path for kind, path in events if kind == "sync"}
    events.clear()

    commit_offset(cluster)

    check_order(events, root, "__consumer_offsets")


@pytest.mark.parametrize("others", ["true", "false"])
def test_a_topics_own_setting_says_nothing_about_committed_offsets(root: str, events: list[Event], others: str) -> None:
    """One commit may be about many topics."""
    cluster = topic(root, others)
    events.clear()

    commit_offset(cluster)

    assert [path for kind, path in events if kind == "sync"] == []


def test_a_server_that_does_not_flush_is_the_default(root: str, events: list[Event]) -> None:
    cluster = flushing(root, "false")
    events.clear()

    commit_offset(cluster)

    assert [path for kind, path in events if kind == "sync"] == []
