"""Letters: a dead-letter topic in, what stands in it out; and deserializers that fail."""

from __future__ import annotations

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.dead_letter import Context, read_context


def number(data: bytes | None) -> int | None:
    """A deserializer of decimal numbers, which fails on anything else."""
    return None if data is None else int(data)


def letters(cluster: Cluster, topic: str = "orders.dlq") -> list[tuple[bytes | None, Context]]:
    """Values of a dead-letter topic with what their headers say, partition by partition; empty where it is missing."""
    if topic not in cluster.topics():
        return []
    log = cluster.log(topic)
    log.refresh()
    found = []
    for partition in log.info.partitions:
        chunk = log.reader(partition, 0).read(1 << 30)
        if chunk is None:
            continue
        columns = chunk.columns()
        for value, headers in zip(columns.values, columns.headers or [[]] * len(columns.values), strict=True):
            context = read_context(headers)
            assert context is not None
            found.append((value, context))
    return found


def lettered(cluster: Cluster, topic: str = "orders.dlq") -> list[tuple[int, int]]:
    """Partition and offset of the records that are dead letters, sorted, each as often as it is one."""
    return sorted((c.origin.partition if c.origin else -1, c.offset or 0) for _, c in letters(cluster, topic))
