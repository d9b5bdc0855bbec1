"""Assignors: partition counts and members in, who gets what out; under Kafka's names."""

from kafkalike.log.group.assignors.base import PartitionAssignor
from kafkalike.log.group.assignors.plain import RangePartitionAssignor, RoundRobinPartitionAssignor
from kafkalike.log.group.assignors.registry import DEFAULT_STRATEGY, schemes_of
from kafkalike.log.group.assignors.sticky import CooperativeStickyAssignor, StickyPartitionAssignor

__all__ = [
    "DEFAULT_STRATEGY",
    "CooperativeStickyAssignor",
    "PartitionAssignor",
    "RangePartitionAssignor",
    "RoundRobinPartitionAssignor",
    "StickyPartitionAssignor",
    "schemes_of",
]
