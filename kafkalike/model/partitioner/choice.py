"""Ready partitioners: by the key's hash, and at random, in turn or sticky for records without key."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from random import Random
from threading import Lock
from typing import TYPE_CHECKING

from kafkalike.model.partitioner.base import Partitioner, all_partitions, writable_partitions
from kafkalike.model.partitioner.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalike.model.partitioner.base import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPartitioner(Partitioner):
    """Kafka's default: murmur2 of the serialised key; without key a random available partition.

    The same key goes to the same partition as with Kafka's Java client, as long as the number of partitions
    stays. An empty key is a key.
    """

    rng: Random = field(default_factory=Random)
    """Source of the random choice."""

    def partition(  # noqa: PLR0917 - kafka-python's signature
        self,
        topic: str,
        key: object,  # noqa: ARG002
        serialized_key: bytes | None,
        value: object,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Cluster,
    ) -> int:
        """Choose by the key's hash, or at random without key."""
        if serialized_key is not None:
            return partition_for_key(serialized_key, len(all_partitions(topic, cluster)))
        return self.rng.choice(writable_partitions(topic, cluster))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRobinPartitioner(Partitioner):
    """Available partitions in turn, topic by topic, whatever the key; Kafka's `RoundRobinPartitioner`.

    Records with the same key do **not** meet in one partition.
    """

    _turns: dict[str, Iterator[int]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By topic, the number of records so far; `next` and `setdefault` are atomic, so no lock is needed."""

    def partition(  # noqa: PLR0917 - kafka-python's signature
        self,
        topic: str,
        key: object,  # noqa: ARG002
        serialized_key: bytes | None,  # noqa: ARG002
        value: object,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Cluster,
    ) -> int:
        """Choose the partition after the previous one."""
        partitions = writable_partitions(topic, cluster)
        turns = self._turns.get(topic) or self._turns.setdefault(topic, count())
        return partitions[next(turns) % len(partitions)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StickyPartitioner(Partitioner):
    """Murmur2 of the serialised key; without key one partition until the batch is closed (KIP-480).

    Fewer and larger batches: all records without key of a topic go to one random partition until the producer
    calls `on_new_batch`, which draws another one.
    """

    rng: Random = field(default_factory=Random)
    """Source of the random choice."""
    _stuck: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By topic, the partition for records without key."""
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)
    """Guards `_stuck`."""

    def partition(  # noqa: PLR0917 - kafka-python's signature
        self,
        topic: str,
        key: object,  # noqa: ARG002
        serialized_key: bytes | None,
        value: object,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Cluster,
    ) -> int:
        """Choose by the key's hash, or the partition in use for records without key.

        A partition that has gone away in the meantime is replaced.
        """
        if serialized_key is not None:
            return partition_for_key(serialized_key, len(all_partitions(topic, cluster)))
        partitions = writable_partitions(topic, cluster)
        with self._lock:
            stuck = self._stuck.get(topic)
            if stuck is None or stuck not in partitions:
                stuck = self._stuck[topic] = self.rng.choice(partitions)
            return stuck

    def on_new_batch(self, topic: str, cluster: Cluster, prev_partition: int) -> None:
        """Move on from `prev_partition` to another partition, where there is one.

        A late call, when another thread has already moved on or the topic is gone, changes nothing.
        """
        others = sorted((cluster.available_partitions_for_topic(topic) or set()) - {prev_partition})
        with self._lock:
            if others and self._stuck.get(topic) == prev_partition:
                self._stuck[topic] = self.rng.choice(others)
