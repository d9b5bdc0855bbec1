"""Task number: which Spark partition this process works at."""

from __future__ import annotations

from pyspark import TaskContext


def task_number() -> int:
    """Number of the Spark partition that this process works at; 0 outside of a task."""
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0
