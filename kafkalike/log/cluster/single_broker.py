"""Replication: brokers and replicas of a cluster. SingleBroker: the implementation for a cluster of one root."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol

from kafkalike import errors
from kafkalike.model.brokers import ONLY_BROKER, AddRoot, Broker
from kafkalike.model.replication.replicas import Replicas, ReplicateReport

if TYPE_CHECKING:
    from kafkalike.model.replication.quorum_protocol import MetadataQuorum, Recovery
    from kafkalike.model.topic import TopicInfo


class Replication(Protocol):
    """Brokers of a cluster, and the replicas of its tables. Thread-safe.

    A cluster of one root has one broker, number 1, which holds all topics and cannot be changed. Each method looks at
    the cluster when it is called.
    """

    def brokers(self) -> Sequence[Broker]:
        """Return all brokers by id."""
        ...

    def quorum(self) -> MetadataQuorum:
        """Return the voters that decide about topics, leaders and brokers, and the metadata version of each.

        Raises:
            KafkaStorageError: no reachable root knows the voters.
        """
        ...

    def recover(
        self, source: str | None = None, voters: Collection[int] | None = None, *, dry_run: bool = False
    ) -> Recovery:
        """Replace voters on permanently lost roots by others, and remove the lost roots from all replica sets.

        Never run this if a lost root may return by itself: see `kafkalike recover --help`.

        Args:
            source: the remaining root to recover from; None takes any.
            voters: ids of one, three or five new voters; None takes as many remaining brokers as voted before.
            dry_run: only report the steps and the losses.

        Returns:
            The changes; empty if all voters answer and no others were requested.

        Raises:
            KafkaConfigurationError: the source is not a root of the cluster, or these brokers cannot vote.
            KafkaStorageError: a remaining root stopped answering; run `recover` again.
        """
        ...

    def alive(self, broker: int) -> bool:
        """True if the broker's root answers."""
        ...

    def replicas(self, topic: str, *, ends: bool = False) -> Replicas:
        """Return the replicas of a topic or control table (`__consumer_offsets`).

        Args:
            topic: its name.
            ends: whether to ask each root for its replica's version.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
        """
        ...

    def tables(self) -> Sequence[str]:
        """Return the names of the topics and control tables that have replicas, sorted."""
        ...

    def elect_leader(self, topic: str, kind: Literal["preferred", "unclean"] = "preferred") -> Replicas:
        """Elect the preferred replica, or (`unclean`) the replica with the longest log if no in-sync replica answers.

        Raises:
            ElectionNotNeededError: the preferred replica leads already, or an in-sync replica answers.
            PreferredLeaderNotAvailableError: the preferred replica is not in sync.
            EligibleLeadersNotAvailableError: no replica answers.
        """
        ...

    def reassign(self, topic: str, assigned: Sequence[int] | None) -> Replicas:
        """Assign a topic's replicas to brokers, the preferred leader first; `replicate` carries it out.

        Args:
            topic: its name.
            assigned: broker ids; None cancels an unfinished reassignment, and the in-sync replicas stay.

        Raises:
            InvalidReplicationAssignmentError: the list is empty, or has unknown, duplicate or draining brokers.
            NoReassignmentInProgressError: no reassignment can be canceled.
        """
        ...

    def reassigning(self) -> Mapping[str, Replicas]:
        """Return the topics whose reassignment is in progress: replicas have yet to be added or removed."""
        ...

    def replicate(
        self,
        topics: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> ReplicateReport:
        """Bring replicas in sync: copy missing versions, add caught-up replicas, remove unassigned ones, move leaders.

        Args:
            topics: names; None takes all tables.
            timeout_ms: start nothing more after this time; None sets no limit.
            progress: called with the name of each table before its turn.
        """
        ...

    def clear_former(self) -> int:
        """Remove the data files of former replicas.

        That happens `kafkalike.replaced.file.delay.ms` after the last change of their table's replicas. A former
        replica never rejoins under its name, so an incomplete one cannot be mistaken for a complete one.

        Returns:
            The number of replicas that had files.

        Raises:
            KafkaStorageError, OSError: a root or the controller did not answer; the next run continues.
        """
        ...

    def add_broker(self, uri: str, *, rack: str | None = None, id: int | None = None) -> Broker:  # noqa: A002 - Kafka's word
        """Add a root to the cluster.

        Raises:
            KafkaConfigurationError: the root is a broker already, is part of another cluster, or has an unsupported
                kind.
            KafkaConnectionError: the root does not answer.
        """
        ...

    def drain(self, broker: int) -> Sequence[str]:
        """Put no new replicas on a broker, and reassign its replicas to other brokers; `replicate` moves them.

        Returns:
            Tables that still have a replica there.

        Raises:
            BrokerNotAvailableError, InvalidReplicationFactorError: the broker does not exist, or too few others remain
                for a table's factor.
        """
        ...

    def remove_broker(self, broker: int, *, lost: bool = False) -> None:
        """Remove a root from the cluster; its files stay.

        Args:
            broker: its id.
            lost: the root never returns, so remove it even if tables have replicas there.

        Raises:
            PolicyViolationError: tables have replicas there, the root has the only in-sync replica of a table, or it is
                a voter.
        """
        ...


class SingleBroker(Replication):
    """The replication of a cluster of one root: broker 1 holds everything.

    Args:
        root: the cluster's name.
        topics: looks at the metadata and returns all topics.
        topic: looks at the metadata and returns one topic by name; raises if it does not exist.
        seq: looks at the metadata and returns the number of the last row.
        add_root: adds a second root to the cluster; None if that is not possible.
    """

    def __init__(
        self,
        root: str,
        topics: Callable[[], Mapping[str, TopicInfo]],
        topic: Callable[[str], TopicInfo],
        seq: Callable[[], int],
        add_root: AddRoot | None = None,
    ) -> None:
        self._root = root
        self._topics = topics
        self._topic = topic
        self._seq = seq
        self._add_root = add_root

    def brokers(self) -> Sequence[Broker]:
        """Return the only broker."""
        return [Broker(id=ONLY_BROKER, uri=self._root)]

    def quorum(self) -> MetadataQuorum:
        """Return a quorum of one voter."""
        from kafkalike.model.replication.quorum_protocol import MetadataQuorum, QuorumMember

        version = self._seq()
        only = QuorumMember(
            broker=ONLY_BROKER, uri=self._root, id=str(ONLY_BROKER), votes=True, version=version, time_ms=None
        )
        return MetadataQuorum(cluster_id="", epoch=0, members=[only])

    def recover(
        self, source: str | None = None, voters: Collection[int] | None = None, *, dry_run: bool = False
    ) -> Recovery:
        """Report that nothing was lost."""
        from kafkalike.model.replication.quorum_protocol import Recovery

        del source, voters, dry_run
        version = self._seq()
        return Recovery(lost=(), voters=(ONLY_BROKER,), version=version, sure=True)

    def alive(self, broker: int) -> bool:
        """True for the only broker."""
        return broker == ONLY_BROKER

    def replicas(self, topic: str, *, ends: bool = False) -> Replicas:
        """Return the only replica, in sync."""
        del ends
        self._topic(topic)
        return Replicas(topic=topic, leader=ONLY_BROKER, epoch=0, replicas=(ONLY_BROKER,), isr=(ONLY_BROKER,))

    def tables(self) -> Sequence[str]:
        """Return the names of the topics."""
        return sorted(self._topics())

    def elect_leader(self, topic: str, kind: Literal["preferred", "unclean"] = "preferred") -> Replicas:
        """Refuse an election, because the only broker leads."""
        del kind
        self._topic(topic)
        raise errors.ElectionNotNeededError(f"Leader election not needed for topic {topic}: broker {ONLY_BROKER} leads")

    def reassign(self, topic: str, assigned: Sequence[int] | None) -> Replicas:
        """Refuse any assignment but the only broker."""
        if assigned is None:
            raise errors.NoReassignmentInProgressError(f"No reassignment of topic {topic} is in progress")
        if list(assigned) != [ONLY_BROKER]:
            raise errors.InvalidReplicationAssignmentError(
                f"topic {topic}: this cluster has one root, broker {ONLY_BROKER}"
            )
        return self.replicas(topic)

    def reassigning(self) -> Mapping[str, Replicas]:
        """Return no topics, because nothing can be reassigned."""
        return {}

    def replicate(
        self,
        topics: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> ReplicateReport:
        """Report that no replica changed."""
        del topics, timeout_ms, progress
        return ReplicateReport(joined={}, left={}, led={}, failed=())

    def clear_former(self) -> int:
        """Return 0, because there cannot be former replicas."""
        return 0

    def add_broker(self, uri: str, *, rack: str | None = None, id: int | None = None) -> Broker:  # noqa: A002
        """Add a second root, which makes the cluster a replicated one."""
        if self._add_root is None:
            self._refuse()
        return self._add_root(uri, rack, id)

    def drain(self, broker: int) -> Sequence[str]:
        """Refuse, because the cluster has no other broker."""
        self._known(broker)
        self._refuse()

    def remove_broker(self, broker: int, *, lost: bool = False) -> None:
        """Refuse to remove the only broker."""
        del lost
        self._known(broker)
        self._refuse()

    @staticmethod
    def _known(broker: int) -> None:
        if broker != ONLY_BROKER:
            raise errors.BrokerNotAvailableError(
                f"broker {broker} does not exist; this cluster has broker {ONLY_BROKER} only"
            )

    @staticmethod
    def _refuse() -> NoReturn:
        raise errors.KafkaConfigurationError(
            "this cluster has one root; connect to that root, and add others to it with `kafkalike brokers add`"
        )
