"""The course of one combined append, act by act: what it does next, for each thing that it may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import KafkaStorageError, KafkaTimeoutError
from kafkalike.model.appends import group_commit as protocol
from kafkalike.model.appends.group_commit import (
    RIVALS_SECONDS,
    Appending,
    AskRoom,
    Attempt,
    CommitEffect,
    CommitTimings,
    Contention,
    LeaveRoom,
    Look,
    MoveOn,
    Pause,
    Put,
    Seen,
)
from kafkalike.model.appends.taken_appends import MOST_WRITERS, Placed, TakenAppends, WaitingAppend
from kafkalike.model.appends.waiting_appends import BUSY, GIVES_WAY, LOST, Room

PACE = CommitTimings(0.025)
PART = WaitingAppend(4, "a", 1)
DEADLINE = 9.0


def begun(
    *, alone: bool = False, leading: bool = False, storable: bool = True, pace: CommitTimings = PACE
) -> Appending:
    """An append of which nothing was done yet."""
    return protocol.appending(
        lambda _: PART,
        lambda base, seconds: Room(base, "a", int(seconds * 1000)),
        alone=alone,
        leading=leading,
        storable=storable,
        pace=lambda: pace,
        jitter=lambda: 0.5,
        deadline=DEADLINE,
    )


def acts(steps: Appending, answers: Sequence[Any]) -> list[Any]:
    """What is done before and after each answer."""
    return [next(steps), *(steps.send(answer) for answer in answers)]


def seen(version: int = 4, now: float = 0.0, **more: Any) -> Seen:
    return Seen(version, TakenAppends(0), now, **more)


def waiting(*, lost: bool = False) -> Appending:
    """An append that was just put beside the table; the look at what became of it comes next."""
    steps = begun(alone=lost)
    done = acts(steps, [LOST, seen()] if lost else [seen()])
    assert done[-1] == Put(PART)
    assert steps.send(None) == Look()
    return steps


# --- the first attempt ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alone", "leading", "first"),
    [
        (True, False, Attempt(None, combine=False)),
        (True, True, Attempt(None, combine=False)),
        (False, True, Attempt(None, combine=True, leading=True)),
        (False, False, Look(admit=True)),
    ],
)
def test_who_is_alone_or_leads_tries_at_once(*, alone: bool, leading: bool, first: Any) -> None:
    """Who leads only as long as it does: others wait for it, and whoever made a version since leads now."""
    assert next(begun(alone=alone, leading=leading)) == first


def test_what_is_refused_is_not_put_beside_the_table() -> None:
    steps = begun()
    next(steps)

    with pytest.raises(KafkaStorageError):
        steps.throw(KafkaStorageError("refused"))


@pytest.mark.parametrize(("laps", "tries"), [(1.9, False), (2.1, True)])
def test_where_nobody_is_at_work_a_writer_tries_before_it_waits(*, laps: float, tries: bool) -> None:
    """And for others too, as it has met some."""
    steps = begun()

    done = acts(steps, [seen(age=laps * PACE.lap)])

    assert done[-1] == (Attempt(None, combine=True) if tries else Put(PART))


@pytest.mark.parametrize("who", ["alone", "leading"])
def test_who_has_lost_an_attempt_does_not_try_again_before_it_waits(who: str) -> None:
    steps = begun(alone=who == "alone", leading=who == "leading")

    assert acts(steps, [LOST, seen(age=100.0)])[1:] == [Look(admit=True), Put(PART)]


# --- waiting -------------------------------------------------------------------------------------


def test_a_writer_that_does_not_look_is_told_of_others_once_it_was_faster() -> None:
    """A version that is not its own tells it; the first attempt does so for the price of nothing."""
    assert waiting().send(seen(deaf=True)) == Attempt(PART, combine=True)
    assert waiting(lost=True).send(seen(deaf=True)) == MoveOn(4)
    late = begun()
    acts(late, [seen(age=100.0), LOST, seen(), None])
    assert late.send(seen(deaf=True)) == MoveOn(4)


def test_when_another_deaf_writer_was_faster_it_is_told_too() -> None:
    """Another attempt would be lost like the one before."""
    steps = waiting(lost=True)
    steps.send(seen(deaf=True))

    assert steps.send(seen(5, deaf=True)) == Look()
    assert steps.send(seen(5, deaf=True)) == MoveOn(5)


@pytest.mark.parametrize("version", [0, 1, 4])
def test_who_waits_gives_the_latest_versions_writer_its_time(version: int) -> None:
    """And again after an attempt was lost; then it tries, to the moment."""
    steps = waiting()
    patience = PACE.patience(0.5)

    assert steps.send(seen(version)) == Pause(PACE.look())
    assert steps.send(None) == Look()
    assert _seconds(steps.send(seen(version, patience - 0.01))) == pytest.approx(0.01)
    steps.send(None)
    assert steps.send(seen(version, patience)) == Attempt(PART, combine=True)
    assert steps.send(LOST) == Look()
    assert isinstance(steps.send(seen(version, patience)), Pause)


def _seconds(act: CommitEffect) -> float:
    assert isinstance(act, Pause)
    return act.seconds


def test_a_new_version_is_a_new_chance_to_be_taken() -> None:
    steps = waiting()
    steps.send(seen())
    steps.send(None)

    assert isinstance(steps.send(seen(5, PACE.patience(0.5))), Pause)


def test_after_so_many_versions_that_did_not_take_it_a_writer_makes_one() -> None:
    """Counted from the last that it made or tried to make."""
    enough = 4 + protocol.PASSED_OVER

    assert isinstance(waiting().send(seen(enough - 1)), Pause)
    steps = waiting()
    assert steps.send(seen(enough)) == Attempt(PART, combine=True)
    steps.send(LOST)
    assert isinstance(steps.send(seen(enough + 1)), Pause)


def test_who_may_not_try_now_waits_before_it_looks_again() -> None:
    """For a thread of its own a moment, for who has asked for room longer."""
    pauses = {}
    for found in (BUSY, GIVES_WAY):
        steps = waiting()
        steps.send(seen(leading=True))
        pauses[found] = _seconds(steps.send(found))

    assert pauses[BUSY] == PACE.look()
    assert PACE.look() < pauses[GIVES_WAY] <= PACE.small_lap


def test_a_deadline_is_kept_to_the_moment_and_nothing_is_written() -> None:
    """The word that the append must not be taken comes first."""
    steps = waiting()
    assert steps.send(seen(now=DEADLINE - 0.001)) == Pause(PACE.look())
    steps.send(None)
    steps.send(seen(now=DEADLINE))
    steps.send(None)
    assert steps.send(seen()) == MoveOn(4)

    with pytest.raises(
        KafkaTimeoutError, match=r"^timed out: other writers .* nothing was written; retry, or raise the timeout$"
    ):
        steps.send(seen(5))


# --- what cannot wait ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "crowd", "first"),
    [
        (seen(leading=True), 1, Attempt(None, combine=True)),
        (seen(age=2.1 * PACE.small_lap), 1, Attempt(None, combine=True)),
        (seen(age=2.1 * PACE.small_lap), 5, Attempt(None, combine=True)),
        (seen(age=1.9 * PACE.small_lap), 1, Look()),
        (seen(age=1.9 * PACE.small_lap), 5, Look()),
    ],
)
def test_what_cannot_wait_asks_for_room_only_where_others_are_at_work(found: Seen, crowd: int, first: Any) -> None:
    steps = begun(storable=False, pace=replace(PACE, crowd=crowd))

    assert acts(steps, [found])[-1] == first
    then = steps.send(LOST if isinstance(first, Attempt) else seen())
    assert then == Look() if isinstance(first, Attempt) else isinstance(then, AskRoom)


@pytest.mark.parametrize("crowd", [2, 5])
def test_who_had_the_latest_version_lets_those_go_first_who_gave_way(crowd: int) -> None:
    """For some versions' time, or until one of theirs comes."""
    lap = PACE.small_lap
    pace = replace(PACE, crowd=crowd)
    steps = begun(storable=False, pace=pace)

    assert acts(steps, [seen(leading=True), seen(now=2.9 * lap)])[1:] == [Look(), Pause(pace.look())]
    assert steps.send(None) == Look()
    assert steps.send(seen(now=3.1 * lap)) == Look()
    assert isinstance(steps.send(seen(now=3.1 * lap)), AskRoom)
    other = begun(storable=False, pace=pace)
    assert acts(other, [seen(leading=True), seen(5)])[-1] == Look()
    assert isinstance(other.send(seen(5)), AskRoom)


