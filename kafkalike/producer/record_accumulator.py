"""Record accumulator: collects records of many threads into batches for one sender, in the sending order by topic."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet

from kafkalike.errors import IllegalStateError, KafkaTimeoutError
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.topic import TopicInfo
from kafkalike.producer.future import BatchResult
from kafkalike.producer.producer_batch import WIDTH, JoinedBatch, ProducerBatch, Row, TopicQueue, can_join

if TYPE_CHECKING:
    from kafkalike.log.topic.column_batch import ColumnBatch

T = TypeVar("T")

MAX_BATCH_BYTES: Final = 134_217_728
"""Bytes after which a topic's next records go into another append: Arrow copies a batch's columns, and addresses at
most 2 GiB in one. Only matters for a larger `buffer_memory`."""

CLOSED: Final = "the producer is closed"
FORKED: Final = "the producer was made before a fork, and its sending thread is in the other process; make one here"


class RecordAccumulator:
    """Holds records until the sender takes them. Thread-safe.

    Order: records of one topic leave in the order in which `add` took them, and a returned batch leaves before later
    ones. Topics take turns.

    A sending thread may be interrupted (Ctrl-C) at any line. So the state is complete after each single step, the
    decisive step comes last, and waiting threads are woken before it: they look when the lock is free. Sending threads
    never wait on a condition, because an interrupt at a bad moment would release a lock that another thread holds.

    Args:
        limit: bytes it may hold before `add` blocks.
        linger: seconds that a topic's first record waits for more.
        batch_size: bytes per partition, on average, that end the wait.
        max_block_ms: how long (ms) `add` may block.
        clock: time.
        gate: of a producer with transactions; raises if a record may not be added now. Called under the lock.
    """

    def __init__(
        self,
        *,
        limit: int,
        linger: float,
        batch_size: int,
        max_block_ms: float,
        clock: Clock,
        gate: Callable[[], None] | None = None,
    ) -> None:
        self.refusal: str | None = None
        """The reason for rejecting further records; None while they are accepted."""
        self.gate: Final = gate
        """The argument; also called before a record is serialized."""
        self.sender = 0
        """Id of the sending thread."""
        self.queues: dict[str, TopicQueue] = {}
        """Queues by topic. Read by any thread, changed under the lock."""
        self.limit = limit
        self.used = 0
        """Bytes in it, waiting and in progress."""
        self._linger = linger
        self._batch_size = batch_size
        self._max_block_ms = max_block_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._line: deque[SimpleQueue[None]] = deque()
        """Threads that wait for space, first come first served; each is woken through its queue."""
        self._turns: dict[TopicQueue, None] = {}
        """Topics with batches; the next in turn first."""
        self._unsettled: dict[ProducerBatch, None] = {}
        _living.add(self)

    # --- sending threads -----------------------------------------------------------------------

    def queue(self, info: TopicInfo) -> TopicQueue:
        """Return the queue of a topic; a new one for a new topic, or a new life of an old one.

        A topic that was repartitioned keeps its queue, and so the order of its records.
        """
        with self._lock:
            known = self.queues.get(info.name)
            if known is not None and (known.topic_id == info.topic_id or known.follow(info)):
                known.learn(info, self._clock.monotonic())
                return known
            if known is not None:
                known.gone = True
            fresh = self.queues[info.name] = TopicQueue(info, self._clock.monotonic())
            return fresh

    def add(self, queue: TopicQueue, row: Row, size: int) -> tuple[BatchResult, int] | None:
        """Append a record to its topic's queue.

        Args:
            queue: the topic's queue.
            row: the record.
            size: its bytes, at most `limit`.

        Returns:
            The result of its batch, and its row there; None if the topic was deleted and must be looked up again.

        Raises:
            KafkaTimeoutError: the buffer stayed full.
            IllegalStateError: closed, or used after a fork.
            KafkaError: raised by `gate`.
        """
        with self._lock:
            used = self.used + size
            # A callback must not wait, because it runs in the thread that frees space.
            if (used <= self.limit and not self._line) or threading.get_ident() == self.sender:
                # The common case of `_put` without the call: 5 % of a `send` of a few bytes.
                batch = queue.last
                if (
                    batch is None
                    or not batch.due
                    or batch.size > MAX_BATCH_BYTES
                    or self.gate is not None
                    or self.refusal is not None
                    or queue.gone
                ):
                    return self._put(queue, row, size)
                fields = batch.fields
                number = len(fields) // WIDTH
                self.used, batch.size = used, batch.size + size
                fields.extend(row)
                return batch.outcome, number
        return self._put_in_turn(lambda: self._put(queue, row, size), size)

    def add_columns(self, queue: TopicQueue, columns: ColumnBatch) -> BatchResult | None:
        """Append a batch of columns to its topic's queue.

        A batch with more bytes than `limit` waits until the buffer is empty.

        Args:
            queue: the topic's queue.
            columns: the records.

        Returns:
            The result of the batch; None if the topic was deleted and must be looked up again.

        Raises: see `add`.
        """
        size = columns.size
        with self._lock:
            fits = self.used + min(size, self.limit) <= self.limit
            if (fits and not self._line) or threading.get_ident() == self.sender:
                return self._put_columns(queue, columns, size)
        return self._put_in_turn(lambda: self._put_columns(queue, columns, size), size)

    def _put_columns(self, queue: TopicQueue, columns: ColumnBatch, size: int) -> BatchResult | None:
        self._check_open()
        if queue.gone:
            return None
        queue.last = None  # later records follow in another batch
        batch = self._open(queue)
        queue.last = None
        batch.due = True
        # In one line, see `_put`.
        self.used, batch.size, batch.given = self.used + size, size, columns
        return batch.outcome

    def _check_open(self) -> None:
        if self.refusal is not None:
            raise IllegalStateError(self.refusal)
        if self.gate is not None:
            self.gate()

    def _put(self, queue: TopicQueue, row: Row, size: int) -> tuple[BatchResult, int] | None:
        if self.refusal is not None or self.gate is not None:
            self._check_open()
        if queue.gone:
            return None
        batch = queue.last
        if batch is None or batch.size > MAX_BATCH_BYTES:
            batch = self._open(queue)
        fields = batch.fields
        number = len(fields) // WIDTH
        # In one line, which an interrupt cannot split: `release` gives back both.
        self.used, batch.size = self.used + size, batch.size + size
        if not batch.due and batch.size >= self._batch_size * queue.num_partitions:
            self._work.notify()
            batch.due = True
        fields.extend(row)
        return batch.outcome, number

    def _open(self, queue: TopicQueue) -> ProducerBatch:
        batch = ProducerBatch(BatchResult(queue.name, self.sender), self._clock.monotonic(), queue.topic_id)
        # The sender settles an empty batch of the queue. A batch that a flush waits for must be in the queue.
        self._work.notify()
        queue.batches.append(batch)
        self._turns.setdefault(queue)
        self._unsettled[batch] = None
        queue.last = batch
        return batch

    def _put_in_turn(self, put: Callable[[], T], size: int) -> T:
        """Wait for space, then put.

        Always leave the line, even after an interrupt, because later threads would wait behind it. Twice, for the
        reason given in `kafkalike.model.concurrency`.
        """
        ticket: SimpleQueue[None] = SimpleQueue()
        try:
            try:
                return self._wait_and_put(ticket, put, size)
            finally:
                self._leave(ticket)
        finally:
            self._leave(ticket)

    def _wait_and_put(self, ticket: SimpleQueue[None], put: Callable[[], T], size: int) -> T:
        deadline = Deadline(self._clock, self._max_block_ms)
        with self._lock:
            self._work.notify()  # no batch lingers while a thread waits
            self._line.append(ticket)
        while True:
            with self._lock:
                room = self.used + min(size, self.limit) <= self.limit and self._line[0] is ticket
                if room or self.refusal is not None:
                    return put()
                left = deadline.remaining()
                if left <= 0:
                    raise KafkaTimeoutError(
                        f"the buffer had no space for {size} bytes within max_block_ms={self._max_block_ms:g}: "
                        f"{self.used} of buffer_memory={self.limit} bytes are in use; send less, or raise a setting"
                    )
            with suppress(Empty):
                ticket.get(timeout=min(left, threading.TIMEOUT_MAX))

    def _leave(self, ticket: SimpleQueue[None]) -> None:
        with self._lock:
            self._call_line()
            if ticket in self._line:
                self._line.remove(ticket)

    def _call_line(self) -> None:
        """Wake the threads that wait for space. Caller: holds the lock."""
        for ticket in self._line:
            ticket.put(None)

    def flush(self, timeout: float | None) -> None:
        """Wait until all earlier records are settled, including their callbacks; none of them lingers.

        Args:
            timeout: seconds; None waits without end.

        Raises:
            KafkaTimeoutError: records are still in progress.
            IllegalStateError: called in a callback.
        """
        if threading.get_ident() == self.sender:
            raise IllegalStateError("flush must not be called in a callback: it runs in the thread that sends")
        deadline = Deadline(self._clock, None if timeout is None else timeout * 1000)
        with self._lock:
            self._work.notify()
            waited_for = list(self._unsettled)
            for batch in waited_for:
                batch.due = True
        for batch in waited_for:
            if not batch.outcome.wait(deadline.remaining()):
                raise KafkaTimeoutError(f"records are still in progress after {timeout} s; call flush() again")

    # --- the sender ----------------------------------------------------------------------------

    def take(self) -> tuple[TopicQueue, ProducerBatch] | None:
        """Wait for a due batch and remove it; None if the buffer is closed and empty. Caller: sender."""
        with self._lock:
            while True:
                now = self._clock.monotonic()
                soonest = math.inf
                for queue in self._turns:
                    due = self._due(queue, now)
                    if due <= now:
                        return queue, self._start_all(queue, now)
                    soonest = min(soonest, due)
                if self.refusal is not None and not self._turns:
                    return None
                self._work.wait(None if soonest == math.inf else min(soonest - now, threading.TIMEOUT_MAX))

    def _due(self, queue: TopicQueue, now: float) -> float:
        batch = queue.batches[0]
        if batch.retry_at is not None:
            return batch.retry_at
        # A batch that takes no more records need not linger. An interrupted send may leave an empty one.
        if batch.due or batch is not queue.last or self._line or self.refusal is not None:
            return now
        return batch.born + self._linger

    def _start(self, queue: TopicQueue) -> ProducerBatch:
        batch = queue.batches.popleft()
        if queue.last is batch:
            queue.last = None
        del self._turns[queue]
        if queue.batches:
            self._turns[queue] = None
        return batch

    def _start_all(self, queue: TopicQueue, now: float) -> ProducerBatch:
        """Remove the first batch of a topic, joined with later ones for the same append."""
        parts = [self._start(queue)]
        size = parts[0].size
        # In a transaction, each batch is staged on its own.
        while self.gate is None and queue.batches and can_join(parts[-1], queue.batches[0], size, now):
            parts.append(self._start(queue))
            size += parts[-1].size
        return parts[0] if len(parts) == 1 else JoinedBatch(parts)

    def put_back(self, queue: TopicQueue, batch: ProducerBatch, retry_at: float) -> None:
        """Return a batch to the head of its topic's queue, for a retry at a monotonic time (s). Caller: sender."""
        with self._lock:
            batch.retry_at = retry_at
            queue.batches.appendleft(batch)
            self._turns.setdefault(queue)

    def release(self, batch: ProducerBatch) -> None:
        """Release the bytes of a batch, before it is settled."""
        with self._lock:
            self.used -= batch.size
            if self._line:
                self._call_line()

    def forget(self, batch: ProducerBatch) -> None:
        """Stop flushes from waiting for a batch, after it is settled."""
        with self._lock:
            self._unsettled.pop(batch, None)

    def retire(self, queue: TopicQueue) -> list[ProducerBatch]:
        """Remove all batches of a deleted topic. Caller: sender, which fails them."""
        with self._lock:
            queue.gone = True
            if self.queues.get(queue.name) is queue:
                del self.queues[queue.name]
            return self._empty(queue)

    def drop_idle(self, queue: TopicQueue) -> bool:
        """Forget a topic without queued records; the next send looks it up again. Caller: sender.

        Returns:
            False if records are queued: then nothing is changed.
        """
        with self._lock:
            if queue.batches:
                return False
            queue.gone = True
            if self.queues.get(queue.name) is queue:
                del self.queues[queue.name]
            return True

    def _empty(self, queue: TopicQueue) -> list[ProducerBatch]:
        left = list(queue.batches)
        queue.batches.clear()
        queue.last = None
        self._turns.pop(queue, None)
        return left

    # --- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Reject further records; send the queued ones without lingering."""
        with self._lock:
            self._work.notify()
            self._call_line()
            self.refusal = self.refusal or CLOSED

    def empty(self) -> list[ProducerBatch]:
        """Remove and return all batches that are not in progress; the caller fails them."""
        with self._lock:
            return [batch for queue in list(self._turns) for batch in self._empty(queue)]

    def forked(self) -> None:
        """Reject all records in a child process. Takes no lock, because the parent may have held it."""
        self.refusal = FORKED


_living: WeakSet[RecordAccumulator] = WeakSet()
"""Accumulators that a fork would copy without their sender."""


def _after_fork() -> None:
    for buffer in list(_living):
        buffer.forked()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_after_fork)
