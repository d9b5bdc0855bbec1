"""Group commit: the protocol by which one table commit carries the appends of many writers, its effects and its waits.

The guarantees rest on the order of the effects (see `kafkalike.model.effects`), which only this module decides.

A writer without competition commits its own append and does nothing else. With competition it puts its append into a
file next to the table and waits: the writer that made the latest version commits the waiting appends with its own next
one. If no version appears for a while, a waiting writer makes one for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from kafkalike.errors import KafkaError, KafkaTimeoutError, TopicDeletedError, UnknownOutcomeError
from kafkalike.model.effects import Effect
from kafkalike.model.waiting_appends import Placed, Room, TakenAppends, WaitingAppend


class Lost(Enum):
    """An attempt that made no version."""

    LOST = "lost"
    """Another writer made it."""
    BUSY = "busy"
    """Not tried: another thread of this process has the turn."""
    GIVES_WAY = "gives way"
    """Not tried: somebody has asked for room whose append cannot wait."""


LOST: Final = Lost.LOST
BUSY: Final = Lost.BUSY
GIVES_WAY: Final = Lost.GIVES_WAY


class ForgottenError(UnknownOutcomeError):
    """What became of an append is unknown, and stays so: the log no longer says."""


@dataclass(frozen=True, slots=True)
class Attempt(Effect[Placed | Lost]):
    """Look at the table, and make the next version with the own append. Comes to `Placed`, `LOST` or `BUSY`.

    With `combine`, the appends that wait are listed and read after the look, and the version is made only right after
    the one that was seen.
    """

    part: WaitingAppend | None
    """The own append if it waits beside the table. Then it may have been taken by others: that is found in the look."""
    combine: bool
    leading: bool = False
    """Only if the latest version is this writer's own."""
    room: Room | None = None
    """The own word, where one was put there: whoever has asked later gives way."""


@dataclass(frozen=True, slots=True)
class Look(Effect["Seen"]):
    """Look for new versions. Comes to `Seen`."""

    admit: bool = False
    """Look at all that an append must have seen, too, and refuse one that will not be taken."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A table at a version, at a time."""

    version: int
    taken: TakenAppends
    now: float
    """Seconds, when it was seen."""
    deaf: bool = False
    """Whether the latest version is an append whose writer has not looked for appends that wait."""
    leading: bool = False
    """Whether the latest version is this writer's own."""
    age: float = 0.0
    """Seconds since that version was first seen."""


@dataclass(frozen=True, slots=True)
class Put(Effect[None]):
    """Put the own append beside the table, unless it is there. Comes to nothing."""

    part: WaitingAppend


@dataclass(frozen=True, slots=True)
class AskRoom(Effect[None]):
    """Put a word beside the table that nobody else is to make versions for a while. Comes to nothing."""

    room: Room


@dataclass(frozen=True, slots=True)
class LeaveRoom(Effect[None]):
    """Try to take that word away. Comes to nothing."""

    room: Room


@dataclass(frozen=True, slots=True)
class Withdraw(Effect[None]):
    """Put a word in the place of the own append that it must not be taken. Comes to nothing."""

    part: WaitingAppend


@dataclass(frozen=True, slots=True)
class MoveOn(Effect["Seen"]):
    """See to it that there is a version above one, by an empty commit if nobody makes one. Comes to `Seen`."""

    version: int


@dataclass(frozen=True, slots=True)
class Pause(Effect[None]):
    """Do nothing for a while. Comes to nothing."""

    seconds: float


CommitEffect = Attempt | Look | Put | AskRoom | LeaveRoom | Withdraw | MoveOn | Pause
Appending = Generator[CommitEffect, Any, Placed]

RIVALS_SECONDS: Final = 10.0
"""How long a writer that has met others looks for appends that wait."""

LAP_PUTS: Final = 6.0
"""How long it takes to commit for all, in times of one small put: some looks, the records, and the version."""

LEAST_ROOM: Final = 2.0
MOST_ROOM: Final = 60.0
"""How long, s, others give way to one who asks for room. If it dies, they wait for so long in vain."""


