"""Replica operations: describe brokers, replicas and the quorum, elect leaders, reassign replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalike import errors
from kafkalike.admin.admin_base import AdminBase, as_names, outcome, raise_first
from kafkalike.model.brokers import ONLY_BROKER, Broker
from kafkalike.model.replication.replicas import Replicas
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.model.replication.quorum_protocol import MetadataQuorum, QuorumMember

PREFERRED: Final = 0
UNCLEAN: Final = 1

UNKNOWN: Final = -1
"""Value of an unknown size or lag."""

TopicPartitions = Mapping[str, Sequence[int]] | Sequence[str] | None
"""`{topic: [partitions]}`; topics with all of their partitions; or None for all topics."""


class ReplicaOperations(AdminBase):
    """Operations on brokers, replicas and leaders."""

    def describe_cluster(self) -> dict[str, Any]:
        """Return `{cluster_id, controller_id, brokers: [{broker_id, host, port, rack, is_fenced}]}`.

        A broker is a storage root: `host` is its address and `port` is -1. A broker is fenced if its root is
        unreachable. `cluster_id` is the root in `bootstrap_servers`.
        """
        replication = self._cluster.replication
        brokers = [self._broker(broker) for broker in replication.brokers()]
        alive = [broker["broker_id"] for broker in brokers if not broker["is_fenced"]]
        return {
            "cluster_id": self._cluster.root,
            "controller_id": min(alive, default=-1),
            "brokers": brokers,
        }

    def _broker(self, broker: Broker) -> dict[str, Any]:
        return {
            "broker_id": broker.id,
            "host": broker.uri,
            "port": -1,
            "rack": broker.rack,
            "is_fenced": not self._cluster.replication.alive(broker.id),
        }

    def elect_leaders(
        self,
        election_type: int | str,
        topic_partitions: TopicPartitions = None,
        timeout_ms: float | None = None,
        raise_errors: bool = True,  # noqa: FBT001, FBT002 - kafka-python's signature
    ) -> dict[str, Any]:
        """Elect the preferred replicas as leaders, or replicas out of sync if no replica in sync is reachable.

        Args:
            election_type: 0 or `PREFERRED`; 1 or `UNCLEAN`, which may lose records and lists them in the cluster's
                metadata. Kafka's enumeration is accepted.
            topic_partitions: see `TopicPartitions`.
            timeout_ms: no effect.
            raise_errors: raise the first error after all topics were tried, except for elections that were not needed.

        Returns:
            `{"error_code": 0, "replica_election_results": [{topic, partition_result: [{partition_id, error_code,
            error_message}]}]}`.

        Raises:
            PreferredLeaderNotAvailableError: the preferred replica is not in sync.
            EligibleLeadersNotAvailableError: no replica is reachable.
            UnknownTopicOrPartitionError: the topic does not exist.
            IllegalArgumentError: the type of election is unknown.
        """
        del timeout_ms
        kind = _election(election_type)
        results: list[dict[str, Any]] = []
        outcomes: list[errors.BrokerResponseError | None] = []
        for topic, partitions in self._several(topic_partitions).items():
            error = None
            try:
                if kind == PREFERRED:
                    self._cluster.replication.elect_leader(topic, "preferred")
                else:
                    self._cluster.replication.elect_leader(topic, "unclean")
            except errors.BrokerResponseError as refused:
                error = refused
            outcomes.append(None if isinstance(error, errors.ElectionNotNeededError) else error)
            entry = outcome(topic, error)
            result = [
                {"partition_id": p, "error_code": entry["error_code"], "error_message": entry["error_message"]}
                for p in partitions
            ]
            results.append({"topic": topic, "partition_result": result})
        if raise_errors:
            raise_first(outcomes)
        return {"error_code": 0, "replica_election_results": results}

    def perform_leader_election(
        self,
        election_type: int | str,
        topic_partitions: TopicPartitions = None,
        timeout_ms: float | None = None,
        raise_errors: bool = True,  # noqa: FBT001, FBT002
    ) -> dict[str, Any]:
        """Call `elect_leaders`, which this method was named before."""
        return self.elect_leaders(election_type, topic_partitions, timeout_ms, raise_errors)

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: float | None = None
    ) -> dict[TopicPartition, type[errors.BrokerResponseError] | None]:
        """Assign replicas to brokers; `kafkalike replicate` and maintenance carry out the reassignment.

        Args:
            reassignments: broker ids by partition, the preferred leader first; None cancels an unfinished reassignment.
                All partitions of a topic must be given, with the same ids.
            timeout_ms: no effect.

        Returns:
            By partition the class of the error, or None if accepted: `InvalidReplicationAssignmentError` for unknown
            brokers or differing partitions, `NoReassignmentInProgressError`, `UnknownTopicOrPartitionError`.

        Raises:
            ValueError: a list is empty, or contains other values than ints.
        """
        del timeout_ms
        wanted: dict[str, dict[int, tuple[int, ...] | None]] = {}
        for tp, replicas in reassignments.items():
            wanted.setdefault(tp.topic, {})[tp.partition] = _ids(tp, replicas)
        results: dict[TopicPartition, type[errors.BrokerResponseError] | None] = {}
        for topic, by_partition in wanted.items():
            error: type[errors.BrokerResponseError] | None = None
            try:
                self._reassign(topic, by_partition)
            except errors.BrokerResponseError as refused:
                error = type(refused)
            results |= {TopicPartition(topic, p): error for p in by_partition}
        return results

    def _reassign(self, topic: str, by_partition: Mapping[int, tuple[int, ...] | None]) -> None:
        info = self._cluster.topic(topic)
        different = set(by_partition.values())
        if len(different) > 1 or set(by_partition) != set(info.partitions):
            raise errors.InvalidReplicationAssignmentError(
                f"topic {topic}: all partitions are stored in one table, so give all {info.num_partitions} of them "
                "with the same brokers in the same order"
            )
        (replicas,) = different
        self._cluster.replication.reassign(topic, replicas)

    def list_partition_reassignments(
        self,
        topic_partitions: Mapping[str, Sequence[int]] | Sequence[TopicPartition] | None = None,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, dict[str, list[int]]]:
        """Return the partitions with a reassignment in progress; a replica that is only out of sync does not count.

        Args:
            topic_partitions: `{topic: [partitions]}`, or partitions; None for all.
            timeout_ms: no effect.

        Returns:
            `{TopicPartition: {replicas, adding_replicas, removing_replicas}}`.
        """
        del timeout_ms
        topics = self._cluster.topics()
        asked = _partitions(topic_partitions)
        found: dict[TopicPartition, dict[str, list[int]]] = {}
        for name, replicas in sorted(self._cluster.replication.reassigning().items()):
            if name not in topics:
                continue
            now = [*replicas.isr, *([] if replicas.joining is None else [replicas.joining])]
            adding = list(replicas.adding)
            removing = [broker for broker in now if broker not in replicas.replicas]
            every = {"replicas": [*replicas.replicas, *removing], "adding_replicas": adding}
            for p in topics[name].partitions:
                if asked is None or (name, p) in asked:
                    found[TopicPartition(name, p)] = {**every, "removing_replicas": removing}
        return found

    def describe_log_dirs(
        self, topic_partitions: TopicPartitions = None, brokers: Sequence[int] | None = None
    ) -> list[dict[str, Any]]:
        """Return the bytes of live data files by partition, without deleted files that maintenance has yet to remove.

        Args:
            topic_partitions: see `TopicPartitions`.
            brokers: broker ids; None for all.

        Returns:
            `[{broker, log_dirs: [{error_code, log_dir, topics: [{name, partitions: [{partition_index, partition_size,
            offset_lag, is_future_key}]}], total_bytes, usable_bytes}]}]`. Sizes and lags of a replica that has fallen
            behind are -1. An unreachable root has `error_code` 56 and no topics.
        """
        wanted = self._several(topic_partitions, known_only=True)
        replicas = {name: self._cluster.replication.replicas(name, ends=True) for name in wanted}
        usage = {name: self._cluster.disk_usage(name) for name in wanted if replicas[name].leader != -1}
        return [
            {"broker": broker.id, "log_dirs": [self._log_dir(broker, wanted, replicas, usage)]}
            for broker in self._cluster.replication.brokers()
            if brokers is None or broker.id in brokers
        ]

    def _log_dir(
        self,
        broker: Broker,
        wanted: Mapping[str, Sequence[int]],
        replicas: Mapping[str, Replicas],
        usage: Mapping[str, Mapping[int, int]],
    ) -> dict[str, Any]:
        alive = self._cluster.replication.alive(broker.id)
        topics = [
            {"name": name, "partitions": _sizes(broker.id, partitions, replicas[name], usage.get(name, {}))}
            for name, partitions in wanted.items()
            if alive and _has(replicas[name], broker.id)
        ]
        return {
            "error_code": 0 if alive else errors.KafkaStorageError.errno,
            "log_dir": broker.uri,
            "topics": topics,
            "total_bytes": -1,
            "usable_bytes": -1,
        }

    def _several(self, given: TopicPartitions, *, known_only: bool = False) -> dict[str, Sequence[int]]:
        """Return the partitions by topic, with all partitions of a topic given by name only."""
        known = self._cluster.topics()
        if isinstance(given, Mapping):
            wanted = {str(name): list(partitions) for name, partitions in given.items()}
            if known_only:
                return {
                    name: [p for p in partitions if p in known[name].partitions] if name in known else partitions
                    for name, partitions in wanted.items()
                }
            return dict(wanted)
        names = sorted(known) if given is None else as_names(given, "topic_partitions")
        if known_only:
            return {name: list(self._cluster.topic(name).partitions) for name in names}
        return {name: list(known[name].partitions) if name in known else [] for name in names}

    def replicas_of(self, name: str) -> Replicas:
        """Return the replicas of a topic; with a single root, without accessing the storage."""
        if not self._cluster.metadata.state.replicas:
            return Replicas(topic=name, leader=ONLY_BROKER, epoch=0, replicas=(ONLY_BROKER,), isr=(ONLY_BROKER,))
        return self._cluster.replication.replicas(name)


def partition_entry(partition: int, replicas: Replicas) -> dict[str, Any]:
    """Return the metadata of a partition as Kafka's clients do."""
    return {
        "error_code": 0 if replicas.leader != -1 else errors.LeaderNotAvailableError.errno,
        "partition_index": partition,
        "leader_id": replicas.leader,
        "leader_epoch": replicas.epoch,
        "replica_nodes": list(replicas.replicas),
        "isr_nodes": sorted(replicas.isr),
        "offline_replicas": sorted(set(replicas.offline) & set(replicas.replicas)),
    }


