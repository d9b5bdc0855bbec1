"""Workers of Spark's that acknowledge at once what they have read, in a real session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalike.spark.jvm import python_worker as prompt_answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Looking:
    """Says whether Spark's socket was there where it was unpickled."""

    def __init__(self, found: bool = False) -> None:  # noqa: FBT001, FBT002 - a value, not a choice
        self.found = found

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[()]]:
        return _looked, ()


def _looked() -> Looking:
    return Looking(prompt_answer._input() is not None)


def told(looking: Looking, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"found": [looking.found]})


def test_a_task_finds_the_socket_that_it_reads_from(spark: SparkSession) -> None:
    """Spark does not say where; another version may have it elsewhere, and then each task waits 40 ms."""
    rows = spark.range(1).mapInArrow(partial(told, Looking()), "found BOOLEAN").collect()

    assert [row.found for row in rows] == [True]


def test_another_process_does_nothing() -> None:
    assert prompt_answer._input() is None

    prompt_answer.acknowledge()
