"""Registration: replicas, configurations, the controller's record of a table, and the versions of a replica that count.

The controller takes no other steps than the functions of this module. The order of replicas that stay never changes,
and a replica comes back only after its removal is in the log. Of two replicas in sync, the first in the chain therefore
has all that the other one has.

A former head of the chain may have versions that no other replica got. The log continues without them, and the replica
comes back by a checkpoint; those versions stay below the checkpoint, or arrive much later. A process that slept since
before a cleanup may also put a version where the removed one was. `Span` notes therefore record first which versions of
the replica's own log count. A replica puts each version after the one before, so the versions between two checkpoints
begin with right ones, and those that no other replica got come last: if one is right, all before it are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol


class Replica(NamedTuple):
    """A copy of a topic's table on one broker's root."""

    broker: int
    life: int = 0
    """Which of the copies there have been: copies are made anew, under another name, after an unclean election, and
    where the files of a former one were removed."""


class Configuration(NamedTuple):
    """Who must take a version, and in what order. It holds from the version after the one that says so, its seal."""

    epoch: int
    """Kafka's leader epoch: given by the controller, one configuration for each."""
    chain: tuple[Replica, ...]
    """The order in which replicas take a version: the head decides it, the leader publishes it."""

    @property
    def head(self) -> Replica:
        """The first one: what stands there in the place of a version is that version."""
        return self.chain[0]

    @property
    def leader(self) -> Replica:
        """The last one: what it has, all have."""
        return self.chain[-1]


class UncleanElection(NamedTuple):
    """An unclean election: records that were acknowledged may be gone."""

    epoch: int
    """Epoch that it began."""
    replica: Replica
    """Whose log is the truth since."""
    kept: int
    """The log end, a version, that this replica had when it was chosen: later ones of older epochs are lost."""
    chain: tuple[Replica, ...]
    """Whose log was the truth before."""
    files: int = 0
    """How many data files that log names and nobody in reach had: the version after `kept` takes them out."""


class Registration(NamedTuple):
    """What the controller says about one topic. It is changed by compare-and-set, and is a value."""

    epoch: int
    chain: tuple[Replica, ...]
    joining: Replica | None = None
    """The member of the chain that may lack something: not in sync, and no leader, until it is confirmed."""
    life: int = 0
    """Life of replicas that are to join: it changes with an unclean election."""
    losses: tuple[UncleanElection, ...] = ()
    renamed: tuple[Replica, ...] = ()
    """What replicas of some brokers are called from now on when they join, since files of the former ones may go."""

    def name(self, broker: int) -> Replica:
        """What a broker's replica is called when it joins."""
        return next((replica for replica in self.renamed if replica.broker == broker), Replica(broker, self.life))

    @property
    def lineage(self) -> int:
        """Which log it is: the epoch of the last unclean election, or 0."""
        return self.losses[-1].epoch if self.losses else 0

    @property
    def configuration(self) -> Configuration:
        """What writers must keep to."""
        return Configuration(self.epoch, self.chain)

    @property
    def in_sync(self) -> tuple[Replica, ...]:
        """Kafka's ISR, in the chain's order: each of them has everything that was ever acknowledged."""
        return tuple(replica for replica in self.chain if replica != self.joining)

    @property
    def decider(self) -> Replica:
        """Who decides where the log of the configuration before ends: the first in sync, whose log is the longest."""
        return self.in_sync[0]

    @property
    def leader(self) -> Replica:
        """Who may be read: the last one that is in sync."""
        return self.in_sync[-1]


class TableVersion(Protocol):
    """The content of a version. Two are the same if they are equal, byte by byte."""

    @property
    def append_id(self) -> str:
        """Whose it is; empty where another engine has made it."""
        ...

    @property
    def configuration(self) -> Configuration | None:
        """The configuration of the versions after it, if it is a seal."""
        ...


class View(NamedTuple):
    """What a process knows of a topic's log."""

    configuration: Configuration
    """The one of the next version, as the log says."""
    end: int
    """The last version that is known to be published: every replica of the configuration has it."""

    def after(self, content: TableVersion) -> View:
        """The view that has one more version."""
        seal = content.configuration
        newer = seal is not None and seal.epoch > self.configuration.epoch
        return View(seal if newer and seal is not None else self.configuration, self.end + 1)


UNSEEN: Final = View(Configuration(-1, ()), -1)
"""Nothing is known of the log."""


