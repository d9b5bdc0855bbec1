"""Transactional: partitions, and what they and a group hold, as tests of transactions ask for it."""

from __future__ import annotations

from typing import Any, Final

from kafkalike.consumer import KafkaConsumer
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition

T0: Final = TopicPartition("t", 0)
T1: Final = TopicPartition("t", 1)
U0: Final = TopicPartition("u", 0)


def values(cluster: Cluster, topic: str, partition: int = 0) -> list[bytes | None]:
    """Values of a partition, in offset order, which must be dense from 0 on."""
    log = cluster.log(topic)
    log.refresh()
    chunk = log.reader(partition, 0).read(1 << 30)
    if chunk is None:
        return []
    assert chunk.columns().offsets == list(range(log.log_end(partition)))
    return list(chunk.columns().values)


def committed(cluster: Cluster, group: str = "g") -> dict[TopicPartition, OffsetAndMetadata]:
    """What a group has committed."""
    ids = {name: info.topic_id for name, info in cluster.topics().items()}
    return GroupOffsets.of(cluster, SYSTEM_CLOCK).committed(group, [T0, T1, U0], ids)


def polled(consumer: KafkaConsumer, number: int) -> list[Any]:
    """So many records, from as many polls as it takes."""
    found: list[Any] = []
    while len(found) < number:
        found += [record for records in consumer.poll(timeout_ms=500).values() for record in records]
    return found
