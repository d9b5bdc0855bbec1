"""Several processes on one topic in an object store, through a network that is not sound: one Kafka log."""

from pathlib import Path

import pytest

from kafkalike.connect import connect
from tests.tools.fault_proxy import BAD, FAULTS, FaultProxy
from tests.tools.fleet import Fleet
from tests.tools.object_servers import ObjectServer
from tests.tools.race import Race, assert_sound


@pytest.fixture
def race(server: ObjectServer, proxy: FaultProxy, tmp_path: Path) -> Race:
    return Race(server.new_root(), tmp_path, 3)


@pytest.mark.parametrize("through", ["log", "producer"])
def test_three_producers_lose_double_and_reorder_nothing(race: Race, through: str) -> None:
    """Nothing but the conditional put keeps them apart."""
    report = race.run([{"batches": 25, "through": through}] * 3)

    assert_sound(report, at_least=120)


@pytest.mark.parametrize("through", ["log", "producer"])
def test_nor_do_they_through_a_bad_network(race: Race, proxy: FaultProxy, through: str) -> None:
    """What was acknowledged is there once; what was refused is not there; the rest is told as unknown."""
    proxy.plan.faults = BAD

    report = race.run([{"batches": 40, "through": through}] * 3, judged=lambda: setattr(proxy.plan, "faults", {}))

    assert report["valid"], (report["bad"], report["anomalies"])
    assert sum(proxy.done[fault] for fault in FAULTS) > 50
    assert report["counts"]["acked"] > 0.8 * report["counts"]["attempted"]
    assert report["counts"]["read"] >= report["counts"]["acked"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("faults", [{}, BAD], ids=["sound", "bad"])
def test_eight_producers_commit_for_each_other(race: Race, proxy: FaultProxy, faults: dict[str, float]) -> None:
    """Versions are shared; nothing is lost, doubled or reordered, and everybody is told the truth."""
    proxy.plan.seconds = {"GET": 0.005, "PUT": 0.008, "HEAD": 0.005}
    proxy.plan.faults = faults

    report = race.run([{"batches": 15, "through": "producer"}] * 8, judged=lambda: setattr(proxy.plan, "faults", {}))

    log = connect(race.root).log("t")
    appends = 8 * 15
    assert report["valid"], (report["bad"], report["anomalies"])
    assert report["counts"]["acked"] > (0.8 if faults else 0.999) * report["counts"]["attempted"]
    assert log.version < 0.8 * appends


@pytest.mark.parametrize("point", ["append.before_waiting", "append.waiting"])
def test_a_producer_that_is_killed_while_its_append_waits_costs_nobody_a_record(race: Race, point: str) -> None:
    """Others commit what it has left, once, or nobody does."""
    # One that pauses never makes the latest version, so its appends wait.
    dying = {"batches": 40, "through": "producer", "pause_ms": 100, "fault": f"{point}:kill@1"}

    report = race.run([dying, *[{"batches": 60}] * 3])

    assert report["valid"], (report["bad"], report["anomalies"])
    assert report["counts"]["acked"] + report["counts"]["unknown"] == report["counts"]["attempted"]


@pytest.mark.parametrize("point", ["append.before_files", "append.before_commit", "append.after_commit"])
def test_a_producer_that_is_killed_costs_nobody_else_a_record(race: Race, point: str) -> None:
    """There is no lock that could die with it."""
    report = race.run([{"batches": 20, "through": "producer", "fault": f"{point}:kill@4"}, {"batches": 20}])

    assert report["valid"], (report["bad"], report["anomalies"])
    assert report["counts"]["acked"] + report["counts"]["unknown"] == report["counts"]["attempted"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("faults", [{}, BAD], ids=["sound", "bad"])
def test_members_of_a_group_come_and_go(
    server: ObjectServer, proxy: FaultProxy, tmp_path: Path, faults: dict[str, float]
) -> None:
    """One, three, two members; one is killed, one stopped past its session. Every record is read by one owner."""
    fleet = Fleet(server.new_root(), tmp_path, "range", 4000)
    try:
        m0, m1, m2 = fleet.prepare(3)
        proxy.plan.faults = faults
        with fleet.producing():
            fleet.join(m0)
            fleet.shared_by(1)
            fleet.join(m1, m2)
            fleet.shared_by(3)
            fleet.kill(m0)
            fleet.shared_by(2)
            fleet.stop(m1)
            fleet.shared_by(1)
            fleet.resume(m1)
            fleet.shared_by(2)
        proxy.plan.faults = {}
        fleet.drained()
        fleet.leave(m1)
        fleet.leave(m2)
    finally:
        fleet.end()

    report = fleet.verdict()
    assert report["counts"]["read"] >= report["counts"]["acked"] > 20
