"""Partitioner: a record's key in, its partition out."""

from kafkalike.model.partitioner.base import Cluster, ClusterView, Partitioner, as_partitioner
from kafkalike.model.partitioner.choice import DefaultPartitioner, RoundRobinPartitioner, StickyPartitioner
from kafkalike.model.partitioner.murmur2 import partition_for_key, partitions_for_keys

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
