"""Spark's version: what versions from 4.0 to 4.3 lack, and which of PySpark's internals may be used.

Everything that depends on the version of Spark is decided here, by looking for the class or function itself. Each
acceleration that reaches into PySpark's internals has a switch, an environment variable that turns it off, and is off
where the internals are not as it expects.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql import datasource

from kafkalike.errors import UnsupportedVersionError

__all__ = [
    "DELTA_MINOR",
    "HAS_ARROW_SINK",
    "HAS_LIMITS",
    "HAS_PLANS",
    "MINOR",
    "UTC_TIMES",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "Simple",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "arrow_udf",
    "need",
]

MINOR: Final = ".".join(pyspark.__version__.split(".")[:2])
"""Version of the installed Spark without its patch, such as `4.2`."""

DELTA_MINORS: Final = ("4.0", "4.1", "4.2")
"""Versions of Spark for which Delta has jars of their own."""

DELTA_MINOR: Final = MINOR if MINOR in DELTA_MINORS else DELTA_MINORS[-1]
"""Version of Spark whose jars of Delta the installed Spark gets."""

PATCHED_INTERNALS: Final = ("4.2", "4.3")
"""Versions of Spark whose planner takes Arrow batches from a reader, as `HandingReader` hands them over."""


def is_on(switch: str) -> bool:
    """Return whether an acceleration is not switched off by its environment variable, with `0`."""
    return os.environ.get(switch, "1") != "0"


def need(feature: str, since: str, instead: str) -> UnsupportedVersionError:
    """Return the error for a feature that the installed Spark lacks.

    Args:
        feature: the subject of the sentence, in the singular.
        since: first version of Spark with it.
        instead: advice.
    """
    return UnsupportedVersionError(
        f"{feature} needs Spark {since} or newer, and this is {pyspark.__version__}: {instead}"
    )


if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_LIMITS: bool
    StreamArrowWriter = DataSourceStreamArrowWriter
    Simple: Any
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        HAS_LIMITS = True
    except ImportError:
        # Before Spark 4.2 a source is not told where a batch begins, nor its limit.
        HAS_LIMITS = False

        class ReadLimit:
            """The limit of a batch, which only kafkalike asks for here."""

        class ReadAllAvailable(ReadLimit):
            """A version above all others: no limit."""

        class ReadMaxRows(ReadLimit):
            """A number of rows."""

            def __init__(self, rows: int) -> None:
                self.rows = rows

        class SupportsTriggerAvailableNow:
            """Spark itself ends such a query at the offsets of its start."""

    # Before Spark 4.1 a streaming sink gets rows one by one; `streamWriter` refuses it there.
    StreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError:

        def arrow_udf(*_args: object, **_kwargs: object) -> object:
            """Refuse columns by schemas; nothing else needs it."""
            raise need(
                "a column of decoded or encoded values", "4.1", "decode them with `ks.read` and Spark's functions"
            )

    Simple = None
    if MINOR in PATCHED_INTERNALS and is_on("KAFKALIKE_SPARK_PLANNER_BATCHES"):
        try:
            from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as Simple
        except ImportError:
            Simple = None

HAS_ARROW_SINK: Final = hasattr(datasource, "DataSourceStreamArrowWriter")
"""True if a streaming sink gets its rows as Arrow batches."""

HAS_PLANS: Final = MINOR == "4.2" and is_on("KAFKALIKE_SPARK_PLANS")
"""True if plans of the JVM may be rewritten, which the choice of engines and scans of tables need."""

UTC_TIMES: Final[Mapping[str, Any]] = {} if MINOR in {"4.0", "4.1"} else {"timezone": "UTC"}
"""Arguments with which PySpark's `to_arrow_type` returns times in UTC; before Spark 4.2 it does so by default."""
