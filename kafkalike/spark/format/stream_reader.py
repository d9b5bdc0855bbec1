"""The format's stream reader: the offsets of each micro-batch, its input partitions, and the checkpoint marker.

Spark runs it in a Python process of its own that lives as long as the query, so logs stay open between batches. The
checkpoint holds offsets in the form of Spark's Kafka source, and a marker. What follows from what is said by
`kafkalike.spark.format.query`; here it is looked up and done.

Spark gives a Python source the offsets that the checkpoint holds, but not the checkpoint. Those of Spark's Kafka source
look the same, and after a change of the format in a query that goes on with its checkpoint they would be taken for
offsets of a topic here, which has other records at them. So the offsets carry a marker. It also has the ids of the
topics: a topic that was deleted and created again while the query was stopped has other records at the same offsets.

A task of a Python source takes 50 to 70 ms, however little it reads. The planner of a stream runs anyway, with the log
open. Spark takes records from it where a source has a simple reader (`SimpleDataSourceStreamReader`), keeps them as a
block, and has tasks in the JVM read that. A task that finds the block gone reads the input partition as always.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from kafkalike.errors import CheckpointMismatchError, DataLossError, KafkaError
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.segments import MARK
from kafkalike.spark.format.batch_plan import OffsetRun
from kafkalike.spark.format.input_partitions import OffsetPartition, parts, read_part
from kafkalike.spark.format.option_values import MAX_LONG
from kafkalike.spark.format.positions import (
    LATEST,
    AtTime,
    AtTimes,
    Everywhere,
    offsets_json,
    offsets_of,
    resolve,
    resolved_from_latest,
)
from kafkalike.spark.format.query import (
    BatchLimits,
    PartitionEnds,
    RecordLoss,
    StreamState,
    TopicsLook,
    begin,
    next_end,
    out_of_reach,
    ranges,
)
from kafkalike.spark.format.source_options import SourceOptions, check_stream
from kafkalike.spark.format.source_topics import SourceTopics, commit_progress, report_loss, where_it_stands
from kafkalike.spark.jvm.python_worker import PromptAnswer
from kafkalike.spark.jvm.spark_errors import hide_frames, hide_frames_of_rows

if TYPE_CHECKING:
    from pyarrow import RecordBatch

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
        """What was last committed for the group, or could not be."""
        self._query = StreamState()
        """What is known between two calls. Replaced when a call has come to its end, or left as it was."""

    def __getstate__(self) -> dict[str, Any]:
        """What tasks get: nothing of the planner's."""
        return {"_options": self._options, "_prompt": PromptAnswer()}

    @property
    def _topics(self) -> SourceTopics:
        if self._opened is None:
            self._opened = SourceTopics(self._options)
        return self._opened

    # --- offsets -------------------------------------------------------------------------------

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Where a new query begins.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition that is named does not exist.
            IllegalArgumentError: offsets that do not fit the partitions.
            NoOffsetForPartitionError: a group that has committed nothing, with `auto.offset.reset` none.
            DataLossError: offsets that are not in the log, with `failOnDataLoss`.
        """
        options, topics = self._options, self._topics
        look = self._look()
        found = frozenset(look.partitions)
        topics.require(found)
        starting = options.starting or Everywhere(LATEST)
        settled = where_it_stands(
            starting,
            found,
            topics.cluster,
            topics.topic_ids(),
            group_id=options.group_id,
            otherwise=LATEST,
            clock=self._clock,
        )
        offsets = resolve(settled, found, topics.log, ending=False, or_latest=options.or_latest)
        after, losses = begin(self._query, look, offsets, resolved_from_latest(starting, offsets, topics.log))
        self._report(losses)
        self._query = after
        return offsets_json(after.initial or {})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """That there are limits; which ones, `latestOffset` knows: Spark has no form for two of them at once."""
        options = self._options
        if options.max_offsets_per_trigger is None and options.min_offsets_per_trigger is None:
            return ReadAllAvailable()
        return ReadMaxRows(options.max_offsets_per_trigger or MAX_LONG)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the query: the log ends of now."""
        look = self._ends()
        self._query = replace(self._query, target=look.ends)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 - Spark's name
        """Where the next micro-batch ends; `start` itself when there is to be none. See `end_after` for the errors."""
        return self.end_after(start, {}, limit)[0]

    def end_after(self, start: Json, ids: Mapping[str, str], limit: ReadLimit) -> tuple[Json, dict[str, str]]:
        """The same, and the ids of the topics that it belongs to.

        Args:
            start: where the batch begins.
            ids: topic ids by name that `start` belongs to, as far as they are known.
            limit: Spark's.

        Raises:
            DataLossError: partitions of `start` are gone or have become shorter, with `failOnDataLoss`; the target of
                Trigger.AvailableNow cannot be reached any more.
        """
        look = self._ends()
        if offsets_of(start) != self._query.initial:
            # Spark asks when the batch before is done, and calls `commit` only once there is a next one to run.
            self.show_progress(start, ids)
        unreachable = out_of_reach(self._query, look)
        if unreachable is not None:
            raise DataLossError(unreachable)
        options = self._options
        limits = BatchLimits(
            most=options.max_offsets_per_trigger,
            least=options.min_offsets_per_trigger,
            delay_ms=options.max_trigger_delay_ms,
        )
        everything = isinstance(limit, ReadAllAvailable)
        after, ends, losses = next_end(
            self._query.began_in(ids), look, offsets_of(start), None if everything else limits, self._clock.monotonic()
        )
        self._report(losses)
        self._query = after
        faults.point("source.ended")
        return (start, dict(ids)) if ends is None else (offsets_json(ends), self.ids_of(offsets_json(ends)))

    def ids_of(self, offsets: Json) -> dict[str, str]:
        """Ids of the topics that offsets belong to which were just worked out."""
        return {topic: self._query.ids[topic] for topic in offsets}

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 - Spark's name
        """Log ends of the last look, for the query's progress."""
        return offsets_json(self._query.latest) if self._query.latest else None

    def _look(self) -> TopicsLook:
        """The topics as of now."""
        topics = self._topics
        return TopicsLook(
            {tp: _live(topics.log(tp.topic), tp.partition) for tp in topics.look()}, topics.ids(), topics.unread
        )

    def _ends(self) -> TopicsLook:
        """The same; its log ends are the latest ones."""
        look = self._look()
        self._query = replace(self._query.saw(look), latest=look.ends)
        return look

    def _report(self, losses: Iterable[RecordLoss]) -> None:
        for loss in losses:
            report_loss(loss.kind, loss.message, fail=self._options.fail_on_data_loss, hint=loss.hint)

    # --- reading -------------------------------------------------------------------------------

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """What each task of a micro-batch reads. The same again for a batch that is run again.

        Raises:
            DataLossError: offsets of the batch are gone, with `failOnDataLoss`.
        """
        return self.tasks(start, end, {}, {})

    def tasks(
        self, start: Json, end: Json, start_ids: Mapping[str, str], end_ids: Mapping[str, str]
    ) -> list[InputPartition]:
        """The same, where the ids of the topics are known that the offsets belong to."""
        if start == end and start_ids == end_ids:
            # Spark has asked for the initial offsets again, to plan the first batch; it is in the checkpoint now.
            self._query = replace(self._query, movable=frozenset())
            return []
        by_time = isinstance(self._options.starting, AtTime | AtTimes)
        after, found, losses = ranges(
            self._query.began_in(end_ids),
            self._look(),
            offsets_of(start),
            offsets_of(end),
            by_time=by_time,
            begun_ids=start_ids,
        )
        self._report(losses)
        made = parts(self._topics, self._options, [OffsetRun(tp, offsets) for tp, offsets in found.items()])
        self._query = after
        return made

    @hide_frames_of_rows
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one input partition as Arrow batches, in offset order."""
        return read_part(partition)

    def commit(self, end: Json) -> None:
        """Show the query's progress as that of the group `kafka.group.id`, if one is named."""
        self.show_progress(end, {})

    def show_progress(self, end: Json, ids: Mapping[str, str]) -> None:
        """The same, where the ids of the topics are known that the offsets belong to."""
        group = self._options.group_id
        if group is None or (end, dict(ids)) == self._shown:
            return
        self._shown = end, dict(ids)
        # Spark calls after it has planned the next batch, which may have found a topic created again: offsets of its
        # earlier life must not count for the new one.
        offsets = {tp: at for tp, at in offsets_of(end).items() if self._query.began_again.get(tp) != at}
        topic_ids = self._topics.topic_ids()
        now = {topic: topic_ids[topic] for topic, known in self._topics.ids().items() if ids.get(topic, known) == known}
        faults.point("source.before_progress")
        try:
            commit_progress(self._topics.cluster, group, offsets, now, self._clock)
            faults.point("source.after_progress")
        except KafkaError as cause:
            # The checkpoint is what the query goes by; the group is for those who watch it.
            _log.warning("the progress was not committed for group %s: %s", group, cause)

    def stop(self) -> None:
        """Nothing is held that the end of the process does not free."""


