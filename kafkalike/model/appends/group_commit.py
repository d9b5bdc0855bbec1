"""Group commit: the protocol by which one table commit carries the appends of many writers, its effects and waits.

The guarantees rest on the order of the effects (see `kafkalike.model.effects`), which only this module decides.

A writer without competition commits its own append and does nothing else. With competition it puts its append into a
file next to the table and waits: the writer that made the latest version commits the waiting appends with its own next
one. If no version appears for a while, a waiting writer makes one for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Final

from kafkalike.errors import KafkaError, KafkaTimeoutError, TopicDeletedError, UnknownOutcomeError
from kafkalike.model.appends.taken_appends import Placed, TakenAppends, WaitingAppend
from kafkalike.model.appends.waiting_appends import BUSY, LOST, Lost, Room
from kafkalike.model.effects import Effect


@dataclass(frozen=True, slots=True)
class Attempt(Effect[Placed | Lost]):
    """Look at the table and make the next version with the own append. The answer is `Placed`, `LOST` or `BUSY`.

    With `combine`, waiting appends are listed and read after the look, and the version is only made directly after the
    version seen.
    """

    part: WaitingAppend | None
    """The own append if it waits in a file. Other writers may have committed it, which the look shows."""
    combine: bool
    leading: bool = False
    """Only attempt if the latest version is this writer's own."""
    room: Room | None = None
    """The own reservation, if there is one: writers with a later reservation give way."""


@dataclass(frozen=True, slots=True)
class Look(Effect["Seen"]):
    """Look for new versions. The answer is `Seen`."""

    admit: bool = False
    """Also read all that an append must have seen, and raise the error if it would be rejected."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A table at a version, at a time."""

    version: int
    taken: TakenAppends
    now: float
    """Time of the look, seconds."""
    deaf: bool = False
    """True if the latest version is an append whose writer does not look for waiting appends."""
    leading: bool = False
    """True if the latest version is this writer's own."""
    age: float = 0.0
    """Seconds since that version was first seen."""


@dataclass(frozen=True, slots=True)
class Put(Effect[None]):
    """Put the own append into a file next to the table, unless it is there. The answer is None."""

    part: WaitingAppend


@dataclass(frozen=True, slots=True)
class AskRoom(Effect[None]):
    """Put a file next to the table that asks other writers to make no versions for a while. The answer is None."""

    room: Room


@dataclass(frozen=True, slots=True)
class LeaveRoom(Effect[None]):
    """Try to delete that file. The answer is None."""

    room: Room


@dataclass(frozen=True, slots=True)
class Withdraw(Effect[None]):
    """Overwrite the file of the own append, so that no writer commits it. The answer is None."""

    part: WaitingAppend


@dataclass(frozen=True, slots=True)
class MoveOn(Effect["Seen"]):
    """Make sure that a version above `version` exists, by an empty commit if necessary. The answer is `Seen`."""

    version: int


@dataclass(frozen=True, slots=True)
class Pause(Effect[None]):
    """Wait. The answer is None."""

    seconds: float


CommitEffect = Attempt | Look | Put | AskRoom | LeaveRoom | Withdraw | MoveOn | Pause
Appending = Generator[CommitEffect, Any, Placed]

RIVALS_SECONDS: Final = 10.0
"""How long a writer looks for waiting appends after it has last met other writers, s."""

LAP_PUTS: Final = 6.0
"""Duration of a commit for all writers, in durations of one small put: some looks, the records, and the version."""

LEAST_ROOM: Final = 2.0
MOST_ROOM: Final = 60.0
"""Bounds of the time, s, that others give way to a reservation. If its writer dies, they wait that long in vain."""


