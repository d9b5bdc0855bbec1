"""`forget`: delete the records of a DataFrame's keys from a topic, by Spark's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StringType

from kafkalike.errors import IllegalArgumentError
from kafkalike.maintenance.forget import DEFAULT_OPTIONS, ForgetOptions
from kafkalike.maintenance.forget import forget as forget_keys
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.spark.jvm.spark_connect import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafkalike.maintenance.correction_report import ForgetReport

MOST_KEYS: Final = 1_000_000
"""Most keys of a run, because the driver holds them all, and each task may."""


def forget(
    keys: DataFrame,
    topic: str,
    bootstrap_servers: Address | None = None,
    *,
    column: str = "key",
    dry_run: bool = True,
    options: ForgetOptions = DEFAULT_OPTIONS,
    reason: str = "",
    timeout_ms: float | None = None,
    storage_options: StorageOptionsLike | None = None,
) -> ForgetReport:
    """Delete all records of the keys of a DataFrame from a topic; see `kafkalike.forget`. A dry run by default.

    Tasks of the frame's session read and write the data files; this process commits the table versions. With a session
    of Spark Connect, this process does everything.

    Args:
        keys: a row for each key; null and repeated keys are ignored.
        topic: the topic.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        column: column of the keys, BINARY or STRING, which is encoded as UTF-8.
        dry_run: only report the records that would be deleted.
        options: see `kafkalike.forget`.
        reason: reason for the table's history.
        timeout_ms: time limit for starting steps, ms.
        storage_options: credentials and endpoint of an object store.

    Returns:
        A report of the deleted records, or in a dry run of the records to delete.

    Raises:
        IllegalArgumentError: the column is missing or has another type, or the frame has no keys or over a million.
        KafkaError: see `kafkalike.forget`.
    """
    kinds = {field.name: field.dataType for field in keys.schema}
    if column not in kinds:
        raise IllegalArgumentError(f"the frame has no column {column!r}, but {', '.join(kinds)}")
    if not isinstance(kinds[column], BinaryType | StringType):
        raise IllegalArgumentError(f"column {column!r} must be BINARY or STRING, not {kinds[column].simpleString()}")
    chosen = keys.select(F.col(column).cast(BinaryType()).alias("key")).where(F.col("key").isNotNull()).distinct()
    wanted = [bytes(row["key"]) for row in chosen.limit(MOST_KEYS + 1).collect()]
    if len(wanted) > MOST_KEYS:
        raise IllegalArgumentError(f"the frame has more than {MOST_KEYS:,} keys: forget them in several runs")
    return forget_keys(
        topic,
        bootstrap_servers,
        keys=wanted,
        dry_run=dry_run,
        options=options,
        reason=reason,
        timeout_ms=timeout_ms,
        spark=None if is_remote(keys.sparkSession) else keys.sparkSession,
        storage_options=storage_options,
    )
