"""`kafkalike maintain`, `kafkalike history` and the job, as a user calls them."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.cli import main
from kafkalike.cli.jobs import retention as job
from kafkalike.errors import IllegalArgumentError, InvalidConfigurationError
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.maintenance.schedule import every, parse_duration_ms
from kafkalike.maintenance.verify.topic_history import topic_history
from kafkalike.model.clock import SYSTEM_CLOCK, utc_text
from tests.tools.clusters import on_disk
from tests.tools.kinds import only_on_disk
from tests.tools.records import all_records, batch
from tests.tools.upkeep import AT_ONCE, HOUR_MS, open_cluster, topic

NOW = SYSTEM_CLOCK.now_ms()


@pytest.fixture
def root(any_root: str) -> str:
    """A new one on a disk, and in object stores."""
    return any_root


@pytest.fixture
def orders(root: str) -> TopicLog:
    """Eight appends; two of them are past `retention.ms`."""
    log = topic(root, "orders", 1, {**AT_ONCE, "retention.ms": str(HOUR_MS)})
    for number in range(8):
        log.append(batch((0, f"v{number}"), at_ms=NOW - (2 * HOUR_MS if number < 2 else 0)))
    return log


def told(capsys: pytest.CaptureFixture[str], *args: str, expected: int = 0) -> list[str]:
    """What a command prints; its exit code must be the expected one."""
    code = main(list(args))
    out = capsys.readouterr()
    assert code == expected, out.err
    return (out.out if not expected else out.out + out.err).splitlines()


def test_a_dry_run_prints_the_plan_and_a_run_what_was_done(
    root: str, orders: TopicLog, capsys: pytest.CaptureFixture[str]
) -> None:
    """Per topic and kind of work: segments, records, bytes and offsets."""
    planned = told(capsys, "maintain", "--bootstrap-server", root, "--dry-run")
    assert len(all_records(root, "orders")[0]) == 8
    done = told(capsys, "maintain", "--bootstrap-server", root, "--topic", "ord.*")

    assert planned[0].split() == ["TOPIC", "WORK", "SEGMENTS", "RECORDS", "BYTES", "DETAILS"]
    assert planned[1].split()[:4] == ["orders", "retention", "2", "2"]
    assert planned[1].endswith("log start 0: 0 -> 2")
    assert planned[2].split()[:5] == ["orders", "merge", "6", "->", "1"]
    assert planned[3].split()[:2] == ["orders", "next"]
    assert planned[3].endswith(f"retention, from {utc_text(NOW + HOUR_MS + 1)} on")
    assert planned[-1].startswith("Dry run, nothing was changed: 1 topic (1 due)")
    assert done[1:3] == planned[1:3]
    assert done[3].split()[:3] == ["orders", "vacuum", "8"]
    assert done[-1].startswith("Run ")
    assert ": 1 topic (1 done)" in done[-1]


def test_the_report_is_json_on_standard_output_and_in_a_file(
    root: str, orders: TopicLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And figures for Prometheus."""
    files = ("--report", str(tmp_path / "report.json"), "--metrics-file", str(tmp_path / "maintenance.prom"))

    (line,) = told(capsys, "maintain", "--bootstrap-server", root, "--json", *files)

    report: dict[str, Any] = json.loads(line)
    assert report == json.loads((tmp_path / "report.json").read_text())
    assert report["exit_code"] == 0
    assert report["topics"][0]["log_starts"] == {"0": [0, 2]}
    assert 'kafkalike_maintenance_deleted_records{topic="orders"} 2.0' in (tmp_path / "maintenance.prom").read_text()


def test_only_some_work_can_be_asked_for(root: str, orders: TopicLog, capsys: pytest.CaptureFixture[str]) -> None:
    """Here nothing is deleted and nothing vacuumed."""
    lines = told(capsys, "maintain", "--bootstrap-server", root, "--only", "merge")

    assert [line.split()[1] for line in lines[1:-1]] == ["merge"]
    assert len(all_records(root, "orders")[0]) == 8