def _live(log: TopicLog, partition: int) -> PartitionEnds:
    why = partial(log.info.why_gone, partition)
    return PartitionEnds(start=log.log_start(partition), stop=log.log_end(partition), why_gone=why)


VERSION: Final = 2
"""Of the form of the offsets. A later one is refused; 1 had no ids of topics."""

PLAIN: Final = 1
IDS: Final = "topics"
"""Where the mark has the ids of the topics, by name."""


class MarkedReader(StreamReader):
    """A `StreamReader` whose offsets say that they are its own, and of which topics."""

    @hide_frames
    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """See `StreamReader.initialOffset`."""
        offsets = super().initialOffset()
        return marked(offsets, self.ids_of(offsets))

    @hide_frames
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 - Spark's name
        """See `StreamReader.latestOffset`.

        Raises:
            CheckpointMismatchError: the query's checkpoint belongs to another source.
        """
        offsets, ids = unmarked(start), marked_ids(start)
        end, end_ids = self.end_after(offsets, ids, limit)
        # Text for text the same where nothing is new, also where the mark is that of an earlier version.
        same = end == offsets and all(ids.get(topic, known) == known for topic, known in end_ids.items())
        return start if same else marked(end, end_ids)

    @hide_frames
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """See `StreamReader.partitions`.

        Raises:
            CheckpointMismatchError: the query's checkpoint belongs to another source.
        """
        return self.tasks(unmarked(start), unmarked(end), marked_ids(start), marked_ids(end))

    @hide_frames
    def commit(self, end: Json) -> None:
        """See `StreamReader.commit`."""
        self.show_progress(unmarked(end), marked_ids(end))


