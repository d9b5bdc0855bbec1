"""SingleBroker: what a cluster of one root says of its brokers and replicas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NoReturn

from kafkalike.errors import (
    BrokerNotAvailableError,
    ElectionNotNeededError,
    InvalidReplicationAssignmentError,
    KafkaConfigurationError,
    NoReassignmentInProgressError,
)
from kafkalike.model.brokers import ONLY_BROKER, AddRoot, Broker, Replicas, ReplicateReport

if TYPE_CHECKING:
    from kafkalike.model.replication.quorum_members import MetadataQuorum, Recovery
    from kafkalike.model.topic import TopicInfo


class SingleBroker:
    """One root: broker 1 has everything. See `Replication`.

    Args:
        root: what the cluster is called.
        topics: all of its topics, fresh.
        topic: one topic by its name; raises where there is none.
        seq: number of the last row of the metadata, fresh.
        add_root: what gives the cluster another root; None where nothing can.
    """

    def __init__(
        self,
        root: str,
        topics: Callable[[], Mapping[str, TopicInfo]],
        topic: Callable[[str], TopicInfo],
        seq: Callable[[], int],
        add_root: Callable[[], AddRoot | None] = lambda: None,
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
        from kafkalike.model.replication.quorum_members import MetadataQuorum, QuorumMember

        version = self._seq()
        only = QuorumMember(
            broker=ONLY_BROKER, uri=self._root, id=str(ONLY_BROKER), votes=True, version=version, time_ms=None
        )
        return MetadataQuorum(cluster_id="", epoch=0, members=[only])

    def recover(
        self, source: str | None = None, voters: Collection[int] | None = None, *, dry_run: bool = False
    ) -> Recovery:
        """There is nothing to recover."""
        from kafkalike.model.replication.quorum_members import Recovery

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
        add_root = self._add_root()
        if add_root is None:
            self._refuse()
        return add_root(uri, rack, id)

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
