"""Appends of many writers that commit for each other, in virtual time: nothing lost, nothing twice, nobody starves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from kafkalike.errors import KafkaStorageError, KafkaTimeoutError, UnknownOutcomeError
from kafkalike.model.appends import group_commit as protocol
from kafkalike.model.appends import waiting_appends
from kafkalike.model.appends.group_commit import (
    LEAST_ROOM,
    AskRoom,
    Attempt,
    CommitTimings,
    LeaveRoom,
    Look,
    MoveOn,
    Pause,
    Seen,
    Withdraw,
)
from kafkalike.model.appends.taken_appends import MOST_WRITERS, Placed, TakenAppends, WaitingAppend, from_note, ids_of
from kafkalike.model.appends.waiting_appends import BUSY, LOST, Room
from tests.tools import combine_world
from tests.tools.combine_world import Request, Trouble, World, Writer, writers
from tests.tools.effort import examples, seeds

SEEDS = seeds(600, 30)
"""Histories of each amount of trouble."""
MUTANT_SEEDS = 400
"""Within so many histories a fault must be found."""

TROUBLES = {
    "sound": Trouble(),
    "hasty": Trouble(hasty=0.3),
    "broken": Trouble(broken=0.03, hasty=0.1),
    "deadly": Trouble(broken=0.02, killed=0.01, hasty=0.1),
    "silent": Trouble(silent=0.97, hasty=0.6),
    "dreadful": Trouble(broken=0.15, killed=0.01, hasty=0.3),
}


def played(seed: int, trouble: Trouble, seconds: float = 4.0) -> World:
    """One history, judged."""
    rng = random.Random(seed)
    world = World(seed, trouble)
    pause = rng.choice([0.0, 0.05, 0.5])
    large = [rng.choice([0.05, 0.4, 1.5]) for _ in range(rng.choice([0, 0, 1, 2]))]
    writers(world, rng.randint(2, 6), seconds, lambda: pause * rng.random(), large=large)
    world.run(seconds + 200)
    try:
        world.judge()
    except AssertionError as broken:
        message = f"seed {seed}, {trouble}: {broken}"
        raise AssertionError(message) from broken
    return world


def busy(count: int, seconds: float = 30.0, *, get: float = 0.015, put: float = 0.025) -> World:
    """Writers that append one after the other as fast as they can, on a sound storage of constant speed."""
    world = World(1, get=get, put=put, same=True)
    writers(world, count, seconds)
    world.run(seconds + 10)
    world.judge()
    return world


def rate(world: World, seconds: float = 30.0) -> float:
    return len(world.ledger.acked) / seconds


def fairness(world: World) -> float:
    """Appends of the slowest writer, by the mean."""
    counts = [len(found) for found in world.ledger.seconds.values()]
    return min(counts) / (sum(counts) / len(counts))


def slowest(world: World, share: float = 0.99) -> float:
    every = sorted(s for found in world.ledger.seconds.values() for s in found)
    return every[int(share * len(every))]


def good(world: World) -> bool:
    """Whether busy writers were fast, were treated alike, and did little in vain: one file of records a version."""
    in_vain = world.requests["put"] / len(world.versions())
    return rate(world) >= 35 and slowest(world) <= 0.6 and fairness(world) >= 0.6 and in_vain < 1.2


# --- guarantees ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", TROUBLES)
def test_nothing_is_lost_doubled_reordered_or_told_wrongly(kind: str) -> None:
    """Requests get lost, land late and twice, writers die at any request, appends are given up; see `World.judge`."""
    happened: Counter[str] = Counter()
    combined = acked = 0
    for seed in SEEDS:
        world = played(seed, TROUBLES[kind])
        happened += world.happened
        acked += len(world.ledger.acked)
        combined += sum(len(commit.parts) for commit in world.versions())

    trouble = TROUBLES[kind]
    assert acked > 10 * len(SEEDS)
    assert combined > 3 * len(SEEDS)
    assert not trouble.hasty or happened["withdrawn"] > len(SEEDS) // 4
    assert not trouble.killed or happened["killed"] > len(SEEDS) // 4
    assert not trouble.broken or min(happened[name] for name in ("lost", "late", "twice", "slow")) > len(SEEDS) // 4


@pytest.mark.slow
def test_on_a_sound_storage_every_append_has_an_outcome() -> None:
    """An append that ran out of time is either there or taken back; nobody is told that it is not known."""
    worlds = [played(seed, TROUBLES["hasty"]) for seed in range(examples(100, 20))]

    assert [world.ledger.unknown for world in worlds if world.ledger.unknown] == []
    assert sum(len(world.ledger.refused) for world in worlds) > len(worlds)


def test_a_seed_plays_the_same_again() -> None:
    """So a failure can be looked at."""
    first, second = (played(7, TROUBLES["deadly"]) for _ in range(2))

    assert first.ledger.acked == second.ledger.acked
    assert first.versions() == second.versions()


# --- speed ---------------------------------------------------------------------------------------


def test_a_lone_writer_pays_nothing() -> None:
    """A look, the records, the version; no list, nothing beside the table."""
    world = busy(1, 10.0)

    appends = len(world.ledger.acked)
    assert world.requests == {"list": 1, "get": appends, "put": appends, "create": appends}


@pytest.mark.slow
@pytest.mark.parametrize("count", [8, 16])
def test_writers_beside_each_other_are_fast_and_treated_alike(count: int) -> None:
    """Of a chain of conditional puts that retry there came 19 appends a second, and waits of 6 s."""
    world = busy(count)

    assert good(world), (rate(world), slowest(world), fairness(world), world.requests)


def test_slower_storage_slows_everybody_alike() -> None:
    world = busy(8, get=0.040, put=0.060)

    assert rate(world) >= 15
    assert fairness(world) >= 0.6
    assert slowest(world, 0.95) <= 0.8


def test_a_writer_that_comes_to_a_busy_one_is_not_left_waiting() -> None:
    """The busy one has met nobody, does not look for what waits, and is always faster."""
    world = World(1, same=True)
    writers(world, 1, 10.0)
    late = Writer(world, "late")
    world.start(late.work(10.0), None, 2.0)
    world.run(20.0)
    world.judge()

    assert max(world.ledger.seconds["late"]) < 0.7
    assert world.happened["empty"] <= 2


@pytest.mark.slow
def test_many_that_append_now_and_then_share_versions() -> None:
    """A hundred consumers that commit offsets every four seconds."""
    world = World(1, same=True)
    rng = random.Random(1)
    writers(world, 100, 30.0, lambda: rng.uniform(2.0, 6.0), spread=4.0)
    world.run(40.0)
    world.judge()

    assert rate(world) >= 20
    assert slowest(world) <= 0.6
    assert len(world.versions()) < 0.7 * len(world.ledger.acked)


def large_beside(count: int, *sizes: float) -> World:
    """Writers whose records take so many seconds, beside so many small ones; all as fast as they can."""
    world = World(1, same=True)
    writers(world, count, 60.0, large=sizes)
    world.run(80.0)
    world.judge()
    return world


@pytest.mark.slow
@pytest.mark.parametrize("size", [0.0001, 0.3, 1.0, 3.0])
def test_what_cannot_wait_does_not_starve_beside_small_appends(size: float) -> None:
    """A DataFrame's files are numbered and written between a look and the version: others make ten versions then."""
    world = large_beside(8, size)

    seconds = world.ledger.seconds
    assert max(seconds["large0.0"]) <= 2.5 * size + 1.0
    assert max(max(took) for name, took in seconds.items() if name != "large0.0") <= 1.5 * size + 1.0


