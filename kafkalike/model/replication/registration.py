"""Registration: replicas, configurations, the controller's record of a table, and the versions of a replica that count.

The controller takes no other steps than the functions of this module. The order of replicas that stay never changes,
and a replica comes back only after its removal is in the log. Of two replicas in sync, the first in the chain therefore
has all that the other one has.

A former head of the chain may have versions that no other replica got. The log continues without them, and the replica
comes back by a checkpoint; those versions stay below the checkpoint, or arrive much later. A process that slept since
before a cleanup may also put a version where the removed one was. `Span` notes therefore record first which versions of
the replica's own log count. A replica puts each version after the one before, so the versions between two checkpoints
begin with right ones, and its private ones come last: if one is right, all before it are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol


class Replica(NamedTuple):
    """A copy of a topic's table on one broker's root."""

    broker: int
    life: int = 0
    """Number of the copy. A copy is made again under another number after an unclean election, and after the files of a
    former one were deleted."""


class Configuration(NamedTuple):
    """The replicas that must take a version, in order. It is in force after the version that contains it, its seal."""

    epoch: int
    """Kafka's leader epoch: assigned by the controller, one configuration for each."""
    chain: tuple[Replica, ...]
    """The order in which replicas take a version: the head decides it, the leader publishes it."""

    @property
    def head(self) -> Replica:
        """The first replica: its content of a version is that version."""
        return self.chain[0]

    @property
    def leader(self) -> Replica:
        """The last replica: all others have all of its versions."""
        return self.chain[-1]


class UncleanElection(NamedTuple):
    """An unclean election, in which acknowledged records may be lost."""

    epoch: int
    """Epoch that it started."""
    replica: Replica
    """Replica whose log is valid since then."""
    kept: int
    """Last version of that replica when it was elected: later versions of older epochs are lost."""
    chain: tuple[Replica, ...]
    """The chain that was valid before."""
    files: int = 0
    """Number of data files that the log names and no reachable replica had; the version after `kept` removes them."""


class Registration(NamedTuple):
    """The controller's record of one table: a value, changed by compare-and-set."""

    epoch: int
    chain: tuple[Replica, ...]
    joining: Replica | None = None
    """The member of the chain that may lack versions: it is not in sync and cannot lead until it is confirmed."""
    life: int = 0
    """Life of joining replicas; it changes with an unclean election."""
    losses: tuple[UncleanElection, ...] = ()
    renamed: tuple[Replica, ...] = ()
    """Names under which replicas of some brokers join in future, because files of their former ones may be deleted."""

    def name(self, broker: int) -> Replica:
        """Return the name under which a broker's replica joins."""
        return next((replica for replica in self.renamed if replica.broker == broker), Replica(broker, self.life))

    @property
    def lineage(self) -> int:
        """Identifies the log: the epoch of the last unclean election, or 0."""
        return self.losses[-1].epoch if self.losses else 0

    @property
    def configuration(self) -> Configuration:
        """The configuration that writers must use."""
        return Configuration(self.epoch, self.chain)

    @property
    def in_sync(self) -> tuple[Replica, ...]:
        """Kafka's ISR, in the chain's order: each of them has every acknowledged version."""
        return tuple(replica for replica in self.chain if replica != self.joining)

    @property
    def decider(self) -> Replica:
        """The replica that decides the end of the previous configuration's log: the first in sync."""
        return self.in_sync[0]

    @property
    def leader(self) -> Replica:
        """The replica that may be read: the last one in sync."""
        return self.in_sync[-1]


class TableVersion(Protocol):
    """The content of a version. Two contents are the same if they are equal byte by byte."""

    @property
    def append_id(self) -> str:
        """Id of its append; empty if another engine wrote it."""
        ...

    @property
    def configuration(self) -> Configuration | None:
        """If it is a seal, the configuration of the versions after it."""
        ...


class View(NamedTuple):
    """A process's knowledge of a table's log."""

    configuration: Configuration
    """Configuration of the next version, according to the log."""
    end: int
    """The last version known to be published: every replica of the configuration has it."""

    def after(self, content: TableVersion) -> View:
        """Return the view after one more version."""
        seal = content.configuration
        newer = seal is not None and seal.epoch > self.configuration.epoch
        return View(seal if newer and seal is not None else self.configuration, self.end + 1)


UNSEEN: Final = View(Configuration(-1, ()), -1)
"""The view before anything of the log is known."""


