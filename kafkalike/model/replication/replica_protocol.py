"""Replica protocol: make a version of a table that has replicas, and find out what is published.

The guarantees rest on the order of the effects, which stands here; see `kafkalike.model.effects`.

What keeps replicas the same is this. A version is decided where it is put first, at the head, and then goes down the
chain; nobody takes one whose predecessor it lacks; the last one to get it, the leader, publishes it. Whoever is to come
after a version that is not published yet publishes it first. Nothing is ever overwritten. A configuration ends where
the next one's seal stands, in the log of the first replica that stays: a writer of the old one meets the seal there.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

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
from kafkalike.model.replication.replica_effects import (
    AHEAD,
    Ahead,
    Checkpoint,
    CopyCheckpoint,
    Counts,
    End,
    Load,
    LookAtController,
    NewSeal,
    Put,
    Read,
    Register,
    ReplicaEffect,
    Supply,
)

Seen = dict[int, TableVersion]
"""Contents of published versions, filled by protocols that come by."""


class StaleError(ReplicaError):
    """A newer configuration has been met: nobody is to be taken out because of it."""


def check_not_cleaned(replica: Replica, version: int) -> Generator[ReplicaEffect, Any, None]:
    """Refuse to believe what was found, or put, in the place of a version that log clean-up may have emptied.

    It comes after the read or the put, as a process may sleep before those. The version before is no proof: another
    late writer may have put that one, too.

    Raises:
        FellBehindError: there is a checkpoint at or above it.
    """
    if (yield from Checkpoint(replica, version)) >= version:
        raise FellBehindError


def reading(replica: Replica, version: int) -> Generator[ReplicaEffect, Any, TableVersion | None]:
    """A version of a replica; None when its log ends before."""
    found = yield from Read(replica, version)
    yield from check_not_cleaned(replica, version)
    return found


def putting(replica: Replica, version: int, content: TableVersion) -> Generator[ReplicaEffect, Any, None]:
    """Put a decided version at a replica that has all before it.

    Raises:
        OtherBytesError: it has something else there.
    """
    if not (yield from Put(replica, version, content)):
        found = yield from Read(replica, version)
        yield from check_not_cleaned(replica, version)
        if found != content:
            raise OtherBytesError(replica)
        return
    yield from check_not_cleaned(replica, version)


def passing_on(
    replica: Replica, version: int, content: TableVersion, source: Replica
) -> Generator[ReplicaEffect, Any, None]:
    """Put a decided version at a replica that has all before it, from one that has this one.

    Writers give each replica the data files of a version before they put it at the first one. Another engine has put
    its version, and the data files, at that one alone.

    Raises:
        OtherBytesError: it has something else there.
    """
    if not content.append_id:
        try:
            yield from Supply(replica, content, source, partly=True)
        except UnreachableError:
            # Which of the two gives no answer?
            yield from Checkpoint(source)
            raise
    yield from putting(replica, version, content)


def check_passed_on(
    source: Replica, version: int, content: TableVersion, known: Configuration, registered: Registration | None
) -> Generator[ReplicaEffect, Any, None]:
    """Refuse another engine's version that stands at a leader, and did not come down the chain.

    The others would put something else in its place, or leave a hole there.

    Raises:
        OtherBytesError: the leader is to be taken out.
    """
    if registered is not None and registered.epoch >= known.epoch:
        first = registered.decider
    elif known.chain:
        first = known.head
    else:
        return
    if first == source:
        return
    there = yield from Read(first, version)
    if there != content and (yield from Checkpoint(first)) < version:
        raise OtherBytesError(source)


def following(view: View, seen: Seen, registered: Registration | None = None) -> Generator[ReplicaEffect, Any, View]:
    """Read what is published beyond a view, each version from the leader of its configuration.

    A seal that has not reached the leader that it names is not published yet. The first versions may have been read
    ahead; the next ones are, as many at once.

    Raises:
        OtherBytesError: the leader has a version of another engine that nobody else has.

    Args:
        view: what is known.
        seen: gets the versions.
        registered: what the controller says. Versions before its seal are read from its leader, as older leaders may be
            gone: what that one has of them, all have that are in sync.
    """
    ahead = view.end + AHEAD
    while True:
        known = view.configuration
        behind = registered is not None and known.epoch < registered.epoch
        source = registered.leader if behind and registered is not None else known.leader
        if view.end >= ahead:
            yield from Ahead(source, view.end, AHEAD)
            ahead = view.end + AHEAD
        content = yield from reading(source, view.end + 1)
        if content is None:
            return view
        if not content.append_id:
            yield from check_passed_on(source, view.end + 1, content, known, registered)
        later = view.after(content)
        new = later.configuration
        passing = registered is not None and new.epoch < registered.epoch
        if new.epoch > known.epoch and new.leader != source and not passing:
            there = yield from Read(new.leader, later.end)
            if there != content and (yield from Checkpoint(new.leader)) < later.end:
                return view
        seen[later.end] = content
        view = later


def looking_up(
    version: int, view: View, registered: Registration
) -> Generator[ReplicaEffect, Any, TableVersion | None]:
    """Read a version that is published, of whoever has it still.

    Args:
        version: at or below the view's end.
        view: what is known.
        registered: what the controller says, or said. Where the log knows a later configuration, that counts.

    Returns:
        Its content; None when clean-up has taken it: who needs it loads the table anew.

    Raises:
        FellBehindError: the log that this process knows was given up.
        UnreachableError: nobody in sync gives an answer.
    """
    if view.configuration.epoch < registered.lineage:
        raise FellBehindError
    known = view.configuration
    in_sync = registered.in_sync if registered.epoch >= known.epoch else (known.leader,)
    failed: UnreachableError | None = None
    answered = False
    for replica in reversed(in_sync):
        try:
            found = yield from Read(replica, version)
            if (yield from Counts(replica, version)):
                return found
        except UnreachableError as cause:
            failed = failed or cause
        else:
            # A checkpoint has what was in it.
            answered = True
    if failed is not None and not answered:
        raise failed
    return None


def appending(view: View, content: TableVersion, seen: Seen) -> Generator[ReplicaEffect, Any, tuple[View, bool]]:
    """Make the version after a view, or learn what it is.

    Args:
        view: all that is published, as far as is known; what the content was planned on.
        content: what the version shall be; its data files can be read by this process.
        seen: gets all versions after the view.

    Returns:
        The view after it, and whether the version is this content: then it is acknowledged.

    Raises:
        FellBehindError: unknown; to be settled by id.
        NoReplicaLeftError: a replica failed, and no other one is in sync. Unknown, too.
    """
    wanted = view.end + 1
    while view.end < wanted:
        try:
            view = yield from publishing(view, content, seen)
        except ReplicaError as failed:
            view = yield from mending(view, failed, seen)
    return view, seen[wanted].append_id == content.append_id


def publishing(view: View, content: TableVersion, seen: Seen) -> Generator[ReplicaEffect, Any, View]:
    """Take the next version down the chain: what the head has in its place, or else this content."""
    chain, version = view.configuration.chain, view.end + 1
    decided = yield from reading(chain[0], version)
    if decided is None:
        # Before the head says that the version is there.
        for replica in chain:
            yield from Supply(replica, content, None)
        decided = yield from deciding(chain[0], version, content)
    later = view.after(decided)
    if later.configuration != view.configuration:
        raise StaleError(chain[0])
    for replica in chain[1:]:
        yield from passing_on(replica, version, decided, chain[0])
    seen[version] = decided
    return later


def deciding(replica: Replica, version: int, content: TableVersion) -> Generator[ReplicaEffect, Any, TableVersion]:
    """Put a content in the place of a version where that is decided, and see what is there then."""
    if (yield from Put(replica, version, content)):
        yield from check_not_cleaned(replica, version)
        return content
    found = yield from reading(replica, version)
    if found is None:
        raise FellBehindError
    return found


def finding(*, repair: bool) -> Generator[ReplicaEffect, Any, tuple[Registration, View | None, Replica]]:
    """Find where to load a table from, and replace a leader that does not answer.

    Args:
        repair: False for those who only read: they raise `UnreachableError`.

    Returns:
        What the controller says; what the newest checkpoint says, None without one; and where that one is.

    Raises:
        NoReplicaLeftError: nobody in sync answers.
    """
    while True:
        registered: Registration = yield from LookAtController()
        last = registered.chain[-1]
        try:
            if last == registered.joining:
                loaded = yield from Load(last)
                if loaded is not None and loaded.configuration.epoch == registered.epoch:
                    # Writers go by it already.
                    return registered, loaded, last
            return registered, (yield from Load(registered.leader)), registered.leader
        except ReplicaError as failed:
            if not repair:
                raise
            yield from Register(registered, without(registered, failed.replica))


def opening(seen: Seen, *, repair: bool) -> Generator[ReplicaEffect, Any, tuple[View, View | None, Replica]]:
    """Get to know a log from its newest checkpoint on.

    A writer's view is one whose configuration is in force: a leader that is only registered may show what the leader
    before lacks, and who would write that one the next version would leave a hole there.

    Args:
        seen: gets the versions above the checkpoint.
        repair: False for those who only read.

    Returns:
        The view; the checkpoint's, and where that is.
    """
    view = UNSEEN
    while True:
        registered, loaded, source = yield from finding(repair=repair)
        try:
            view = yield from following(loaded or UNSEEN, seen, registered)
        except ReplicaError as failed:
            # It could be loaded, and gives no answer about what comes next.
            if not repair or failed.replica not in registered.chain:
                raise
            yield from Register(registered, without(registered, failed.replica))
            seen.clear()
        else:
            break
    if repair:
        view = yield from mending(view, StaleError(source), seen)
    return view, loaded, source


def mending(view: View, failed: ReplicaError, seen: Seen) -> Generator[ReplicaEffect, Any, View]:
    """Go on where a replica failed: take it out, unless there is a newer configuration, and bring that one into force.

    The controller decides: two sides of a partition that both shrink to themselves would both go on.
    """
    epoch = view.configuration.epoch
    while True:
        registered = yield from LookAtController()
        to_blame = not isinstance(failed, StaleError) and failed.replica in registered.chain
        if registered.epoch == epoch and to_blame:
            smaller = without(registered, failed.replica)
            if not (yield from Register(registered, smaller)):
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
        # The log knows a newer one than the controller did.
        failed = StaleError(registered.leader)


def sealing(view: View, registered: Registration, seen: Seen) -> Generator[ReplicaEffect, Any, View]:
    """Bring a registration into force, unless it is.

    First the seal is put where the log of the configuration before is longest: nothing of that configuration can come
    after it. Then all that is there goes down the new chain.

    Returns:
        A view that has the seal, or that of a newer configuration.
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
            seal = yield from NewSeal(registered)
            content = yield from deciding(decider, end.end + 1, seal)
        ahead[end.end + 1] = content
        end = end.after(content)
    if end.configuration.epoch > registered.epoch:
        # Its seal may not be published yet: whoever goes on must ask the controller again.
        return view
    for replica in registered.chain:
        if replica == registered.joining:
            yield from bringing(replica, decider, end.end)
        elif replica != decider:
            for version, content in ahead.items():
                yield from passing_on(replica, version, content, decider)
    seen |= ahead
    return end


