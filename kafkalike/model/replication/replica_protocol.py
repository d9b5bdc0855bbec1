"""Replica protocol: make a version of a replicated table, and find the published versions.

The guarantees rest on the order of the effects (see `kafkalike.model.effects`), which only this module decides.

The following rules keep replicas the same. A version is decided where it is put first, at the head, and then passes
down the chain. No replica takes a version whose predecessor it lacks. The last one to get it, the leader, publishes it.
A writer whose version follows an unpublished one publishes the earlier one first. Nothing is ever overwritten. A
configuration ends at the seal of the next one, in the log of the first replica that stays: a writer of the old
configuration meets the seal there.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kafkalike.model.replication import replica_effects as effects
from kafkalike.model.replication.registration import (
    UNSEEN,
    Configuration,
    FellBehindError,
    OtherBytesError,
    Registration,
    Replica,
    ReplicaError,
    TableVersion,
    UnreachableError,
    View,
    without,
)

Seen = dict[int, TableVersion]
"""Contents of published versions, filled by the protocols."""


class StaleError(ReplicaError):
    """A newer configuration was found, so no replica is taken out because of this error."""


def check_not_cleaned(replica: Replica, version: int) -> Generator[effects.ReplicaEffect, Any, None]:
    """Raise if log cleanup may have deleted the version that was just read or put.

    The check follows the read or the put, because a process may sleep before those. The previous version proves
    nothing, because another late writer may have put that one, too.

    Raises:
        FellBehindError: a checkpoint is at or above the version.
    """
    if (yield from effects.Checkpoint(replica, version)) >= version:
        raise FellBehindError


def reading(replica: Replica, version: int) -> Generator[effects.ReplicaEffect, Any, TableVersion | None]:
    """Return a version of a replica; None if its log ends before it."""
    found = yield from effects.Read(replica, version)
    yield from check_not_cleaned(replica, version)
    return found


def putting(replica: Replica, version: int, content: TableVersion) -> Generator[effects.ReplicaEffect, Any, None]:
    """Put a decided version at a replica that has all versions before it.

    Raises:
        OtherBytesError: it has another content there.
    """
    if not (yield from effects.Put(replica, version, content)):
        found = yield from effects.Read(replica, version)
        yield from check_not_cleaned(replica, version)
        if found != content:
            raise OtherBytesError(replica)
        return
    yield from check_not_cleaned(replica, version)


def passing_on(
    replica: Replica, version: int, content: TableVersion, source: Replica
) -> Generator[effects.ReplicaEffect, Any, None]:
    """Put a decided version at a replica that has all versions before it, from a source that has this one.

    Writers give each replica the data files of a version before they put it at the head. Another engine has put its
    version and data files at one replica only.

    Raises:
        OtherBytesError: it has another content there.
    """
    if not content.append_id:
        try:
            yield from effects.Supply(replica, content, source, partly=True)
        except UnreachableError:
            # Find out which of the two does not answer.
            yield from effects.Checkpoint(source)
            raise
    yield from putting(replica, version, content)


def check_passed_on(
    source: Replica, version: int, content: TableVersion, known: Configuration, registered: Registration | None
) -> Generator[effects.ReplicaEffect, Any, None]:
    """Reject another engine's version at a leader that did not pass down the chain.

    The other replicas would put another content in its place, or leave a hole there.

    Raises:
        OtherBytesError: the leader has to be taken out.
    """
    if registered is not None and registered.epoch >= known.epoch:
        first = registered.decider
    elif known.chain:
        first = known.head
    else:
        return
    if first == source:
        return
    there = yield from effects.Read(first, version)
    if there != content and (yield from effects.Checkpoint(first)) < version:
        raise OtherBytesError(source)


def following(
    view: View, seen: Seen, registered: Registration | None = None
) -> Generator[effects.ReplicaEffect, Any, View]:
    """Read the published versions beyond a view, each from the leader of its configuration.

    A seal that has not reached the leader that it names is not published yet. The first versions may have been read
    ahead; the next ones are, in batches of the same size.

    Args:
        view: the known versions.
        seen: receives the versions.
        registered: the controller's registration. Versions before its seal are read from its leader, because older
            leaders may be gone; all replicas in sync have what that leader has of them.

    Raises:
        OtherBytesError: the leader has a version of another engine that no other replica has.
    """
    ahead = view.end + effects.AHEAD
    while True:
        known = view.configuration
        behind = registered is not None and known.epoch < registered.epoch
        source = registered.leader if behind and registered is not None else known.leader
        if view.end >= ahead:
            yield from effects.Ahead(source, view.end, effects.AHEAD)
            ahead = view.end + effects.AHEAD
        content = yield from reading(source, view.end + 1)
        if content is None:
            return view
        if not content.append_id:
            yield from check_passed_on(source, view.end + 1, content, known, registered)
        later = view.after(content)
        new = later.configuration
        passing = registered is not None and new.epoch < registered.epoch
        if new.epoch > known.epoch and new.leader != source and not passing:
            there = yield from effects.Read(new.leader, later.end)
            if there != content and (yield from effects.Checkpoint(new.leader)) < later.end:
                return view
        seen[later.end] = content
        view = later


def looking_up(
    version: int, view: View, registered: Registration
) -> Generator[effects.ReplicaEffect, Any, TableVersion | None]:
    """Read a published version from any replica that still has it.

    Args:
        version: at or below the view's end.
        view: the known versions.
        registered: a registration. If the log has a later configuration, that one counts.

    Returns:
        Its content; None if cleanup has deleted it, so that the caller must load the table again.

    Raises:
        FellBehindError: the log that this process knows was given up.
        UnreachableError: no replica in sync answers.
    """
    if view.configuration.epoch < registered.lineage:
        raise FellBehindError
    known = view.configuration
    in_sync = registered.in_sync if registered.epoch >= known.epoch else (known.leader,)
    failed: UnreachableError | None = None
    answered = False
    for replica in reversed(in_sync):
        try:
            found = yield from effects.Read(replica, version)
            if (yield from effects.Counts(replica, version)):
                return found
        except UnreachableError as cause:
            failed = failed or cause
        else:
            # A checkpoint contains the version's effect.
            answered = True
    if failed is not None and not answered:
        raise failed
    return None


def appending(
    view: View, content: TableVersion, seen: Seen
) -> Generator[effects.ReplicaEffect, Any, tuple[View, bool]]:
    """Make the version after a view, or learn the version made by another writer.

    Args:
        view: the known published versions, on which the content was planned.
        content: the wanted content; this process can read its data files.
        seen: receives all versions after the view.

    Returns:
        The view after it, and whether the version is this content, which is then acknowledged.

    Raises:
        FellBehindError: the outcome is unknown and must be settled by id.
        NoReplicaLeftError: a replica failed, and no other one is in sync. The outcome is unknown, too.
    """
    wanted = view.end + 1
    while view.end < wanted:
        try:
            view = yield from publishing(view, content, seen)
        except ReplicaError as failed:
            view = yield from mending(view, failed, seen)
    return view, seen[wanted].append_id == content.append_id


def publishing(view: View, content: TableVersion, seen: Seen) -> Generator[effects.ReplicaEffect, Any, View]:
    """Take the next version down the chain: the head's content of it, or else this content."""
    chain, version = view.configuration.chain, view.end + 1
    decided = yield from reading(chain[0], version)
    if decided is None:
        # Before the head has the version.
        for replica in chain:
            yield from effects.Supply(replica, content, None)
        decided = yield from deciding(chain[0], version, content)
    later = view.after(decided)
    if later.configuration != view.configuration:
        raise StaleError(chain[0])
    for replica in chain[1:]:
        yield from passing_on(replica, version, decided, chain[0])
    seen[version] = decided
    return later


