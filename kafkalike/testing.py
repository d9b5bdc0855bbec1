"""Testing: what a user's own tests need; a cluster in memory, and a small SparkSession."""

from __future__ import annotations

from kafkalike.log.memory import MemoryCluster

__all__ = ["MemoryCluster"]
