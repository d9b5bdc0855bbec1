"""Forks: a topic and a new one that begins with its records have nothing in common from then on."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafkalike import KafkaConsumer, TopicPartition, fork, undo
from kafkalike.errors import (
    IllegalArgumentError,
    KafkaStorageError,
    TopicAlreadyExistsError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.topic_lineage import origins_of
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.verify.topic_history import topic_history
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.storage.local import LocalStorage
from tests.tools.consumer import read_to_end
from tests.tools.findings import errors_of
from tests.tools.kinds import only_on_disk
from tests.tools.records import all_records, batch
from tests.tools.upkeep import AT_ONCE, HOUR_MS, ShiftedClock, open_cluster, topic, upkeep

NOW = SYSTEM_CLOCK.now_ms()


@pytest.fixture
def root(root_or_roots: str) -> str:
    """A new one on a disk, several, and in object stores."""
    return root_or_roots


@pytest.fixture
def log(root: str) -> TopicLog:
    """Two appends to two partitions."""
    log = topic(root, "t", 2, {**AT_ONCE, "retention.ms": "-1"})
    log.append(batch((0, "a"), (1, "b"), at_ms=NOW))
    log.append(batch((0, "c"), at_ms=NOW))
    return log


HELD = {0: [(0, "a"), (1, "c")], 1: [(0, "b")]}


@pytest.mark.slow
def test_a_fork_begins_with_all_records_and_both_go_on_apart(root: str, log: TopicLog) -> None:
    made = fork("t", "new", root)

    log.append(batch((0, "old"), at_ms=NOW))
    open_cluster(root).log("new").append(batch((0, "x"), (1, "y"), at_ms=NOW))
    assert (made.version, made.files) == (2, 3)
    assert all_records(root) == {0: [*HELD[0], (2, "old")], 1: HELD[1]}
    assert all_records(root, "new") == {0: [*HELD[0], (2, "x")], 1: [*HELD[1], (1, "y")]}
    assert errors_of(root) == []
    assert "forked: t version 2" in topic_history(open_cluster(root), "new")[-2].what
    assert any("into: new" in event.what for event in topic_history(open_cluster(root), "t"))


@only_on_disk("root_or_roots")
def test_on_a_disk_its_files_take_no_room(root: str, log: TopicLog) -> None:
    made = fork("t", "new", root)

    assert made.shared == made.files == 3
    for path in Path(root, "new").glob("partition=*/*.parquet"):
        assert path.samefile(Path(root, "t", path.relative_to(Path(root, "new"))))


@only_on_disk("root_or_roots")
def test_where_a_disk_has_no_links_files_are_copied_and_it_says_so(
    root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", none)
    files = [LocalStorage(f"{root}/t").copy(s.path, LocalStorage(root), "copied") for s in log.segments(1)]

    assert files == [False]


@pytest.mark.slow
def test_fork_of_a_topic_whose_records_were_all_undone_begins_at_its_log_end(root: str, log: TopicLog) -> None:
    """No file is left to say where the log ends: a consumer that takes its offsets along would be out of range."""
    with KafkaConsumer(bootstrap_servers=root, group_id="g") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 2)
        consumer.commit()
    for event in [one for one in topic_history(open_cluster(root), "t") if one.appends]:
        undo("t", event.appends[0], root, dry_run=False)

    made = fork("t", "new", root, groups=["g"])

    cluster = open_cluster(root)
    assert made.files == 0
    assert {p: cluster.log("new").log_end(p) for p in (0, 1)} == {0: 2, 1: 1}
    assert cluster.log("new").append(batch((0, "x"), (1, "y"), at_ms=NOW)).ranges == {0: range(2, 3), 1: range(1, 2)}
    assert all_records(root, "new") == {0: [(2, "x")], 1: [(1, "y")]}
    assert [one.name for one in origins_of(cluster, cluster.log("new"))] == ["t"]
    with KafkaConsumer("new", bootstrap_servers=root, group_id="g") as consumer:
        assert [record.value for record in read_to_end(consumer)] == [b"x"]
    assert errors_of(root) == []


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["t", "new"])
def test_neither_needs_the_other(root: str, log: TopicLog, gone: str) -> None:
    """Whichever is deleted, and whatever maintenance removes."""
    fork("t", "new", root)
    left = "new" if gone == "t" else "t"

    open_cluster(root).set_configs(gone, {**AT_ONCE, "retention.ms": str(HOUR_MS)})
    clock = ShiftedClock()
    clock.ahead_ms = 48 * HOUR_MS
    upkeep(root, gone, clock=clock)
    assert all_records(root, left) == HELD
    open_cluster(root).delete_topic(gone)
    upkeep(root, left, clock=clock)

    assert all_records(root, left) == HELD
    assert errors_of(root) == []


@only_on_disk("root_or_roots")
def test_another_engines_vacuum_of_the_source_takes_nothing_of_the_fork(root: str, log: TopicLog) -> None:
    fork("t", "new", root)
    upkeep(root)

    DeltaTable(f"{root}/t").vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    assert all_records(root, "new") == HELD
    assert DeltaTable(f"{root}/new").count() == 3


@pytest.mark.slow
def test_a_fork_as_of_a_version_or_a_time_has_what_was_there_then(root: str, log: TopicLog) -> None:
    first = next(event for event in topic_history(open_cluster(root), "t") if event.appends)

    fork("t", "by-version", root, as_of=1)
    # The times of commits are whole ms, and two appends may have the same.
    moment = datetime.fromtimestamp(first.time_ms / 1000, UTC)
    fork("t", "by-time", root, as_of=moment)

    assert all_records(root, "by-version") == {0: [(0, "a")], 1: [(0, "b")]}
    assert all_records(root, "by-time")[0][0] == (0, "a")
    assert errors_of(root) == []


@pytest.mark.slow
def test_deleted_records_are_deleted_in_the_fork_from_its_first_row_on(root: str, log: TopicLog) -> None:
    """The files have them still."""
    open_cluster(root).move_log_start("t", {0: 1}, "delete_records", "test")

    fork("t", "new", root)

    assert all_records(root, "new") == {0: [(1, "c")], 1: [(0, "b")]}
    rows = [row for row in open_cluster(root).metadata.rows if row.topic == "new"]
    assert [row.kind for row in rows][:2] == ["topic", "log_start"]
    assert errors_of(root) == []


@pytest.mark.slow
def test_a_fork_of_a_topic_without_records_goes_on_at_its_end(root: str, log: TopicLog) -> None:
    open_cluster(root).move_log_start("t", {0: 2, 1: 1}, "delete_records", "test")
    upkeep(root)

    fork("t", "new", root)
    open_cluster(root).log("new").append(batch((0, "x"), at_ms=NOW))

    assert all_records(root, "new") == {0: [(2, "x")], 1: []}


@pytest.mark.slow
@only_on_disk("root_or_roots")
def test_what_is_sent_to_a_fork_that_is_being_made_stays_and_the_fork_is_refused(
    root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets are those of the source's records."""
    copy = LocalStorage.copy

    def sending(*args: Any) -> bool:
        if open_cluster(root).log("new").log_end(0) == 0:
            open_cluster(root).log("new").append(batch((0, "early"), at_ms=NOW))
        return copy(*args)

    monkeypatch.setattr(LocalStorage, "copy", sending)
    with pytest.raises(KafkaStorageError, match="left with what was sent"):
        fork("t", "new", root)

    assert all_records(root, "new") == {0: [(0, "early")], 1: []}
    assert errors_of(root) == []


