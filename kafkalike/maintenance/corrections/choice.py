"""Choice: keys in, the records of a topic that are to go out; which partitions are looked at for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalike.log.cluster.topic_lineage import origin_ids
from kafkalike.model.maintenance.record_removal import Taking
from kafkalike.model.metadata_rows import TopicChange, parse_row
from kafkalike.model.partitioner import partition_for_key

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Keys to forget."""

    keys: frozenset[bytes]
    source: str
    """Their topic; dead letters of others stay."""
    all_partitions: bool
    """Whether all partitions are looked at, not only those that murmur2 names."""

    def takings(self, cluster: Cluster, log: TopicLog, *, of_letters: bool) -> dict[int, Taking]:
        """What is to go of what is in a topic now, by partition that is looked at; `below` is 0 in an empty one.

        Args:
            cluster: where it is.
            log: the topic, refreshed.
            of_letters: whether it has dead letters, of which only those of `source` go.
        """
        source = self.source if of_letters else None
        chosen: Mapping[int, frozenset[bytes]]
        if of_letters or self.all_partitions:
            chosen = dict.fromkeys(log.info.partitions, self.keys)
        else:
            chosen = self._hashed(cluster, log)
        return {p: Taking(below=log.log_end(p), keys=keys, source=source) for p, keys in chosen.items()}

    def _hashed(self, cluster: Cluster, log: TopicLog) -> dict[int, frozenset[bytes]]:
        """The keys by the partitions that murmur2 names, for all numbers of partitions that are known of."""
        info = log.info
        numbers = {info.num_partitions}
        # What a copy began with was sent to the topic that it was made from.
        ids = {str(info.topic_id), str(info.table_id), *origin_ids(log)}
        for row in cluster.metadata.rows:
            if row.topic_id in ids and isinstance(said := parse_row(row), TopicChange):
                numbers.add(said.info.num_partitions)
        found: dict[int, set[bytes]] = {}
        for key in self.keys:
            for number in numbers:
                found.setdefault(partition_for_key(key, number), set()).add(key)
        return {p: frozenset(keys) for p, keys in sorted(found.items()) if p in info.partitions}