@pytest.mark.slow
def test_several_that_cannot_wait_take_turns() -> None:
    world = large_beside(4, 0.5, 0.5, 0.5)

    counts = [len(world.ledger.seconds[f"large{n}.0"]) for n in range(3)]
    assert min(counts) >= 5
    assert min(counts) >= 0.6 * sum(counts) / 3
    assert min(len(took) for took in world.ledger.seconds.values()) >= 5


def test_others_go_on_after_one_that_asked_for_room_and_died() -> None:
    world = World(1, same=True)
    dead = Writer(world, "dead", large=1.0)
    steps = dead.work(60.0)
    world.start(steps, None, 1.0)
    writers(world, 4, 20.0)
    while not any("-room-" in name for name in world.objects):
        world.run(world.now + 0.01)
    steps.close()
    world.run(40.0)
    world.judge()

    every = [took for found in world.ledger.seconds.values() for took in found]
    assert 1.5 < max(every) < LEAST_ROOM + 4.0


# --- mutants -------------------------------------------------------------------------------------


def _takes_what_is_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TakenAppends, "may_take", lambda self, part: self.knows(part))


def _takes_without_knowing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TakenAppends, "knows", lambda _self, _part: True)


def _gives_up_without_a_word(patch: pytest.MonkeyPatch) -> None:
    def nothing(_part: WaitingAppend) -> Any:
        return None
        yield

    patch.setattr(protocol, "withdrawing", nothing)


