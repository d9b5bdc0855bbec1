"""Batch: a topic's records from one offset to another in, files or tables out; a group's offsets move after them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from kafkalike.clock import SYSTEM_CLOCK, Clock
from kafkalike.cuts.value import Snapshot
from kafkalike.errors import DataLossError, IllegalArgumentError
from kafkalike.group.exclusive import held_alone
from kafkalike.group.offsets import GroupOffsets
from kafkalike.log.connect import connect
from kafkalike.log.port import TopicLog
from kafkalike.model.names import check_group_id
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.spark.files import Target, save
from kafkalike.spark.frames import check_root, read
from kafkalike.spark.ranges import EARLIEST, LATEST, Offsets, plan_ranges
from kafkalike.spark.typed.decode import from_topic
from kafkalike.spark.typed.registry import Part

VALUE_FORMATS: Final = ("string", "json", "binary", "avro", "protobuf", "json-schema")
KEY_FORMATS: Final = ("string", "avro", "protobuf", "json-schema")
TYPED: Final[Mapping[str, str]] = {"avro": "avro", "protobuf": "protobuf", "json-schema": "json"}
"""Formats of records with schemas, and what `kafkalike.spark.from_topic` calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How records become rows."""

    value_format: str = "string"
    """`string`: the value as text. `json`: parsed by `schema`. `binary`: bytes, the key too. `avro`, `protobuf` and
    `json-schema`: by the schemas of the topic."""
    key_format: str = "string"
    """`string`, or one of those with schemas."""
    schema: str | None = None
    """Fields of a JSON value, as DDL."""
    malformed: str = "fail"
    """What a value, or a key with a schema, that cannot be parsed does: `fail` the job, or become `null`."""
    value_only: bool = False
    """Rows are values alone: the fields of a JSON object (all null for a tombstone), else one column `value`."""
    headers: bool = False
    """Whether the column `headers` is there."""
    message: str | None = None
    """Full name of the values' Protobuf message; None for the first one of the schema."""
    registry: str | Mapping[str, str] | None = None
    """Where schemas are; None for the cluster's own registry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """What a batch has read."""

    ranges: Mapping[TopicPartition, range]
    """Offsets, half-open."""
    records: int
    """Records written out; in a compacted topic fewer than offsets."""
    committed: bool
    """Whether the ends were committed for the group."""


def consume(
    spark: SparkSession,
    topic: str,
    target: Target,
    bootstrap_servers: Any = None,  # noqa: ANN401 - see `connect`
    *,
    starting: Offsets | None = None,
    ending: Offsets = LATEST,
    at: Snapshot | None = None,
    group: str | None = None,
    decoding: Decoding | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Consumed:
    """Copy records out of a topic, up to a log end that is fixed at the start.

    With a group: at least once. Rows are written first and the group's offsets committed after that, so a run that
    dies in between is repeated by the next one, rows included. The run has the group for itself: it is refused while
    the group has live members, and nobody can join until it ends; a run that was killed is waited for until its
    session is over.

    Args:
        spark: a session with Delta.
        topic: the topic.
        target: where the rows go.
        bootstrap_servers: the cluster's root; see `kafkalike.log.connect.connect`.
        starting: where to begin; None for `earliest`. With a group `earliest` or `latest`, for the partitions that
            the group has committed nothing for.
        ending: offsets to stop before.
        at: a snapshot (`kafkalike.snapshot`): reads the topic as it has it, up to its log ends; instead of `ending`.
        group: begins at this group's committed offsets, and commits the end.
        decoding: how records become rows; see `decoded`.
        clock: time of the commit.

    Returns:
        What was read.

    Raises:
        IllegalArgumentError: bad arguments.
        OffsetOutOfRangeError: an offset, given or committed, is not in the log.
        DataLossError: fewer records were found than the offsets promise; nothing was committed.
        NonEmptyGroupError: the group has live members; nothing was read.
        CommitFailedError: the run was taken for dead; the rows are written, the offsets are not.
    """
    cluster: Any = connect(bootstrap_servers)
    log: TopicLog = cluster.log(topic)
    how = Decoding() if decoding is None else decoding
    ending = ending if at is None else ends_of(at, cluster.root, log, ending)
    if group is None:
        ranges = plan_ranges(log, EARLIEST if starting is None else starting, ending)
        records = _copy(spark, log, ranges, target, cluster, how, at)
        return Consumed(ranges=_named(topic, ranges), records=records, committed=False)
    offsets = GroupOffsets.of(cluster, clock)
    with held_alone(cluster, check_group_id(group), [topic], "consume", clock) as member:
        ranges = plan_ranges(log, _committed(offsets, group, log, starting), ending)
        records = _copy(spark, log, ranges, target, cluster, how, at)
        ends = {tp: OffsetAndMetadata(run.stop) for tp, run in _named(topic, ranges).items()}
        offsets.commit(member, ends, {topic: log.info.topic_id})
    return Consumed(ranges=_named(topic, ranges), records=records, committed=True)


def ends_of(at: Snapshot, root: str, log: TopicLog, ending: Offsets) -> dict[int, int]:
    """Where a topic ends as of a snapshot, by partition.

    Args:
        at: the snapshot.
        root: where the topic is.
        log: the topic now.
        ending: what else was asked for.

    Raises:
        IllegalArgumentError: it is a snapshot of another cluster, or has no such topic, or another end was asked for.
    """
    check_root(at, root)
    if ending != LATEST:
        raise IllegalArgumentError("a snapshot says where to stop; ending offsets do not go with it")
    at.version_of(log.info.name, log.info.topic_id)
    ends = at.topic(log.info.name).ends
    # What retention has let go since cannot be read any more.
    return {p: max(ends.get(p, 0), log.log_start(p)) for p in log.info.partitions}


def _named(topic: str, ranges: Mapping[int, range]) -> dict[TopicPartition, range]:
    return {TopicPartition(topic, p): run for p, run in sorted(ranges.items())}


def _committed(offsets: GroupOffsets, group: str, log: TopicLog, starting: Offsets | None) -> dict[int, int]:
    """Where a group goes on, by partition."""
    if starting is not None and not isinstance(starting, str):
        raise IllegalArgumentError("a group begins at its committed offsets; change those, or leave the group out")
    info = log.info
    reset = log.log_end if starting == LATEST else log.log_start
    found = offsets.committed(
        group, [TopicPartition(info.name, p) for p in info.partitions], {info.name: info.topic_id}
    )
    starts = {p: reset(p) for p in info.partitions}
    return starts | {tp.partition: position.offset for tp, position in found.items()}


def _copy(  # noqa: PLR0917
    spark: SparkSession,
    log: TopicLog,
    ranges: Mapping[int, range],
    target: Target,
    cluster: Any,  # noqa: ANN401
    decoding: Decoding,
    at: Snapshot | None,
) -> int:
    """Write the records of these offsets, and count them."""
    wanted = sum(map(len, ranges.values()))
    # Also when there is nothing to read: arguments that cannot work must show in the first run.
    frame = decoded(read(spark, log.info.name, cluster, at=at).where(within(ranges)), decoding, log.info.name, cluster)
    if target.format == "console":
        frame = frame if decoding.value_only else frame.orderBy("partition", "offset")
    elif not wanted and target.mode == "append":
        return 0
    records = save(frame, target)
    if records != wanted and not log.config.compacted:
        raise DataLossError(f"{log.info.name}: {wanted} offsets were to be read, but {records} records were found")
    return records


def within(ranges: Mapping[int, range]) -> Column:
    """Condition on `partition` and `offset`. Literals only, so that Delta prunes partitions and files."""
    runs = [
        (F.col("partition") == F.lit(p)) & (F.col("offset") >= F.lit(run.start)) & (F.col("offset") < F.lit(run.stop))
        for p, run in sorted(ranges.items())
        if run
    ]
    return reduce(or_, runs) if runs else F.lit(False)  # noqa: FBT003 - a Column


def decoded(frame: DataFrame, decoding: Decoding, topic: str, cluster: Any) -> DataFrame:  # noqa: ANN401
    """Make records rows that files and tables can hold.

    Args:
        frame: columns of `kafkalike.spark.read`.
        decoding: how.
        topic: whose records they are, for their schemas.
        cluster: where the topic is.

    Returns:
        Columns `key`, `value`, `partition`, `offset`, `timestamp`, and `headers` when asked for; or the value alone.

    Raises:
        IllegalArgumentError: a format that is not known, or JSON without a schema.
        ParseException: a bad schema.
        SchemaRegistryError: the topic has no schemas.
    """
    typed = partial(_typed, topic=topic, cluster=cluster, decoding=decoding)
    value = typed("value", decoding.value_format) if decoding.value_format in TYPED else _value(decoding)
    if decoding.value_only:
        made = frame.select(value.alias("value"))
        nested = isinstance(made.schema["value"].dataType, StructType)
        return made.select("value.*") if nested else made
    if decoding.key_format in TYPED:
        key = typed("key", decoding.key_format)
    elif decoding.key_format == "string":
        key = F.col("key") if decoding.value_format == "binary" else F.col("key").cast("string")
    else:
        raise IllegalArgumentError(f"key format must be one of {', '.join(KEY_FORMATS)}, not {decoding.key_format!r}")
    columns = [key.alias("key"), value.alias("value"), *map(F.col, ("partition", "offset", "timestamp"))]
    return frame.select(*columns, *([F.col("headers")] if decoding.headers else []))


def _typed(part: Part, form: str, *, topic: str, cluster: Any, decoding: Decoding) -> Column:  # noqa: ANN401
    return from_topic(
        part,
        topic,
        cluster,
        part=part,
        format=TYPED[form],
        on_error=decoding.malformed,
        message=decoding.message if part == "value" else None,
        registry=decoding.registry,
    )


def _value(decoding: Decoding) -> Column:
    value = F.col("value")
    match decoding.value_format:
        case "binary":
            return value
        case "string":
            return value.cast("string")
        case "json" if decoding.schema is not None:
            return _json(value.cast("string"), decoding.schema, decoding.malformed)
        case "json":
            raise IllegalArgumentError("value format json needs a schema")
    raise IllegalArgumentError(f"value format must be one of {', '.join(VALUE_FORMATS)}, not {decoding.value_format!r}")


def _json(text: Column, schema: str, malformed: str) -> Column:
    """Parse JSON; a tombstone stays null."""
    if malformed == "null":
        return F.from_json(text, schema)
    # Spark takes an empty text for a null, whatever the mode.
    empty = F.raise_error(F.lit("a value is empty, which is no JSON"))
    parsed = F.from_json(text, schema, {"mode": "FAILFAST"})
    return F.when(F.trim(text) == F.lit(""), F.from_json(empty.cast("string"), schema)).otherwise(parsed)
