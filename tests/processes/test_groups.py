"""Members of a group as real processes that join, leave, are killed and are stopped, while records keep coming."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.jepsen.ownership import spans
from tests.tools.fleet import PARTITIONS, Fleet


@pytest.fixture
def fleet_of(root: str, tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    """Makes a fleet, and ends its processes."""
    made: list[Fleet] = []

    def make(strategy: str, session_ms: int = 1500) -> Fleet:
        made.append(Fleet(root, tmp_path, strategy, session_ms))
        return made[-1]

    yield make
    for fleet in made:
        fleet.end()


@pytest.mark.timeout(180)
def test_members_come_and_go_and_every_record_is_read_by_one_owner(fleet_of: Callable[..., Fleet]) -> None:
    """One, three, five, two members; killed, stopped past their session, woken up again, and leaving."""
    fleet = fleet_of("range")
    m0, m1, m2, m3, m4 = fleet.prepare(5)

    with fleet.producing():
        fleet.join(m0)
        fleet.shared_by(1)
        fleet.join(m1, m2)
        fleet.shared_by(3)
        fleet.join(m3, m4)
        fleet.shared_by(5)
        fleet.kill(m0)
        fleet.stop(m1)
        fleet.shared_by(3)
        fleet.resume(m1)
        fleet.shared_by(4)
        fleet.leave(m2)
        fleet.shared_by(3)
        fleet.kill(m3)
        fleet.shared_by(2)
    fleet.drained()
    fleet.leave(m1)
    fleet.leave(m4)

    report = fleet.verdict()
    assert report["counts"]["acked"] == report["counts"]["read"] > 100


@pytest.mark.timeout(180)
def test_a_member_that_is_stopped_in_the_middle_of_a_commit_stops_nobody_else(fleet_of: Callable[..., Fleet]) -> None:
    """It holds the table's lock; woken up it is fenced and joins again. Cooperative: what stays is never given up."""
    fleet = fleet_of("cooperative-sticky")
    m0, m1 = fleet.prepare(2)
    (sleeper,) = fleet.prepare(1, fault="commit.before:stop@4")

    with fleet.producing():
        fleet.join(m0, m1)
        fleet.shared_by(2)
        fleet.join(sleeper)
        fleet.stops_itself(sleeper)
        fleet.shared_by(2)
        fleet.resume(sleeper)
        fleet.shared_by(3)
    fleet.drained()
    for name in (m0, m1, sleeper):
        fleet.leave(name)

    fleet.verdict()
    assert_what_stays_is_never_given_up(fleet)


@pytest.mark.timeout(120)
def test_a_member_that_is_stopped_before_it_hears_of_its_partitions_gets_nothing_of_its_heirs(
    fleet_of: Callable[..., Fleet],
) -> None:
    """The commit by which it joined the empty group gave it everything; another one reads that by the time it wakes up.

    It must not be told of partitions that it does not own any more, nor be given their records.
    """
    fleet = fleet_of("sticky")
    (successor,) = fleet.prepare(1)
    (sleeper,) = fleet.prepare(1, fault="commit.after:stop@1")

    with fleet.producing():
        fleet.join(sleeper)
        fleet.stops_itself(sleeper)
        fleet.join(successor)
        fleet.member_of(successor)
        fleet.shared_by(1)
        fleet.resume(sleeper)
        fleet.shared_by(2)
    fleet.drained()
    for name in (sleeper, successor):
        fleet.leave(name)

    fleet.verdict()
    assert {how for how, _ in fleet.told(sleeper)} == {"assigned", "revoked"}
    assert [len(which) for how, which in fleet.told(sleeper) if how == "assigned"] == [PARTITIONS // 2]


def assert_what_stays_is_never_given_up(fleet: Fleet) -> None:
    """A partition that was revoked is another member's next."""
    owned = sorted(spans(fleet.histories, "g", fleet.halted), key=lambda s: s.start)
    for nth, span in enumerate(owned):
        following = next((s for s in owned[nth + 1 :] if s.partition == span.partition), None)
        assert span.ended != "revoked" or following is None or following.owner != span.owner, (span, following)


@pytest.mark.timeout(120)
def test_static_members_restart_one_by_one_without_a_rebalance_beside_another_group(
    fleet_of: Callable[..., Fleet],
) -> None:
    """Killed or closed, each comes back under its name; the generation stays, and both groups get everything."""
    fleet = fleet_of("range", session_ms=20_000)
    (a,), (b,), (a2,), (b2,) = (fleet.prepare(1, instance=name) for name in "abab")
    (other,) = fleet.prepare(1, group="other")

    with fleet.producing():
        fleet.join(a, b, other)
        fleet.shared_by(2)
        generation = fleet.roster().generation
        for halt, old, new in ((fleet.kill, a, a2), (fleet.leave, b, b2)):
            halt(old)
            fleet.join(new)
            fleet.member_of(new)
    fleet.drained()
    fleet.drained("other")

    assert fleet.roster().generation == generation
    assert fleet.read_by(a, b, a2, b2) == fleet.read_by(other) != set()
    for name in (a2, b2, other):
        fleet.leave(name)
    fleet.verdict()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
def test_fifty_changes_of_membership_break_nothing(fleet_of: Callable[..., Fleet], strategy: str) -> None:
    """Random joins, kills, stops and leaves, from one to five members."""
    chance = random.Random(strategy)
    fleet = fleet_of(strategy)
    fleet.join(*fleet.prepare(2))
    with fleet.producing():
        for _ in range(50):
            fleet.shared_by(len(fleet.live))
            change = chance.choice(["join", "kill", "stop", "leave"])
            if len(fleet.live) == 1 or (change == "join" and len(fleet.live) < 5):
                fleet.join(*fleet.prepare(1))
                continue
            name = chance.choice(sorted(fleet.live))
            if change == "stop" and name not in fleet.halted:
                fleet.stop(name)
                fleet.shared_by(len(fleet.live) - 1)
                fleet.resume(name)
            elif change == "kill":
                fleet.kill(name)
            else:
                fleet.leave(name)
    fleet.shared_by(len(fleet.live))
    fleet.drained()
    for name in list(fleet.live):
        fleet.leave(name)

    report = fleet.verdict()
    assert report["counts"]["acked"] == report["counts"]["read"]
