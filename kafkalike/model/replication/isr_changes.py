"""ISR changes: bring lagging replicas in sync, take replicas out, elect leaders, clean up logs.

A log is never truncated. If a former head has a version that no other replica has, the log of the others continues past
it, and a checkpoint is put above it. Versions at or below a checkpoint do not count, and may be deleted at any time.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kafkalike.model.replication import registration
from kafkalike.model.replication import replica_effects as effects
from kafkalike.model.replication.replica_protocol import Seen, check_not_cleaned, following, is_right, sealing


def catching_up(
    replica: registration.Replica, leader: registration.Replica, view: registration.View, *, partly: bool = False
) -> Generator[effects.ReplicaEffect, Any, bool]:
    """Bring a replica outside the chain up to the leader's published versions.

    Args:
        replica: the replica.
        leader: the topic's leader.
        view: the leader's published versions.
        partly: leave out data files that the leader lacks.

    Returns:
        False if the replica has more versions than the leader, or another content in the place of a later version: the
            log must then continue past that version first.
    """
    end = ahead = yield from effects.End(replica)
    same = -1
    while end < view.end:
        if end >= ahead:
            yield from effects.Ahead(leader, end, effects.AHEAD)
            ahead = end + effects.AHEAD
        if max(end, 0) <= (yield from effects.Checkpoint(leader, end + 1)):
            # Its own versions cannot be compared any more, and need not be: they are below the checkpoint then.
            covered = yield from effects.CopyCheckpoint(leader, replica, partly)
            end = yield from effects.End(replica)
            if end != covered:
                # Above the checkpoint are versions that late helpers have put, right or not.
                continue
            if end >= view.end:
                break
        elif end > same and not (yield from is_right(replica, leader, end)):
            yield from effects.MakeCheckpoint(leader, view.end)
            continue
        content = yield from _above_checkpoint(leader, end + 1)
        if content is None:
            continue
        yield from effects.Supply(replica, content, leader, partly)
        if (
            not (yield from effects.Put(replica, end + 1, content))
            and (yield from effects.Read(replica, end + 1)) != content
        ):
            yield from effects.MakeCheckpoint(leader, view.end)
            continue
        end = same = end + 1
    return (yield from is_right(replica, leader, end))


def _above_checkpoint(leader: registration.Replica, version: int) -> Generator[effects.ReplicaEffect, Any, Any]:
    found = yield from effects.Read(leader, version)
    return None if (yield from effects.Checkpoint(leader, version)) >= version else found


def joining(
    broker: int, registered: registration.Registration, view: registration.View, seen: Seen, *, leads: bool = False
) -> Generator[effects.ReplicaEffect, Any, registration.View | None]:
    """Bring a broker's replica into the chain, or continue with a joining one.

    The order is: the replica has caught up; the controller registers that it must be written; a seal puts that in
    force; the replica has the seal; the controller counts it in sync. A replica that lacks an acknowledged version is
    therefore never in sync.

    Args:
        broker: broker that should have a replica.
        registered: the controller's registration.
        view: the published versions.
        seen: receives the versions found beyond the view.
        leads: True if it should become the leader.

    Returns:
        The published versions afterwards; None if the replica cannot join yet, because the log must continue first or
        the registration has changed.
    """
    if registered.joining is None:
        if any(member.broker == broker for member in registered.chain):
            # Another helper was faster. A second entry in the chain would count twice.
            return view
        view = yield from sealing(view, registered, seen)
        if view.configuration != registered.configuration:
            return None
        replica = registered.name(broker)
        if not (yield from catching_up(replica, registered.leader, view)):
            return None
        # The replica's earlier files may have been damaged or deleted while it was out of the chain.
        yield from effects.Fill(replica, registered.leader)
        larger = registration.with_joining(registered, broker, leads=leads)
        if not (yield from effects.Register(registered, larger)):
            return None
        registered = larger
    view = yield from sealing(view, registered, seen)
    if view.configuration != registered.configuration:
        return None
    yield from effects.Register(registered, registration.confirmed(registered))
    return view


def leaving(
    replica: registration.Replica, registered: registration.Registration, view: registration.View, seen: Seen
) -> Generator[effects.ReplicaEffect, Any, registration.View | None]:
    """Take a replica that answers out of the chain, to drain its broker or to let it join again as the leader.

    Returns:
        The view after it left; None if the registration has changed.
    """
    smaller = registration.without(registered, replica)
    if not (yield from effects.Register(registered, smaller)):
        return None
    return (yield from sealing(view, smaller, seen))


def giving_up(broker: int) -> Generator[effects.ReplicaEffect, Any, registration.Registration | None]:
    """Give up the replica of a broker outside the chain, so that its data files may be deleted.

    The controller first registers that no replica comes back under that name, so the files may be deleted however late.
    The log stays, because it keeps out writers of old configurations.

    Returns:
        The new registration; None if the broker is in the chain or the registration has changed.
    """
    registered = yield from effects.LookAtController()
    if any(replica.broker == broker for replica in registered.chain):
        return None
    after = registration.named_anew(registered, broker, (yield from effects.NewLife()))
    return after if (yield from effects.Register(registered, after)) else None


def choosing_unclean(
    replica: registration.Replica, name: registration.Replica | None = None
) -> Generator[effects.ReplicaEffect, Any, registration.Registration | None]:
    """Elect a replica out of sync, and record that records may be lost. None if another process was faster.

    The replica gets another name first, because helpers that wake up late could otherwise still bring it versions, or a
    checkpoint, of the log that is given up.

    Its log may name data files that it never got: while it joined, the replica that it copied had already deleted them.
    They are lost, so its seal removes them.

    Args:
        replica: the replica.
        name: the name under which its broker's replica would join, as found; None for `replica`.
    """
    registered = yield from effects.LookAtController()
    if any(replica.broker == member.broker for member in registered.chain):
        return None
    if registered.name(replica.broker) != (name or replica):
        # The name was given up meanwhile: another process deletes its files.
        return None
    life = yield from effects.NewLife()
    renamed = registration.Replica(replica.broker, life)
    kept = yield from effects.End(replica)
    yield from catching_up(renamed, replica, registration.View(registered.configuration, kept), partly=True)
    kept = yield from effects.End(renamed)
    lost = yield from effects.Missing(renamed)
    chosen = registration.chosen_unclean(registered, renamed, kept, len(lost))
    # A log without a seal of this epoch counts as given up.
    yield from effects.Put(renamed, kept + 1, (yield from effects.NewSeal(chosen, lost)))
    return chosen if (yield from effects.Register(registered, chosen)) else None


def cleaning(
    replica: registration.Replica, view: registration.View, keep: int
) -> Generator[effects.ReplicaEffect, Any, None]:
    """Clean up a log: make a checkpoint of the published versions, then delete versions below it.

    Args:
        replica: replica of the chain.
        view: the published versions.
        keep: number of versions below the checkpoint to keep.
    """
    seen: Seen = {}
    view = yield from following(view, seen)
    if replica not in view.configuration.chain:
        return
    if (yield from effects.Read(replica, view.end)) is None:
        return
    yield from check_not_cleaned(replica, view.end)
    yield from effects.MakeCheckpoint(replica, view.end)
    yield from effects.Discard(replica, max(0, view.end - keep))