def bringing(replica: Replica, source: Replica, last: int) -> Generator[ReplicaEffect, Any, None]:
    """Bring a replica that has caught up before to a version, from one that has it.

    Raises:
        OtherBytesError: a late helper of an older configuration has put something else there meanwhile.
    """
    end = yield from End(replica)
    if max(end, 0) <= (yield from Checkpoint(source)):
        yield from CopyCheckpoint(source, replica)
        # Above the checkpoint there may be what others have put.
        end = yield from End(replica)
    if (yield from Checkpoint(replica)) > end:
        # Another helper has copied one since.
        end = yield from End(replica)
    if not (yield from is_right(replica, source, end)):
        raise OtherBytesError(replica)
    for version in range(end + 1, last + 1):
        content = yield from reading(source, version)
        if content is None:
            raise FellBehindError
        yield from Supply(replica, content, source)
        yield from putting(replica, version, content)


def is_right(replica: Replica, leader: Replica, version: int) -> Generator[ReplicaEffect, Any, bool]:
    """Whether a replica's last version is the leader's, and so all before it: each was put after the one before.

    Where another helper has copied a checkpoint since, it is not the last one: what is right comes after that one. Put
    behind a wrong one, right versions would make that one believed (`log_spans`).
    """
    if (yield from Checkpoint(replica)) >= version:
        return bool((yield from End(replica)) == version)
    mine = yield from Read(replica, version)
    theirs = yield from reading(leader, version)
    return mine is not None and bool(mine == theirs)
