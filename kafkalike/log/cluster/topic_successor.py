"""Topic successor: the table that a repartition fills beside a topic's own, and the change that gives it the name.

The metadata name the successor from the first step on, so any process can continue (`TopicInfo.target`). Its table lies
in a folder of its own, and no client sees it until one change of the metadata ends the old topic and begins the new
one, with the log starts of both alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalike import errors
from kafkalike.log.cluster.topic_changes import TopicChanges, discard_tables
from kafkalike.model import cluster_state, faults
from kafkalike.model.config.topic_config import check_partition_count
from kafkalike.model.groups.partition_split import check_split, family
from kafkalike.model.names import check_topic_name
from kafkalike.model.topic import Ancestor, RepartitionTarget, TopicInfo

if TYPE_CHECKING:
    from kafkalike.model.cluster_state import ClusterState


class TopicSuccessions(TopicChanges):
    """Successors of topics; see `kafkalike.maintenance.repartition`, which fills their tables."""

    def begin_repartition(self, name: str, total: int, instead_of: str | None = None) -> TopicInfo:
        """Create the empty table of a topic's successor, unless the topic has one with that many partitions.

        Args:
            name: the topic.
            total: number of partitions of the successor.
            instead_of: id of a successor to replace, because its records are outdated.

        Returns:
            The topic, with its `target`.

        Raises:
            InvalidPartitionsError: the number is not a higher multiple of the present one.
            ReassignmentInProgressError: the topic is being repartitioned to another number.
            MirrorTopicError: the topic is a read-only copy.
        """
        checked = check_topic_name(name)
        made: list[TopicInfo] = []

        def plan(state: ClusterState) -> Sequence[cluster_state.MetadataRow]:
            info = state.require(checked)
            info.check_own()
            if info.target is not None and info.target.topic_id != instead_of:
                if info.target.num_partitions != total:
                    info.check_settled()
                return []
            check_split(checked, info.num_partitions, check_partition_count(total))
            location = self._tables.location(checked, used_before=True)
            closed = self.server.is_closed(info.configs)
            table_id = self._tables.create(checked, location, None, closed=closed)
            made.append(replace(info, topic_id=table_id, location=location, origin_id=None))
            target = RepartitionTarget(topic_id=table_id, location=location, num_partitions=total)
            faults.point("repartition.before_begin")
            change = f"repartition to {total} partitions begun"
            return [cluster_state.topic_row(state.seq + 1, self.clock.now_ms(), replace(info, target=target), change)]

        self.metadata.transact(plan)
        found = self.metadata.refresh().require(checked)
        discard_tables(self._tables, [one for one in made if found.target and one.topic_id != found.target.topic_id])
        faults.point("repartition.after_begin")
        return found

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its data, including an unfinished successor."""
        super().delete_topic(name)
        gone = self.metadata.state.gone.get(name)
        if gone is not None and gone.target is not None:
            # Its repartition has not ended. If this is interrupted, maintenance removes the table.
            left = replace(gone, topic_id=gone.target.topic_id, location=gone.target.location, origin_id=None)
            discard_tables(self._tables, [left])

    def end_repartition(self, before: TopicInfo) -> TopicInfo:
        """Give a topic's name to its successor, and remove the old table, in one change of the metadata.

        Args:
            before: the topic with its `target`, whose table is complete; the old table is sealed.

        Returns:
            The new topic.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted meanwhile.
        """
        target, name = before.target, before.name
        assert target is not None, name
        old = Ancestor(topic_id=before.topic_id, table_id=before.table_id, num_partitions=before.num_partitions)

        def plan(state: ClusterState) -> Sequence[cluster_state.MetadataRow]:
            info = state.require(name)
            if info.topic_id == target.topic_id:
                return []
            if info.target is None or info.target.topic_id != target.topic_id:
                raise errors.UnknownTopicOrPartitionError(f"topic {name!r} was deleted while it was repartitioned")
            made = TopicInfo(
                name=info.name,
                topic_id=target.topic_id,
                location=target.location,
                num_partitions=target.num_partitions,
                configs=info.configs,
                created_ms=info.created_ms,
                ancestors=(*info.ancestors, old),
            )
            now = self.clock.now_ms()
            change = f"repartitioned from {info.num_partitions} to {target.num_partitions} partitions"
            rows = [
                cluster_state.topic_row(state.seq + 1, now, replace(info, target=None), change, deleted=True),
                cluster_state.topic_row(state.seq + 2, now, made, change),
            ]
            starts = {
                q: info.log_start(p)
                for p in info.log_starts
                for q in family(p, info.num_partitions, target.num_partitions)
            }
            if starts:
                rows.append(
                    cluster_state.log_start_row(
                        state.seq + 3, now, made, starts, reason="repartition", run=target.topic_id
                    )
                )
            faults.point("repartition.before_end")
            return rows

        self._tables.drop(before, lambda: self.metadata.transact(plan))
        return self.metadata.refresh().require(name)
