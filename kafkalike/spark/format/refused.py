"""Refused: an error of a query's options in, a stream reader that raises it when Spark first asks for offsets, out.

Spark 4.2 does not tell the error of a source that raises it when the reader is made: it stops the reader that it has
not got, and tells that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from kafkalike.spark.format.named import plainly


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises an error at the first question.

    Args:
        error: a named one.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    @plainly
    def _raise(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raises."""
        self._raise()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Spark asks for it before there is a question that could be answered by an error."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Raises."""
        self._raise()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """Raises."""
        self._raise()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        """Raises."""
        self._raise()

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002
        """Raises."""
        self._raise()
