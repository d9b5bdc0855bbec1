"""SliceFetcher: acquires records of a share group without reading them, for jobs whose tasks read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalike.consumer.share_fetcher import ShareFetcher
from kafkalike.errors import CorruptRecordError, KafkaError
from kafkalike.log.topic.data_file import ReadOptions
from kafkalike.log.topic.segment_rows import SegmentRows
from kafkalike.model.clock import Deadline
from kafkalike.model.record_batch import DELIVER_AT, due_ms
from kafkalike.model.shares.share_partition import Acknowledgement, Acknowledgements, RecordRun, RecordVerdict
from kafkalike.model.shares.share_runs import gaps
from kafkalike.model.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.log.transactions.session import TransactionSession

PAUSE_SECONDS: Final = 0.5
"""Longest time between two looks for records."""


class RecordSlice(NamedTuple):
    """A run of offsets that a member has acquired."""

    tp: TopicPartition
    run: RecordRun


class SliceFetcher(ShareFetcher):
    """Acquires one slice of records. Of a record it reads at most the headers, to see whether it is due."""

    slices: tuple[RecordSlice, ...] = ()
    """Runs of the last acquisition that are due."""

    def acquire(self, deadline: Deadline, most: int) -> None:
        """Acquire records, and wait for them if necessary; `slices` is empty if none is due.

        Args:
            deadline: until when to wait.
            most: most records.

        Raises:
            KafkaError: see `KafkaShareConsumer.poll`.
        """
        while True:
            before = self.metrics.records_acquired
            self.wait(Deadline(self._clock, 0), most, _ignore)
            remaining = deadline.remaining()
            if self.slices:
                return
            if self.metrics.records_acquired > before:
                continue  # the records were not due, or delivered too often; others may follow them
            if remaining <= 0:
                return
            self._pause(min(PAUSE_SECONDS, remaining))

    def _read(
        self, taken: dict[TopicPartition, Sequence[RecordRun]], logs: dict[str, TopicLog]
    ) -> list[tuple[ConsumerRecord, int]]:
        """Keep the acquired runs without records that are not due, which are given back with their times."""
        now_ms = self._clock.now_ms()
        slices: list[RecordSlice] = []
        undue: dict[TopicPartition, list[Acknowledgement]] = {}
        for tp, runs in taken.items():
            for run in runs:
                later = [
                    Acknowledgement(offset, offset, RecordVerdict.RETURN, run.deliveries, due)
                    for offset, due in scheduled_offsets(logs[tp.topic], tp, run, now_ms)
                ]
                if later:
                    undue.setdefault(tp, []).extend(later)
                kept = gaps(run.first, run.last, ((ack.first, ack.last) for ack in later))
                slices += [RecordSlice(tp, run._replace(first=first, last=last)) for first, last in kept]
        if undue:
            self.group.exchange(self._member_id, undue)
        self.slices = tuple(slices)
        return []

    def acknowledge(self, acknowledgements: Acknowledgements, timeout_ms: float | None) -> None:
        """Commit acknowledgements of the slice, with dead letters of rejected records if the settings name their topic.

        Raises:
            InvalidRecordStateError: another member has acquired some of the records; the others count.
            KafkaError: not committed, or possibly not.
        """
        left, outcomes = self._bury_rejected(acknowledgements, self._logs_by_name)
        if left:
            done = self.group.exchange(self._member_id, left, timeout_ms=timeout_ms)
            outcomes += self._settled(left, done.refused)
        for _, error in outcomes:
            if error is not None:
                raise error

    def stage_letters(
        self, session: TransactionSession, number: int, acknowledgements: Acknowledgements, deadline: Deadline
    ) -> None:
        """Add the dead letters of rejected records to a transaction, if the settings name their topic.

        Raises:
            KafkaError: a record cannot be read, or its letter cannot be stored.
        """
        if self._letters is None:
            return
        rejected = {
            tp: [ack for ack in acks if ack.verdict is RecordVerdict.REJECT] for tp, acks in acknowledgements.items()
        }
        self._letters.stage_rejected(session, number, rejected, self._logs_by_name, deadline)

    @property
    def _logs_by_name(self) -> dict[str, TopicLog]:
        return {str(each.info.name): each for each in self._logs.opened}

    def end(self, timeout_ms: float) -> None:
        """Release all records that the member has locked, leave the group, and close the files.

        Raises:
            KafkaError: the group could not be left; the locks end by time.
        """
        try:
            self.leave(timeout_ms)
        finally:
            self.close(timeout_ms)


def _ignore(acknowledgements: Mapping[TopicPartition, Sequence[Acknowledgement]], error: KafkaError | None) -> None:
    """Take the outcome of acknowledgements, of which a new member has none."""


def scheduled_offsets(log: TopicLog, tp: TopicPartition, run: RecordRun, now_ms: int) -> Iterator[tuple[int, int]]:
    """Yield the offsets of records that are not due, with their times in ms since the epoch; reads only their headers.

    Args:
        log: the topic.
        tp: the partition.
        run: the acquired offsets.
        now_ms: the time.

    Raises:
        KafkaError: the log cannot be read.
    """
    at = run.first
    while at <= run.last:
        segment = log.segment_at_or_after(tp.partition, at)
        if segment is None or segment.start > run.last:
            return
        options = ReadOptions(columns=("offset", "headers"), batch_bytes=log.fetch_bytes)
        name, holes_below = f"{tp.topic}-{tp.partition}", partial(log.holes_below, tp.partition)
        rows = SegmentRows(log.files, segment, at, options, name=name, holes_below=holes_below)
        try:
            while (batch := rows.next(run.last + 1)) is not None:
                yield from _not_due(batch, now_ms)
                at = rows.position
        except FileNotFoundError as cause:
            log.look_anew()
            if log.is_live(segment):
                raise CorruptRecordError(f"{name}: {segment.path} is missing") from cause
            continue  # maintenance has replaced the file
        finally:
            rows.close()
        at = max(at, segment.stop)


def _not_due(batch: pa.RecordBatch, now_ms: int) -> Iterator[tuple[int, int]]:
    import pyarrow.compute as pc  # few programs need it

    headers = batch.column("headers")
    if not pc.any(pc.equal(headers.flatten().field("key"), DELIVER_AT)).as_py():
        return
    for offset, pairs in zip(batch.column("offset").to_pylist(), headers.to_pylist(), strict=True):
        due = due_ms((pair["key"], pair["value"]) for pair in pairs or ())
        if due > now_ms:
            yield offset, due
