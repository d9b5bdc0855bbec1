"""Restoring: what a topic held earlier comes back as another topic, never in place."""

import os
from pathlib import Path

import pytest

from kafkalike.cli import main
from kafkalike.errors import IllegalArgumentError, KafkaStorageError
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.fork import restore_as
from kafkalike.maintenance.maintenance_report import BUSY
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.port import Storage
from tests.tools.findings import errors_of
from tests.tools.kinds import only_on_disk
from tests.tools.records import all_records, batch
from tests.tools.upkeep import AT_ONCE, EAGER, HOUR_MS, ShiftedClock, keyed, open_cluster, pairs_of, topic, upkeep

NOW = SYSTEM_CLOCK.now_ms()


@pytest.fixture
def root(root_or_roots: str) -> str:
    """A new one on a disk, several, and in object stores."""
    return root_or_roots


@pytest.fixture
def log(root: str) -> TopicLog:
    """Two records whose first one was deleted, then a third; then all of them expire."""
    log = topic(root, "t", 1, {"retention.ms": str(HOUR_MS)})
    log.append(batch((0, "v0"), (0, "v1"), at_ms=NOW))
    open_cluster(root).move_log_start("t", {0: 1}, "delete_records", "r")
    log.append(batch((0, "v2"), at_ms=NOW))
    return log


def test_an_earlier_state_comes_back_under_a_new_id_at_the_same_offsets(root: str, log: TopicLog) -> None:
    """With the log start of that time; the topic itself stays as it is, and both go on."""
    clock = ShiftedClock()
    clock.ahead_ms = 2 * HOUR_MS
    upkeep(root, clock=clock, works=["retention"])

    made = restore_as(open_cluster(root), "t", log.version, "back", "run-1")

    assert all_records(root, "back") == {0: [(1, "v1"), (2, "v2")]}
    assert all_records(root, "t") == {0: []}
    assert made.topic_id != log.info.topic_id
    assert made.configs == log.info.configs
    assert open_cluster(root).log("back").append(batch((0, "next"), at_ms=NOW)).ranges == {0: range(3, 4)}
    assert errors_of(root) == []


@only_on_disk("root_or_roots")
def test_a_maintenance_run_beside_it_takes_no_file_that_is_being_shared(
    root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A linked file keeps the age of the first one, and no commit names it yet."""
    for path in Path(log.files.uri).glob("partition=0/*.parquet"):
        os.utime(path, (NOW / 1000 - 7200, NOW / 1000 - 7200))
    statuses: list[str] = []

    def maintain_and_share(files: LocalStorage, source: str, target: Storage, name: str) -> None:
        share(files, source, target, name)
        statuses.append(upkeep(root, "back").status)

    share = LocalStorage.copy
    monkeypatch.setattr(LocalStorage, "copy", maintain_and_share)
    restore_as(open_cluster(root), "t", log.version, "back", "run-1")

    assert set(statuses) == {BUSY}
    assert all_records(root, "back") == {0: [(1, "v1"), (2, "v2")]}


@only_on_disk("root_or_roots")
def test_a_maintenance_run_cannot_take_the_files_meanwhile(
    root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic's newest version does not name them any more, and they are due."""
    open_cluster(root).set_configs("t", {**AT_ONCE, "retention.ms": "0"})
    upkeep(root, works=["retention"])
    statuses: list[str] = []

    def maintain_and_share(files: LocalStorage, source: str, target: Storage, name: str) -> None:
        statuses.append(upkeep(root, works=["vacuum"]).status)
        share(files, source, target, name)

    share = LocalStorage.copy
    monkeypatch.setattr(LocalStorage, "copy", maintain_and_share)
    restore_as(open_cluster(root), "t", log.version, "back", "run-1")

    assert set(statuses) == {BUSY}
    assert len(list(Path(root, "back").glob("partition=0/*.parquet"))) == 2


@only_on_disk("root_or_roots")
def test_files_that_go_while_they_are_shared_leave_no_half_made_topic(
    root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the topic is deleted meanwhile."""

    def delete_and_share(files: LocalStorage, source: str, target: Storage, name: str) -> None:
        if "t" in open_cluster(root).topics():
            open_cluster(root).delete_topic("t")
        share(files, source, target, name)

    share = LocalStorage.copy
    monkeypatch.setattr(LocalStorage, "copy", delete_and_share)

    with pytest.raises(KafkaStorageError, match="cannot be copied, nothing was made"):
        restore_as(open_cluster(root), "t", log.version, "back", "run-1")

    assert open_cluster(root).topics() == {}
    assert not Path(root, "back").exists()


def test_a_topic_that_was_compacted_once_comes_back_with_its_holes(root: str) -> None:
    """They are no data loss there either."""
    log = topic(root, "t", 1, EAGER)
    for number, key in enumerate("abbc"):
        log.append(keyed((key, str(number)), at_ms=NOW + 10 * number))
    upkeep(root, works=["compaction"])
    open_cluster(root).set_configs("t", {"retention.ms": "-1"})
    log.refresh()

    restore_as(open_cluster(root), "t", log.version, "back", "run-1")

    assert [offset for offset, _, _ in pairs_of(open_cluster(root).log("back"))] == [0, 2, 3]
    assert errors_of(root) == []


def test_in_place_is_refused_with_the_reason(root: str, log: TopicLog) -> None:
    """Offsets would be given out twice."""
    with pytest.raises(
        IllegalArgumentError, match="cannot be restored in place: offsets above version 1 were given out"
    ):
        restore_as(open_cluster(root), "t", 1, "t", "run")


def test_a_version_whose_files_are_gone_makes_no_topic(root: str, log: TopicLog) -> None:
    """The error names one of them."""
    log.refresh()
    log.files.remove(log.segments(0)[0].path)

    with pytest.raises(KafkaStorageError, match="1 of its files are missing"):
        restore_as(open_cluster(root), "t", log.version, "back", "run")

    assert set(open_cluster(root).topics()) == {"t"}


def test_a_version_that_does_not_exist_is_named(root: str, log: TopicLog) -> None:
    """Before anything is made."""
    with pytest.raises(IllegalArgumentError, match="has no version 99"):
        restore_as(open_cluster(root), "t", 99, "back", "run")

    assert set(open_cluster(root).topics()) == {"t"}


def test_the_command_restores_too(root: str, log: TopicLog, capsys: pytest.CaptureFixture[str]) -> None:
    """And says what is missing in its options."""
    asked = ["history", "t", "--bootstrap-server", root, "--restore-as", "back"]

    assert main(asked) == 2
    assert main([*asked, "--table-version", "1"]) == 0

    assert "Created topic back from version 1 of t." in capsys.readouterr().out
    assert all_records(root, "back") == {0: [(0, "v0"), (1, "v1")]}
