"""Delivery: collected records in the caller's form out, and positions moved past exactly those."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from kafkalike.consumer.argument_checks import check_max, check_timeout
from kafkalike.consumer.consumer_context import ConsumerContext
from kafkalike.consumer.fetch_buffers import Build, FetchedRecords
from kafkalike.consumer.poll_loop import PollLoop, count
from kafkalike.consumer.subscription import PartitionState
from kafkalike.consumer.thread_guard import ThreadGuard
from kafkalike.model.structs import ConsumerRecord, TopicPartition

T = TypeVar("T")


class Delivery:
    """The last step of `poll`, `poll_arrow` and iteration. Belongs to its consumer's thread.

    An interrupt on any line leaves the positions where they were: the caller has not got the records.

    Args:
        context: the consumer's parts.
        polling: collects records.
        guard: the consumer's. It is entered here, as an interrupt may also come while it is left.
        build: makes `ConsumerRecord`s.
    """

    def __init__(self, context: ConsumerContext, polling: PollLoop, guard: ThreadGuard, build: Build) -> None:
        self._context = context
        self._polling = polling
        self._guard = guard
        self._build = build
        self._walk: Iterator[tuple[PartitionState, ConsumerRecord]] | None = None
        """The records that an iteration has left of its last poll."""

    def drop(self) -> None:
        """Let an iteration forget what it has left of its last poll: positions or partitions are others now."""
        self._walk = None

    def hand_out(  # noqa: PLR0917 - positional, so that Python calls it without a place for an interrupt
        self,
        call: str,
        timeout_ms: float,
        max_records: int | None,
        build: Build,
        form: Callable[[list[FetchedRecords]], T],
        move: bool,  # noqa: FBT001
    ) -> T:
        """Collect records, bring them into the form that the caller gets, and move the positions past them.

        Args:
            call: the caller's method, for messages.
            timeout_ms: ms to wait for the first record.
            max_records: most records; None for no limit but bytes.
            build: makes what is handed out of a chunk.
            form: makes what is returned.
            move: False leaves the positions where they are.

        Raises:
            KafkaError: see `KafkaConsumer.poll`.
        """
        taken: list[FetchedRecords] = []
        try:
            with self._guard:
                self._polling.assigner.refuse_in_callback(call)
                limit = None if max_records is None else check_max(max_records)
                timeout = check_timeout(timeout_ms)
                self._walk = None
                taken = self._polling.wait(timeout, limit, build)
                made = form(taken)
                if not taken:
                    return made
                self._context.metrics.records_consumed += count(taken)
                if move:
                    self._polling.fetcher.advance(taken)
            return made  # noqa: TRY300 - an interrupt here must be caught, too
        except BaseException:
            if move:
                self._polling.fetcher.retreat(taken)
            raise

    def next(self) -> ConsumerRecord:
        """The next record of an iteration; the position moves past it.

        Raises:
            StopIteration: no record came for `consumer_timeout_ms`.
            KafkaError: see `KafkaConsumer.poll`.
        """
        state: PartitionState | None = None
        before: int | None = None
        try:
            with self._guard:
                found = None if self._walk is None else next(self._walk, None)
                if found is None:
                    self._walk = None
                    self._polling.assigner.refuse_in_callback("iterate")
                    found = self._next_of_poll()
                before = found[0].position
                state, record = found
                state.position = record.offset + 1
                self._context.metrics.records_consumed += 1
            return record  # noqa: TRY300 - an interrupt here must be caught, too
        except BaseException:
            # Interrupted: the caller has not got the record, and what the walk has left begins after it.
            self._walk = None
            if state is not None:
                state.position = before
            raise

    def _next_of_poll(self) -> tuple[PartitionState, ConsumerRecord]:
        """Poll for more; records of a partition that is paused or given up meanwhile are skipped."""
        config, record = self._context.config, None
        while record is None:
            taken = self._polling.wait(config.consumer_timeout_ms, config.max_poll_records, self._build)
            if not taken:
                raise StopIteration
            self._walk = self._polling.walk(taken)
            record = next(self._walk, None)
        return record


def by_partition(taken: list[FetchedRecords]) -> dict[TopicPartition, list[ConsumerRecord]]:
    """Group records by partition, as `poll` returns them."""
    return {t.tp: t.parts[0] if len(t.parts) == 1 else [r for part in t.parts for r in part] for t in taken if t.parts}