@dataclass(frozen=True, slots=True)
class CommitTimings:
    """Measured durations of operations on the table."""

    put_seconds: float
    """Duration of a small put."""
    crowd: int = 1
    """Number of appends in the latest combined version."""
    attempt_seconds: float = 0.0
    """Average duration of the latest attempts at a version."""

    @property
    def small_lap(self) -> float:
        """Longest usual duration of a version of small appends, s."""
        return LAP_PUTS * self.put_seconds

    @property
    def lap(self) -> float:
        """Longest usual duration of a version for all, s."""
        return max(self.small_lap, 1.25 * self.attempt_seconds)

    def room(self) -> float:
        """Return how long other writers should give way, s: several attempts, as the first may be lost."""
        return min(MOST_ROOM, max(LEAST_ROOM, 4 * self.lap))

    def look(self) -> float:
        """Return the seconds between two looks; they grow with the number of waiting writers, to limit requests."""
        return self.put_seconds * max(1.0, self.crowd / 16)

    def patience(self, jitter: float) -> float:
        """Return the seconds without a new version after which a waiting writer makes one.

        They exceed the time that the latest version's writer needs for its next one, and are random, so that the
        waiting writers do not all try at once.

        Args:
            jitter: random number from 0 to 1.
        """
        return self.lap + jitter * self.put_seconds * max(2, self.crowd)


@dataclass(frozen=True, slots=True)
class Contention:
    """A writer's knowledge of other writers of the table."""

    met: float = float("-inf")
    """Time when it last saw another writer's append, s."""
    pace: CommitTimings = CommitTimings(0.025)

    def alone(self, now: float) -> bool:
        """Return whether the writer may commit without looking for waiting appends."""
        return now - self.met > RIVALS_SECONDS

    def crowded(self, crowd: int) -> Contention:
        """Return the state after making a version with `crowd` appends."""
        return replace(self, pace=replace(self.pace, crowd=crowd))

    def seen(self, now: float) -> Contention:
        """Return the state after meeting other writers."""
        return replace(self, met=now)

    def attempted(self, seconds: float) -> Contention:
        """Return the state after an attempt that took `seconds`; the newest counts for half."""
        before = self.pace.attempt_seconds or seconds
        return replace(self, pace=replace(self.pace, attempt_seconds=0.5 * (before + seconds)))

    def took(self, seconds: float) -> Contention:
        """Return the state after a put of a small file that took `seconds`; the newest counts for half."""
        return replace(self, pace=replace(self.pace, put_seconds=0.5 * (self.pace.put_seconds + seconds)))