def asked() -> tuple[Appending, Room]:
    """What cannot wait, and has just asked for room; the look at who is still at work comes next."""
    steps = begun(storable=False)
    asking = acts(steps, [seen(), seen()])[-1]
    assert isinstance(asking, AskRoom)
    assert steps.send(None) == Look()
    return steps, asking.room


def test_who_was_at_work_when_room_was_asked_for_makes_its_version() -> None:
    """It is faster; then, or when it should have made it, the turn is that of who asked."""
    steps, room = asked()
    assert steps.send(seen(now=0.9 * PACE.small_lap)) == Pause(PACE.look())
    steps.send(None)
    assert steps.send(seen(now=1.1 * PACE.small_lap)) == Attempt(None, combine=True, room=room)
    steps, room = asked()
    assert steps.send(seen(5)) == Attempt(None, combine=True, room=room)


def test_room_is_left_when_the_word_counts_no_longer() -> None:
    """Others go on from that moment; then the word is put there anew."""
    steps, room = asked()
    ends = room.millis / 1000
    steps.send(seen(5))
    assert steps.send(LOST) == Look()
    assert steps.send(seen(6, ends - 0.001)) == Attempt(None, combine=True, room=room)
    assert steps.send(LOST) == Look()

    assert steps.send(seen(6, ends)) == LeaveRoom(room)
    assert steps.send(None) == Look()
    assert isinstance(steps.send(seen(6, ends)), AskRoom)