def _does_not_wait_for_the_version_in_hand(patch: pytest.MonkeyPatch) -> None:
    honest = Writer.carry_out

    def carry_out(self: Writer, act: Any, payload: Any) -> Any:
        if isinstance(act, MoveOn) and self.pending is not None:
            return self.seen()
        return (yield from honest(self, act, payload))

    patch.setattr(Writer, "carry_out", carry_out)


def _reads_what_waits_before_it_looks(patch: pytest.MonkeyPatch) -> None:
    honest, waiting = Writer.attempt, Writer.waiting

    def attempt(self: Writer, act: Attempt, payload: Any) -> Any:
        found = ((yield from waiting(self, act.part, act.room)) or []) if act.combine else []

        def known(_self: Writer, _own: Any, _room: Any) -> Any:
            yield Request("sleep")
            return [(p, c) for p, c in found if self.taken.may_take(p)]

        patch.setattr(Writer, "waiting", known)
        return (yield from honest(self, act, payload))

    patch.setattr(Writer, "attempt", attempt)


def _takes_back_by_deleting(patch: pytest.MonkeyPatch) -> None:
    def withdraw(self: Writer, part: WaitingAppend) -> Any:
        yield from self.again(Request("delete", f"w/{part.name}"))

    patch.setattr(Writer, "withdraw", withdraw)


def _commits_the_same_again_after_a_loss(patch: pytest.MonkeyPatch) -> None:
    honest = Writer.commit

    def commit(self: Writer, wanted: Any) -> Any:
        landed = yield from honest(self, wanted)
        if not landed and wanted.parts:
            yield from self.look()
            landed = yield from honest(self, wanted)
        return landed

    patch.setattr(Writer, "commit", commit)


def _numbers_all_from_the_end(patch: pytest.MonkeyPatch) -> None:
    def numbered(ends: Any, counts: Iterable[Any]) -> list[dict[int, range]]:
        return [waiting_appends.numbered(ends, [one])[0] for one in counts]

    patch.setattr(combine_world, "numbered", numbered)


def _believes_what_was_lost(patch: pytest.MonkeyPatch) -> None:
    honest = TakenAppends.of

    def of(self: TakenAppends, part: WaitingAppend) -> Placed | None:
        found = self.latest.get(part.writer)
        return honest(self, part) or (replace(found, sequence=part.sequence) if found else None)

    patch.setattr(TakenAppends, "of", of)


def _leaves_parts_out_of_the_note(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TakenAppends, "after", lambda self, _placed: self)


WRONG: list[Callable[[pytest.MonkeyPatch], None]] = [
    _takes_what_is_taken,
    _takes_without_knowing,
    _gives_up_without_a_word,
    _does_not_wait_for_the_version_in_hand,
    _reads_what_waits_before_it_looks,
    _takes_back_by_deleting,
    _commits_the_same_again_after_a_loss,
    _numbers_all_from_the_end,
    _believes_what_was_lost,
    _leaves_parts_out_of_the_note,
]


def _played_wrongly(mutant: Callable[[pytest.MonkeyPatch], None]) -> None:
    for seed in range(MUTANT_SEEDS):
        for trouble in TROUBLES.values():
            with pytest.MonkeyPatch.context() as patch:
                mutant(patch)
                played(seed, trouble)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", WRONG, ids=lambda mutant: mutant.__name__)
def test_a_wrong_rule_is_found(mutant: Callable[[pytest.MonkeyPatch], None]) -> None:
    """The histories would show it if a rule were missing."""
    with pytest.raises(AssertionError, match="seed"):
        _played_wrongly(mutant)


def _nobody_waits_for_the_leader(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitTimings, "patience", lambda _self, _jitter: 0.0)


def _nobody_puts_anything_beside_the_table(patch: pytest.MonkeyPatch) -> None:
    honest = protocol.appending
    patch.setattr(combine_world, "appending", lambda *made, **given: honest(*made, **{**given, "storable": False}))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [_nobody_waits_for_the_leader, _nobody_puts_anything_beside_the_table])