@pytest.mark.parametrize(
    ("args", "code", "problem"),
    [
        (["--topic", "nope"], 1, "Topic 'nope' does not exist as expected"),
        (["--topic", "("], 2, "invalid regex"),
        (["--max-minutes", "0"], 2, "0.0 is not in the range"),
        (["--only", "everything"], 2, "'everything' is not one of"),
        (["--every", "soon"], 1, "a duration such as 30s"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_done(
    root: str, orders: TopicLog, capsys: pytest.CaptureFixture[str], args: list[str], code: int, problem: str
) -> None:
    """With what would be right."""
    lines = told(capsys, "maintain", "--bootstrap-server", root, *args, expected=code)

    assert problem in " ".join(lines)
    assert len(all_records(root, "orders")[0]) == 8


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}, "is above max.compaction.lag.ms"),
        (
            {"kafkalike.retention.wait.groups": "g", "kafkalike.retention.wait.max.ms": "1"},
            "retention would never wait",
        ),
    ],
)
def test_settings_that_contradict_each_other_fail_the_topic_with_the_reason(
    root: str, settings: dict[str, str], problem: str
) -> None:
    """Nothing is done to it."""
    topic(root, "orders", 1, settings).append(batch((0, "v"), at_ms=0))

    (found,) = maintain(open_cluster(root), clock=SYSTEM_CLOCK).topics

    assert found.status == "failed"
    assert InvalidConfigurationError.__name__ in found.problems[0]
    assert problem in found.problems[0]
    assert len(all_records(root, "orders")[0]) == 1


@only_on_disk("any_root")
def test_a_root_that_does_not_exist_stays_that_way(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Looking makes no folder."""
    assert main(["maintain", "--bootstrap-server", root]) == 1

    assert f"the root {root} does not exist" in capsys.readouterr().err
    assert not Path(root).exists()


def test_history_says_who_did_what(root: str, orders: TopicLog, capsys: pytest.CaptureFixture[str]) -> None:
    """Appends, settings, log starts with their run, and what the run did to the table."""
    open_cluster(root).set_configs("orders", {"retention.ms": "1"})
    run = json.loads(told(capsys, "maintain", "--bootstrap-server", root, "--json")[0])["run"]

    lines = told(capsys, "history", "orders", "--bootstrap-server", root, "--json")

    events = [json.loads(line) for line in lines]
    kinds = [event["kind"] for event in events]
    assert kinds.count("append") == 8
    assert kinds.count("create table") == 1
    assert next(e["what"] for e in events if e["kind"] == "configs").startswith("configs changed: retention.ms=1")
    moved = next(e for e in events if e["kind"] == "log start")
    assert moved["what"] == f"log start of partition 0 moved to 8 by retention, run {run}"
    deleted = next(e for e in events if e["kind"] == "retention")
    assert (deleted["what"], deleted["by"].split()[-1]) == ("segments: 8, records: 8", run)
    (last,) = told(capsys, "history", "orders", "--bootstrap-server", root, "--kind", "retention", "--last", "1")
    assert "segments: 8, records: 8" in last


def test_history_keeps_the_order_of_the_logs_when_a_clock_went_back(root: str) -> None:
    """Each line shows the time that its writer's clock had."""
    clock = ManualClock(1000)
    cluster = on_disk(root, clock=clock)
    cluster.create_topic("orders", 1, {})
    cluster.set_configs("orders", {"retention.ms": "1000"})
    clock.seconds = 500
    cluster.set_configs("orders", {"retention.ms": "2000"})
    for value in ("first", "second"):
        cluster.log("orders").append(batch((0, value), at_ms=clock.now_ms()))
        clock.seconds -= 100

    events = topic_history(cluster, "orders")

    assert [e.what for e in events if e.kind in {"topic", "configs"}] == [
        "created",
        "configs changed: retention.ms=1000",
        "configs changed: retention.ms=2000",
    ]
    assert [e.version for e in events if e.kind == "append"] == [1, 2]
    assert [e.time_ms for e in events if e.kind == "append"] == [500_000, 400_000]


def test_the_job_is_the_same_command(root: str, orders: TopicLog, capsys: pytest.CaptureFixture[str]) -> None:
    """With its exit codes."""
    assert job.main(["--bootstrap-server", root, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["topics"][0]["deleted_records"] == 2
    assert job.main(["--unknown"]) == 2


# --- again and again -------------------------------------------------------------------------------


def test_a_schedule_runs_one_at_a_time_until_it_is_stopped() -> None:
    """The first turn comes at once; one that fails does not end it."""
    stop = threading.Event()
    turns: list[int] = []

    def task() -> None:
        turns.append(len(turns))
        if len(turns) == 3:
            stop.set()
        if len(turns) == 2:
            raise IllegalArgumentError("this turn fails")

    every(10, task, stop)

    assert turns[:3] == [0, 1, 2]


@pytest.mark.parametrize("text", ["", "5", "m", "0s", "-1s", "1.5h", "5 m", "5w"])
def test_a_duration_needs_a_number_and_a_unit(text: str) -> None:
    """From 1 ms."""
    with pytest.raises(IllegalArgumentError, match="a duration such as"):
        parse_duration_ms(text)
