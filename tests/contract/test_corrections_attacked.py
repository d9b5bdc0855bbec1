"""Corrections where others are at work: what must not be said, and not be taken, when things come together badly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kafkalike import KafkaProducer, forget, fork, undo
from kafkalike.clock import SYSTEM_CLOCK
from kafkalike.corrections.forget import _Run
from kafkalike.corrections.paper import Paper
from kafkalike.errors import IllegalArgumentError
from kafkalike.log.inspect.certificate import check_certificate
from kafkalike.log.inspect.history import topic_history
from kafkalike.mirror import Mirror, promote
from kafkalike.model.batch import RecordBatch
from kafkalike.model.corrections.certificate import Certificate, parse_certificate
from tests.tools.records import all_records, batch
from tests.tools.upkeep import AT_ONCE, HOUR_MS, ShiftedClock, open_cluster, topic, upkeep

NOW = SYSTEM_CLOCK.now_ms()
KEY = b"forget-me-0123456789"


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "root")


def filled(root: str, appends: int = 3, configs: dict[str, str] | None = None, name: str = "t") -> Any:
    log = topic(root, name, 1, configs or {})
    for turn in range(appends):
        made = RecordBatch()
        for key in (b"a", KEY, None):
            made.add(0, key, b"%d" % turn, NOW + turn)
        log.append(made)
    return log


def findings(root: str, certificate: Certificate | None, *keys: bytes) -> set[str]:
    assert certificate is not None
    return {f.kind for f in check_certificate(open_cluster(root), certificate, keys).findings}


def ids(root: str, name: str = "t") -> list[str]:
    return [one for event in topic_history(open_cluster(root), name) for one in event.appends]


# --- forks -----------------------------------------------------------------------------------------


def test_a_fork_of_a_fork_that_was_deleted_is_named(root: str) -> None:
    filled(root)
    fork("t", "between", root)
    fork("between", "last", root)
    open_cluster(root).delete_topic("between")

    report = forget("t", root, keys=KEY, execute=True, now=True)

    assert report.copies == ("last",)
    assert "key-not-gone" in findings(root, report.certificate, KEY)


def test_a_fork_that_is_made_while_a_run_begins_is_named(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(root)
    begun = _Run._forget

    def late(self: Any, log: Any, paper: Any) -> None:
        begun(self, log, paper)

    import contextlib

    from kafkalike.corrections import forget as module

    taken = module.without_maintenance

    @contextlib.contextmanager
    def forked_first(cluster: Any, name: str) -> Any:
        monkeypatch.undo()
        fork("t", "copy", root)
        with taken(cluster, name):
            yield

    monkeypatch.setattr(module, "without_maintenance", forked_first)
    report = forget("t", root, keys=KEY, execute=True, now=True)

    assert report.copies == ("copy",)
    assert "file-not-gone" in findings(root, report.certificate)


def test_a_fork_as_of_before_the_run_is_found_by_the_certificate(root: str) -> None:
    log = filled(root)
    version = log.version
    report = forget("t", root, keys=KEY, execute=True)

    fork("t", "back", root, as_of=version)
    clock = ShiftedClock()
    clock.ahead_ms = 25 * HOUR_MS
    upkeep(root, clock=clock)

    assert "file-not-gone" in findings(root, report.certificate)
    assert "key-not-gone" in findings(root, report.certificate, KEY)


# --- bytes beside ----------------------------------------------------------------------------------


def test_files_that_were_merged_before_are_gone_when_the_certificate_says_so(root: str) -> None:
    filled(root, 4, {"kafkalike.merge.min.age.ms": "0"})
    upkeep(root)
    assert len(open_cluster(root).log("t").segments(0)) == 1

    report = forget("t", root, keys=KEY, execute=True, now=True)

    left = findings(root, report.certificate, KEY)
    assert report.certificate is not None
    assert left == set() or report.certificate.gone_after_ms >= NOW + 23 * HOUR_MS, left


def test_what_a_repair_has_put_aside_is_searched(root: str) -> None:
    log = filled(root, 3)
    from kafkalike.log.table.actions import log_name

    Path(root, "t", log_name(log.version)).write_bytes(b"")
    from kafkalike.cli import main

    main(["verify", "--repair", "--execute", "--bootstrap-server", root])
    assert list(Path(root, "__damaged").rglob("*"))

    report = forget("t", root, keys=KEY, execute=True, now=True)
    aside = [str(p) for p in Path(root, "__damaged").rglob("*.parquet")]
    assert aside, "no data file aside"
    assert "key-not-gone" in findings(root, report.certificate, KEY)


def test_two_runs_with_one_certificate_do_not_overwrite_each_other(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(root)
    paper = tmp_path / "c.json"
    before = _Run.go

    def second_first(self: Any, names: Any) -> Any:
        monkeypatch.undo()
        # Another one comes, finds the file of a run that is not finished, and is faster.
        forget("t", root, keys=KEY, execute=True, certificate=paper)
        return before(self, names)

    monkeypatch.setattr(_Run, "go", second_first)
    try:
        forget("t", root, keys=KEY, execute=True, certificate=paper)
    except IllegalArgumentError as e:
        print(e)

    certificate = parse_certificate(paper.read_text())
    assert sum(t.records for t in certificate.topics) == 3
    assert "file-not-gone" in findings(root, certificate)