class ReplicaError(Exception):
    """A replica cannot take part in its current state."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(f"{type(self).__name__}: {replica}")
        self.replica = replica


class UnreachableError(ReplicaError):
    """It has not answered for longer than `replica.lag.time.max.ms`. The requested action may still happen."""


class OtherBytesError(ReplicaError):
    """It has another content in the place of a version."""


class FellBehindError(Exception):
    """Log cleanup has passed this process: it must load the table again and settle its append by id."""


class NoReplicaLeftError(Exception):
    """The last replica in sync cannot be taken out."""


def without(registration: Registration, replica: Replica) -> Registration:
    """Take a replica out, because it has failed or is being moved.

    If it is the leader, its predecessor follows, which has everything that the old leader showed. A joining replica is
    also taken out and starts over, because the decider would otherwise depend on its progress.

    Args:
        registration: current registration; the replica is in its chain.
        replica: the replica.

    Raises:
        NoReplicaLeftError: no other replica is in sync.
    """
    left = tuple(other for other in registration.in_sync if other != replica)
    if not left:
        raise NoReplicaLeftError
    return registration._replace(epoch=registration.epoch + 1, chain=left, joining=None)


def with_joining(registration: Registration, broker: int, *, leads: bool = False) -> Registration:
    """Add a broker's replica that has caught up: from the seal on it must be written too.

    It is placed before the leader, which stays the leader; or last, if it should lead. With a single replica it is also
    placed last: the single one decides the seal, and as the last one it would publish the seal before the new one has
    it.

    Args:
        registration: current registration, in force, without a joining replica.
        broker: a broker outside the chain.
        leads: True if it should become the leader.
    """
    joining = registration.name(broker)
    chain = registration.chain
    last = leads or len(chain) == 1
    chain = (*chain, joining) if last else (*chain[:-1], joining, chain[-1])
    return registration._replace(epoch=registration.epoch + 1, chain=chain, joining=joining)


def named_anew(registration: Registration, broker: int, life: int) -> Registration:
    """Never readmit a broker's replica under its former name, so that its files may be deleted however late.

    Args:
        registration: current registration; the broker is not in its chain.
        broker: the broker.
        life: a new number that no other replica has.
    """
    others = tuple(replica for replica in registration.renamed if replica.broker != broker)
    return registration._replace(renamed=(*others, Replica(broker, life)))


def confirmed(registration: Registration) -> Registration:
    """Count the joining replica in sync, because it has the seal of this epoch."""
    return registration._replace(joining=None)


def chosen_unclean(registration: Registration, replica: Replica, kept: int, files: int = 0) -> Registration:
    """Elect a replica that may lack acknowledged records, because no replica in sync can be reached.

    All others must be copied again before they come back, because their logs and checkpoints may differ.

    Args:
        registration: current registration.
        replica: the replica with the longest log of the reachable ones, copied under a new life.
        kept: its last version.
        files: number of lost data files that its log names.
    """
    epoch = registration.epoch + 1
    loss = UncleanElection(epoch, replica, kept, registration.chain, files)
    return Registration(epoch, (replica,), None, replica.life, (*registration.losses, loss))


class Span(NamedTuple):
    """A replica's own versions that do not count."""

    first: int
    last: int
    """The checkpoint with which it came back, or the last version that cleanup deleted."""
    final: bool = True
    """True if comparing found `first`; otherwise the first such version may be later."""

    def has(self, version: int) -> bool:
        """Return whether a version is in the span."""
        return self.first <= version <= self.last


def holding(spans: Collection[Span], newest: int) -> list[Span]:
    """Return the spans that are in force.

    Args:
        spans: all recorded spans.
        newest: the replica's newest checkpoint. A span up to a later one was recorded by a process that died before
            making that checkpoint, so the replica's versions are still needed.
    """
    final = {span.last for span in spans if span.final}
    return [span for span in spans if span.last <= newest and (span.final or span.last not in final)]


def counts(version: int, spans: Collection[Span], newest: int) -> bool:
    """Return whether an own version of a replica in sync equals the published one. See `holding`."""
    return not any(span.has(version) for span in holding(spans, newest))


def begun(spans: Collection[Span], newest: int, checkpoint: int) -> Span:
    """Return the span to record before a replica gets a checkpoint: everything since its last certainly right version.

    Args:
        spans: spans recorded before.
        newest: its newest checkpoint so far, or -1; it was made of versions that the replica had when they were
            published.
        checkpoint: the later checkpoint that it gets.
    """
    first = max([newest, *(span.last for span in holding(spans, newest))]) + 1
    return Span(first, checkpoint, final=False)


def compared(span: Span, own: Sequence[int], is_same: Callable[[int], bool | None]) -> Span:
    """Find where own versions stop counting.

    Args:
        span: the span when it was begun.
        own: the replica's versions, in order.
        is_same: tells whether a version equals that of a replica that is right there; None if that one does not have
            it.

    Returns:
        The final span.
    """
    inside = [version for version in own if span.has(version)]
    # Versions after a hole arrived late.
    run = [version for at, version in enumerate(inside) if version == span.first + at]
    right = next((version for version in reversed(run) if is_same(version)), span.first - 1)
    return Span(right + 1, span.last)
