"""Voters: the roots of a cluster in; where its metadata are, on one root or by a majority of several, out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from kafkalike.clock import SYSTEM_CLOCK, Clock
from kafkalike.errors import KafkaConfigurationError
from kafkalike.log.cluster.replicated.broker_store import BrokerStore, Founding
from kafkalike.log.store.local import LocalStore
from kafkalike.log.store.port import Store
from kafkalike.log.table.layout import CLUSTER_METADATA
from kafkalike.log.table.replicas.quorum_store import QuorumStore
from kafkalike.log.table.replicas.voter_files import Voter
from kafkalike.log.table.replicas.voter_roots import VoterRoots
from kafkalike.model.replication.registers import UnreachableVoterError
from kafkalike.model.replication.takeover import OpenVoter, PutMark, VoterSet

FEWEST: Final = 3
"""Roots from which on several vote: two could not lose one of them."""


class MetadataRoot(Protocol):
    """Where `__cluster_metadata` is."""

    @property
    def brokers(self) -> Collection[int]:
        """Brokers that it needs."""
        ...

    def at(self, folder: str) -> Store:
        """The store of that folder, or of one below it."""
        ...


class OneRoot:
    """The metadata are on one root.

    Args:
        broker: whose.
        store: that root.
    """

    def __init__(self, broker: int, store: BrokerStore) -> None:
        self.brokers: Collection[int] = (broker,)
        self._store = store

    def at(self, folder: str) -> Store:
        """The store of a folder."""
        return self._store.at(folder)


class Voters:
    """Several roots vote.

    Args:
        table: what they have in common.
    """

    def __init__(self, table: QuorumStore) -> None:
        self.table = table

    @property
    def brokers(self) -> Collection[int]:
        """Who votes."""
        voters = self.table.voters
        return () if voters is None else [voter.broker for voter in voters.voters]

    def at(self, folder: str) -> Store:
        """The store of a folder."""
        below = folder.partition("/")[2]
        return self.table.at(below) if below else self.table


def first_voters(roots: Collection[int], wanted: str) -> tuple[int, ...]:
    """Who votes in a cluster that is to be made; nobody where one root has the metadata.

    Args:
        roots: broker ids.
        wanted: `controller.quorum.voters`, or empty.

    Raises:
        KafkaConfigurationError: it names others.
    """
    named = tuple(int(broker) for broker in wanted.split(",") if broker)
    strangers = sorted(set(named) - set(roots))
    if strangers:
        message = f"controller.quorum.voters names broker {strangers[0]}, and there are {', '.join(map(str, sorted(roots)))}"
        raise KafkaConfigurationError(message)
    if named not in {(), (min(roots),)} and len(named) < FEWEST:
        message = f"a single voter is the first root, broker {min(roots)}"
        raise KafkaConfigurationError(message)
    if named:
        return named if len(named) >= FEWEST else ()
    return tuple(sorted(roots)[:FEWEST]) if len(roots) >= FEWEST else ()


def metadata_root(roots: Mapping[int, BrokerStore], founding: Founding, clock: Clock) -> MetadataRoot:
    """Where the metadata of a cluster are.

    Args:
        roots: by broker id.
        founding: who votes.
        clock: time and waiting.
    """
    if not founding.voters:
        return OneRoot(min(roots), roots[min(roots)])

    def opened(voter: Voter) -> Store:
        return BrokerStore(LocalStore(voter.uri), founding).at(CLUSTER_METADATA)

    folders = {broker: root.at(CLUSTER_METADATA) for broker, root in roots.items()}
    return Voters(QuorumStore(folders, opened, clock))


def found_voter(root: LocalStore, broker: int, where: Mapping[int, str]) -> None:
    """Make a root a voter of a new cluster.

    Args:
        root: the one.
        broker: its id.
        where: the roots of all voters, by broker id.

    Raises:
        OSError: it cannot be made.
        KafkaConfigurationError: it is the voter of others.
    """
    first = VoterSet(0, tuple(Voter(voter, f"0.{voter}", uri) for voter, uri in sorted(where.items())))
    mine = next(voter for voter in first.voters if voter.broker == broker)
    acts = VoterRoots(lambda _: root.at(CLUSTER_METADATA), SYSTEM_CLOCK)
    try:
        found = acts.do(PutMark(mine, first))
        if found != first:
            message = f"the root {root.uri} is a voter of {', '.join(v.uri for v in found.voters)}"
            raise KafkaConfigurationError(message)
        acts.do(OpenVoter(mine, 0))
    except UnreachableVoterError as cause:
        raise OSError(str(cause)) from cause
