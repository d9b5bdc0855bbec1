"""Offset operations: add partitions, delete records below an offset, look up offsets by time, measure disk use."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalike import errors
from kafkalike.admin.admin_base import as_names, outcome, raise_first
from kafkalike.admin.replica_operations import ReplicaOperations, partition_entry
from kafkalike.model.replication.replicas import Replicas
from kafkalike.model.segments import MAX_OFFSET
from kafkalike.model.structs import IsolationLevel, NewPartitions, OffsetAndTimestamp, OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog


UNKNOWN: Final = OffsetAndTimestamp(-1, -1)
"""Result without a matching record: offset and timestamp -1, as in Kafka."""

HIGH_WATERMARK: Final = -1
"""Offset in `delete_records` that stands for the log end."""


class OffsetOperations(ReplicaOperations):
    """Operations on partitions and their offsets."""

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions | Mapping[str, Any]],
        timeout_ms: float | None = None,
        validate_only: bool = False,  # noqa: FBT001, FBT002 - kafka-python's signature
        raise_errors: bool = True,  # noqa: FBT001, FBT002
    ) -> dict[str, Any]:
        """Increase the partition count of topics. Records stay where they are; keys may map to other partitions.

        Args:
            topic_partitions: `{topic: total}`, `{topic: NewPartitions(total)}` or `{topic: {"count": total}}`.
            timeout_ms: no effect: the partitions exist when the call returns.
            validate_only: check without changing anything.
            raise_errors: raise the first error after all topics were tried.

        Returns:
            `{"results": [{name, error_code, error_message}]}`.

        Raises:
            InvalidPartitionsError: the total is not above the current count, or is above the limit.
            InvalidReplicationAssignmentError: an assignment was given.
        """
        del timeout_ms
        results = []
        outcomes: list[errors.BrokerResponseError | None] = []
        for name, wanted in _totals(topic_partitions).items():
            error = None
            try:
                self._cluster.add_partitions(name, _total(name, wanted), validate_only=validate_only)
            except errors.BrokerResponseError as refused:
                error = refused
            outcomes.append(error)
            results.append(outcome(name, error))
        if raise_errors:
            raise_first(outcomes)
        return {"results": results}

    def describe_topic_partitions(
        self,
        topics: Sequence[str],
        response_partition_limit: int = 2000,
        cursor: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the partitions of topics in pages.

        Args:
            topics: topic names.
            response_partition_limit: maximum partitions per page.
            cursor: `next_cursor` of the previous page: `{topic_name, partition_index}`.

        Returns:
            `{"topics": [{error_code, name, topic_id, is_internal, partitions}], "next_cursor": None or a cursor}`.
        """
        start = ("", 0) if cursor is None else (str(cursor["topic_name"]), int(cursor["partition_index"]))
        known = self._cluster.topics()
        left = response_partition_limit
        page: list[dict[str, Any]] = []
        for name in sorted(set(as_names(topics, "topics"))):
            if name < start[0]:
                continue
            if name not in known:
                page.append(_described(name, None, 3, [], None))
                continue
            first = start[1] if name == start[0] else 0
            wanted = known[name].partitions[first:]
            if len(wanted) > left:
                page.append(_described(name, known[name].topic_id, 0, wanted[:left], self.replicas_of(name)))
                return {"topics": page, "next_cursor": {"topic_name": name, "partition_index": first + left}}
            page.append(_described(name, known[name].topic_id, 0, wanted, self.replicas_of(name)))
            left -= len(wanted)
        return {"topics": page, "next_cursor": None}

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: float | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Make the records below an offset unreadable; maintenance removes their files later.

        Args:
            records_to_delete: `{TopicPartition: first offset to keep}`; -1 deletes up to the log end.
            timeout_ms: no effect.
            partition_leader_id: no effect, because there is one broker.

        Returns:
            `{TopicPartition: {partition_index, low_watermark, error_code}}`; `low_watermark` is the new log start.

        Raises:
            OffsetOutOfRangeError: an offset is below -1 or above the log end. Other topics may have been changed.
            UnknownTopicOrPartitionError: a partition does not exist.
            TopicDeletedError: the topic was deleted during the call; a new topic of the same name is unchanged.
        """
        del timeout_ms, partition_leader_id
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in records_to_delete.items():
            _check_offset(topic, partition, offset)
            by_topic.setdefault(topic, {})[partition] = offset
        run = str(uuid.uuid4())
        deleted: dict[TopicPartition, dict[str, Any]] = {}
        for topic, wanted in by_topic.items():
            log = self._log(topic, wanted)
            starts = {p: log.log_end(p) if offset == HIGH_WATERMARK else offset for p, offset in wanted.items()}
            # Pass the topic id, because a new topic of the same name could have records above this log end.
            topic_id = str(log.info.topic_id)
            info = self._cluster.move_log_start(topic, starts, "delete_records", run, topic_id, log=log)
            for p in wanted:
                deleted[TopicPartition(topic, p)] = {
                    "partition_index": p,
                    "low_watermark": info.log_start(p),
                    "error_code": 0,
                }
        return deleted

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        isolation_level: IsolationLevel | str | int = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Look up an offset in each partition.

        Args:
            topic_partition_specs: `{TopicPartition: OffsetSpec}`, or a time in ms that finds the first offset of a
                record with that time or a later one.
            isolation_level: both levels return the same, because a topic contains only records of committed
                transactions.
            timeout_ms: no effect.

        Returns:
            `{TopicPartition: OffsetAndTimestamp}`. The timestamp is -1 for earliest and latest. Both are -1 if no
            record matches, and always for `LATEST_TIERED`, because nothing is tiered.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
            InvalidRequestError: a negative number is not an `OffsetSpec`.
        """
        del timeout_ms
        _check_isolation(isolation_level)
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        logs: dict[str, TopicLog] = {}
        for (topic, partition), spec in topic_partition_specs.items():
            if topic not in logs:
                asked = {p for t, p in topic_partition_specs if t == topic}
                logs[topic] = self._log(topic, asked)
            found[TopicPartition(topic, partition)] = look_up(logs[topic], partition, spec)
        return found

    def _log(self, topic: str, partitions: Mapping[int, int] | set[int]) -> TopicLog:
        log = self._cluster.log(topic)
        log.refresh()
        unknown = sorted(p for p in partitions if isinstance(p, bool) or p not in log.info.partitions)
        if unknown:
            raise errors.UnknownTopicOrPartitionError(
                f"{topic}-{unknown[0]} does not exist: the topic's partitions: {log.info.num_partitions}"
            )
        return log