PASSED_OVER: Final = 8
"""Number of versions after which a waiting writer makes one itself, if none of them took its append: their writers do
not take it, or take others first."""


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
        make: names the append by the version seen before its file is put; called once at most.
        make_room: names a reservation by the version seen and its duration, s.
        alone: True if no append of another writer was seen lately.
        leading: True if the latest known version is this writer's own.
        storable: True if the append can wait in a file; other appends can only compete for versions.
        pace: returns the current timings.
        jitter: returns a random number from 0 to 1.
        deadline: time of the last attempt, s; after it the append is withdrawn.

    Returns:
        The version and offsets of the append.

    Raises:
        KafkaTimeoutError: the deadline has passed; the append will not be committed.
        UnknownOutcomeError: the append may be in the table or may still be committed; raised by the effects.
        KafkaError: an effect failed; the append will not be committed.
    """
    if alone or (leading and storable):
        found = yield from Attempt(None, combine=not alone, leading=leading and not alone)
        if isinstance(found, Placed):
            return found
    if not storable:
        return (yield from _racing(make_room, pace, deadline))
    # A rejected append must be rejected before its file is put: from then on other writers may commit it.
    seen, lost = (yield from Look(admit=True)), alone
    if not lost and not leading and seen.age > 2 * pace().lap:
        # No writer is active at the moment.
        found, lost = (yield from Attempt(None, combine=True)), True
        if isinstance(found, Placed):
            return found
        seen = yield from Look()
    part = make(seen.version)
    try:
        yield from Put(part)
        return (yield from _waiting(part, pace, jitter, deadline, lost=lost))
    except KafkaError:
        # The append waits, or may: other writers may be committing it.
        placed = yield from withdrawing(part)
        if placed is not None:
            return placed
        raise


def _racing(make_room: Callable[[int, float], Room], pace: Callable[[], CommitTimings], deadline: float) -> Appending:
    """Make versions until one attempt wins, by asking other writers to give way.

    A writer that commits small appends for others makes some ten versions a second. A writer that needs longer for one
    would never be first, however often it tries.

    Args:
        make_room: see `appending`.
        pace: see `appending`.
        deadline: see `appending`.
    """
    seen = yield from Look()
    if seen.leading and pace().crowd > 1:
        # This writer made the latest version, so the writers that gave way go first.
        yield from _let_pass(seen.version, seen.now + 3 * pace().small_lap, pace)
    elif seen.leading or seen.age > 2 * pace().small_lap:
        # No writer is active at the moment.
        found = yield from Attempt(None, combine=True)
        if isinstance(found, Placed):
            return found
    while True:
        seen = yield from Look()
        if seen.now >= deadline:
            raise _late()
        if seen.deaf:
            # Its writer does not look at files next to the table until a foreign version tells it about other writers.
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
    """Make versions during a reservation; None if no attempt won."""
    # The active writer has not seen the reservation, and is faster.
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
    return KafkaTimeoutError(
        "timed out: other writers made all versions meanwhile, so nothing was written; retry, or raise the timeout"
    )


def _waiting(
    part: WaitingAppend, pace: Callable[[], CommitTimings], jitter: Callable[[], float], deadline: float, *, lost: bool
) -> Appending:
    """Wait until a commit has taken an append; make that commit if no other writer does.

    Args:
        part: the append.
        pace: see `appending`.
        jitter: see `appending`.
        deadline: see `appending`.
        lost: True if an attempt has been lost already.
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
            # The latest version's writer does not know of other writers, and may win each time. A foreign version tells
            # it about them, and an empty one is the fastest to make.
            seen = yield from MoveOn(seen.version)
        overdue = seen.version - passed >= PASSED_OVER or (seen.version == version and seen.now >= try_at)
        if seen.leading or seen.deaf or overdue:
            if seen.leading or not lost or not seen.deaf:
                found = yield from Attempt(part, combine=True)
                if isinstance(found, Placed):
                    return found
                version, lost, passed = -1, True, seen.version
                if found is not LOST:
                    # The next look would give the same result.
                    yield from Pause(pace().look() if found is BUSY else pace().small_lap / 2)
            continue
        if seen.version != version:
            version, try_at = seen.version, seen.now + pace().patience(jitter())
        yield from Pause(min(pace().look(), max(0.0, try_at - seen.now)))


def withdrawing(part: WaitingAppend) -> Generator[CommitEffect, Any, Placed | None]:
    """Withdraw an append that waits, or may wait, in a file.

    A writer that makes a version has read the waiting appends after it saw the version before. Once the withdrawal is
    written, at most one more version can contain the append: the one after the latest version at that time. When that
    version exists, whoever made it, the outcome is known.

    Returns:
        The version and offsets if a commit was faster; None if the append is never committed.

    Raises:
        UnknownOutcomeError: the storage does not tell; raised by the effects. `ForgottenError`: it never will, see
            `sealing`.
        TopicDeletedError: the topic of the table was deleted; raised by the effects.
    """
    try:
        yield from Withdraw(part)
        seen = yield from Look()
        placed = seen.taken.of(part)
        if placed is None:
            seen = yield from MoveOn(seen.version)
            placed = seen.taken.of(part)
    except (UnknownOutcomeError, TopicDeletedError):
        # A deleted topic has no readers.
        raise
    except KafkaError as cause:
        raise UnknownOutcomeError("append in a group commit", part.id) from cause
    return placed


def sealing(part: WaitingAppend) -> Generator[CommitEffect, Any, None]:
    """Make sure that an append whose outcome is unknown is not committed later.

    As in `withdrawing`, at most the version after the latest one can contain it once the withdrawal is written.

    Raises:
        KafkaError: it may still be committed; raised by the effects.
    """
    yield from Withdraw(part)
    seen = yield from Look()
    yield from MoveOn(seen.version)
