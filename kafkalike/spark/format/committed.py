"""Committed: a position that is where a consumer group stands in, offsets and marks by partition out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from kafkalike.errors import NoOffsetForPartitionError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format.positions import WORDS, AtOffsets, Committed, Position, Settled, names

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


NONE: Final = "none"


def where_it_stands(
    position: Position,
    chosen: Collection[TopicPartition],
    cluster: Cluster,
    topic_ids: Mapping[str, str],
    *,
    group_id: str | None,
    otherwise: int,
    clock: Clock = SYSTEM_CLOCK,
) -> Settled:
    """What a group has committed, as offsets; other positions as they are.

    Offsets that were committed for an earlier topic of the same name do not count.

    Args:
        position: what the options say.
        chosen: the partitions that are read.
        cluster: where the group is.
        topic_ids: id of each topic that is read.
        group_id: the group; it need not exist.
        otherwise: the mark at which a query begins that is told nothing.
        clock: of the group.

    Raises:
        NoOffsetForPartitionError: nothing is committed for a partition, and `auto.offset.reset` is `none`.
    """
    if not isinstance(position, Committed):
        return position
    # Only here: most queries begin elsewhere.
    from kafkalike.log.group.group_offsets import GroupOffsets

    found = GroupOffsets.of(cluster, clock).committed(group_id or "", chosen, topic_ids)
    missing = sorted(set(chosen) - found.keys())
    if missing and position.reset == NONE:
        raise NoOffsetForPartitionError(
            f"group {group_id!r} has committed nothing for {names(missing)}, and auto.offset.reset is none"
        )
    mark = otherwise if position.reset is None else WORDS[position.reset]
    return AtOffsets({**dict.fromkeys(missing, mark), **{tp: at.offset for tp, at in found.items()}})