def look_up(log: TopicLog, partition: int, spec: object) -> OffsetAndTimestamp:
    """Return the offset of an `OffsetSpec` or a time in ms; `UNKNOWN` if no record matches.

    Args:
        log: a topic's log, refreshed.
        partition: a partition of the topic.
        spec: an `OffsetSpec`, its number, or a time in ms.

    Raises:
        InvalidRequestError: a negative number is not an `OffsetSpec`.
    """
    if isinstance(spec, bool) or not isinstance(spec, int) or spec < min(OffsetSpec):
        raise errors.InvalidRequestError(f"an OffsetSpec or a time in ms is needed, not {spec!r}")
    if spec == OffsetSpec.LATEST:
        return OffsetAndTimestamp(log.log_end(partition), -1)
    if spec in {OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL}:
        return OffsetAndTimestamp(log.log_start(partition), -1)
    if spec == OffsetSpec.MAX_TIMESTAMP:
        return log.max_timestamp(partition) or UNKNOWN
    if spec == OffsetSpec.LATEST_TIERED:
        return UNKNOWN
    return log.offset_for_time(partition, spec) or UNKNOWN


def _described(
    name: str, topic_id: str | None, error_code: int, partitions: Sequence[int], replicas: Replicas | None
) -> dict[str, Any]:
    entries = [
        {**partition_entry(p, replicas), "eligible_leader_replicas": None, "last_known_elr": None}
        for p in (partitions if replicas is not None else ())
        if replicas is not None
    ]
    return {
        "error_code": error_code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": entries,
    }


def _totals(given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise errors.IllegalArgumentError(f"topic_partitions must be a dict of totals by topic, not {given!r}")
    return given


def _total(name: str, wanted: Any) -> Any:  # noqa: ANN401 - the cluster validates the count
    total, assignments = wanted, None
    if isinstance(wanted, NewPartitions):
        total, assignments = wanted.total_count, wanted.new_assignments
    elif isinstance(wanted, Mapping):
        if "count" not in wanted or not wanted.keys() <= {"count", "assignments"}:
            raise errors.IllegalArgumentError(f"topic {name!r}: a dict with 'count' is needed, not {wanted!r}")
        total, assignments = wanted["count"], wanted.get("assignments")
    if assignments:
        raise errors.InvalidReplicationAssignmentError(
            f"topic {name!r}: new partitions have the replicas of the topic's table; leave assignments out"
        )
    return total


def _check_offset(topic: str, partition: int, offset: object) -> None:
    if isinstance(offset, bool) or not isinstance(offset, int) or not HIGH_WATERMARK <= offset <= MAX_OFFSET:
        raise errors.IllegalArgumentError(
            f"{topic}-{partition}: an offset from 0, or -1 for the log end, is needed, not {offset!r}"
        )


def _check_isolation(level: IsolationLevel | str | int) -> None:
    try:
        if isinstance(level, str):
            IsolationLevel[level.upper()]
        else:
            IsolationLevel(level)
    except (KeyError, ValueError) as cause:
        raise errors.IllegalArgumentError(
            f"unknown isolation_level {level!r}; read_uncommitted or read_committed is needed"
        ) from cause
