"""Export a topic to files of any format and import it, without loss.

An export is a copy of a topic, to keep or to move to another cluster. To make rows for people and other programs, use
`kafkalike.spark.files.consume` and `kafkalike.spark.sql.value_views`.
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
"""Folder in an export with the number of the topic's partitions. Spark's readers skip names that start with `_`."""

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
    # Base64 does not contain this character, and an empty text must not be read as a null, which is a tombstone.
    "nullValue": "-",
    # Headers are JSON, with quotes and backslashes of their own.
    "escape": '"',
}
WRITER_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {"csv": _CSV, "json": {"ignoreNullFields": "false"}}
"""Options of Spark's writer that a format needs."""

# A session may give its column of unreadable lines the name of a record's column, which would then be null.
_NOT_OURS: Final = {"columnNameOfCorruptRecord": "__kafkalike_corrupt"}

READER_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "csv": {**_CSV, **_NOT_OURS, "mode": "FAILFAST", "enforceSchema": "false"},
    "json": {**_NOT_OURS, "mode": "FAILFAST"},
}
"""Options of Spark's reader that a format needs."""


def export_columns(frame: DataFrame, file_format: str) -> DataFrame:
    """Convert records to the rows of a file format.

    Args:
        frame: columns of `kafkalike.spark.read`, headers included.
        file_format: a name in `FORMATS`.

    Returns:
        Columns `partition, offset, timestamp, timestampType, key, value, headers`: in Parquet and Delta with their
        types, otherwise by `TEXT_SCHEMA`.
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
    """Convert the rows of `export_columns` to records for `kafkalike.spark.write`, in the order of their offsets.

    Args:
        frame: the files; text files read with `TEXT_SCHEMA`.
        file_format: a name in `FORMATS`.

    Returns:
        Columns `partition INT, timestamp TIMESTAMP, key BINARY, value BINARY, headers`. The topic assigns new offsets.
        They equal the old ones if the topic is empty and the export started at offset 0 and had no gaps.
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
    """Encode bytes as base64 on one line; Spark may break it after 76 characters, and a line of CSV ends there."""
    return F.translate(F.base64(column), "\r\n", "")


def _bytes(column: Column) -> Column:
    """Decode base64 with or without line breaks. Other text fails; `unbase64` would skip its characters."""
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
    """Write records of a topic, with all their fields, to a folder.

    Args:
        spark: a session with Delta.
        topic: the topic.
        path: the folder.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        file_format: a name in `FORMATS`.
        mode: handling of existing files: `error`, `append` or `overwrite`.
        starting_offsets: first offsets.
        ending_offsets: offsets to stop before; fixed at the call.
        as_of: a snapshot; see `kafkalike.spark.files.consume.consume`.

    Returns:
        The offsets read, and the number of records.

    Raises:
        IllegalArgumentError, OffsetOutOfRangeError: bad arguments.
        DataLossError: fewer records were found than the offsets promise; the files hold the records that were found.
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
        raise DataLossError(f"{topic}: {wanted} records were expected by the offsets, but {records} were found")
    _note_partitions(
        spark, path, max(log.info.num_partitions, _noted_partitions(spark, path) if mode == "append" else 0)
    )
    named = {TopicPartition(topic, p): run for p, run in sorted(ranges.items())}
    return Consumed(ranges=named, records=records, committed=False)


def _note_partitions(spark: SparkSession, path: str, partitions: int) -> None:
    """Write the number of the topic's partitions beside the records, because the last partitions may be empty."""
    text = json.dumps({"partitions": partitions})
    spark.range(1, numPartitions=1).select(F.lit(text).alias("value")).write.mode("overwrite").text(f"{path}/{ABOUT}")


def _noted_partitions(spark: SparkSession, path: str) -> int:
    """Read the number from `_note_partitions`; 0 if the export has none."""
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
    """Import an export into a topic, in one table commit.

    Args:
        spark: a session with Delta.
        path: the folder.
        topic: the topic; created if it is missing.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        file_format: a name in `FORMATS`.
        partitions: number of partitions of a new topic. None: as many as the exported topic had, or, if the export does
            not note that, as the records name.
        configs: settings of a new topic.
        txn_id: names the import; a second import under the same name adds nothing. None: derived from `path`.

    Returns:
        The offsets written.

    Raises:
        IllegalArgumentError: bad arguments, or a topic with fewer partitions than the records name.
        AnalysisException: the files do not exist.
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
