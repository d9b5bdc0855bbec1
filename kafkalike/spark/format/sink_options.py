"""Options of the format's sink, checked; named as those of Spark's Kafka sink."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql.types import StringType, StructType

from kafkalike.errors import IllegalArgumentError, UnsupportedCodecError
from kafkalike.model.config.storage_options import SentOptions
from kafkalike.model.config.topic_config import CODECS
from kafkalike.model.names import check_topic_name
from kafkalike.model.record_batch import TxnId
from kafkalike.spark.format.option_values import MAX_INT, MAX_LONG, by_known_name, flag, is_first, number, warn_of_names
from kafkalike.spark.format.source_options import BOOTSTRAP, root_of
from kafkalike.spark.format.source_options import KNOWN as SOURCE_OPTIONS
from kafkalike.spark.jvm.stream_checkpoint import check_location
from kafkalike.spark.record_columns import check_columns

_log = logging.getLogger(__name__)

CHECKPOINT: Final = "checkpointLocation"
COMPRESSION: Final = "kafka.compression.type"
TIMEOUT: Final = "kafka.delivery.timeout.ms"
TIMEOUT_MS: Final = 120_000

USE_TIMESTAMP: Final = "useTimestampColumn"

KNOWN: Final = (BOOTSTRAP, "topic", COMPRESSION, TIMEOUT, USE_TIMESTAMP, "txnAppId", "txnVersion", CHECKPOINT)
"""Options with a meaning."""

OF_SOURCES: Final = {name.lower() for name in SOURCE_OPTIONS} - {"kafka.group.id", "includeheaders"}

NO_MEANING: Final = {"includeHeaders": "the column headers is written wherever there is one"}
"""Options of Spark's Kafka sink that change nothing here; each one is warned about."""

REFUSED: Final = {
    "kafka.key.serializer": "keys are written as bytes; cast them in the query",
    "kafka.value.serializer": "values are written as bytes; cast them in the query",
    "kafka.key.deserializer": "it belongs to a consumer",
    "kafka.value.deserializer": "it belongs to a consumer",
    "kafka.interceptor.classes": "there is no Kafka client that could call them",
    "kafka.partitioner.class": "it is a class of the JVM; give rows a column partition, or use kafkalike.spark.write "
    "with a partitioner",
    "kafka.transactional.id": "a write is one table commit per topic; txnAppId and txnVersion make a rerun add nothing",
}
"""Kafka settings that Spark's Kafka sink refuses, or that would change what is written, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Checked options."""

    root: str
    """The cluster's root, as given."""
    storage: SentOptions | None
    """Who asks an object store; None: the environment says it."""
    topic: str | None
    """The topic of all rows; None: their column `topic`."""
    codec: str
    timeout_ms: int
    """How long to wait for other writers, for each topic, ms."""
    timestamps: bool
    """Whether the column `timestamp` is the time of the records; Spark's Kafka sink ignores it."""
    txn: TxnId | None
    """Names the write of a batch query."""
    txn_id: str | None
    """Names a streaming query."""
    checkpoint: str | None
    """Where a streaming query has its checkpoint."""
    scratch: str | None = None
    """A folder of this machine for what is staged, where all tasks share it and one table commit ends the write."""


def parse_batch(given: Mapping[str, str], storage: SentOptions | None = None) -> SinkOptions:
    """Check the options of a batch query and warn of those without effect.

    Raises:
        IllegalArgumentError, UnsupportedCodecError, InvalidTopicError: an option is unknown, refused, missing, or has a
            value that is not allowed.
    """
    options = _known(given, warn=True)
    if options.pop(CHECKPOINT, None) is not None:
        _log.warning("option %s has no effect in a batch query, which has no checkpoint", CHECKPOINT)
    app, version = options.get("txnAppId"), number(options, "txnVersion", MAX_LONG, 0)
    if (app is None) != (version is None):
        raise IllegalArgumentError("options txnAppId and txnVersion go together")
    if app is None or version is None:
        return _parse(options, None, storage)
    if not app:
        raise IllegalArgumentError("option txnAppId must not be empty")
    return _parse(options, TxnId(app, version), storage)


def parse_stream(given: Mapping[str, str], storage: SentOptions | None = None) -> SinkOptions:
    """Check the options of a streaming query and warn of those without effect.

    Raises:
        IllegalArgumentError, UnsupportedCodecError, InvalidTopicError: as for a batch query; or the checkpoint is not
            named, or is somewhere else than on this machine or in an object store.
    """
    # Spark makes two writers for each batch; it is said once for a run of the query.
    options = _known(given, warn=is_first(f"sink {given.get(CHECKPOINT, '')} {sorted(given)}"))
    if "txnVersion" in options:
        raise IllegalArgumentError("option txnVersion belongs to batch queries: a stream's batches have numbers")
    if options.get("txnAppId") == "":
        raise IllegalArgumentError("option txnAppId must not be empty")
    instead = "; kafkalike.spark.write_stream takes it from anywhere"
    if not options.get(CHECKPOINT):
        raise IllegalArgumentError(
            f"option {CHECKPOINT} must be given to the writer, also where the session has a default: the checkpoint "
            f"tells which batches were written{instead}"
        )
    try:
        check_location(options[CHECKPOINT])
    except IllegalArgumentError as cause:
        raise IllegalArgumentError(f"option {CHECKPOINT}: {cause}{instead}") from cause
    return _parse(options, None, storage)


def _known(given: Mapping[str, str], *, warn: bool) -> dict[str, str]:
    options = by_known_name(given, KNOWN, NO_MEANING, REFUSED)
    flag(options, "includeHeaders", default=True)
    if warn:
        # A table has the options of both.
        own = {name: value for name, value in given.items() if name.lower() not in OF_SOURCES}
        warn_of_names(own, KNOWN, NO_MEANING)
    return options


def _parse(options: Mapping[str, str], txn: TxnId | None, storage: SentOptions | None) -> SinkOptions:
    codec = options.get(COMPRESSION, "none")
    if codec not in CODECS:
        raise UnsupportedCodecError(f"option {COMPRESSION} must be one of {', '.join(CODECS)}, not {codec!r}")
    topic = options.get("topic")
    timeout_ms = number(options, TIMEOUT, MAX_INT)
    return SinkOptions(
        root=root_of(options),
        storage=storage,
        topic=None if topic is None else check_topic_name(topic),
        codec=codec,
        timeout_ms=TIMEOUT_MS if timeout_ms is None else timeout_ms,
        timestamps=flag(options, USE_TIMESTAMP, default=False),
        txn=txn,
        txn_id=options.get("txnAppId"),
        checkpoint=options.get(CHECKPOINT),
    )


def check_sink_columns(schema: StructType, options: SinkOptions) -> None:
    """Check that the columns of a DataFrame make up records.

    Raises:
        AnalysisException: a column is missing or has a wrong type. A column `timestamp` may have any, unless it is to
            be used.
    """
    fields = [field for field in schema.fields if options.timestamps or field.name != "timestamp"]
    if options.timestamps and "timestamp" not in schema.fieldNames():
        raise AnalysisException(
            f"option {USE_TIMESTAMP} is true, but the DataFrame has no column 'timestamp'; it has "
            f"{', '.join(schema.fieldNames()) or 'no columns'}"
        )
    types = check_columns(StructType(fields), needs_topic=options.topic is None)
    if isinstance(types.get("timestamp"), StringType):
        raise AnalysisException(f"option {USE_TIMESTAMP}: timestamp must be a(n) timestamp, not string; cast it")
