"""A member that gave no heartbeat for its session, and one that saw that: whoever writes first, both know it."""

from collections.abc import Callable, Iterable

import pytest

from kafkalike.log.group.membership import RosterChange
from kafkalike.model.groups.roster import Roster
from tests.tools.group_world import SESSION, Actor, World


class Interrupted(World):
    """Two members, and a store in which others come in between a plan and its write."""

    def __init__(self) -> None:
        super().__init__(0, "sticky", actors=2, faulty=False)
        self.before: list[Callable[[], object]] = []
        """What happens before the next plan."""
        self.between: list[Callable[[], object]] = []
        """What happens between the next plan and its write."""
        self.at_renewal: list[Callable[[], object]] = []
        """What happens before the next heartbeat."""
        renew = self.leases.renew

        def interrupted(group_id: str, member_id: str) -> None:
            if self.at_renewal:
                self.at_renewal.pop()()
            renew(group_id, member_id)

        self.leases.renew = interrupted  # type: ignore[method-assign]

    def change(self, change: RosterChange, by: str, why: str, timeout_ms: float | None = None) -> Roster:
        del by, why, timeout_ms
        while True:
            if self.before:
                self.before.pop()()
            planned_on = self.roster
            after = change(planned_on)
            if self.between:
                self.between.pop()()
            if self.roster is planned_on:
                self.roster = after
                return after


@pytest.fixture
def world() -> Interrupted:
    """Both own something, and one has been silent for its session, which the other one saw."""
    world = Interrupted()
    for _ in range(6):
        for actor in world.actors:
            actor.step(all_of_it=True)
    assert all(actor.held for actor in world.actors)
    return world


def awake(world: Interrupted) -> Actor:
    return world.actors[1]


def asleep(world: Interrupted) -> Actor:
    return world.actors[0]


def let_it_sleep(world: Interrupted) -> None:
    """Until the other one's next heartbeat finds its session over."""
    for _ in range(SESSION):
        world.clock.seconds += 1
        awake(world).beat()
    world.clock.seconds += 1


@pytest.mark.parametrize("moment", ["before", "between"])
def test_one_that_wakes_up_before_its_removal_is_written_stays(world: Interrupted, moment: str) -> None:
    """It reads on from then, so nobody may act upon what was seen before."""
    let_it_sleep(world)
    sleeper = asleep(world)
    lapsed = sleeper.member.lapsed
    getattr(world, moment).append(sleeper.look)

    awake(world).beat()

    assert lapsed
    assert not sleeper.member.lapsed
    assert sleeper.member_id in world.roster.members
    assert not world.before + world.between


def test_one_that_is_taken_out_between_its_look_and_its_heartbeat_finds_out(world: Interrupted) -> None:
    """Its own row says nothing then."""
    let_it_sleep(world)
    sleeper = asleep(world)
    world.at_renewal.append(awake(world).beat)

    sleeper.look()

    assert sleeper.member_id == ""
    assert sleeper.held == {}


def test_a_late_heartbeat_alone_does_not_make_sure(world: Interrupted) -> None:
    """The heartbeat thread may be the first one that goes on; what is owned is not to be used before a look."""
    let_it_sleep(world)
    awake(world).beat()
    sleeper = asleep(world)

    sleeper.beat()

    assert sleeper.member.lapsed
    assert world.leases.read("g", [sleeper.member_id]) == {}


def test_a_member_that_gives_signs_of_life_never_lapses(world: Interrupted) -> None:
    """Whatever its application does meanwhile."""
    for _ in range(10):
        world.clock.seconds += 1
        for actor in world.actors:
            actor.beat()
        assert not any(actor.member.lapsed for actor in world.actors)


def test_member_that_does_not_poll_is_named_in_one_warning(
    world: Interrupted, caplog: pytest.LogCaptureFixture
) -> None:
    """However many heartbeats come before its application polls again."""
    silent = asleep(world)
    name = silent.member.member_id
    for _ in range(5):
        world.clock.seconds += 61
        silent.member.beat()

    said = [record.message for record in caplog.records if "did not poll for max_poll_interval_ms" in record.message]
    assert said == [f"group g: {name} did not poll for max_poll_interval_ms=60000, and leaves"]
    assert name not in world.roster.members


def test_members_that_share_a_watch_read_the_heartbeats_once_and_remove_a_silent_member() -> None:
    world = World(1, "sticky", faulty=False)
    for _ in range(6):
        for actor in world.actors:
            actor.step(all_of_it=True)
    *awake, silent = world.actors
    removed, reads, read = silent.member_id, list[int](), world.leases.read

    def counted(group_id: str, member_ids: Iterable[str]) -> dict[str, int]:
        found = list(member_ids)
        reads.append(len(found))
        return read(group_id, found)

    world.leases.read = counted  # type: ignore[method-assign]
    for _ in range(SESSION - 1):
        world.clock.seconds += 1
        for actor in awake:
            actor.beat()
    assert reads == [3] * (SESSION - 1)
    for _ in range(2):
        world.clock.seconds += 1
        for actor in awake:
            actor.beat()

    assert removed not in world.roster.members
    assert {actor.member_id for actor in awake} == set(world.roster.members)
