"""Replication: brokers and replicas of a cluster; and SingleBroker: those of a cluster of one root."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol

from kafkalike.errors import (
    BrokerNotAvailableError,
    ElectionNotNeededError,
    InvalidReplicationAssignmentError,
    KafkaConfigurationError,
    NoReassignmentInProgressError,
)
from kafkalike.model.brokers import ONLY_BROKER, AddRoot, Broker, Replicas, ReplicateReport

if TYPE_CHECKING:
    from kafkalike.model.replication.quorum_protocol import MetadataQuorum, Recovery
    from kafkalike.model.topic import TopicInfo


class Replication(Protocol):
    """Brokers of a cluster, and where its tables have replicas. Thread-safe.

    A cluster of one root has one broker, number 1, with all topics; it refuses to change that.
    """

    def brokers(self) -> Sequence[Broker]:
        """All brokers, fresh, by id."""
        ...

    def quorum(self) -> MetadataQuorum:
        """Who decides about topics, leaders and brokers, and how far each of them is, asked now.

        Raises:
            KafkaStorageError: no root in reach says who votes.
        """
        ...

    def recover(
        self, source: str | None = None, voters: Collection[int] | None = None, *, dry_run: bool = False
    ) -> Recovery:
        """Have other voters take over from roots that are lost for good, and take these out of all chains.

        Never to be run where they may come back by themselves: see `kafkalike recover --help`.

        Args:
            source: a root that is left; None: whichever is.
            voters: ids of brokers that are to vote, one, three or five; None: as many of those left as voted before.
            dry_run: only say what would be done, and what is lost.

        Returns:
            What was done; nothing where all voters answer, and no others are wanted.

        Raises:
            KafkaConfigurationError: the source is no root of the cluster, or these brokers cannot vote.
            KafkaStorageError: a root that is left gives no answer any more; it is to be run again.
        """
        ...

    def alive(self, broker: int) -> bool:
        """Whether the broker's root answers, asked now."""
        ...

    def replicas(self, topic: str, *, ends: bool = False) -> Replicas:
        """Replicas of a topic, fresh; a control table's name (`__consumer_offsets`) will do.

        Args:
            topic: its name.
            ends: whether to ask each root how far its replica is.

        Raises:
            UnknownTopicOrPartitionError: no such topic.
        """
        ...

    def tables(self) -> Sequence[str]:
        """Names of the topics and control tables that have replicas, fresh, sorted."""
        ...

    def elect_leader(self, topic: str, kind: Literal["preferred", "unclean"] = "preferred") -> Replicas:
        """Let the preferred replica lead; or, where nobody in sync answers, the one with the longest log.

        Raises:
            ElectionNotNeededError: it leads already; or somebody in sync answers.
            PreferredLeaderNotAvailableError: it is not in sync.
            EligibleLeadersNotAvailableError: no replica answers.
        """
        ...

    def reassign(self, topic: str, assigned: Sequence[int] | None) -> Replicas:
        """Say which brokers shall have replicas of a topic, the preferred leader first; `replicate` carries it out.

        Args:
            topic: its name.
            assigned: broker ids; None takes a move that is not finished back: those in sync stay.

        Raises:
            InvalidReplicationAssignmentError: no, unknown, doubled or draining brokers.
            NoReassignmentInProgressError: there is none to be taken back.
        """
        ...

    def reassigning(self) -> Mapping[str, Replicas]:
        """Topics of which a reassignment is under way: replicas that it has named are to come, or others to go."""
        ...

    def replicate(self, topics: Sequence[str] | None = None, *, timeout_ms: float | None = None) -> ReplicateReport:
        """Bring replicas in sync: copy what they lack, let them in, take out what is not assigned, move leaders back.

        Args:
            topics: names; None takes all tables.
            timeout_ms: begin nothing more after so long; None has no end.
        """
        ...

    def clear_former(self) -> int:
        """Remove the data files that replicas have left where they are not assigned any more.

        That is `kafkalike.replaced.file.delay.ms` after the replicas of their table were changed last. Such a replica
        never comes back under its name, so that nobody takes what is left of it for whole.

        Returns:
            How many replicas had some.

        Raises:
            KafkaStorageError, OSError: a root, or the controller, gave no answer; the next run goes on.
        """
        ...

    def add_broker(self, uri: str, *, rack: str | None = None, id: int | None = None) -> Broker:  # noqa: A002 - Kafka's word
        """Add a root.

        Raises:
            KafkaConfigurationError: it is one already, is part of another cluster, or its kind is not supported.
            KafkaConnectionError: it gives no answer.
        """
        ...

    def drain(self, broker: int) -> Sequence[str]:
        """Put no new replicas on a broker, and assign those that are there to others; `replicate` moves them.

        Returns:
            Tables that have a replica there still.

        Raises:
            BrokerNotAvailableError, InvalidReplicationFactorError: no such broker; too few others for a table's factor.
        """
        ...

    def remove_broker(self, broker: int, *, lost: bool = False) -> None:
        """Take a root out of the cluster; nothing on it is deleted.

        Args:
            broker: its id.
            lost: also when tables have replicas there, in sync or not: it never comes back.

        Raises:
            PolicyViolationError: tables have replicas there; or it is the only one in sync of a table; or a voter.
        """
        ...