def test_a_slow_rule_is_found(mutant: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        world = busy(8)

    assert not good(world)


@pytest.mark.slow
def test_writers_that_give_nobody_way_are_found() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combine_world, "gives_way", lambda _found, _own: False)
        world = large_beside(8, 1.0)

    assert max(world.ledger.seconds.get("large0.0", [60.0])) > 10.0


def test_a_busy_writer_that_is_never_told_is_found() -> None:
    honest = Writer.seen
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "seen", lambda self: replace(honest(self), deaf=False))
        world = World(1, same=True)
        writers(world, 1, 10.0)
        world.start(Writer(world, "late").work(10.0), None, 2.0)
        world.run(20.0)

    assert max(world.ledger.seconds.get("late", [9.9])) >= 0.7


# --- values --------------------------------------------------------------------------------------


def test_a_name_is_read_as_it_was_written() -> None:
    part = WaitingAppend(17, "ab12", 3)

    assert waiting_appends.parse_name(part.name) == part
    assert part.name == "00000000000000000017-ab12-3"
    assert part.id == "ab12-3"
    assert waiting_appends.parse_name(part.name + "0" * 20) is None
    assert waiting_appends.parse_name("part-1.parquet") is None


def test_who_has_asked_for_room_first_has_it() -> None:
    first, second = Room(5, "b", 2000), Room(6, "a", 10**8)

    assert waiting_appends.parse_room(first.name) == first
    assert waiting_appends.parse_name(first.name) is None
    assert waiting_appends.parse_room(WaitingAppend(5, "b", 1).name) is None
    assert waiting_appends.gives_way({}, None) is False
    assert waiting_appends.gives_way({first: 1999.0}, None)
    assert not waiting_appends.gives_way({first: 2000.0}, None)
    assert not waiting_appends.gives_way({first: 0.0, second: 0.0}, first)
    assert waiting_appends.gives_way({first: 0.0, second: 0.0}, second)
    assert waiting_appends.gives_way({second: 59_999.0}, None)
    assert not waiting_appends.gives_way({second: 60_000.0}, None)


def test_who_has_waited_longest_comes_first_and_of_each_writer_the_last() -> None:
    found = [
        WaitingAppend(5, "a", 2),
        WaitingAppend(3, "b", 1),
        WaitingAppend(4, "a", 1),
        WaitingAppend(1, "c", 9),
        WaitingAppend(4, "d", 1),
    ]

    chosen = waiting_appends.to_take(found, TakenAppends(2, {"d": Placed(1, 4, {})}))

    assert chosen == [WaitingAppend(3, "b", 1), WaitingAppend(5, "a", 2)]
    assert waiting_appends.to_take(found, TakenAppends(0), most=1) == [WaitingAppend(1, "c", 9)]


def test_a_state_that_forgets_writers_takes_nothing_that_they_may_have_written() -> None:
    taken = TakenAppends(0)
    for version in range(1, 3 * MOST_WRITERS):
        taken = taken.after({f"{version:x}": Placed(1, version, {})})
    versions = [found.version for found in taken.latest.values()]

    assert len(taken.latest) <= MOST_WRITERS
    assert min(versions) == taken.since + 1
    assert not taken.may_take(WaitingAppend(taken.since - 1, "new", 1))
    assert taken.may_take(WaitingAppend(taken.since, "new", 1))


def test_a_note_is_read_as_it_was_written() -> None:
    note = {
        "parts": waiting_appends.to_note([(WaitingAppend(3, "ab", 7), {0: range(4, 6), 2: range(1)}, None)]),
        "time": 55,
    }

    assert note["parts"] == [["ab", 7, {"0": [4, 6], "2": [0, 1]}]]
    assert from_note(9, note, 1) == {"ab": Placed(7, 9, {0: range(4, 6), 2: range(1)}, 55)}
    assert from_note(9, {}, 1) == {}
    assert ids_of({"parts": [*note["parts"], ["", 0, {}]]}) == ("ab-7",)
    assert ids_of({}) == ()


def test_runs_follow_each_other() -> None:
    runs = waiting_appends.numbered({0: 5, 1: 0}, [{0: 2, 1: 1}, {0: 1, 1: 0}, {1: 4}])

    assert runs == [{0: range(5, 7), 1: range(1)}, {0: range(7, 8)}, {1: range(1, 5)}]
    assert all(a[0].stop == b[0].start for a, b in pairwise(runs[:2]))


