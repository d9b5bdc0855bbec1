"""Partitioners: choose the partition of a record by the hash of its key, at random, in turn, or sticky."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import count
from random import Random
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from kafkalike.errors import IllegalArgumentError, UnknownPartitionerTopicError
from kafkalike.model.murmur2 import partition_for_key, partitions_for_keys

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = [
    "Cluster",
    "ClusterView",
    "DefaultPartitioner",
    "Partitioner",
    "RoundRobinPartitioner",
    "StickyPartitioner",
    "as_partitioner",
    "partition_for_key",
    "partitions_for_keys",
]


class Cluster(Protocol):
    """What a partitioner may ask about topics: two methods of kafka-python's `ClusterMetadata`."""

    def partitions_for_topic(self, topic: str) -> AbstractSet[int] | None:
        """All partitions of a topic, 0 to n-1; None when the topic is not known."""
        ...

    def available_partitions_for_topic(self, topic: str) -> AbstractSet[int] | None:
        """Partitions that can be written to now; None when the topic is not known."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A `Cluster` of known partitions, all of them available: a Delta table has no leader to lose.

    Make it once per change of metadata, not per record: the sets are handed out as they are.
    """

    partitions: Mapping[str, frozenset[int]]
    """By topic, its partitions."""

    def topics(self) -> AbstractSet[str]:
        """Names of the known topics."""
        return self.partitions.keys()

    def partitions_for_topic(self, topic: str) -> AbstractSet[int] | None:
        """All partitions of a topic; None when the topic is not known."""
        return self.partitions.get(topic)

    def available_partitions_for_topic(self, topic: str) -> AbstractSet[int] | None:
        """The same as `partitions_for_topic`."""
        return self.partitions.get(topic)


class Partitioner(ABC):
    """Chooses the partition of a record that names none; kafka-python 3.x's interface.

    A producer may call it from several threads at once, for one record at a time and in the order of `send`.
    It is not called for a record with an explicit partition.
    """

    __slots__ = ()

    @abstractmethod
    def partition(  # noqa: PLR0917 - kafka-python's signature
        self,
        topic: str,
        key: object,
        serialized_key: bytes | None,
        value: object,
        serialized_value: bytes | None,
        cluster: Cluster,
    ) -> int:
        """Choose a partition out of `cluster.partitions_for_topic(topic)`.

        Args:
            topic: the record's topic.
            key: the key as the user gave it.
            serialized_key: the key as it will be stored; None for a record without key.
            value: the value as the user gave it.
            serialized_value: the value as it will be stored; None for a tombstone.
            cluster: the topic's partitions.

        Raises:
            UnknownPartitionerTopicError: `cluster` does not know the topic (a ValueError).
        """

    def on_new_batch(  # noqa: B027 - optional
        self, topic: str, cluster: Cluster, prev_partition: int
    ) -> None:
        """Hear that a batch of records is closed; nothing by default.

        The producer calls it after it closed a batch of `prev_partition` (full, or its linger time over) and
        before the next call of `partition` for that topic, so that the next records may go elsewhere.
        """


def all_partitions(topic: str, cluster: Cluster) -> AbstractSet[int]:
    """Every partition of a topic.

    Raises:
        UnknownPartitionerTopicError: `cluster` does not know the topic (a ValueError).
    """
    partitions = cluster.partitions_for_topic(topic)
    if not partitions:
        raise UnknownPartitionerTopicError(f"topic {topic!r} is not known")
    return partitions


def writable_partitions(topic: str, cluster: Cluster) -> list[int]:
    """The available partitions of a topic in ascending order, or all of them when none is available.

    Raises:
        UnknownPartitionerTopicError: `cluster` does not know the topic (a ValueError).
    """
    everything = all_partitions(topic, cluster)
    return sorted(cluster.available_partitions_for_topic(topic) or everything)


def as_partitioner(obj: object) -> Partitioner:
    """Give any partitioner that kafka-python takes this package's interface.

    Args:
        obj: a `Partitioner`, which is returned as it is; any object with kafka-python 3.x's `partition`
            method (its `on_new_batch` is called when it has one); or a 2.x callable
            `(key, all, available) -> int`, which gets both lists in ascending order.

    Returns:
        A partitioner. A foreign one is checked: a partition that the topic does not have is an
        `IllegalArgumentError` (also a `ValueError`).

    Raises:
        IllegalArgumentError: `obj` is none of these, or is a class that was not instantiated.
    """
    if isinstance(obj, Partitioner):
        return obj
    method = getattr(obj, "partition", None)
    if isinstance(obj, type) and (callable(method) or issubclass(obj, Partitioner)):
        raise IllegalArgumentError(f"partitioner: an instance is needed, not the class {obj.__name__}")
    if callable(method):
        return _MethodPartitioner(choose=method, hook=getattr(obj, "on_new_batch", None))
    if callable(obj):
        return _FunctionPartitioner(choose=obj)
    raise IllegalArgumentError(f"partitioner: an object with partition() or a callable is needed, not {obj!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _MethodPartitioner(Partitioner):
    """A foreign object with kafka-python 3.x's methods."""

    choose: Callable[[str, object, bytes | None, object, bytes | None, Cluster], int]
    hook: Callable[[str, Cluster, int], object] | None

    def partition(  # noqa: PLR0917 - kafka-python's signature
        self,
        topic: str,
        key: object,
        serialized_key: bytes | None,
        value: object,
        serialized_value: bytes | None,
        cluster: Cluster,
    ) -> int:
        """Ask the foreign object and check its answer."""
        everything = all_partitions(topic, cluster)
        chosen = self.choose(topic, key, serialized_key, value, serialized_value, cluster)
        return _checked(topic, chosen, everything)

    def on_new_batch(self, topic: str, cluster: Cluster, prev_partition: int) -> None:
        """Pass it on to an object that has the hook."""
        if self.hook is not None:
            self.hook(topic, cluster, prev_partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FunctionPartitioner(Partitioner):
    """A kafka-python 2.x callable."""

    choose: Callable[..., int]

    def partition(  # noqa: PLR0917 - kafka-python's signature
        self,
        topic: str,
        key: object,  # noqa: ARG002
        serialized_key: bytes | None,
        value: object,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Cluster,
    ) -> int:
        """Ask the callable and check its answer."""
        everything = all_partitions(topic, cluster)
        available = sorted(cluster.available_partitions_for_topic(topic) or ())
        return _checked(topic, self.choose(serialized_key, sorted(everything), available), everything)


def _checked(topic: str, chosen: int, everything: AbstractSet[int]) -> int:
    if chosen not in everything:
        raise IllegalArgumentError(f"the partitioner chose {chosen!r}, which is no partition of topic {topic!r}")
    return chosen


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
