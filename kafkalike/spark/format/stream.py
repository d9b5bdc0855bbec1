"""Stream: checked options in; initial offsets, the end of each micro-batch and its input partitions out.

Spark runs it in a Python process of its own that lives as long as the query, so logs stay open between batches. The
checkpoint holds offsets in the form of Spark's Kafka source and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from kafkalike.clock import SYSTEM_CLOCK, Clock
from kafkalike.errors import DataLossError, KafkaError
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format.loss import report_loss
from kafkalike.spark.format.options import MAX_LONG, SourceOptions, check_stream
from kafkalike.spark.format.parts import parts, read_part
from kafkalike.spark.format.plan import Run, rate_limited, waits
from kafkalike.spark.format.positions import (
    LATEST,
    AtTime,
    AtTimes,
    Everywhere,
    names,
    offsets_of,
    resolve,
    resolved_from_latest,
)
from kafkalike.spark.format.progress import commit_progress
from kafkalike.spark.format.topics import Topics
from kafkalike.spark.ranges import offsets_json

_log = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]
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
        self._opened: Topics | None = None
        self._initial: Offsets | None = None
        """What `initialOffset` has said in this process."""
        self._movable: frozenset[TopicPartition] = frozenset()
        """Partitions whose initial offset was the log end, which another call would find further on."""
        self._target: Offsets | None = None
        """With Trigger.AvailableNow: where the query ends."""
        self._latest: Offsets = {}
        """Log ends of the last look."""
        self._began_again: Offsets = {}
        """Where the query stood in partitions of topics that were created again: offsets of their earlier life."""
        self._last_trigger: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What tasks get: nothing of the planner's."""
        return {"_options": self._options}

    @property
    def _topics(self) -> Topics:
        if self._opened is None:
            self._opened = Topics(self._options.root, self._options.choice)
        return self._opened

    # --- offsets -------------------------------------------------------------------------------

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Where a new query begins.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition that is named does not exist.
            IllegalArgumentError: offsets that do not fit the partitions.
            DataLossError: offsets that are not in the log, with `failOnDataLoss`.
        """
        options, topics = self._options, self._topics
        found = topics.look()
        topics.require(found)
        starting = options.starting or Everywhere(LATEST)
        offsets = resolve(starting, found, topics.log, ending=False, or_latest=options.or_latest)
        self._movable = resolved_from_latest(starting, offsets, topics.log)
        for tp, at in sorted(offsets.items()):
            live = self._live(tp)
            if not live.start <= at <= live.stop:
                message = f"{names([tp])}: the start {at} is not in the log, which is [{live.start}, {live.stop})"
                report_loss("START_OFFSET_RESET", message, fail=options.fail_on_data_loss)
                offsets[tp] = min(max(at, live.start), live.stop)
        self._initial = offsets
        return offsets_json(offsets)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """That there are limits; which ones, `latestOffset` knows: Spark has no form for two of them at once."""
        options = self._options
        if options.max_offsets_per_trigger is None and options.min_offsets_per_trigger is None:
            return ReadAllAvailable()
        return ReadMaxRows(options.max_offsets_per_trigger or MAX_LONG)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the query: the log ends of now."""
        self._target = self._ends()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 - Spark's name
        """Where the next micro-batch ends; `start` itself when there is to be none.

        Raises:
            DataLossError: partitions of `start` are gone or have become shorter, with `failOnDataLoss`; the target of
                Trigger.AvailableNow cannot be reached any more.
        """
        begun = offsets_of(start)
        ends = self._ends()
        if self._target is not None:
            self._check_target(ends)
            ends = dict(self._target)
        ends = self._checked(begun, ends)
        if not ends:
            # Never `{}`: a checkpoint must say where the query stood.
            return start
        if self._movable and begun == self._initial:
            # The first batch of a query that begins at the log end is an empty one. It puts the initial offsets into
            # the checkpoint; without that, a restart would begin at a later log end and skip what came in between.
            ends |= {tp: begun[tp] for tp in self._movable if tp in ends}
        self._movable = frozenset()
        if not isinstance(limit, ReadAllAvailable):
            limited = self._limited(begun, ends)
            if limited is None:
                return start
            ends = limited
        return offsets_json(ends)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 - Spark's name
        """Log ends of the last look, for the query's progress."""
        return offsets_json(self._latest) if self._latest else None

    def _ends(self) -> Offsets:
        """Log ends of all partitions, fresh."""
        found = self._topics.look()
        self._latest = {tp: self._topics.log(tp.topic).log_end(tp.partition) for tp in found}
        return dict(self._latest)

    def _live(self, tp: TopicPartition) -> range:
        log = self._topics.log(tp.topic)
        return range(log.log_start(tp.partition), log.log_end(tp.partition))

    def _check_target(self, ends: Mapping[TopicPartition, int]) -> None:
        for tp, target in sorted((self._target or {}).items()):
            if tp not in ends or tp.topic in self._topics.replaced or ends[tp] < target:
                now = f"it ends at {ends[tp]} now" if tp in ends else "it is gone"
                raise DataLossError(
                    f"{names([tp])}: Trigger.AvailableNow was to read up to offset {target}, but {now}: the topic was "
                    "deleted, or deleted and created again, while the query ran"
                )

    def _checked(self, begun: Mapping[TopicPartition, int], ends: Offsets) -> Offsets:
        """The ends, after a check of what has become of the partitions that the query has read so far."""
        fail = self._options.fail_on_data_loss
        gone = sorted(begun.keys() - ends.keys())
        if gone:
            offsets = ", ".join(f"{names([tp])} at offset {begun[tp]}" for tp in gone)
            report_loss("PARTITIONS_DELETED", f"partitions of the query are gone: {offsets}", fail=fail)
        for tp in sorted(begun.keys() & ends.keys()):
            if self._began_again.get(tp) == begun[tp]:
                ends[tp] = self._other_than(begun[tp], ends[tp])
                continue
            self._began_again.pop(tp, None)
            replaced = self._topics.replaced.get(tp.topic)
            if replaced is not None or ends[tp] < begun[tp]:
                why = f"topic id {replaced[0]} is now {replaced[1]}" if replaced else "it was deleted and created again"
                message = f"{names([tp])}: its offset was changed from {begun[tp]} to {ends[tp]}: {why}"
                report_loss("PARTITION_OFFSET_CHANGED", message, fail=fail)
                self._began_again[tp] = begun[tp]
                ends[tp] = self._other_than(begun[tp], ends[tp])
        self._topics.replaced.clear()
        return ends

    @staticmethod
    def _other_than(old: int, end: int) -> int:
        """An end that differs from where the query stood: else Spark would see nothing new in the topic's new life."""
        return end - 1 if end == old and end > 0 else end

    def _limited(self, begun: Mapping[TopicPartition, int], ends: Offsets) -> Offsets | None:
        """The ends under the options' limits; None when the batch has to wait for more."""
        options = self._options
        starts = {tp: self._start(begun, tp) for tp in ends}
        least = options.min_offsets_per_trigger
        # A query that ends when it has caught up must not wait for more.
        if least is not None and self._target is None:
            now = self._clock.monotonic()
            waited = None if self._last_trigger is None else (now - self._last_trigger) * 1000
            if waited is not None and waited < options.max_trigger_delay_ms and waits(least, starts, ends):
                return None
            self._last_trigger = now
        most = options.max_offsets_per_trigger
        return ends if most is None else rate_limited(most, starts, ends)

    def _start(self, begun: Mapping[TopicPartition, int], tp: TopicPartition) -> int:
        """Where a partition is read from: a new one from its beginning."""
        if tp in begun and self._began_again.get(tp) != begun[tp]:
            return begun[tp]
        return self._topics.log(tp.topic).log_start(tp.partition)

    # --- reading -------------------------------------------------------------------------------

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """What each task of a micro-batch reads. The same again for a batch that is run again.

        Raises:
            DataLossError: offsets of the batch are gone, with `failOnDataLoss`.
        """
        if start == end:
            return []
        begun, ends = offsets_of(start), offsets_of(end)
        found = self._topics.look()
        runs = []
        for tp in sorted(ends):
            if tp not in found:
                message = f"{names([tp])}: it is gone; it was to be read up to offset {ends[tp]}"
                report_loss("PARTITIONS_DELETED", message, fail=self._options.fail_on_data_loss)
                continue
            replaced = self._topics.replaced.get(tp.topic)
            if replaced is not None:
                # Since the batch was planned; the next one begins with the topic's new life.
                message = f"{names([tp])}: topic id {replaced[0]}, to be read up to {ends[tp]}, is now {replaced[1]}"
                report_loss("PARTITION_OFFSET_CHANGED", message, fail=self._options.fail_on_data_loss)
                continue
            runs.append(Run(tp, self._readable(tp, begun, ends[tp])))
        self._movable = frozenset()
        return parts(self._topics, self._options, runs)

    def _readable(self, tp: TopicPartition, begun: Mapping[TopicPartition, int], end: int) -> range:
        """The offsets of a partition that a batch reads."""
        fail, live = self._options.fail_on_data_loss, self._live(tp)
        begin = self._start(begun, tp)
        if tp not in begun and begin > 0:
            message = f"{names([tp])}: the added partition starts from {begin} instead of 0"
            report_loss("ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", message, fail=fail)
        if end < begin:
            if tp in self._movable or (live.start <= end and self._begins_by_time(begun)):
                # The first batch of the query again: it was logged as an empty one at an earlier log end, or where no
                # record below its end was as late as the starting time.
                return range(end, end)
            message = f"{names([tp])}: its offset was changed from {begin} to {end}: it was deleted and created again"
            report_loss("PARTITION_OFFSET_CHANGED", message, fail=fail)
            begin = live.start
        if end > live.stop:
            message = f"{names([tp])}: offsets [{max(begin, live.stop)}, {end}) are gone: the log ends at {live.stop}"
            report_loss("COULD_NOT_READ_OFFSET_RANGE", message, fail=fail)
            end = live.stop
        if begin < live.start and begin < end:
            why = self._topics.log(tp.topic).info.why_gone(tp.partition, begin) or "the log starts there"
            message = f"{names([tp])}: offsets [{begin}, {min(live.start, end)}) are gone: {why}"
            report_loss("START_OFFSET_RESET", message, fail=fail)
            begin = live.start
        return range(begin, max(begin, end))

    def _begins_by_time(self, begun: Mapping[TopicPartition, int]) -> bool:
        """Whether a batch is the query's first one, and its start was found by time, a moment ago."""
        return begun == self._initial and isinstance(self._options.starting, AtTime | AtTimes)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one input partition as Arrow batches, in offset order."""
        return read_part(partition)

    def commit(self, end: Json) -> None:
        """Show the query's progress as that of the group `kafka.group.id`, if one is named."""
        group = self._options.group_id
        if group is None:
            return
        # Spark calls after it has planned the next batch, which may have found a topic created again: offsets of its
        # earlier life must not count for the new one.
        offsets = {tp: at for tp, at in offsets_of(end).items() if self._began_again.get(tp) != at}
        try:
            commit_progress(self._topics.cluster, group, offsets, self._topics.ids(), self._clock)
        except KafkaError as cause:
            # The checkpoint is what the query goes by; the group is for those who watch it.
            _log.warning("the progress was not committed for group %s: %s", group, cause)

    def stop(self) -> None:
        """Nothing is held that the end of the process does not free."""
