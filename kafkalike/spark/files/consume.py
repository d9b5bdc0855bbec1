"""`consume`: copy a range of a topic's offsets to files or tables, then commit the group's offsets.

Sources and targets are files, folders and tables in any of Spark's formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from kafkalike.connect import connect
from kafkalike.errors import DataLossError, IllegalArgumentError
from kafkalike.log.group.exclusive_lock import held_alone
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.log.snapshots import Snapshot
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.dead_letter_config import DeadLetterSettings
from kafkalike.model.config.storage_options import Address
from kafkalike.model.names import check_group_id
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkalike.spark.dead_letter_frames import ensure_topics
from kafkalike.spark.files.value_decoder import Decoding, decode_rows, decode_rows_and_letters
from kafkalike.spark.reads.conditions import EARLIEST, LATEST, Offsets, plan_ranges, within
from kafkalike.spark.reads.frames import check_root, read

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.group.membership import Membership
    from kafkalike.log.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """The result of a batch read."""

    ranges: Mapping[TopicPartition, range]
    """Offsets read, as half-open ranges."""
    records: int
    """Records written out; in a compacted topic fewer than offsets."""
    committed: bool
    """True if the ends were committed for the group."""
    letters: int = 0
    """Records that became dead letters."""


def consume(
    spark: SparkSession,
    topic: str,
    target: FileTarget,
    bootstrap_servers: Address | None = None,
    *,
    starting_offsets: Offsets | None = None,
    ending_offsets: Offsets = LATEST,
    as_of: Snapshot | None = None,
    group_id: str | None = None,
    decoding: Decoding | None = None,
    dead_letters: DeadLetterSettings | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Consumed:
    """Copy records out of a topic, up to a log end that is fixed at the start.

    With a group, records are copied at least once: the rows are written first and the group's offsets committed
    afterwards, so if a run dies in between, the next run writes its rows once more. The run needs the group for itself:
    it is refused while the group has live members, and members cannot join until it ends. After a run that was killed,
    the next run waits until its session has expired.

    Args:
        spark: a session with Delta.
        topic: the topic.
        target: where to write the rows.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        starting_offsets: where to start; None for `earliest`. With a group `earliest` or `latest`, for partitions
            without a committed offset.
        ending_offsets: offsets to stop before.
        as_of: a snapshot (`kafkalike.snapshot`) to read the topic at, up to its log ends; instead of `ending_offsets`.
        group_id: the group at whose committed offsets to start, and for which to commit the end.
        decoding: how records become rows; see `decode_rows`.
        dead_letters: with `errors_tolerance='all'` records that cannot be decoded become dead letters, in one
            transaction with the group's offsets; needs a group.
        clock: time of the commit.

    Returns:
        The offsets read, and the number of records.

    Raises:
        IllegalArgumentError: bad arguments.
        OffsetOutOfRangeError: an offset, given or committed, is not in the log.
        DataLossError: fewer records were found than the offsets promise; nothing was committed.
        NonEmptyGroupError: the group has live members; nothing was read.
        CommitFailedError: the run's session expired; the rows are written, the offsets are not.
    """
    cluster = connect(bootstrap_servers)
    log = cluster.log(topic)
    how = Decoding() if decoding is None else decoding
    letters = dead_letters if dead_letters is not None and dead_letters.tolerant else None
    if letters is not None and group_id is None and letters.letters_of(topic) is not None:
        raise IllegalArgumentError("dead letters are committed with the offsets of a group; name one")
    ending_offsets = ending_offsets if as_of is None else ends_of(as_of, cluster.root, log, ending_offsets)
    if group_id is None:
        ranges = plan_ranges(log, EARLIEST if starting_offsets is None else starting_offsets, ending_offsets)
        records = _copy(spark, log, ranges, target, cluster, how, as_of, letters).records
        return Consumed(ranges=_named(topic, ranges), records=records, committed=False)
    offsets = GroupOffsets.of(cluster, clock)
    with held_alone(cluster, check_group_id(group_id), [topic], "consume", clock) as member:
        ranges = plan_ranges(log, _committed(offsets, group_id, log, starting_offsets), ending_offsets)
        copied = _copy(spark, log, ranges, target, cluster, how, as_of, letters)
        ends = {tp: OffsetAndMetadata(run.stop) for tp, run in _named(topic, ranges).items()}
        if letters is None or copied.bad is None:
            offsets.commit(member, ends, {topic: log.info.topic_id})
            found = 0
        else:
            found = _commit_with_letters(cluster, log, member, ends, copied, letters)
    return Consumed(ranges=_named(topic, ranges), records=copied.records, committed=True, letters=found)


@dataclass(frozen=True, slots=True)
class _Copied:
    """The result of writing some offsets' records."""

    records: int
    wanted: int
    bad: DataFrame | None = None
    """Dead letters among the records; not written yet."""