class ReplicaError(Exception):
    """A replica cannot take part as it is."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(f"{type(self).__name__}: {replica}")
        self.replica = replica


class UnreachableError(ReplicaError):
    """It gives no answer, for longer than `replica.lag.time.max.ms`. What was asked of it may still happen."""


class OtherBytesError(ReplicaError):
    """It has another content in the place of a version."""


class FellBehindError(Exception):
    """Log clean-up has passed what this process wanted to do: it must load the table anew, and settle by id."""


class NoReplicaLeftError(Exception):
    """The last replica in sync cannot be taken out."""


def without(registration: Registration, replica: Replica) -> Registration:
    """Take a replica out: it has failed, or is to be moved.

    If it is the leader, its predecessor follows: whatever the old leader showed, that one has. One that is joining goes
    too, and begins anew: who decides would otherwise depend on how far it had come.

    Args:
        registration: as it is; the replica is in its chain.
        replica: which one.

    Raises:
        NoReplicaLeftError: no other one is in sync.
    """
    left = tuple(other for other in registration.in_sync if other != replica)
    if not left:
        raise NoReplicaLeftError
    return registration._replace(epoch=registration.epoch + 1, chain=left, joining=None)


def with_joining(registration: Registration, broker: int, *, leads: bool = False) -> Registration:
    """Let a broker's replica in that has caught up: from the seal on it must be written, too.

    It comes before the leader, which stays the leader then; or last, if it is to lead. Beside a single replica it comes
    last, too: the single one decides the seal, and as the last one it would publish it before the new one has it.

    Args:
        registration: as it is: it is in force, and nobody is joining.
        broker: not in the chain.
        leads: whether it is to be the leader.
    """
    joining = registration.name(broker)
    chain = registration.chain
    last = leads or len(chain) == 1
    chain = (*chain, joining) if last else (*chain[:-1], joining, chain[-1])
    return registration._replace(epoch=registration.epoch + 1, chain=chain, joining=joining)


def named_anew(registration: Registration, broker: int, life: int) -> Registration:
    """Never let a broker's replica back under the name that it had: then its files may be removed, however late.

    Args:
        registration: as it is; the broker is not in its chain.
        broker: whose replica.
        life: the next one's; nobody else has it.
    """
    others = tuple(replica for replica in registration.renamed if replica.broker != broker)
    return registration._replace(renamed=(*others, Replica(broker, life)))


def confirmed(registration: Registration) -> Registration:
    """The one that was joining has the seal of this epoch: it is in sync now."""
    return registration._replace(joining=None)


def chosen_unclean(registration: Registration, replica: Replica, kept: int, files: int = 0) -> Registration:
    """Make a replica the leader that may lack acknowledged records, as nobody in sync can be reached.

    All others must be made anew before they come back: their logs, and checkpoints, may say something else.

    Args:
        registration: as it is.
        replica: the one with the longest log of those that can be reached, copied under a life of its own.
        kept: its log end, a version.
        files: how many data files its log names that are lost.
    """
    epoch = registration.epoch + 1
    loss = UncleanElection(epoch, replica, kept, registration.chain, files)
    return Registration(epoch, (replica,), None, replica.life, (*registration.losses, loss))


class Span(NamedTuple):
    """Own versions of a replica that do not count."""

    first: int
    last: int
    """The checkpoint that it came back with; or the last version that clean-up took."""
    final: bool = True
    """Whether the first one was found by comparing; else it may be a later one."""

    def has(self, version: int) -> bool:
        """Whether a version is one of them."""
        return self.first <= version <= self.last


def holding(spans: Collection[Span], newest: int) -> list[Span]:
    """The spans that hold.

    Args:
        spans: all that were noted.
        newest: the replica's newest checkpoint. Who noted a span up to a later one was killed before that was there:
            what the replica has is needed then.
    """
    final = {span.last for span in spans if span.final}
    return [span for span in spans if span.last <= newest and (span.final or span.last not in final)]


def counts(version: int, spans: Collection[Span], newest: int) -> bool:
    """Whether an own version of a replica that is in sync is what was published in its place. See `holding`."""
    return not any(span.has(version) for span in holding(spans, newest))


def begun(spans: Collection[Span], newest: int, checkpoint: int) -> Span:
    """The span to be noted before a replica gets a checkpoint: all since what was right for sure.

    Args:
        spans: noted before.
        newest: its newest checkpoint so far, or -1: it was made of versions that it had when they were published.
        checkpoint: a later one, which it is to get.
    """
    first = max([newest, *(span.last for span in holding(spans, newest))]) + 1
    return Span(first, checkpoint, final=False)


def compared(span: Span, own: Sequence[int], is_same: Callable[[int], bool | None]) -> Span:
    """Find out where own versions cease to count.

    Args:
        span: as it was begun.
        own: versions that the replica has, in order.
        is_same: whether one is that of another replica, where that is right; None: that has none there.

    Returns:
        The span, final.
    """
    inside = [version for version in own if span.has(version)]
    # What stands after a hole has landed late.
    run = [version for at, version in enumerate(inside) if version == span.first + at]
    right = next((version for version in reversed(run) if is_same(version)), span.first - 1)
    return Span(right + 1, span.last)