def deciding(
    replica: Replica, version: int, content: TableVersion
) -> Generator[effects.ReplicaEffect, Any, TableVersion]:
    """Put a content at the replica that decides a version, and return the content there."""
    if (yield from effects.Put(replica, version, content)):
        yield from check_not_cleaned(replica, version)
        return content
    found = yield from reading(replica, version)
    if found is None:
        raise FellBehindError
    return found


def finding(*, repair: bool) -> Generator[effects.ReplicaEffect, Any, tuple[Registration, View | None, Replica]]:
    """Find where to load a table from, and replace a leader that does not answer.

    Args:
        repair: False for readers, which raise `UnreachableError` instead.

    Returns:
        The controller's registration; the view of the newest checkpoint, or None; and the replica with that checkpoint.

    Raises:
        NoReplicaLeftError: no replica in sync answers.
    """
    while True:
        registered: Registration = yield from effects.LookAtController()
        last = registered.chain[-1]
        try:
            if last == registered.joining:
                loaded = yield from effects.Load(last)
                if loaded is not None and loaded.configuration.epoch == registered.epoch:
                    # Writers already use its configuration.
                    return registered, loaded, last
            return registered, (yield from effects.Load(registered.leader)), registered.leader
        except ReplicaError as failed:
            if not repair:
                raise
            yield from effects.Register(registered, without(registered, failed.replica))


