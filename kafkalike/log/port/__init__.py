"""Ports: what the rest of the package may ask of a log and a cluster.

Two implementations keep these contracts: Delta tables (`kafkalike.log`) and memory (`kafkalike.log.cluster.memory`,
shipped for users' tests as `kafkalike.testing.MemoryCluster`). One suite of tests runs over both.
"""

from __future__ import annotations

from kafkalike.log.port.cluster import Cluster, request_metrics
from kafkalike.log.port.control import ControlLog
from kafkalike.log.port.replication import Replication
from kafkalike.log.port.topic import PartitionReader, TopicLog
from kafkalike.log.port.transactions import Transactions, TransactionSession

__all__ = [
    "Cluster",
    "ControlLog",
    "PartitionReader",
    "Replication",
    "TopicLog",
    "TransactionSession",
    "Transactions",
    "request_metrics",
]