def _has(replicas: Replicas, broker: int) -> bool:
    return broker in replicas.replicas or broker in replicas.isr or broker == replicas.joining


def _sizes(
    broker: int, partitions: Sequence[int], replicas: Replicas, usage: Mapping[int, int]
) -> list[dict[str, Any]]:
    ends = {end.broker: end.version for end in replicas.ends}
    even = not ends or (ends.get(broker) is not None and ends[broker] == ends.get(replicas.leader))
    return [
        {
            "partition_index": p,
            "partition_size": usage.get(p, UNKNOWN) if even else UNKNOWN,
            "offset_lag": 0 if even else UNKNOWN,
            "is_future_key": False,
        }
        for p in partitions
    ]


def _election(given: object) -> int:
    """Return the type of election of a number, a name, or a member of an enumeration."""
    value = getattr(given, "value", given)
    name = str(getattr(given, "name", given)).upper()
    for number, known in ((PREFERRED, "PREFERRED"), (UNCLEAN, "UNCLEAN")):
        if (type(value) is int and value == number) or name == known:
            return number
    raise errors.IllegalArgumentError(f"election_type must be 0 (PREFERRED) or 1 (UNCLEAN), not {given!r}")


def _ids(tp: TopicPartition, replicas: Sequence[int] | None) -> tuple[int, ...] | None:
    if replicas is None:
        return None
    found = tuple(replicas)
    if not found:
        raise ValueError(f"{tp.topic}-{tp.partition}: the replicas are empty; use None to cancel a reassignment")
    if not all(type(broker) is int for broker in found):
        raise ValueError(f"{tp.topic}-{tp.partition}: replicas must be broker ids (int), not {list(found)}")
    return found


