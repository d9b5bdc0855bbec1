"""Share acknowledgements: verdicts on records in requests of share consumers, and the codes of those refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalike import errors
from kafkalike.gateway.error_codes import Outcome, attempt
from kafkalike.model.shares.share_partition import Acknowledgement, RecordVerdict
from kafkalike.model.shares.share_runs import merged_offsets
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.gateway.gateway_cluster import Call, GatewayCluster
    from kafkalike.log.group.share_group import ShareGroup

VERDICTS: Final = {
    0: RecordVerdict.REJECT,
    1: RecordVerdict.ACCEPT,
    2: RecordVerdict.RELEASE,
    3: RecordVerdict.REJECT,
    4: RecordVerdict.RENEW,
}
"""Verdicts by Kafka's ids; 0 is a gap that compaction has left."""

VERDICTS_BUT_RENEW: Final = {kind: verdict for kind, verdict in VERDICTS.items() if verdict is not RecordVerdict.RENEW}
"""Verdicts of requests that do not announce renewals."""

UNKNOWN_TOPIC: Final = Outcome.of(errors.UnknownTopicIdError("no topic has this id"))
NOT_SHARED: Final = Outcome.of(errors.UnknownTopicOrPartitionError("the group has acquired nothing of this partition"))
NOT_ACQUIRED: Final = Outcome.of(errors.InvalidRecordStateError("the member does not hold all of these records"))

Acknowledgements = dict[TopicPartition, list[Acknowledgement]]

Refusals = dict[tuple[uuid.UUID | None, int], Outcome]
"""Outcomes by topic id and partition."""


def acknowledgements_of(home: GatewayCluster, call: Call) -> tuple[Acknowledgements, Refusals]:
    """Return a request's acknowledgements, and the outcomes of those that are malformed or of unknown topics.

    Args:
        home: the cluster.
        call: a ShareFetch or a ShareAcknowledge.
    """
    found: Acknowledgements = {}
    wrong: Refusals = {}
    allowed = VERDICTS if call.field("is_renew_ack", default=False) else VERDICTS_BUT_RENEW
    for topic in call.body.topics:
        name = home.topic_name(topic)
        for partition in topic.partitions:
            batches, index = partition.acknowledgement_batches, int(partition.partition_index)
            if name is None and batches:
                wrong[topic.topic_id, index] = UNKNOWN_TOPIC
            elif name is not None and batches:
                outcome, acks = attempt(_acks, batches, allowed)
                if acks is None:
                    wrong[topic.topic_id, index] = outcome
                else:
                    found.setdefault(TopicPartition(name, index), []).extend(acks)
    return found, wrong


def _acks(batches: Iterable[Any], allowed: Mapping[int, RecordVerdict]) -> list[Acknowledgement]:
    """Return the acknowledgements of a partition.

    Args:
        batches: of any version of the request.
        allowed: verdicts by their ids.

    Raises:
        InvalidRequestError: a batch is malformed.
    """
    found: list[Acknowledgement] = []
    for batch in batches:
        first, last, types = int(batch.first_offset), int(batch.last_offset), [int(t) for t in batch.acknowledge_types]
        size = last - first + 1
        if size < 1 or len(types) not in {1, size} or not set(types) <= allowed.keys():
            raise errors.InvalidRequestError(
                f"acknowledgements of {first} to {last} with {len(types)} types {types[:5]}"
            )
        if len(types) == 1:
            found.append(Acknowledgement(first, last, allowed[types[0]]))
        else:
            said = ((first + nth, (allowed[kind],)) for nth, kind in enumerate(types))
            found += [Acknowledgement(a, b, *facts) for a, b, facts in merged_offsets(said)]
    return found


def refusals_of(group: ShareGroup, refused: Iterable[TopicPartition]) -> dict[TopicPartition, Outcome]:
    """Return the outcomes of partitions whose acknowledgements the group refuses."""
    known = group.shares(group.groups.state)
    return {tp: NOT_ACQUIRED if tp in known else NOT_SHARED for tp in refused}
