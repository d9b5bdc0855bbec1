"""Delivery: hands the collected records to the caller, and moves the positions past them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar, overload

from kafkalike.consumer.call_checks import ThreadGuard, check_max, check_timeout
from kafkalike.consumer.consumer_context import ConsumerContext
from kafkalike.consumer.fetcher import FetchedRecords
from kafkalike.consumer.poll_loop import PollLoop
from kafkalike.consumer.record_builders import Build
from kafkalike.consumer.subscription import PartitionState
from kafkalike.model.structs import ConsumerRecord, TopicPartition

T = TypeVar("T")


def count(taken: list[FetchedRecords], size: Callable[[Any], int] = len) -> int:
    """Return the number of collected records."""
    found = 0
    for piece in taken:
        for part in piece.parts:
            found += size(part)
    return found


class Delivery:
    """The last step of `poll`, `poll_arrow` and iteration. Belongs to its consumer's thread.

    An interrupt on any line leaves the positions unchanged, because the caller has not got the records.

    Args:
        context: the consumer's parts.
        polling: collects records.
        guard: the consumer's. It is entered here, because an interrupt may also come while it is left.
        build: makes `ConsumerRecord`s.
    """

    def __init__(self, context: ConsumerContext, polling: PollLoop, guard: ThreadGuard, build: Build) -> None:
        self._context = context
        self._polling = polling
        self._guard = guard
        self._build = build
        self._walk: Iterator[tuple[PartitionState, ConsumerRecord]] | None = None
        """The undelivered records of an iteration's last poll."""

    def drop(self) -> None:
        """Drop the undelivered records of an iteration's last poll, because positions or partitions have changed."""
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
        """Collect records, convert them to the caller's form, and move the positions past them.

        Args:
            call: the caller's method, for messages.
            timeout_ms: ms to wait for the first record.
            max_records: maximum number of records; None for no limit but bytes.
            build: makes the result of a chunk.
            form: makes the returned value.
            move: False leaves the positions unchanged.

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
        """Return the next record of an iteration; the position moves past it.

        Raises:
            StopIteration: no record came for `consumer_timeout_ms`.
            KafkaError: see `KafkaConsumer.poll`.
        """
        # Nothing comes between the record and the caller: an interrupt there would lose it.
        return self._taken(waits=True)

    def collected(self) -> ConsumerRecord | None:
        """Return the next record of an iteration if it is collected already; the position moves past it."""
        return self._taken(waits=False)

    @overload
    def _taken(self, *, waits: Literal[True]) -> ConsumerRecord: ...

    @overload
    def _taken(self, *, waits: Literal[False]) -> ConsumerRecord | None: ...

    def _taken(self, *, waits: bool) -> ConsumerRecord | None:
        state: PartitionState | None = None
        before: int | None = None
        try:
            with self._guard:
                while (found := None if self._walk is None else next(self._walk, None)) is None:
                    self._walk = None
                    if not waits:
                        return None
                    if not self.collect(self._context.config.consumer_timeout_ms):
                        raise StopIteration  # noqa: TRY301 - the handler below takes the walk back
                before = found[0].position
                state, record = found
                state.position = record.offset + 1
                self._context.metrics.records_consumed += 1
            return record  # noqa: TRY300 - an interrupt here must be caught, too
        except BaseException:
            # Interrupted: the caller has not got the record, and the rest of the walk begins after it.
            self._walk = None
            if state is not None:
                state.position = before
            raise

    def collect(self, timeout_ms: float) -> bool:
        """Poll for the records of an iteration, without moving positions. Return False if there are none."""
        with self._guard:
            self._polling.assigner.refuse_in_callback("iterate")
            taken = self._polling.wait(timeout_ms, self._context.config.max_poll_records, self._build)
            self._walk = self._polling.walk(taken) if taken else None
            return bool(taken)


def by_partition(taken: list[FetchedRecords]) -> dict[TopicPartition, list[ConsumerRecord]]:
    """Group records by partition, as `poll` returns them."""
    return {t.tp: t.parts[0] if len(t.parts) == 1 else [r for part in t.parts for r in part] for t in taken if t.parts}