class SingleBroker:
    """One root: broker 1 has everything.

    Args:
        root: what the cluster is called.
        topics: all of its topics, fresh.
        topic: one topic by its name; raises where there is none.
        seq: number of the last row of the metadata, fresh.
        add_root: gives the cluster another root; None where that is not possible.
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
        """The one there is."""
        return [Broker(id=ONLY_BROKER, uri=self._root)]

    def quorum(self) -> MetadataQuorum:
        """It decides alone."""
        from kafkalike.model.replication.quorum_protocol import MetadataQuorum, QuorumMember

        version = self._seq()
        only = QuorumMember(
            broker=ONLY_BROKER, uri=self._root, id=str(ONLY_BROKER), votes=True, version=version, time_ms=None
        )
        return MetadataQuorum(cluster_id="", epoch=0, members=[only])

    def recover(
        self, source: str | None = None, voters: Collection[int] | None = None, *, dry_run: bool = False
    ) -> Recovery:
        """There is nothing to recover."""
        from kafkalike.model.replication.quorum_protocol import Recovery

        del source, voters, dry_run
        version = self._seq()
        return Recovery(lost=(), voters=(ONLY_BROKER,), version=version, sure=True)

    def alive(self, broker: int) -> bool:
        """Whether it is that one."""
        return broker == ONLY_BROKER

    def replicas(self, topic: str, *, ends: bool = False) -> Replicas:
        """One."""
        del ends
        self._topic(topic)
        return Replicas(topic=topic, leader=ONLY_BROKER, epoch=0, replicas=(ONLY_BROKER,), isr=(ONLY_BROKER,))

    def tables(self) -> Sequence[str]:
        """The topics."""
        return sorted(self._topics())

    def elect_leader(self, topic: str, kind: Literal["preferred", "unclean"] = "preferred") -> Replicas:
        """Not needed."""
        del kind
        self._topic(topic)
        raise ElectionNotNeededError(f"Leader election not needed for topic {topic}: broker {ONLY_BROKER} leads")

    def reassign(self, topic: str, assigned: Sequence[int] | None) -> Replicas:
        """Only to where it is."""
        if assigned is None:
            raise NoReassignmentInProgressError(f"No reassignment of topic {topic} is in progress")
        if list(assigned) != [ONLY_BROKER]:
            raise InvalidReplicationAssignmentError(f"topic {topic}: this cluster has one root, broker {ONLY_BROKER}")
        return self.replicas(topic)

    def reassigning(self) -> Mapping[str, Replicas]:
        """None."""
        return {}

    def replicate(self, topics: Sequence[str] | None = None, *, timeout_ms: float | None = None) -> ReplicateReport:
        """Nothing is to be done."""
        del topics, timeout_ms
        return ReplicateReport(joined={}, left={}, led={}, failed=())

    def clear_former(self) -> int:
        """There are none."""
        return 0

    def add_broker(self, uri: str, *, rack: str | None = None, id: int | None = None) -> Broker:  # noqa: A002
        """Make it a cluster of several roots."""
        if self._add_root is None:
            self._refuse()
        return self._add_root(uri, rack, id)

    def drain(self, broker: int) -> Sequence[str]:
        """Refused."""
        self._known(broker)
        self._refuse()

    def remove_broker(self, broker: int, *, lost: bool = False) -> None:
        """Refused."""
        del lost
        self._known(broker)
        self._refuse()

    @staticmethod
    def _known(broker: int) -> None:
        if broker != ONLY_BROKER:
            raise BrokerNotAvailableError(f"there is no broker {broker}")

    @staticmethod
    def _refuse() -> NoReturn:
        raise KafkaConfigurationError(
            "this cluster has one root; name the root that it has, and add others to it with `kafkalike brokers add`"
        )
