"""Commit protocol: bring one append into a table that other writers append to at the same time.

The guarantees rest on the order of the effects, which stands here; see `kafkalike.model.effects`.

Alone, a writer commits its own append and asks for nothing else. Beside others, it puts its append beside the table and
waits: whoever made the latest version goes on at once, and takes along what waits. When no version comes for a while, a
writer that waits makes one itself, for all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from kafkalike.errors import KafkaError, KafkaTimeoutError, TopicDeletedError, UnknownOutcomeError
from kafkalike.model.group_commit.commit_effects import (
    BUSY,
    LOST,
    Appending,
    AskRoom,
    Attempt,
    CommitEffect,
    LeaveRoom,
    Look,
    MoveOn,
    Pause,
    Put,
    Seen,
    Withdraw,
)
from kafkalike.model.group_commit.contention import CommitTimings
from kafkalike.model.group_commit.waiting_appends import Placed, Room, WaitingAppend

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