def test_what_cannot_wait_goes_on_racing_until_its_time_is_over() -> None:
    """A DataFrame's files, or records that are too many for one."""
    steps = protocol.appending(
        lambda _: pytest.fail("it was put beside the table"),
        lambda base, seconds: Room(base, "a", int(seconds * 1000)),
        alone=False,
        leading=False,
        storable=False,
        pace=lambda: CommitTimings(0.025),
        jitter=lambda: 0.5,
        deadline=3.0,
    )

    busy = Seen(4, TakenAppends(0), 0.0)
    acts: list[object] = [next(steps), steps.send(busy), steps.send(busy), steps.send(None)]
    acts += [steps.send(Seen(5, TakenAppends(0), 0.1)), steps.send(LOST), steps.send(Seen(6, TakenAppends(0), 3.0))]

    asked = AskRoom(Room(4, "a", 2000))
    kinds = ["Look", "Look", "AskRoom", "Look", "Attempt", "Look", "LeaveRoom"]
    assert [type(act).__name__ for act in acts] == kinds
    assert acts[2] == asked
    assert acts[4] == Attempt(None, combine=True, room=asked.room)
    assert acts[6] == LeaveRoom(asked.room)
    assert isinstance(steps.send(None), Look)
    with pytest.raises(KafkaTimeoutError):
        steps.send(Seen(6, TakenAppends(0), 3.0))


def test_whose_process_has_the_turn_waits_before_it_looks_again() -> None:
    """Its latest version leads, so each look would be followed by an attempt at once."""
    part = WaitingAppend(4, "a", 1)
    steps = protocol.appending(
        lambda _: part,
        lambda base, _: pytest.fail(f"room was asked for above {base}"),
        alone=False,
        leading=False,
        storable=True,
        pace=lambda: CommitTimings(0.025),
        jitter=lambda: 0.5,
        deadline=3.0,
    )
    seen = Seen(4, TakenAppends(0), 0.0, leading=True)

    acts: list[object] = [next(steps), steps.send(seen), steps.send(None), steps.send(seen)]
    acts += [steps.send(BUSY), steps.send(None)]

    assert [type(act).__name__ for act in acts] == ["Look", "Put", "Look", "Attempt", "Pause", "Look"]
    assert acts[4] == Pause(0.025)


def test_an_append_that_nothing_tells_of_is_kept_from_landing() -> None:
    """By the word, and the one version that may be in hand."""
    part = WaitingAppend(1, "a", 1)

    steps = protocol.sealing(part)
    acts = [next(steps), steps.send(None), steps.send(Seen(9, TakenAppends(8), 0.0))]

    assert acts == [Withdraw(part), Look(), MoveOn(9)]
    with pytest.raises(StopIteration):
        steps.send(Seen(10, TakenAppends(8), 0.0))


def test_dead_appends_take_nobodys_place() -> None:
    """Nor does the append before a withdrawn one come back."""
    found = [WaitingAppend(1, "a", 1), WaitingAppend(2, "a", 2), WaitingAppend(3, "b", 1), WaitingAppend(4, "c", 1)]

    assert waiting_appends.to_take(found, TakenAppends(0), {found[1], found[2]}, most=1) == [found[3]]


def test_a_withdrawal_that_gets_no_answer_is_no_refusal() -> None:
    steps = protocol.withdrawing(WaitingAppend(1, "a", 1))
    next(steps)

    with pytest.raises(UnknownOutcomeError, match=r"\bappend in a group commit\b.*a-1"):
        steps.throw(KafkaStorageError("no answer"))


def test_a_withdrawal_that_comes_too_late_is_none() -> None:
    """A version that is there has it: nothing more is asked or made."""
    part, placed = WaitingAppend(1, "a", 1), Placed(1, 3, {})
    steps = protocol.withdrawing(part)
    acts = [next(steps), steps.send(None)]

    with pytest.raises(StopIteration) as end:
        steps.send(Seen(4, TakenAppends(0, {"a": placed}), 0.0))

    assert acts == [Withdraw(part), Look()]
    assert end.value.value == placed


def test_a_withdrawal_ends_with_the_version_that_may_have_it() -> None:
    part = WaitingAppend(1, "a", 1)
    steps = protocol.withdrawing(part)
    next(steps)
    steps.send(None)
    moving = steps.send(Seen(4, TakenAppends(0), 0.0))

    with pytest.raises(StopIteration) as end:
        steps.send(Seen(5, TakenAppends(0, {"a": Placed(1, 5, {})}), 0.0))

    assert moving == MoveOn(4)
    assert end.value.value == Placed(1, 5, {})
