"""`consume`: copy a range of a topic's offsets to files or tables, then commit the group's offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.connect import connect
from kafkalike.errors import DataLossError, IllegalArgumentError
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.log.group.member import held_alone
from kafkalike.log.snapshots import Snapshot
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.dead_letter_config import DeadLetterSettings
from kafkalike.model.config.storage_options import Address
from kafkalike.model.names import check_group_id
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkalike.spark.dead_letter_frames import ensure_topics
from kafkalike.spark.files.file_formats import FileTarget, save
from kafkalike.spark.files.value_decoder import Decoding, decode_rows, decode_rows_and_letters
from kafkalike.spark.partition_offsets import EARLIEST, LATEST, Offsets, plan_ranges
from kafkalike.spark.reads.conditions import within
from kafkalike.spark.reads.frames import check_root, read

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.group.membership import Membership
    from kafkalike.log.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """What a batch has read."""

    ranges: Mapping[TopicPartition, range]
    """Offsets, half-open."""
    records: int
    """Records written out; in a compacted topic fewer than offsets."""
    committed: bool
    """Whether the ends were committed for the group."""
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

    With a group: at least once. Rows are written first and the group's offsets committed after that, so a run that
    dies in between is repeated by the next one, rows included. The run has the group for itself: it is refused while
    the group has live members, and nobody can join until it ends; a run that was killed is waited for until its
    session is over.

    Args:
        spark: a session with Delta.
        topic: the topic.
        target: where the rows go.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        starting_offsets: where to begin; None for `earliest`. With a group `earliest` or `latest`, for the partitions
            that the group has committed nothing for.
        ending_offsets: offsets to stop before.
        as_of: a snapshot (`kafkalike.snapshot`): reads the topic as it has it, up to its log ends; instead of
            `ending_offsets`.
        group_id: begins at this group's committed offsets, and commits the end.
        decoding: how records become rows; see `decode_rows`.
        dead_letters: with `errors_tolerance='all'` records that cannot be decoded become dead letters, in one
            transaction with the group's offsets; needs a group.
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
    """What was written of some offsets."""

    records: int
    wanted: int
    bad: DataFrame | None = None
    """Dead letters among them, not written yet."""


def _commit_with_letters(  # noqa: PLR0917
    cluster: Cluster,
    log: TopicLog,
    member: Membership,
    ends: Mapping[TopicPartition, OffsetAndMetadata],
    copied: _Copied,
    settings: DeadLetterSettings,
) -> int:
    """Commit offsets and dead letters by one decision; returns the number of letters."""
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
    target: FileTarget,
    cluster: Cluster,
    decoding: Decoding,
    at: Snapshot | None,
    letters: DeadLetterSettings | None,
) -> _Copied:
    """Write the records of these offsets, and count them."""
    wanted = sum(map(len, ranges.values()))
    # Also when there is nothing to read: arguments that cannot work must show in the first run.
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
        raise DataLossError(f"{log.info.name}: {wanted} offsets were to be read, but {records} records were found")