def _partitions(
    given: Mapping[str, Sequence[int]] | Sequence[TopicPartition] | None,
) -> set[tuple[str, int]] | None:
    if given is None:
        return None
    if isinstance(given, Mapping):
        return {(topic, p) for topic, partitions in given.items() for p in partitions}
    return {(tp.topic, tp.partition) for tp in given}


METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka's name of the metadata log, which is also the name of the table here."""


class QuorumOperations(AdminBase):
    """Operations on the metadata quorum."""

    def describe_metadata_quorum(self) -> dict[str, Any]:
        """Describe the quorum that decides on topics, leaders and brokers: its voters and its observers.

        Voters are storage roots without a process, so they have no leader, and a majority of them decides each change.
        Offsets are versions of the table `__cluster_metadata`; `leader_epoch` counts how often another client has taken
        over.

        Returns:
            `{topics: [{topic_name, partitions: [{partition_index, leader_id: -1, leader_epoch, high_watermark,
            current_voters, observers, error: None}]}], nodes: [{node_id, listeners: [{name, host, port}]}]}`. A voter
            or observer is `{replica_id, replica_directory_id, log_end_offset, last_fetch_timestamp,
            last_caught_up_timestamp}`: its directory id is a string, times are ms since the epoch, and all figures of
            an unreachable root are -1. The `host` of a node is its root, its `port` is -1.

        Raises:
            KafkaStorageError: no reachable root knows the voters.
        """
        quorum = self._cluster.replication.quorum()
        described = {
            "partition_index": 0,
            "leader_id": UNKNOWN,
            "leader_epoch": quorum.epoch,
            "high_watermark": quorum.version + 1,
            "current_voters": [_state(quorum, member) for member in quorum.members if member.votes],
            "observers": [_state(quorum, member) for member in quorum.members if not member.votes],
            "error": None,
        }
        return {
            "topics": [{"topic_name": METADATA_TOPIC, "partitions": [described]}],
            "nodes": [
                {"node_id": m.broker, "listeners": [{"name": "CONTROLLER", "host": m.uri, "port": UNKNOWN}]}
                for m in quorum.members
            ],
        }


def _state(quorum: MetadataQuorum, member: QuorumMember) -> dict[str, Any]:
    caught_up_ms = quorum.caught_up_ms(member)
    return {
        "replica_id": member.broker,
        "replica_directory_id": member.id,
        "log_end_offset": member.log_end,
        "last_fetch_timestamp": UNKNOWN if member.time_ms is None else member.time_ms,
        "last_caught_up_timestamp": UNKNOWN if caught_up_ms is None else caught_up_ms,
    }