@dataclass(frozen=True, slots=True)
class CommitTimings:
    """How fast things go."""

    put_seconds: float
    """How long a small put takes."""
    crowd: int = 1
    """Appends in the latest combined version."""
    attempt_seconds: float = 0.0
    """How long an attempt at a version took lately."""

    @property
    def small_lap(self) -> float:
        """How long a version of small appends takes at most, as a rule, s."""
        return LAP_PUTS * self.put_seconds

    @property
    def lap(self) -> float:
        """How long a version for all takes at most, as a rule, s."""
        return max(self.small_lap, 1.25 * self.attempt_seconds)

    def room(self) -> float:
        """How long others are to give way, s: for some tries, of which the first may be lost to who is at work."""
        return min(MOST_ROOM, max(LEAST_ROOM, 4 * self.lap))

    def look(self) -> float:
        """Seconds between two looks. The more wait, the less often each looks: it is always some request's turn."""
        return self.put_seconds * max(1.0, self.crowd / 16)

    def patience(self, jitter: float) -> float:
        """Seconds without a new version after which a writer that waits makes one.

        Longer than the latest version's writer needs for its next; drawn, so that not all of them try at once.

        Args:
            jitter: random number from 0 to 1.
        """
        return self.lap + jitter * self.put_seconds * max(2, self.crowd)


@dataclass(frozen=True, slots=True)
class Contention:
    """What a writer knows of others at the table."""

    met: float = float("-inf")
    """When it last saw an append of one, s."""
    pace: CommitTimings = CommitTimings(0.025)

    def alone(self, now: float) -> bool:
        """Whether it may commit without looking for appends that wait."""
        return now - self.met > RIVALS_SECONDS

    def crowded(self, crowd: int) -> Contention:
        """Having made a version for so many."""
        return replace(self, pace=replace(self.pace, crowd=crowd))

    def seen(self, now: float) -> Contention:
        """Having met others now."""
        return replace(self, met=now)

    def attempted(self, seconds: float) -> Contention:
        """Having tried to make a version, for so many seconds; the newest counts for half."""
        before = self.pace.attempt_seconds or seconds
        return replace(self, pace=replace(self.pace, attempt_seconds=0.5 * (before + seconds)))

    def took(self, seconds: float) -> Contention:
        """Having put a small file, in so many seconds; the newest counts for half."""
        return replace(self, pace=replace(self.pace, put_seconds=0.5 * (self.pace.put_seconds + seconds)))


PASSED_OVER: Final = 8
"""Versions after which a writer that waits makes one itself, if none of them took its append: whoever made them does
not take it, or takes others first."""


def appending(
    make: Callable[[int], WaitingAppend],
    make_room: Callable[[int, float], Room],
    *,
    alone: bool,
    leading: bool,
    storable: bool,
    pace: Callable[[], CommitTimings],
    jitter: Callable[[], float],
    deadline: float,
) -> Appending:
    """Bring one append into the table.

    Args:
        make: names the append by the version that was seen before it is put beside the table; called once at most.
        make_room: names a word that asks for room, by the version that was seen and how long it is to count, s.
        alone: whether no append of another writer was seen lately.
        leading: whether the latest version that is known is this writer's own.
        storable: whether the append can be put beside the table; what cannot takes part in the race alone.
        pace: how fast things go now.
        jitter: random number from 0 to 1.
        deadline: until when to try, s; after it the append is withdrawn.

    Returns:
        Where it is.

    Raises:
        KafkaTimeoutError: time ran out, and it will not land.
        UnknownOutcomeError: it may be there, or may still come; from the effects.
        KafkaError: what an effect raised; it will not land.
    """
    if alone or (leading and storable):
        found = yield from Attempt(None, combine=not alone, leading=leading and not alone)
        if isinstance(found, Placed):
            return found
    if not storable:
        return (yield from _racing(make_room, pace, deadline))
    # What is refused must be so before it is put beside the table: from then on others may have it in hand.
    seen, lost = (yield from Look(admit=True)), alone
    if not lost and not leading and seen.age > 2 * pace().lap:
        # Nobody is at work just now.
        found, lost = (yield from Attempt(None, combine=True)), True
        if isinstance(found, Placed):
            return found
        seen = yield from Look()
    part = make(seen.version)
    try:
        yield from Put(part)
        return (yield from _waiting(part, pace, jitter, deadline, lost=lost))
    except KafkaError:
        # The append waits, or may: others may have it in hand.
        placed = yield from withdrawing(part)
        if placed is not None:
            return placed
        raise


def _racing(make_room: Callable[[int, float], Room], pace: Callable[[], CommitTimings], deadline: float) -> Appending:
    """Make versions until one is not lost, by asking the others to give way.

    Who commits small appends for others makes some ten versions a second. Whoever needs longer for one would never be
    the first, however often it tries.

    Args:
        make_room: see `appending`.
        pace: see `appending`.
        deadline: see `appending`.
    """
    seen = yield from Look()
    if seen.leading and pace().crowd > 1:
        # It had the latest one: those who gave way have their turn now.
        yield from _let_pass(seen.version, seen.now + 3 * pace().small_lap, pace)
    elif seen.leading or seen.age > 2 * pace().small_lap:
        # Nobody is at work just now.
        found = yield from Attempt(None, combine=True)
        if isinstance(found, Placed):
            return found
    while True:
        seen = yield from Look()
        if seen.now >= deadline:
            raise _late()
        if seen.deaf:
            # Its writer does not look for what stands beside the table until it is told that there are others.
            seen = yield from MoveOn(seen.version)
        seconds = pace().room()
        room, ends = make_room(seen.version, seconds), seen.now + seconds
        yield from AskRoom(room)
        try:
            placed = yield from _in_room(room, seen, ends, pace)
        except KafkaError:
            yield from LeaveRoom(room)
            raise
        yield from LeaveRoom(room)
        if placed is not None:
            return placed


