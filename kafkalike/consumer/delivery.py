"""Delivery: hands the collected records to the caller, also in an event loop, and moves the positions past them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, Literal, Self, TypeVar, overload

from kafkalike.consumer.call_checks import ThreadGuard, check_max, check_timeout
from kafkalike.consumer.consumer_context import ConsumerContext
from kafkalike.consumer.fetcher import FetchedRecords
from kafkalike.consumer.poll_loop import PollLoop
from kafkalike.consumer.record_builders import Build
from kafkalike.consumer.subscription import PartitionState
from kafkalike.model.clock import Deadline
from kafkalike.model.structs import ConsumerRecord, TopicPartition

T = TypeVar("T")

SLICE_MS: Final = 200.0
"""Maximum time, in ms, that a poll waits for records. A cancelled loop waits for the end of its poll."""


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


class AsyncRecords:
    """The iterator of `async for record in consumer`.

    The thread only collects records. Positions move in the event loop, with each record that the loop gets, so that a
    cancellation at any point loses none.

    Args:
        delivery: the consumer's records.
        guard: the consumer's.
        context: the consumer's settings and clock.
    """

    def __init__(self, delivery: Delivery, guard: ThreadGuard, context: ConsumerContext) -> None:
        self._delivery = delivery
        self._guard = guard
        self._context = context
        from concurrent.futures import ThreadPoolExecutor

        # Not the event loop's own threads: a few waiting consumers would occupy all of them.
        self._thread = ThreadPoolExecutor(1, "kafkalike-async-records")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record.

        Raises:
            StopAsyncIteration: no record came for `consumer_timeout_ms`, or the consumer is closed.
            KafkaError: as `KafkaConsumer.poll`.
        """
        deadline = Deadline(self._context.clock, self._context.config.consumer_timeout_ms)
        while not self._guard.closed:
            record = self._delivery.collected()
            if record is not None:
                return record
            if not await self._collect(min(SLICE_MS, deadline.remaining() * 1000)) and deadline.expired():
                break
        raise StopAsyncIteration

    async def _collect(self, timeout_ms: float) -> bool:
        import asyncio  # most consumers never need it

        polling = asyncio.get_running_loop().run_in_executor(self._thread, self._delivery.collect, timeout_ms)
        try:
            return await asyncio.shield(polling)
        except asyncio.CancelledError:
            # The consumer is not thread-safe, and is closed next. The end of the event loop cancels a second time.
            while not polling.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([polling])
            if not polling.cancelled():
                polling.exception()  # the next poll raises it again
            raise
