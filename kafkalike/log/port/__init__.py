"""Ports: what the rest of the package may ask of a log and a cluster.

One suite of tests runs over each kind of storage, memory among them (`kafkalike.admin.testing.MemoryCluster`).
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