@pytest.mark.slow
def test_a_fork_as_of_a_time_leaves_out_what_was_deleted_by_then(root: str, log: TopicLog) -> None:
    """The newest version of that time is from before the deletion."""
    before = datetime.now(UTC)
    clock = ShiftedClock()
    clock.ahead_ms = HOUR_MS
    open_cluster(root, clock).move_log_start("t", {0: 1}, "delete_records", "test")

    fork("t", "then", root, as_of=before)
    clock.ahead_ms = 3 * HOUR_MS
    fork("t", "since", root, as_of=before + timedelta(hours=2), clock=clock)

    assert all_records(root, "then") == HELD
    assert all_records(root, "since") == {0: [(1, "c")], 1: [(0, "b")]}


def test_groups_stand_in_the_fork_where_they_stood_and_within_its_end(root: str, log: TopicLog) -> None:
    with KafkaConsumer(bootstrap_servers=root, group_id="g") as consumer:
        consumer.assign([TopicPartition("t", p) for p in (0, 1)])
        consumer.seek(TopicPartition("t", 0), 2)
        consumer.seek(TopicPartition("t", 1), 0)
        consumer.commit()

    made = fork("t", "new", root, as_of=1, groups=["g", "unknown"])

    assert made.groups == ("g", "unknown")
    offsets = open_cluster(root).groups.refresh().group("g").offsets
    assert {tp.partition: at.position.offset for tp, at in offsets.items() if tp.topic == "new"} == {0: 1, 1: 0}


@pytest.mark.slow
def test_a_group_with_members_is_refused_and_the_topic_is_there(root: str, log: TopicLog) -> None:
    with KafkaConsumer("t", bootstrap_servers=root, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.poll(timeout_ms=2000)
        consumer.commit()

        with pytest.raises(UnknownMemberIdError):
            fork("t", "new", root, groups="g")

    assert all_records(root, "new") == HELD


@only_on_disk("root_or_roots")
def test_a_version_whose_files_are_gone_is_refused_and_nothing_is_made(root: str, log: TopicLog) -> None:
    for number in range(4):
        log.append(batch((0, f"n{number}"), at_ms=NOW))
    upkeep(root)

    with pytest.raises(KafkaStorageError, match="its files are missing"):
        fork("t", "new", root, as_of=1)

    assert set(open_cluster(root).topics()) == {"t"}


def test_bad_calls_are_refused_by_name(root: str, log: TopicLog) -> None:
    fork("t", "new", root)
    with pytest.raises(TopicAlreadyExistsError):
        fork("t", "new", root)
    with pytest.raises(UnknownTopicOrPartitionError):
        fork("nothing", "other", root)
    for as_of in (-1, True, "1", 1.5, 99):
        with pytest.raises(IllegalArgumentError):
            fork("t", "other", root, as_of=as_of)  # type: ignore[arg-type]
    with pytest.raises(IllegalArgumentError, match="is in the future"):
        fork("t", "other", root, as_of=datetime.now(UTC) + timedelta(hours=2))
    with pytest.raises(IllegalArgumentError, match="zone"):
        fork("t", "other", root, as_of=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point
    with pytest.raises(IllegalArgumentError, match="in place"):
        fork("t", "t", root)
    assert set(open_cluster(root).topics()) == {"t", "new"}
