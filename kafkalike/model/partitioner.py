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
    """The topics as a partitioner sees them: two methods of kafka-python's `ClusterMetadata`."""

    def partitions_for_topic(self, topic: str) -> AbstractSet[int] | None:
        """Return all partitions of a topic, 0 to n-1; None if the topic is unknown."""
        ...

    def available_partitions_for_topic(self, topic: str) -> AbstractSet[int] | None:
        """Return the writable partitions of a topic; None if the topic is unknown."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A `Cluster` of known partitions, all of which are available.

    Create it once per change of metadata, not per record: the sets are returned without a copy.
    """

    partitions: Mapping[str, frozenset[int]]
    """By topic, its partitions."""

    def topics(self) -> AbstractSet[str]:
        """Return the names of the known topics."""
        return self.partitions.keys()

    def partitions_for_topic(self, topic: str) -> AbstractSet[int] | None:
        """Return all partitions of a topic; None if the topic is unknown."""
        return self.partitions.get(topic)

    def available_partitions_for_topic(self, topic: str) -> AbstractSet[int] | None:
        """Return all partitions of a topic, as `partitions_for_topic` does."""
        return self.partitions.get(topic)


class Partitioner(ABC):
    """Chooses the partition of a record without an explicit one; kafka-python 3.x's interface.

    A producer may call it from several threads at once, for one record at a time and in the order of `send`.
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
        """Choose a partition from `cluster.partitions_for_topic(topic)`.

        Args:
            topic: the record's topic.
            key: the user's key.
            serialized_key: the serialized key; None for a record without a key.
            value: the user's value.
            serialized_value: the serialized value; None for a tombstone.
            cluster: the topic's partitions.

        Raises:
            UnknownPartitionerTopicError: `cluster` does not know the topic (a ValueError).
        """

    def on_new_batch(  # noqa: B027 - optional
        self, topic: str, cluster: Cluster, prev_partition: int
    ) -> None:
        """Called when a batch of records is closed; does nothing by default.

        The producer calls it after closing a batch of `prev_partition` (full, or lingered long enough) and before the
        next call of `partition` for that topic, so that later records may go to another partition.
        """


def all_partitions(topic: str, cluster: Cluster) -> AbstractSet[int]:
    """Return every partition of a topic.

    Raises:
        UnknownPartitionerTopicError: `cluster` does not know the topic (a ValueError).
    """
    partitions = cluster.partitions_for_topic(topic)
    if not partitions:
        raise UnknownPartitionerTopicError(f"topic {topic!r} is not known")
    return partitions


def writable_partitions(topic: str, cluster: Cluster) -> list[int]:
    """Return the available partitions of a topic in ascending order, or all of them if none is available.

    Raises:
        UnknownPartitionerTopicError: `cluster` does not know the topic (a ValueError).
    """
    everything = all_partitions(topic, cluster)
    return sorted(cluster.available_partitions_for_topic(topic) or everything)


def as_partitioner(obj: object) -> Partitioner:
    """Wrap any partitioner that kafka-python accepts in this package's interface.

    Args:
        obj: a `Partitioner`, which is returned unchanged; any object with kafka-python 3.x's `partition` method (and
            optionally `on_new_batch`); or a 2.x callable `(key, all, available) -> int`, which gets both lists in
            ascending order.

    Returns:
        A partitioner. The result of a foreign one is checked: a partition that the topic does not have raises
            `IllegalArgumentError` (also a `ValueError`).

    Raises:
        IllegalArgumentError: `obj` is none of these, or is a class instead of an instance.
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


class _MethodPartitioner(Partitioner):
    """A foreign object with kafka-python 3.x's methods."""

    def __init__(
        self,
        choose: Callable[[str, object, bytes | None, object, bytes | None, Cluster], int],
        hook: Callable[[str, Cluster, int], object] | None,
    ) -> None:
        self.choose = choose
        self.hook = hook

    def partition(  # noqa: PLR0917 - kafka-python's signature
        self,
        topic: str,
        key: object,
        serialized_key: bytes | None,
        value: object,
        serialized_value: bytes | None,
        cluster: Cluster,
    ) -> int:
        """Call the foreign object and check its result."""
        everything = all_partitions(topic, cluster)
        chosen = self.choose(topic, key, serialized_key, value, serialized_value, cluster)
        return _checked(topic, chosen, everything)

    def on_new_batch(self, topic: str, cluster: Cluster, prev_partition: int) -> None:
        """Call the hook of the foreign object, if it has one."""
        if self.hook is not None:
            self.hook(topic, cluster, prev_partition)


class _FunctionPartitioner(Partitioner):
    """A kafka-python 2.x callable."""

    def __init__(self, choose: Callable[..., int]) -> None:
        self.choose = choose

    def partition(  # noqa: PLR0917 - kafka-python's signature
        self,
        topic: str,
        key: object,  # noqa: ARG002
        serialized_key: bytes | None,
        value: object,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Cluster,
    ) -> int:
        """Call the function and check its result."""
        everything = all_partitions(topic, cluster)
        available = sorted(cluster.available_partitions_for_topic(topic) or ())
        return _checked(topic, self.choose(serialized_key, sorted(everything), available), everything)


def _checked(topic: str, chosen: int, everything: AbstractSet[int]) -> int:
    if chosen not in everything:
        raise IllegalArgumentError(f"the partitioner chose {chosen!r}, which is not a partition of topic {topic!r}")
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPartitioner(Partitioner):
    """Kafka's default: murmur2 of the serialized key; a random available partition for a record without a key.

    A key goes to the same partition as with Kafka's Java client, as long as the number of partitions does not change.
    An empty key is a key.
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
        """Choose by the key's hash, or at random without a key."""
        if serialized_key is not None:
            return partition_for_key(serialized_key, len(all_partitions(topic, cluster)))
        return self.rng.choice(writable_partitions(topic, cluster))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRobinPartitioner(Partitioner):
    """Available partitions in turn, by topic, regardless of the key; Kafka's `RoundRobinPartitioner`.

    Records with the same key go to **different** partitions.
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
    """Murmur2 of the serialized key; without a key one partition until the batch is closed (KIP-480).

    Batches are fewer and larger: all records of a topic without a key go to one random partition until the producer
    calls `on_new_batch`, which chooses another one.
    """

    rng: Random = field(default_factory=Random)
    """Source of the random choice."""
    _stuck: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By topic, the partition for records without a key."""
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)
    """Lock that guards `_stuck`."""

    def partition(  # noqa: PLR0917 - kafka-python's signature
        self,
        topic: str,
        key: object,  # noqa: ARG002
        serialized_key: bytes | None,
        value: object,  # noqa: ARG002
        serialized_value: bytes | None,  # noqa: ARG002
        cluster: Cluster,
    ) -> int:
        """Choose by the key's hash, or the current partition for records without a key.

        If that partition is no longer available, choose another one.
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
        """Move on from `prev_partition` to another partition, if there is one.

        A late call changes nothing if another thread has already moved on, or if the topic was deleted.
        """
        others = sorted((cluster.available_partitions_for_topic(topic) or set()) - {prev_partition})
        with self._lock:
            if others and self._stuck.get(topic) == prev_partition:
                self._stuck[topic] = self.rng.choice(others)