def test_who_has_room_and_must_give_way_waits_a_part_of_a_lap() -> None:
    """Somebody else has asked before."""
    steps, _ = asked()
    steps.send(seen(5))

    pause = steps.send(GIVES_WAY)

    assert isinstance(pause, Pause)
    assert PACE.look() < pause.seconds <= PACE.small_lap


def test_room_is_left_when_an_attempt_fails() -> None:
    steps, room = asked()
    steps.send(seen(5))

    assert steps.throw(KafkaStorageError("no answer")) == LeaveRoom(room)
    with pytest.raises(KafkaStorageError, match="no answer"):
        steps.send(None)


# --- pace ----------------------------------------------------------------------------------------

CROWDS = st.integers(1, 500)
SECONDS = st.floats(0.001, 10.0)


@given(CROWDS, SECONDS)
def test_the_table_is_not_asked_more_often_the_more_wait(crowd: int, put: float) -> None:
    pace = CommitTimings(put, crowd)

    assert pace.look() >= put
    assert crowd / pace.look() <= 16.0 / put * 1.001


@given(CROWDS, SECONDS, SECONDS, st.floats(0.0, 1.0))
def test_patience_is_longer_than_a_lap_and_parts_those_who_wait(
    crowd: int, put: float, attempt: float, jitter: float
) -> None:
    """Two of them are as far apart as one needs to be seen by the other, on the mean."""
    pace = CommitTimings(put, crowd, attempt)

    assert pace.patience(jitter) >= max(pace.lap, attempt)
    assert pace.patience(1.0) - pace.patience(0.0) >= 0.999 * crowd * put


def test_a_writer_learns_how_fast_things_go() -> None:
    """The newest counts for half, and the first as it is."""
    company = Contention(pace=CommitTimings(0.1))

    assert company.took(0.3).pace.put_seconds == pytest.approx(0.2)
    assert company.attempted(4.0).pace.attempt_seconds == 4.0
    assert company.attempted(4.0).attempted(2.0).pace.attempt_seconds == 3.0
    assert company.crowded(7).pace == CommitTimings(0.1, 7)


def test_who_has_met_nobody_for_a_while_is_alone() -> None:
    company = Contention()

    assert company.alone(0.0)
    assert not company.seen(5.0).alone(5.0 + RIVALS_SECONDS)
    assert company.seen(5.0).alone(5.1 + RIVALS_SECONDS)


# --- what is known of writers --------------------------------------------------------------------


def test_a_state_forgets_only_when_it_must_and_then_the_older_half() -> None:
    """Whatever the writers are called."""
    names = [f"{'02'[n % 2]}{n:x}" for n in range(MOST_WRITERS)]
    taken = TakenAppends(0)
    for version, name in enumerate(names, start=1):
        taken = taken.after({name: Placed(1, version, {})})
    assert (taken.since, len(taken.latest)) == (0, MOST_WRITERS)

    taken = taken.after({"1": Placed(1, MOST_WRITERS + 1, {})})

    assert set(taken.latest) == {*names[-(MOST_WRITERS // 2 - 1) :], "1"}
