"""Courses of helpers: replicas that lag in, replicas in sync out; leaders moved; logs cleaned up.

A log is never truncated. Where a former head has a version that nobody else has, the log of the others goes on past it,
and a checkpoint is put over it: what stands at or below a checkpoint counts no more, and may be removed at any time.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kafkalike.model.replication.registration import (
    Registration,
    Replica,
    View,
    chosen_unclean,
    confirmed,
    named_anew,
    with_joining,
    without,
)
from kafkalike.model.replication.replica_effects import (
    AHEAD,
    Ahead,
    Checkpoint,
    CopyCheckpoint,
    Discard,
    End,
    Fill,
    LookAtController,
    MakeCheckpoint,
    Missing,
    NewLife,
    NewSeal,
    Put,
    Read,
    Register,
    ReplicaEffect,
    Supply,
)
from kafkalike.model.replication.replica_protocol import Seen, check_not_cleaned, following, is_right, sealing


def catching_up(
    replica: Replica, leader: Replica, view: View, *, partly: bool = False
) -> Generator[ReplicaEffect, Any, bool]:
    """Bring a replica that is not in the chain to what a leader has published.

    Args:
        replica: which one.
        leader: the topic's.
        view: what that one has published.
        partly: whether data files that the leader lacks are left out.

    Returns:
        False when it has more than the leader, or something else in the place of a later version: the log must go on
        past that first.
    """
    end = ahead = yield from End(replica)
    same = -1
    while end < view.end:
        if end >= ahead:
            yield from Ahead(leader, end, AHEAD)
            ahead = end + AHEAD
        if max(end, 0) <= (yield from Checkpoint(leader, end + 1)):
            # Its own versions cannot be compared any more, and need not be: they are below the checkpoint then.
            covered = yield from CopyCheckpoint(leader, replica, partly)
            end = yield from End(replica)
            if end != covered:
                # Above the checkpoint there is what late helpers have put, right or not.
                continue
            if end >= view.end:
                break
        elif end > same and not (yield from is_right(replica, leader, end)):
            yield from MakeCheckpoint(leader, view.end)
            continue
        content = yield from _above_checkpoint(leader, end + 1)
        if content is None:
            continue
        yield from Supply(replica, content, leader, partly)
        if not (yield from Put(replica, end + 1, content)) and (yield from Read(replica, end + 1)) != content:
            yield from MakeCheckpoint(leader, view.end)
            continue
        end = same = end + 1
    return (yield from is_right(replica, leader, end))


def _above_checkpoint(leader: Replica, version: int) -> Generator[ReplicaEffect, Any, Any]:
    found = yield from Read(leader, version)
    return None if (yield from Checkpoint(leader, version)) >= version else found


def joining(
    broker: int, registered: Registration, view: View, seen: Seen, *, leads: bool = False
) -> Generator[ReplicaEffect, Any, View | None]:
    """Bring a broker's replica into the chain, or go on with one that is joining.

    In this order: it has caught up; the controller says that it must be written; that is sealed; it has the seal; the
    controller counts it. So nobody who lacks an acknowledged version is ever in sync.

    Args:
        broker: one that shall have a replica.
        registered: what the controller says.
        view: what is published.
        seen: gets what is found beyond.
        leads: whether it is to be the leader.

    Returns:
        What is published then; None when that cannot be yet: the log must go on first, or the controller says something
        else by now.
    """
    if registered.joining is None:
        if any(member.broker == broker for member in registered.chain):
            # Another helper was faster. Twice in the chain, it would count twice.
            return view
        view = yield from sealing(view, registered, seen)
        if view.configuration != registered.configuration:
            return None
        replica = registered.name(broker)
        if not (yield from catching_up(replica, registered.leader, view)):
            return None
        # What it had before may have lost data files while nobody looked after it.
        yield from Fill(replica, registered.leader)
        larger = with_joining(registered, broker, leads=leads)
        if not (yield from Register(registered, larger)):
            return None
        registered = larger
    view = yield from sealing(view, registered, seen)
    if view.configuration != registered.configuration:
        return None
    yield from Register(registered, confirmed(registered))
    return view


def leaving(
    replica: Replica, registered: Registration, view: View, seen: Seen
) -> Generator[ReplicaEffect, Any, View | None]:
    """Take a replica out as planned: it is to lead, or its broker is drained. None: the controller says otherwise."""
    smaller = without(registered, replica)
    if not (yield from Register(registered, smaller)):
        return None
    return (yield from sealing(view, smaller, seen))


def giving_up(broker: int) -> Generator[ReplicaEffect, Any, Registration | None]:
    """Give up what a broker that is not in the chain has of a table, so that its data files may be removed.

    The controller says first that no replica comes back under that name. So it does no harm if whoever removes the
    files has slept for a year. The log stays: it keeps out writers of old configurations.

    Returns:
        What is registered then; None: the broker is in the chain, or the controller says something else by now.
    """
    registered = yield from LookAtController()
    if any(replica.broker == broker for replica in registered.chain):
        return None
    after = named_anew(registered, broker, (yield from NewLife()))
    return after if (yield from Register(registered, after)) else None


def choosing_unclean(
    replica: Replica, name: Replica | None = None
) -> Generator[ReplicaEffect, Any, Registration | None]:
    """Make a replica out of sync the leader, and write down that records may be lost. None: others were faster.

    It gets another name before: helpers that woke up late could still bring it versions, or a checkpoint, of the log
    that is given up.

    Its log may name data files that it never got: while it joined they had left the log, and the disk, of the one that
    it was brought up from. Nobody has them any more, so its seal takes them out.

    Args:
        replica: which one.
        name: what its broker's replica is called when it joins, as it was found; None: that.
    """
    registered = yield from LookAtController()
    if any(replica.broker == member.broker for member in registered.chain):
        return None
    if registered.name(replica.broker) != (name or replica):
        # It was given up meanwhile: somebody removes its files.
        return None
    life = yield from NewLife()
    renamed = Replica(replica.broker, life)
    kept = yield from End(replica)
    yield from catching_up(renamed, replica, View(registered.configuration, kept), partly=True)
    kept = yield from End(renamed)
    lost = yield from Missing(renamed)
    chosen = chosen_unclean(registered, renamed, kept, len(lost))
    # A log that has no seal of this epoch is one that was given up.
    yield from Put(renamed, kept + 1, (yield from NewSeal(chosen, lost)))
    return chosen if (yield from Register(registered, chosen)) else None


def cleaning(replica: Replica, view: View, keep: int) -> Generator[ReplicaEffect, Any, None]:
    """Clean a log up: a checkpoint of what is published, then the versions below it go.

    Args:
        replica: one of the chain.
        view: what is published.
        keep: how many versions below the checkpoint stay.
    """
    seen: Seen = {}
    view = yield from following(view, seen)
    if replica not in view.configuration.chain:
        return
    if (yield from Read(replica, view.end)) is None:
        return
    yield from check_not_cleaned(replica, view.end)
    yield from MakeCheckpoint(replica, view.end)
    yield from Discard(replica, max(0, view.end - keep))