def _in_room(
    room: Room, seen: Seen, ends: float, pace: Callable[[], CommitTimings]
) -> Generator[CommitEffect, Any, Placed | None]:
    """Make versions while a word counts; None when none of them was won."""
    # Who is at work has not seen it, and is faster.
    yield from _let_pass(seen.version, seen.now + pace().small_lap, pace)
    while True:
        found = yield from Attempt(None, combine=True, room=room)
        if isinstance(found, Placed):
            return found
        if found is not LOST:
            yield from Pause(pace().small_lap / 2)
        now = yield from Look()
        if now.now >= ends:
            return None


def _let_pass(version: int, until: float, pace: Callable[[], CommitTimings]) -> Generator[CommitEffect, Any, None]:
    """Wait for a version above one, until a time."""
    while True:
        seen = yield from Look()
        if seen.version > version or seen.now >= until:
            return
        yield from Pause(pace().look())


def _late() -> KafkaTimeoutError:
    return KafkaTimeoutError("other writers were faster until time ran out; nothing was written")


def _waiting(
    part: WaitingAppend, pace: Callable[[], CommitTimings], jitter: Callable[[], float], deadline: float, *, lost: bool
) -> Appending:
    """Wait until a commit has taken an append; make that commit if nobody else does.

    Args:
        part: the append.
        pace: see `appending`.
        jitter: see `appending`.
        deadline: see `appending`.
        lost: whether an attempt was lost already.
    """
    version, try_at, passed = -1, 0.0, part.base
    while True:
        seen = yield from Look()
        placed = seen.taken.of(part)
        if placed is not None:
            return placed
        if seen.now >= deadline:
            raise _late()
        if seen.deaf and lost:
            # The latest version's writer is alone as far as it knows, and may be faster each time. A version that it
            # has not made tells it otherwise, and an empty one takes the least time.
            seen = yield from MoveOn(seen.version)
        overdue = seen.version - passed >= PASSED_OVER or (seen.version == version and seen.now >= try_at)
        if seen.leading or seen.deaf or overdue:
            if seen.leading or not lost or not seen.deaf:
                found = yield from Attempt(part, combine=True)
                if isinstance(found, Placed):
                    return found
                version, lost, passed = -1, True, seen.version
                if found is not LOST:
                    # It would be so at the next look, too.
                    yield from Pause(pace().look() if found is BUSY else pace().small_lap / 2)
            continue
        if seen.version != version:
            version, try_at = seen.version, seen.now + pace().patience(jitter())
        yield from Pause(min(pace().look(), max(0.0, try_at - seen.now)))


def withdrawing(part: WaitingAppend) -> Generator[CommitEffect, Any, Placed | None]:
    """Take an append back that waits, or may wait, beside the table.

    Whoever makes a version has read the appends that wait after it saw the version before. So once the word stands
    that this one must not be taken, at most one more version can have it: the one after the latest that there was
    then. When that one is there, whoever made it, it is known.

    Returns:
        Where it is, when a commit was faster; None when it never lands.

    Raises:
        UnknownOutcomeError: the storage does not say; from the effects. `ForgottenError`: nor will it, see `sealing`.
        TopicDeletedError: the table is no topic's any more; from the effects.
    """
    try:
        yield from Withdraw(part)
        seen = yield from Look()
        placed = seen.taken.of(part)
        if placed is None:
            seen = yield from MoveOn(seen.version)
            placed = seen.taken.of(part)
    except (UnknownOutcomeError, TopicDeletedError):
        # Nobody reads a deleted topic.
        raise
    except KafkaError as cause:
        raise UnknownOutcomeError("append beside others", part.id) from cause
    return placed


def sealing(part: WaitingAppend) -> Generator[CommitEffect, Any, None]:
    """See to it that an append does not land any more, where nothing tells whether it did.

    As in `withdrawing`, at most the version after the latest one can have it once the word stands.

    Raises:
        KafkaError: it may still land; from the effects.
    """
    yield from Withdraw(part)
    seen = yield from Look()
    yield from MoveOn(seen.version)
