"""Certificates of forgotten keys: what they must find, and not say, when others are at work at the same time."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from kafkalike import ForgetOptions, forget, fork
from kafkalike.cli import main
from kafkalike.delta.actions import log_name
from kafkalike.errors import IllegalArgumentError
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance import forget as forgetting
from kafkalike.maintenance.maintenance_commit import without_maintenance
from kafkalike.maintenance.verify.certificate_file import check_certificate
from kafkalike.maintenance.works.vacuum import ORPHAN_MS
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.maintenance.record_removal import Certificate, parse_certificate
from kafkalike.model.record_batch import RecordBatch
from tests.tools.kinds import only_on_disk
from tests.tools.records import all_records
from tests.tools.upkeep import HOUR_MS, ShiftedClock, open_cluster, topic, upkeep

NOW = SYSTEM_CLOCK.now_ms()
KEY = b"forget-me-0123456789"


@pytest.fixture
def root(root_or_roots: str) -> str:
    """A new one on a disk, several, and in object stores."""
    return root_or_roots


@pytest.fixture
def log(root: str) -> TopicLog:
    """Four appends that each have the key."""
    log = topic(root, "t", 1, {"kafkalike.merge.min.age.ms": "0"})
    for turn in range(4):
        made = RecordBatch()
        for key in (b"a", KEY, None):
            made.add(0, key, b"%d" % turn, NOW + turn)
        log.append(made)
    return log


def findings(root: str, certificate: Certificate | None, *keys: bytes) -> set[str]:
    """Kinds of what is wrong with a certificate."""
    assert certificate is not None
    return {f.kind for f in check_certificate(open_cluster(root), certificate, keys).findings}


# --- copies ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_fork_of_a_fork_that_was_deleted_is_named(root: str, log: TopicLog) -> None:
    fork("t", "between", root)
    fork("between", "last", root)
    open_cluster(root).delete_topic("between")

    report = forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))

    assert report.copies == ("last",)
    assert "key-not-gone" in findings(root, report.certificate, KEY)


@pytest.mark.slow
def test_a_run_in_a_fork_names_its_origin_and_what_else_comes_from_there(root: str, log: TopicLog) -> None:
    """With how many records of the key each of them has still."""
    fork("t", "new", root)
    fork("t", "other", root)
    fork("other", "last", root)
    forget("other", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))

    report = forget("new", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))

    assert (report.copies, report.origins) == ((), ("last", "other", "t"))
    assert report.held == {"t": report.records, "last": report.records, "other": 0}
    assert report.certificate is not None
    again = parse_certificate(report.certificate.to_json())
    assert (again.origins, again.held) == (report.origins, report.held)
    assert findings(root, report.certificate, KEY) == {"file-not-gone", "key-not-gone"}
    for name in ("t", "last"):
        forget(name, root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))
    assert findings(root, report.certificate, KEY) == set()


def test_a_run_in_a_fork_names_what_else_comes_from_an_origin_that_was_deleted(root: str, log: TopicLog) -> None:
    fork("t", "new", root)
    fork("t", "other", root)
    open_cluster(root).delete_topic("t")

    report = forget("new", root, keys=KEY)

    assert (report.origins, report.held) == (("other",), {"other": report.records})


@pytest.mark.slow
def test_a_fork_is_looked_through_by_the_numbers_of_partitions_of_its_origin(root: str, log: TopicLog) -> None:
    """Where its records lie was said by these."""
    open_cluster(root).add_partitions("t", 7)
    fork("t", "new", root)

    report = forget("new", root, keys=KEY)

    assert report.records == forget("t", root, keys=KEY).records > 0


@only_on_disk("root_or_roots")
def test_a_relative_that_cannot_be_read_is_named_and_the_run_is_finished(root: str, log: TopicLog) -> None:
    fork("t", "new", root)
    for path in Path(root, "new").glob("partition=*/*.parquet"):
        path.unlink()

    report = forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))

    assert (report.copies, report.held) == (("new",), {"new": None})
    assert report.certificate is not None
    assert report.certificate.finished


@only_on_disk("root_or_roots")
def test_a_fork_that_is_made_while_a_run_begins_is_named(
    root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = without_maintenance

    @contextlib.contextmanager
    def after_a_fork(cluster: Any, name: str) -> Any:
        fork("t", "copy", root)
        with alone(cluster, name):
            yield

    monkeypatch.setattr(forgetting, "without_maintenance", after_a_fork)
    report = forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))

    assert report.copies == ("copy",)
    assert "file-not-gone" in findings(root, report.certificate)


@pytest.mark.parametrize("source", ["there", "deleted"])
def test_a_fork_as_of_before_the_run_is_found(root: str, log: TopicLog, source: str) -> None:
    """It was made after the certificate, from files that waited to be removed."""
    version = log.version
    report = forget("t", root, keys=KEY, dry_run=False)

    fork("t", "back", root, as_of=version)
    clock = ShiftedClock()
    clock.ahead_ms = 25 * HOUR_MS
    upkeep(root, clock=clock)
    if source == "deleted":
        open_cluster(root).delete_topic("t")

    assert "file-not-gone" in findings(root, report.certificate)
    assert "key-not-gone" in findings(root, report.certificate, KEY)


# --- files that no table names ---------------------------------------------------------------------


def test_files_that_were_merged_before_go_at_once_too(root: str, log: TopicLog) -> None:
    upkeep(root)
    before = all_records(root)

    report = forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))

    assert (report.records, report.files_removed) == (4, 5)
    assert findings(root, report.certificate, KEY) == set()
    assert all_records(root) == {0: [(o, v) for o, v in before[0] if o % 3 != 1]}


@only_on_disk("root_or_roots")
def test_what_a_killed_writer_has_left_is_waited_for(root: str, log: TopicLog) -> None:
    """Nobody can tell whether its writer is alive, so it stays for an hour, and the certificate says so."""
    (path, *_) = [segment.path for segment in log.segments(0)]
    Path(root, "t", f"{path[:-8]}-left.parquet").write_bytes(Path(root, "t", path).read_bytes())

    report = forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))

    assert report.gone_after_ms >= NOW + ORPHAN_MS
    assert findings(root, report.certificate, KEY) == {"key-not-gone"}


@only_on_disk("root_or_roots")
def test_what_a_repair_has_put_aside_is_searched(root: str, log: TopicLog) -> None:
    Path(root, "t", log_name(log.version)).write_bytes(b"")
    main(["verify", "--repair", "--execute", "--bootstrap-server", root])

    report = forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(now=True))

    assert report.records == 3
    assert findings(root, report.certificate, KEY) == {"key-not-gone"}


# --- the file --------------------------------------------------------------------------------------


def test_two_runs_do_not_write_one_certificate(
    root: str, log: TopicLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one takes the first for one that was killed; what it writes down must not be lost."""
    paper = tmp_path / "certificate.json"
    go = forgetting._Run.go

    def second_first(self: Any, names: Any) -> Any:
        monkeypatch.setattr(forgetting._Run, "go", go)
        forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(certificate=paper))
        return go(self, names)

    monkeypatch.setattr(forgetting._Run, "go", second_first)
    with pytest.raises(IllegalArgumentError, match="another run writes to the certificate"):
        forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(certificate=paper))

    certificate = parse_certificate(paper.read_text())
    assert [topic.records for topic in certificate.topics] == [4]
    assert findings(root, certificate) == {"file-not-gone"}


def test_a_certificate_that_cannot_be_written_or_read_is_refused_first(
    root: str, log: TopicLog, tmp_path: Path
) -> None:
    before = log.version
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")

    for name in (".", "nowhere/c.json", "bytes.json"):
        with pytest.raises(IllegalArgumentError, match="certificate"):
            forget("t", root, keys=KEY, dry_run=False, options=ForgetOptions(certificate=tmp_path / name))
    log.refresh()
    assert log.version == before
