"""The format's stream reader: the offsets of each micro-batch, its input partitions, and the checkpoint marker.

Spark runs it in a Python process of its own that lives as long as the query, so logs stay open between batches. The
checkpoint holds offsets in the form of Spark's Kafka source, and a marker. The rules are in
`kafkalike.spark.format.query`; this module does the reads and reports.

Offsets of Spark's Kafka source look the same, and a topic may be deleted and created again. So the offsets in the
checkpoint carry a marker with the ids of the topics (decision 011). The planner itself reads small batches, because a
task costs 50 to 70 ms (decision 067).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kafkalike.errors import CheckpointMismatchError, DataLossError, KafkaError
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.segments import MARK
from kafkalike.spark.format import positions, query, source_topics
from kafkalike.spark.format.batch_plan import OffsetRun
from kafkalike.spark.format.input_partitions import parts, read_part, read_small
from kafkalike.spark.format.option_values import MAX_LONG
from kafkalike.spark.format.source_options import SourceOptions, check_stream
from kafkalike.spark.format.source_topics import SourceTopics
from kafkalike.spark.jvm import spark_version
from kafkalike.spark.jvm.python_worker import PromptAnswer
from kafkalike.spark.jvm.spark_errors import hide_frames, hide_frames_of_rows
from kafkalike.spark.jvm.spark_version import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog


_log = logging.getLogger(__name__)

Json = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads the micro-batches of one streaming query.

    Args:
        options: checked options.
        clock: for `maxTriggerDelay`.

    Raises:
        IllegalArgumentError: options that a stream cannot have.
    """

    def __init__(self, options: SourceOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        check_stream(options)
        self._options = options
        self._clock = clock
        self._opened: SourceTopics | None = None
        self._shown: tuple[Json, dict[str, str]] | None = None
        """Offsets and topic ids of the last commit for the group, or of the last failed attempt."""
        self._idle = query.IdlePolls()
        self._query = query.StreamState()
        """State between two calls. A successful call replaces it, a failed one leaves it unchanged."""

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only the parts that tasks need."""
        return {"_options": self._options, "_prompt": PromptAnswer()}

    @property
    def topics(self) -> SourceTopics:
        """The topics of the query, opened at the first use."""
        if self._opened is None:
            self._opened = SourceTopics(self._options)
        return self._opened

    # --- offsets -------------------------------------------------------------------------------

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Return the initial offsets of a new query.

        Raises:
            UnknownTopicOrPartitionError: a named topic or partition does not exist.
            IllegalArgumentError: offsets that do not fit the partitions.
            NoOffsetForPartitionError: a group without a committed offset, with `auto.offset.reset` none.
            DataLossError: offsets that are not in the log, with `failOnDataLoss`.
        """
        options, topics = self._options, self.topics
        look = self._look()
        found = frozenset(look.partitions)
        topics.require(found)
        starting = options.starting or positions.Everywhere(positions.LATEST)
        settled = source_topics.where_it_stands(
            starting,
            found,
            topics.cluster,
            topics.topic_ids(),
            group_id=options.group_id,
            otherwise=positions.LATEST,
            clock=self._clock,
        )
        offsets = positions.resolve(settled, found, topics.log, ending=False, or_latest=options.or_latest)
        after, losses = query.begin(
            self._query, look, offsets, positions.resolved_from_latest(starting, offsets, topics.log)
        )
        self._report(losses)
        self._query = after
        return positions.offsets_json(after.initial or {})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Tell Spark whether there are limits; `latestOffset` applies them, as Spark cannot express two at once."""
        options = self._options
        if options.max_offsets_per_trigger is None and options.min_offsets_per_trigger is None:
            return ReadAllAvailable()
        return ReadMaxRows(options.max_offsets_per_trigger or MAX_LONG)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the query at the current log ends."""
        look = self._ends()
        self._query = replace(self._query, target=look.ends)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch, or `start` for no batch; see `end_after` for the errors."""
        return self.end_after(start, {}, limit)[0]

    def end_after(self, start: Json, ids: Mapping[str, str], limit: ReadLimit) -> tuple[Json, dict[str, str]]:
        """Return the end of the next micro-batch, and the ids of its topics.

        Args:
            start: start of the batch.
            ids: known topic ids of `start`, by name.
            limit: Spark's.

        Raises:
            DataLossError: partitions of `start` were deleted or have become shorter, with `failOnDataLoss`; or the
                target of Trigger.AvailableNow has become unreachable.
        """
        look = self._ends()
        if positions.offsets_of(start) != self._query.initial:
            # Spark asks for the next end when the previous batch is done, but calls `commit` only if there is a next
            # batch.
            self.show_progress(start, ids)
        # The state first: the end of Trigger.AvailableNow may belong to newer topics than the checkpoint's offsets.
        begun, begun_ids = look.followed(positions.offsets_of(start), {**self._query.ids, **ids})
        state = self._query.followed(look).began_in(begun_ids)
        unreachable = query.out_of_reach(state, look)
        if unreachable is not None:
            raise DataLossError(unreachable)
        options = self._options
        limits = query.BatchLimits(
            most=options.max_offsets_per_trigger,
            least=options.min_offsets_per_trigger,
            delay_ms=options.max_trigger_delay_ms,
        )
        everything = isinstance(limit, ReadAllAvailable)
        after, ends, losses = query.next_end(
            state,
            look,
            begun,
            None if everything else limits,
            self._clock.monotonic(),
        )
        self._report(losses)
        self._query = after
        faults.point("source.ended")
        return (
            (start, dict(ids))
            if ends is None
            else (positions.offsets_json(ends), self.ids_of(positions.offsets_json(ends)))
        )

    def ids_of(self, offsets: Json) -> dict[str, str]:
        """Return the topic ids of offsets from the last call."""
        return {topic: self._query.ids[topic] for topic in offsets}

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 - Spark's name
        """Return the log ends of the last refresh, for the query's progress."""
        return positions.offsets_json(self._query.latest) if self._query.latest else None

    def _look(self) -> query.TopicsLook:
        """Refresh the topics, and return their state."""
        topics = self.topics
        return query.TopicsLook(
            {tp: _live(topics.log(tp.topic), tp.partition) for tp in topics.look()},
            topics.ids(),
            topics.unread,
            topics.before(),
        )

    def _ends(self) -> query.TopicsLook:
        """Refresh the topics, and remember their log ends for the query's progress."""
        look = self._look()
        self._query = replace(self._query.saw(look), latest=look.ends)
        return look

    def _report(self, losses: Iterable[query.RecordLoss]) -> None:
        for loss in losses:
            source_topics.report_loss(loss.kind, loss.message, fail=self._options.fail_on_data_loss, hint=loss.hint)

    # --- reading -------------------------------------------------------------------------------

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Plan the tasks of a micro-batch; a repeated batch gets the same offsets.

        Raises:
            DataLossError: offsets of the batch are lost, with `failOnDataLoss`.
        """
        return self.tasks(start, end, {}, {})

    def tasks(
        self, start: Json, end: Json, start_ids: Mapping[str, str], end_ids: Mapping[str, str]
    ) -> list[InputPartition]:
        """Plan the tasks of a micro-batch, with the topic ids of its start and end."""
        if start == end and start_ids == end_ids:
            # Spark has asked for the initial offsets once more, to plan the first batch. They are in the checkpoint
            # now.
            self._query = replace(self._query, movable=frozenset())
            return []
        by_time = isinstance(self._options.starting, positions.AtTime | positions.AtTimes)
        look = self._look()
        begun, begun_ids = look.followed(positions.offsets_of(start), start_ids)
        ends, ids = look.followed(positions.offsets_of(end), {**self._query.ids, **end_ids})
        state = self._query.followed(look).began_in(ids)
        after, found, losses = query.ranges(state, look, begun, ends, by_time=by_time, begun_ids=begun_ids)
        self._report(losses)
        made = parts(self.topics, self._options, [OffsetRun(tp, offsets) for tp, offsets in found.items()])
        self._query = after
        return made

    @hide_frames_of_rows
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one input partition as Arrow batches, in offset order."""
        return read_part(partition)

    def commit(self, end: Json) -> None:
        """Commit the query's progress for the group `kafka.group.id`, if one is named."""
        self.show_progress(end, {})

    def show_progress(self, end: Json, ids: Mapping[str, str]) -> None:
        """Commit the query's progress for its group, with the topic ids of the offsets."""
        group = self._options.group_id
        if group is None or (end, dict(ids)) == self._shown:
            return
        self._shown = end, dict(ids)
        # Spark calls after it has planned the next batch, which may have found a recreated topic. Offsets of the
        # earlier topic must not be committed for the new one.
        offsets = {tp: at for tp, at in positions.offsets_of(end).items() if self._query.began_again.get(tp) != at}
        topic_ids = self.topics.topic_ids()
        now = {topic: topic_ids[topic] for topic, known in self.topics.ids().items() if ids.get(topic, known) == known}
        faults.point("source.before_progress")
        try:
            source_topics.commit_progress(self.topics.cluster, group, offsets, now, self._clock)
            faults.point("source.after_progress")
        except KafkaError as cause:
            # The query depends only on its checkpoint. The group is for people and tools that watch it.
            _log.warning("the progress was not committed for group %s: %s", group, cause)

    def stop(self) -> None:
        """Do nothing, because the end of the process frees everything."""


def _live(log: TopicLog, partition: int) -> query.PartitionEnds:
    why = partial(log.info.why_gone, partition)
    return query.PartitionEnds(start=log.log_start(partition), stop=log.log_end(partition), why_gone=why)


VERSION: Final = 2
"""Version of the form of the offsets. Later versions are refused. Version 1 lacks topic ids."""

PLAIN: Final = 1
TABLE: Final = "reservoirId"
"""Key in offsets of Delta's source; the id of a topic's table."""
IDS: Final = "topics"
"""Key in the marker of the topic ids, by name."""


class MarkedReader(StreamReader):
    """A `StreamReader` whose offsets carry a marker with the topic ids."""

    @hide_frames
    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Return marked initial offsets; see `StreamReader.initialOffset`."""
        offsets = super().initialOffset()
        return marked(offsets, self.ids_of(offsets))

    @hide_frames
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 - Spark's name
        """Return the marked end of the next micro-batch; see `StreamReader.latestOffset`.

        Raises:
            CheckpointMismatchError: the query's checkpoint belongs to another source.
        """
        offsets, ids = self._read_mark(start)
        # Spark calls again 10 ms after a call without news, which costs its JVM ten times as much as a look here.
        for _ in range(self._idle.looks(self._clock.monotonic()) if self._query.target is None else 1):
            end, end_ids = self.end_after(offsets, ids, limit)
            if end != offsets or any(ids.get(topic, known) != known for topic, known in end_ids.items()):
                self._idle = query.IdlePolls()
                return marked(end, end_ids)
            if self._idle.waits:
                self._clock.sleep(query.LOOK_SECONDS)
        self._idle = self._idle.ended(self._clock.monotonic())
        # Identical text if nothing is new, even if the marker has an earlier version.
        return start

    @hide_frames
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Plan the tasks between marked offsets; see `StreamReader.partitions`.

        Raises:
            CheckpointMismatchError: the query's checkpoint belongs to another source.
        """
        (begun, begun_ids), (until, ids) = self._read_mark(start), self._read_mark(end)
        return self.tasks(begun, until, begun_ids, ids)

    @hide_frames
    def commit(self, end: Json) -> None:
        """Commit the progress at marked offsets; see `StreamReader.commit`."""
        self.show_progress(*self._read_mark(end))

    def _read_mark(self, given: Json) -> tuple[Json, dict[str, str]]:
        """Return offsets without their marker, and their topic ids; or those at which Delta's source stands."""
        if TABLE not in given:
            return unmarked(given), marked_ids(given)
        offsets, topic = source_topics.offsets_of_table(self.topics, given)
        return positions.offsets_json(offsets), {topic: str(given[TABLE])}


def marked(offsets: Mapping[str, Mapping[str, int]], ids: Mapping[str, str]) -> Json:
    """Add the marker to offsets for a checkpoint.

    Args:
        offsets: by topic and partition.
        ids: ids of the topics by name.
    """
    mark: Any = {"version": VERSION, IDS: dict(sorted(ids.items()))}
    return {**{topic: dict(by) for topic, by in offsets.items()}, MARK: mark}


def marked_ids(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the topic ids in a checkpoint's offsets, by name; empty for version 1."""
    return dict(given.get(MARK, {}).get(IDS, {}))


def unmarked(given: Mapping[str, Mapping[str, int]]) -> Json:
    """Return a checkpoint's offsets without the marker.

    Raises:
        CheckpointMismatchError: the marker is missing, or has a later version.
    """
    offsets = {topic: dict(by) for topic, by in given.items() if topic != MARK}
    mark: Any = given.get(MARK)
    if mark is None:
        text = json.dumps(offsets, separators=(",", ":"))
        raise CheckpointMismatchError(
            f'the checkpoint of the query does not belong to format("kafkalike"): its offsets {text} lack the mark '
            f"{MARK!r}, like offsets of Spark's Kafka source. The same offsets name other records here, so nothing was "
            "read. Start the query with a new checkpointLocation, and set startingOffsets. Only if all records were "
            f"imported at their offsets in Kafka, this continues the query: startingOffsets={text}"
        )
    if mark.get("version") not in {PLAIN, VERSION}:
        raise CheckpointMismatchError(
            "the checkpoint of the query was written by a later version of kafkalike: its offsets have the mark "
            f"{mark}, and this version knows {PLAIN} and {VERSION}. Use that version, or start with a new "
            "checkpointLocation"
        )
    return offsets


class HandingReader(MarkedReader):
    """A `MarkedReader` that hands over small batches itself.

    Spark asks for the input partitions, then tests by `isinstance` whether the reader is its wrapper of a simple
    reader, and if so asks for the records. This reader passes that test between reading a small batch and handing it
    over.
    """

    _handed: Sequence[pa.RecordBatch] | None = None
    """Records of the batch that Spark has just asked for, if the planner hands them over."""

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Plan the tasks, and read a batch of one small input partition here; see `StreamReader.partitions`."""
        self._handed = None
        made = super().partitions(start, end)
        faults.point("source.planned")
        # Without it, tasks read all batches.
        if spark_version.Simple is not None and len(made) == 1:
            self._handed = read_small(made[0])
            faults.point("source.handed")
        return made

    def _seen_as(self) -> type[Any]:
        return type(self) if self._handed is None else spark_version.Simple

    __class__ = property(_seen_as)
    """`isinstance` tests this besides the type."""

    def getCache(self, start: Json, end: Json) -> Iterator[pa.RecordBatch]:  # noqa: ARG002, N802 - Spark's name
        """Hand over the records of the batch, once."""
        batches, self._handed = self._handed, None
        faults.point("source.taken")
        return iter(batches or ())


class UnlimitedReader(MarkedReader):
    """A `MarkedReader` for Spark before 4.2, which asks for the newest offsets without the start of the batch."""

    _start: Json | None = None
    """End of the last planned batch; None after a restart, until the next batch is planned."""

    def __init__(self, options: SourceOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(options, clock)
        if options.max_offsets_per_trigger is not None or options.min_offsets_per_trigger is not None:
            raise spark_version.need(
                "a limit of offsets per trigger", "4.2", "leave maxOffsetsPerTrigger and minOffsetsPerTrigger out"
            )

    @hide_frames
    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Return marked initial offsets; see `StreamReader.initialOffset`."""
        self._start = super().initialOffset()
        return self._start

    @hide_frames
    def latestOffset(self, start: Json | None = None, limit: ReadLimit | None = None) -> Json:  # noqa: ARG002, N802
        """Return the marked log ends; see `StreamReader.latestOffset` for the errors."""
        if self._start is not None:
            return super().latestOffset(self._start, ReadAllAvailable())
        ends = positions.offsets_json(self._ends().ends)
        return marked(ends, self.ids_of(ends))

    @hide_frames
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Plan the tasks between marked offsets; see `MarkedReader.partitions`."""
        if self._start is None and marked_ids(start) != marked_ids(end):
            # A topic was created again before a restart, after which the end was found without the start.
            super().latestOffset(start, ReadAllAvailable())
        planned = super().partitions(start, end)
        self._start = end
        return planned


ChosenReader: type[MarkedReader] = HandingReader if spark_version.HAS_LIMITS else UnlimitedReader
"""The reader for the installed Spark."""
