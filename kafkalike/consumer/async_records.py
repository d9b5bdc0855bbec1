"""Async iteration over a consumer: a thread polls, and the event loop hands out the records."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from kafkalike.consumer.call_checks import ThreadGuard
from kafkalike.model.clock import Deadline
from kafkalike.model.structs import ConsumerRecord

if TYPE_CHECKING:
    from kafkalike.consumer.consumer_context import ConsumerContext
    from kafkalike.consumer.delivery import Delivery

SLICE_MS: Final = 200.0
"""Maximum time, in ms, that a poll waits for records. A cancelled loop waits for the end of its poll."""


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
