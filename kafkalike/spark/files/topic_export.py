"""Export a topic to files of any format and import it again, without loss.

For copies of a topic outside of it: to keep, to move to another cluster, to hand on. For rows that people and other
programs are to read there are `kafkalike.spark.files.consume` and `kafkalike.spark.sql.value_views`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

from kafkalike.connect import connect
from kafkalike.errors import DataLossError, IllegalArgumentError
from kafkalike.log.snapshots import Snapshot
from kafkalike.model.config.storage_options import Address
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.files.consume import Consumed, FileSource, FileTarget, ends_of, load, save
from kafkalike.spark.reads.conditions import EARLIEST, LATEST, Offsets, plan_ranges, within
from kafkalike.spark.reads.frames import read
from kafkalike.spark.record_columns import HEADERS
from kafkalike.spark.writes.batch_write import Written, write

FORMATS: Final = ("parquet", "delta", "json", "csv")

ABOUT: Final = "_topic"
"""Folder in an export that says how many partitions the topic had. Readers leave out names that begin like this."""

_TEXT_HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", StringType())]))
_ORDER: Final = ("partition", "offset")

_TEXT_COLUMNS: Final = (
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", LongType()),
    StructField("timestampType", IntegerType()),
    StructField("key", StringType()),
    StructField("value", StringType()),
)

TEXT_SCHEMA: Final[Mapping[str, StructType]] = {
    "json": StructType([*_TEXT_COLUMNS, StructField("headers", _TEXT_HEADERS)]),
    "csv": StructType([*_TEXT_COLUMNS, StructField("headers", StringType())]),
}
"""Columns of text files: bytes in base64, times in ms since 1970, and in CSV headers as JSON."""

_CSV: Final = {
    "header": "true",
    # No base64 has this character, and an empty text must not be read as a null: a null value is a tombstone.
    "nullValue": "-",
    # Headers are JSON, with quotes and backslashes of their own.
    "escape": '"',
}
WRITER_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {"csv": _CSV, "json": {"ignoreNullFields": "false"}}
"""Options of Spark's writer that a format needs."""

# A session may call the column of lines that cannot be read like one of ours, which would then be null.
_NOT_OURS: Final = {"columnNameOfCorruptRecord": "__kafkalike_corrupt"}

READER_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "csv": {**_CSV, **_NOT_OURS, "mode": "FAILFAST", "enforceSchema": "false"},
    "json": {**_NOT_OURS, "mode": "FAILFAST"},
}
"""Options of Spark's reader that a format needs."""


