"""Partitioner: a record's key in, its partition out; on bytes here, as a Spark Column in `column`."""

from kafkalike.partitioner.base import Cluster, ClusterView, Partitioner, as_partitioner
from kafkalike.partitioner.choice import DefaultPartitioner, RoundRobinPartitioner, StickyPartitioner
from kafkalike.partitioner.murmur2 import partition_for_key, partitions_for_keys

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
