"""Partitioner: a record's key in, its partition out."""

from kafkalike.model.partitioner.murmur2 import partition_for_key, partitions_for_keys
from kafkalike.model.partitioner.partitioners import (
    Cluster,
    ClusterView,
    DefaultPartitioner,
    Partitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    as_partitioner,
)

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