def export_columns(frame: DataFrame, file_format: str) -> DataFrame:
    """Records as rows of a file format.

    Args:
        frame: columns of `kafkalike.spark.read`, headers included.
        file_format: one of `FORMATS`.

    Returns:
        Columns `partition, offset, timestamp, timestampType, key, value, headers`: in Parquet and Delta with their
        types, else as `TEXT_SCHEMA` says.
    """
    _check(file_format)
    columns = [F.col(name) for name in ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")]
    if file_format in {"parquet", "delta"}:
        return frame.select(*columns)
    text = F.transform("headers", lambda h: F.struct(h["key"].alias("key"), _base64(h["value"]).alias("value")))
    headers = text if file_format == "json" else F.to_json(text, {"ignoreNullFields": "false"})
    return frame.select(
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp"),
        "timestampType",
        _base64(F.col("key")).alias("key"),
        _base64(F.col("value")).alias("value"),
        headers.alias("headers"),
    )


def import_columns(frame: DataFrame, file_format: str) -> DataFrame:
    """Rows that `export_columns` made, as records for `kafkalike.spark.write`, in the order of their offsets.

    Args:
        frame: the files, read with `TEXT_SCHEMA` if they are text.
        file_format: one of `FORMATS`.

    Returns:
        Columns `partition INT, timestamp TIMESTAMP, key BINARY, value BINARY, headers`. New offsets are given by the
        topic; they are the old ones if the topic is empty and the export began at offset 0 and had no holes.
    """
    _check(file_format)
    ordered = frame.orderBy(*_ORDER)
    if file_format in {"parquet", "delta"}:
        return ordered.select("partition", "timestamp", "key", "value", F.col("headers").cast(HEADERS))
    # By default headers that cannot be parsed would be null.
    csv_headers = F.from_json("headers", _TEXT_HEADERS, READER_OPTIONS["json"])
    text = F.col("headers") if file_format == "json" else csv_headers
    return ordered.select(
        "partition",
        F.timestamp_millis("timestamp").alias("timestamp"),
        _bytes(F.col("key")).alias("key"),
        _bytes(F.col("value")).alias("value"),
        F.transform(text, _decoded).alias("headers"),
    )


def _decoded(header: Column) -> Column:
    return F.struct(header["key"].alias("key"), _bytes(header["value"]).alias("value"))


def _base64(column: Column) -> Column:
    """Bytes in base64 on one line: Spark may break it after 76 characters, and a line of CSV ends there."""
    return F.translate(F.base64(column), "\r\n", "")


def _bytes(column: Column) -> Column:
    """What `_base64` has made, with breaks or without; anything else fails, where `unbase64` would skip characters."""
    return F.to_binary(F.translate(column, "\r\n", ""), F.lit("base64"))


def _check(file_format: str) -> None:
    if file_format not in FORMATS:
        raise IllegalArgumentError(f"format must be one of {', '.join(FORMATS)}, not {file_format!r}")


def export_topic(
    spark: SparkSession,
    topic: str,
    path: str,
    bootstrap_servers: Address | None = None,
    *,
    file_format: str = "parquet",
    mode: str = "error",
    starting_offsets: Offsets = EARLIEST,
    ending_offsets: Offsets = LATEST,
    as_of: Snapshot | None = None,
) -> Consumed:
    """Write records of a topic, with everything they have, to a folder.

    Args:
        spark: a session with Delta.
        topic: the topic.
        path: the folder.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        file_format: one of `FORMATS`.
        mode: for files that are there: `error`, `append` or `overwrite`.
        starting_offsets: first offsets.
        ending_offsets: offsets to stop before; fixed now.
        as_of: a snapshot; see `kafkalike.spark.files.consume.consume`.

    Returns:
        What was read.

    Raises:
        IllegalArgumentError, OffsetOutOfRangeError: bad arguments.
        DataLossError: fewer records were found than the offsets promise; the files hold what was found.
    """
    cluster = connect(bootstrap_servers, access="spark")
    log = cluster.log(topic)
    ending_offsets = ending_offsets if as_of is None else ends_of(as_of, cluster.root, log, ending_offsets)
    ranges = plan_ranges(log, starting_offsets, ending_offsets)
    frame = export_columns(read(spark, topic, cluster, as_of=as_of).where(within(ranges)), file_format)
    options = WRITER_OPTIONS.get(file_format, {})
    records = save(frame, FileTarget(format=file_format, path=path, mode=mode, options=options))
    wanted = sum(map(len, ranges.values()))
    if records != wanted and not log.config.compacted:
        raise DataLossError(f"{topic}: {wanted} offsets were to be read, but {records} records were found")
    _note_partitions(
        spark, path, max(log.info.num_partitions, _noted_partitions(spark, path) if mode == "append" else 0)
    )
    named = {TopicPartition(topic, p): run for p, run in sorted(ranges.items())}
    return Consumed(ranges=named, records=records, committed=False)


def _note_partitions(spark: SparkSession, path: str, partitions: int) -> None:
    """Write the number of the topic's partitions beside the records: the last ones may have none."""
    text = json.dumps({"partitions": partitions})
    spark.range(1, numPartitions=1).select(F.lit(text).alias("value")).write.mode("overwrite").text(f"{path}/{ABOUT}")


def _noted_partitions(spark: SparkSession, path: str) -> int:
    """The number that `_note_partitions` wrote; 0 for the export of an earlier version."""
    try:
        rows = spark.read.text(f"{path}/{ABOUT}").collect()
    except AnalysisException as cause:
        if cause.getCondition() == "PATH_NOT_FOUND":
            return 0
        raise
    return max((int(json.loads(row[0])["partitions"]) for row in rows), default=0)


def import_topic(
    spark: SparkSession,
    path: str,
    topic: str,
    bootstrap_servers: Address | None = None,
    *,
    file_format: str = "parquet",
    partitions: int | None = None,
    configs: Mapping[str, str] | None = None,
    txn_id: str | None = None,
) -> Written:
    """Write what `export_topic` has written into a topic, in one table commit.

    Args:
        spark: a session with Delta.
        path: the folder.
        topic: the topic; created when it is missing.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        file_format: one of `FORMATS`.
        partitions: of a topic that is created; None: as many as the exported topic had, or, where the folder does not
            say that, as the records name.
        configs: settings of a topic that is created.
        txn_id: names the import; a second one under the same name adds nothing. None: made of `path`.

    Returns:
        The offsets written.

    Raises:
        IllegalArgumentError: bad arguments, or a topic with fewer partitions than the records name.
        AnalysisException: no such files.
    """
    _check(file_format)
    cluster = connect(bootstrap_servers, access="spark_write")
    schema = TEXT_SCHEMA.get(file_format)
    options = READER_OPTIONS.get(file_format, {})
    rows = load(spark, FileSource(format=file_format, paths=(path,), schema=schema, options=options))
    found = rows.agg(F.max("partition").alias("last")).collect()[0]["last"]
    total = max(1 if found is None else found + 1, partitions or 1)
    known = cluster.topics().get(topic)
    if known is None:
        wanted = total if partitions is not None else max(total, _noted_partitions(spark, path))
        cluster.create_topic(topic, wanted, dict(configs or {}))
    elif known.num_partitions < total:
        raise IllegalArgumentError(f"{topic} has {known.num_partitions} partitions; the records name {total}")
    return write(import_columns(rows, file_format), topic, cluster, txn_id=txn_id or f"import {path}", txn_version=1)
