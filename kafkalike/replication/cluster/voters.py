"""Voters: the roots of a cluster in; where its metadata are, by a majority of those that vote, out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from kafkalike.delta.layout import CLUSTER_METADATA
from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.replication.registers import UnreachableVoterError
from kafkalike.model.replication.takeover import OpenVoter, PutMark, VoterSet
from kafkalike.replication.cluster.broker_storage import BrokerStorage
from kafkalike.replication.tables.quorum_storage import QuorumStorage
from kafkalike.replication.tables.voter_files import Voter
from kafkalike.replication.tables.voter_roots import VoterRoots
from kafkalike.storage.port import Storage

FEWEST: Final = 3
"""Roots from which on several vote: two could not lose one of them."""


class Voters:
    """Where `__cluster_metadata` is.

    Args:
        table: what they have in common.
    """

    def __init__(self, table: QuorumStorage) -> None:
        self.table = table

    @property
    def brokers(self) -> Collection[int]:
        """Who votes: brokers that it needs."""
        voters = self.table.voters.now
        return () if voters is None else [voter.broker for voter in voters.voters]

    def replace_roots(self, roots: Mapping[int, BrokerStorage]) -> None:
        """Go on with other broker ids, by which nothing was read yet."""
        self.table.voters.replace_folders({broker: root.at(CLUSTER_METADATA) for broker, root in roots.items()})

    def at(self, folder: str) -> Storage:
        """The store of that folder, or of one below it."""
        below = folder.partition("/")[2]
        return self.table.at(below) if below else self.table


def first_voters(roots: Collection[int], wanted: str) -> tuple[int, ...]:
    """Who votes in a cluster that is to be made.

    Args:
        roots: broker ids.
        wanted: `controller.quorum.voters`, or empty.

    Raises:
        KafkaConfigurationError: it names others.
    """
    named = tuple(int(broker) for broker in wanted.split(",") if broker)
    strangers = sorted(set(named) - set(roots))
    if strangers:
        known = ", ".join(map(str, sorted(roots)))
        raise KafkaConfigurationError(f"controller.quorum.voters names broker {strangers[0]}, and there are {known}")
    return named or tuple(sorted(roots)[: FEWEST if len(roots) >= FEWEST else 1])


def metadata_root(
    roots: Mapping[int, BrokerStorage], broker_at: Callable[[str], BrokerStorage], clock: Clock
) -> Voters:
    """Where the metadata of a cluster are.

    Args:
        roots: by broker id.
        broker_at: opens another root, by its URI.
        clock: time and waiting.
    """

    def opened(voter: Voter) -> Storage:
        return broker_at(voter.uri).at(CLUSTER_METADATA)

    folders = {broker: root.at(CLUSTER_METADATA) for broker, root in roots.items()}
    return Voters(QuorumStorage(folders, opened, clock))


def found_voter(root: Storage, broker: int, where: Mapping[int, str], voters: Collection[int]) -> None:
    """Make a root of a new cluster one that votes, or one that gets a copy.

    Args:
        root: the one.
        broker: its id.
        where: the roots, by broker id.
        voters: ids of those that vote.

    Raises:
        OSError: it cannot be made.
        KafkaConfigurationError: it belongs to others.
    """
    named = [Voter(number, f"0.{number}", uri) for number, uri in sorted(where.items())]
    votes = tuple(voter for voter in named if voter.broker in voters)
    others = tuple(voter for voter in named if voter.broker not in voters)
    first = VoterSet(0, votes, others)
    mine = next(voter for voter in named if voter.broker == broker)
    acts = VoterRoots(lambda _: root.at(CLUSTER_METADATA), SYSTEM_CLOCK)
    try:
        found = acts.do(PutMark(mine, first))
        if found != first:
            raise KafkaConfigurationError(f"the root {root.uri} is a voter of {', '.join(v.uri for v in found.voters)}")
        if mine in votes:
            # It is made, however slow it is.
            acts.forgive()
            acts.do(OpenVoter(mine, 0))
    except UnreachableVoterError as cause:
        raise OSError(str(cause)) from cause
