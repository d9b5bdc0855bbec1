"""What may be asked of a cluster's brokers and replicas."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from kafkalike.model.brokers import Broker, Replicas, ReplicateReport
    from kafkalike.model.replication.quorum_members import MetadataQuorum, Recovery


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