def opening(seen: Seen, *, repair: bool) -> Generator[effects.ReplicaEffect, Any, tuple[View, View | None, Replica]]:
    """Load a log from its newest checkpoint on.

    A writer needs a view whose configuration is in force: a leader that is only registered may show versions that the
    previous leader lacks, and a writer that gave the next version to that one would leave a hole there.

    Args:
        seen: receives the versions above the checkpoint.
        repair: False for readers.

    Returns:
        The view, the view of the checkpoint, and the replica with that checkpoint.
    """
    view = UNSEEN
    while True:
        registered, loaded, source = yield from finding(repair=repair)
        try:
            view = yield from following(loaded or UNSEEN, seen, registered)
        except ReplicaError as failed:
            # The checkpoint could be loaded, but the replica does not answer about later versions.
            if not repair or failed.replica not in registered.chain:
                raise
            yield from effects.Register(registered, without(registered, failed.replica))
            seen.clear()
        else:
            break
    if repair:
        view = yield from mending(view, StaleError(source), seen)
    return view, loaded, source


def mending(view: View, failed: ReplicaError, seen: Seen) -> Generator[effects.ReplicaEffect, Any, View]:
    """Continue after a replica failed: take it out, unless there is a newer configuration, and put that one in force.

    The controller decides, because two sides of a network partition could otherwise both take out the other and
    continue.
    """
    epoch = view.configuration.epoch
    while True:
        registered = yield from effects.LookAtController()
        to_blame = not isinstance(failed, StaleError) and failed.replica in registered.chain
        if registered.epoch == epoch and to_blame:
            smaller = without(registered, failed.replica)
            if not (yield from effects.Register(registered, smaller)):
                continue
            registered = smaller
        epoch = registered.epoch
        try:
            view = yield from sealing(view, registered, seen)
        except ReplicaError as again:
            failed = again
            continue
        if view.configuration.epoch == epoch:
            return view
        # The log has a newer configuration than the controller had.
        failed = StaleError(registered.leader)


def sealing(view: View, registered: Registration, seen: Seen) -> Generator[effects.ReplicaEffect, Any, View]:
    """Put a registration in force, unless it is.

    First the seal is put where the log of the previous configuration is longest, so that nothing of that configuration
    can follow it. Then all versions there pass down the new chain.

    Returns:
        A view with the seal, or with the seal of a newer configuration.
    """
    if registered.losses and view.configuration.epoch < registered.losses[-1].epoch:
        # The log that this process knows was given up.
        raise FellBehindError
    decider = registered.decider
    view = yield from following(view, seen, registered)
    ahead: Seen = {}
    end = view
    while end.configuration.epoch < registered.epoch:
        content = yield from reading(decider, end.end + 1)
        if content is None:
            seal = yield from effects.NewSeal(registered)
            content = yield from deciding(decider, end.end + 1, seal)
        ahead[end.end + 1] = content
        end = end.after(content)
    if end.configuration.epoch > registered.epoch:
        # Its seal may not be published yet, so the caller must ask the controller again.
        return view
    for replica in registered.chain:
        if replica == registered.joining:
            yield from bringing(replica, decider, end.end)
        elif replica != decider:
            for version, content in ahead.items():
                yield from passing_on(replica, version, content, decider)
    seen |= ahead
    return end


def bringing(replica: Replica, source: Replica, last: int) -> Generator[effects.ReplicaEffect, Any, None]:
    """Bring a replica that had caught up to a version, from a source that has it.

    Raises:
        OtherBytesError: a late helper of an older configuration has put another content there meanwhile.
    """
    end = yield from effects.End(replica)
    if max(end, 0) <= (yield from effects.Checkpoint(source)):
        yield from effects.CopyCheckpoint(source, replica)
        # Above the checkpoint there may be versions of other helpers.
        end = yield from effects.End(replica)
    if (yield from effects.Checkpoint(replica)) > end:
        # Another helper has copied a checkpoint since.
        end = yield from effects.End(replica)
    if not (yield from is_right(replica, source, end)):
        raise OtherBytesError(replica)
    for version in range(end + 1, last + 1):
        content = yield from reading(source, version)
        if content is None:
            raise FellBehindError
        yield from effects.Supply(replica, content, source)
        yield from putting(replica, version, content)


def is_right(replica: Replica, leader: Replica, version: int) -> Generator[effects.ReplicaEffect, Any, bool]:
    """Return whether a replica's last version is the leader's, and so all before it, which were put in order.

    If another helper has copied a checkpoint since, `version` is not the last one, and right versions follow the
    checkpoint. Right versions put after a wrong one would make the wrong one count (see `Span`).
    """
    if (yield from effects.Checkpoint(replica)) >= version:
        return bool((yield from effects.End(replica)) == version)
    mine = yield from effects.Read(replica, version)
    theirs = yield from reading(leader, version)
    return mine is not None and bool(mine == theirs)