def marked(offsets: Mapping[str, Mapping[str, int]], ids: Mapping[str, str]) -> Json:
    """Offsets as they stand in a checkpoint.

    Args:
        offsets: by topic and partition.
        ids: ids of the topics by name.
    """
    mark: Any = {"version": VERSION, IDS: dict(sorted(ids.items()))}
    return {**{topic: dict(by) for topic, by in offsets.items()}, MARK: mark}


def marked_ids(given: Mapping[str, Any]) -> dict[str, str]:
    """Ids of topics by name that the offsets of a checkpoint belong to; none from before they were kept."""
    return dict(given.get(MARK, {}).get(IDS, {}))


def unmarked(given: Mapping[str, Mapping[str, int]]) -> Json:
    """The offsets of a checkpoint.

    Raises:
        CheckpointMismatchError: the mark is missing, or is that of a later version.
    """
    offsets = {topic: dict(by) for topic, by in given.items() if topic != MARK}
    mark: Any = given.get(MARK)
    if mark is None:
        text = json.dumps(offsets, separators=(",", ":"))
        raise CheckpointMismatchError(
            f'the checkpoint of the query is not one of format("kafkalike"): its offsets {text} have no mark {MARK!r}, '
            "as those of Spark's Kafka source have none. The same offsets name other records here, so nothing was "
            "read. Start the query with a new checkpointLocation and say with startingOffsets where to begin; only "
            f"if all records were imported at the offsets that they had in Kafka, this goes on: startingOffsets={text}"
        )
    if mark.get("version") not in {PLAIN, VERSION}:
        raise CheckpointMismatchError(
            "the checkpoint of the query was written by a later version of kafkalike: its offsets have the mark "
            f"{mark}, and this version knows {PLAIN} and {VERSION}. Use that version, or start with a new "
            "checkpointLocation"
        )
    return offsets


try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as Simple
except ImportError:
    # Not Spark 4.2: batches are read by tasks.
    Simple = None  # type: ignore[assignment,misc]

MOST_OFFSETS: Final = 16_384
"""Offsets of a batch that is handed over. The JVM takes them row by row in one thread: from about twice as many on,
tasks are faster."""

MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of its records, at most: they are in the driver's memory until the next batch."""


class HandingReader(MarkedReader):
    """A `MarkedReader` that hands over small batches itself.

    Spark asks for the input partitions, then by `isinstance` whether the reader is its wrapper of a simple one, and if
    so for the records. This reader says yes where it has read the batch, and until the records were asked for.
    """

    _handed: Sequence[RecordBatch] | None = None
    """The records of the batch that Spark has just asked for, if it is to take them from here."""

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """See `StreamReader.partitions`. Only a batch of one input partition is handed over."""
        self._handed = None
        made = super().partitions(start, end)
        faults.point("source.planned")
        if Simple is not None and len(made) == 1:
            self._handed = read_small(made[0])
            faults.point("source.handed")
        return made

    def _seen_as(self) -> type[Any]:
        return type(self) if self._handed is None else Simple

    __class__ = property(_seen_as)
    """What `isinstance` looks at besides the type."""

    def getCache(self, start: Json, end: Json) -> Iterator[RecordBatch]:  # noqa: ARG002, N802 - Spark's name
        """The records of the batch, once."""
        batches, self._handed = self._handed, None
        faults.point("source.taken")
        return iter(batches or ())


def read_small(partition: InputPartition) -> list[RecordBatch] | None:
    """The records of an input partition; None where a task is to read them: they are many, or cannot be read.

    A task tells an error to the user as it always does.
    """
    assert isinstance(partition, OffsetPartition)
    if sum(len(plan.offsets) for plan in partition.plans) > MOST_OFFSETS:
        return None
    try:
        return _up_to(MOST_BYTES, read_part(partition))
    except Exception:  # noqa: BLE001 - whatever it is, the task meets it as well
        _log.debug("the planner leaves a batch to a task", exc_info=True)
        return None


def _up_to(most: int, batches: Iterable[RecordBatch]) -> list[RecordBatch] | None:
    found, size = [], 0
    for batch in batches:
        size += batch.nbytes
        if size > most:
            return None
        found.append(batch)
    return found