def _commit_with_letters(  # noqa: PLR0917
    cluster: Cluster,
    log: TopicLog,
    member: Membership,
    ends: Mapping[TopicPartition, OffsetAndMetadata],
    copied: _Copied,
    settings: DeadLetterSettings,
) -> int:
    """Commit offsets and dead letters in one transaction, and return the number of letters."""
    from kafkalike.spark.writes.transaction import transaction

    topic = log.info.name
    assert copied.bad is not None
    ensure_topics(cluster, settings, [topic])
    counted = Observation("kafkalike")
    with transaction(f"consume {member.group_id} {topic}", cluster) as done:
        done.write(copied.bad.observe(counted, F.count(F.lit(1)).alias("letters")), settings.letters_of(topic))
        letters = int(counted.get["letters"])
        _check_found(log, copied.records + letters, copied.wanted)
        whose = ConsumerGroupMetadata(member.group_id, member.generation, member.member_id)
        done.commit_offsets(whose, ends)
    return letters


def ends_of(at: Snapshot, root: str, log: TopicLog, ending: Offsets) -> dict[int, int]:
    """Return the log ends of a topic as of a snapshot, by partition.

    Args:
        at: the snapshot.
        root: the cluster's root.
        log: the topic's current log.
        ending: the ending offsets of the call, which must be the default.

    Raises:
        IllegalArgumentError: the snapshot is of another cluster or lacks the topic, or ending offsets were given.
    """
    check_root(at, root)
    if ending != LATEST:
        raise IllegalArgumentError("a snapshot says where to stop; ending offsets do not go with it")
    at.version_of(log.info.name, log.info.topic_id)
    ends = at.topic(log.info.name).ends
    # Records that retention has removed since then cannot be read.
    return {p: max(ends.get(p, 0), log.log_start(p)) for p in log.info.partitions}


def _named(topic: str, ranges: Mapping[int, range]) -> dict[TopicPartition, range]:
    return {TopicPartition(topic, p): run for p, run in sorted(ranges.items())}


def _committed(offsets: GroupOffsets, group: str, log: TopicLog, starting: Offsets | None) -> dict[int, int]:
    """Return the offsets at which a group resumes, by partition."""
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
    target: FileTarget,
    cluster: Cluster,
    decoding: Decoding,
    at: Snapshot | None,
    letters: DeadLetterSettings | None,
) -> _Copied:
    """Write the records of some offsets, and count them."""
    wanted = sum(map(len, ranges.values()))
    # Even without records to read, so that arguments that cannot work fail in the first run.
    records = read(spark, log.info.name, cluster, as_of=at).where(within(ranges))
    if letters is None:
        frame, bad = decode_rows(records, decoding, log.info.name, cluster), None
    else:
        frame, bad = decode_rows_and_letters(records, decoding, log.info.name, cluster, letters, "consume")
    if target.format == "console":
        frame = frame if decoding.value_only else frame.orderBy("partition", "offset")
    elif not wanted and target.mode == "append":
        return _Copied(0, 0)
    count = save(frame, target)
    if letters is None:
        _check_found(log, count, wanted)
    return _Copied(count, wanted, bad)


def _check_found(log: TopicLog, records: int, wanted: int) -> None:
    if records != wanted and not log.config.compacted:
        raise DataLossError(f"{log.info.name}: {wanted} records were expected by the offsets, but {records} were found")


SOURCES: Final = ("json", "csv", "parquet", "text", "delta", "table")
"""`json` is JSON lines, `csv` has a header, `delta` is a table's path, `table` its name in the catalog."""
TARGETS: Final = ("json", "csv", "parquet", "delta", "table", "console")
MODES: Final = ("append", "overwrite", "error")

STRICT: Final[Mapping[str, Mapping[str, Any]]] = {
    # By default Spark turns unreadable input into nulls, and assumes a header when a schema is given.
    "json": {"mode": "FAILFAST"},
    "csv": {"mode": "FAILFAST", "header": True, "enforceSchema": False},
}
"""Reader options that make bad input an error. The caller's options win."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """A source of rows."""

    format: str
    """A name in `SOURCES`."""
    paths: tuple[str, ...]
    """Files or folders; one path for `delta`, one name for `table`."""
    schema: str | StructType | None = None
    """Columns as DDL or as a type. None: inferred from the files, with all columns of a CSV file as text."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of Spark's reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTarget:
    """A target for rows."""

    format: str
    """A name in `TARGETS`."""
    path: str = ""
    """A folder, or a table's name for `table`. Empty for `console`."""
    mode: str = "append"
    """Handling of existing rows: a name in `MODES`."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of Spark's writer."""
    emit: Callable[[str], None] = print
    """Receives the lines of `console`: a JSON object for each row."""


def load(spark: SparkSession, source: FileSource) -> DataFrame:
    """Read the rows of a source. A line that cannot be parsed fails the job.

    Raises:
        IllegalArgumentError: an unknown format, or not exactly one name for `delta` or `table`.
        AnalysisException: Spark does not find the file, table or columns.
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
    """Write rows, and return how many there were.

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
