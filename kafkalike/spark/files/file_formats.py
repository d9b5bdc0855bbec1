"""Files, folders and tables as DataFrames, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from kafkalike.errors import IllegalArgumentError

SOURCES: Final = ("json", "csv", "parquet", "text", "delta", "table")
"""`json` is JSON lines, `csv` has a header, `delta` a table's path, `table` its name in the catalog."""
TARGETS: Final = ("json", "csv", "parquet", "delta", "table", "console")
MODES: Final = ("append", "overwrite", "error")

STRICT: Final[Mapping[str, Mapping[str, Any]]] = {
    # By default Spark turns what it cannot parse into nulls, and takes a header for granted when given a schema.
    "json": {"mode": "FAILFAST"},
    "csv": {"mode": "FAILFAST", "header": True, "enforceSchema": False},
}
"""Reader options that make bad input an error; the caller's own win."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Where rows come from."""

    format: str
    """One of `SOURCES`."""
    paths: tuple[str, ...]
    """Files or folders; one path for `delta`, one name for `table`."""
    schema: str | StructType | None = None
    """Columns as DDL or as a type; None: read from the files, all columns of a CSV file as text."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of Spark's reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTarget:
    """Where rows go."""

    format: str
    """One of `TARGETS`."""
    path: str = ""
    """A folder, or a table's name for `table`; nothing for `console`."""
    mode: str = "append"
    """What happens to rows that are there: one of `MODES`."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of Spark's writer."""
    emit: Callable[[str], None] = print
    """Takes the lines of `console`: one JSON object for each row."""


def load(spark: SparkSession, source: FileSource) -> DataFrame:
    """Rows of a source. A line that cannot be parsed makes the job fail.

    Raises:
        IllegalArgumentError: an unknown format, or not one name for `delta` or `table`.
        AnalysisException: Spark finds no such file or table, or no columns.
    """
    if source.format not in SOURCES:
        raise IllegalArgumentError(f"format must be one of {', '.join(SOURCES)}, not {source.format!r}")
    if source.format in {"delta", "table"} and len(source.paths) != 1:
        raise IllegalArgumentError(f"format {source.format} takes one table, not {len(source.paths)}")
    reader = spark.read.options(**{**STRICT.get(source.format, {}), **source.options})
    if source.schema is not None:
        reader = reader.schema(source.schema)
    if source.format == "table":
        return reader.table(source.paths[0])
    return reader.format(source.format).load(list(source.paths) if len(source.paths) > 1 else source.paths[0])


def save(frame: DataFrame, target: FileTarget) -> int:
    """Write rows, and count them on the way.

    Returns:
        How many there were.

    Raises:
        IllegalArgumentError: an unknown format or mode, or no path.
        AnalysisException: Spark cannot write these columns there.
    """
    if target.format not in TARGETS or target.mode not in MODES:
        raise IllegalArgumentError(f"cannot write as {target.format!r} in mode {target.mode!r}")
    if target.format == "console":
        return _print(frame, target.emit)
    if not target.path:
        raise IllegalArgumentError(f"format {target.format} needs a path or a table's name")
    counted = Observation("kafkalike")
    observed = frame.observe(counted, F.count(F.lit(1)).alias("records"))
    writer = observed.write.mode(target.mode).options(**_writer_options(target))
    if target.format == "table":
        writer.format("delta").saveAsTable(target.path)
    else:
        writer.format(target.format).save(target.path)
    return int(counted.get["records"])


def _writer_options(target: FileTarget) -> dict[str, Any]:
    return {**({"header": True} if target.format == "csv" else {}), **target.options}


def _print(frame: DataFrame, emit: Callable[[str], None]) -> int:
    lines = frame.select(F.to_json(F.struct("*"))).toLocalIterator()
    count = 0
    for row in lines:
        emit(row[0])
        count += 1
    return count
