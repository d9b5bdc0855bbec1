"""Record accumulator: records of many threads in, batches for one sender out, in the order of the sends by topic."""

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
"""Bytes after which a topic's next records go into another append: Arrow copies a batch's columns, and addresses no
more than 2 GiB in one. Only a `buffer_memory` above it makes a difference."""

CLOSED: Final = "the producer is closed"
FORKED: Final = "the producer was made before a fork, and its sending thread is in the other process; make one here"


class RecordAccumulator:
    """Where records wait. Thread-safe.

    Order: records of one topic leave in the order in which `add` took them, and a batch that was put back leaves
    before those behind it. Topics leave in turn.

    A sending thread may be interrupted (Ctrl-C) at any line. So what it changes is complete after each single step,
    the step that counts comes last, and who waits for it is woken before: it looks when the lock is free. Sending
    threads never wait on a condition: one that is interrupted at a bad moment frees a lock that another thread holds.

    Args:
        limit: bytes that may be in it before `add` blocks.
        linger: seconds that a topic's first record waits for more.
        batch_size: bytes per partition, on average, from which nothing is waited for.
        max_block_ms: how long (ms) `add` may block.
        clock: time.
        gate: raises when a record may not be added now, of a producer with transactions; called under the lock.
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
        """Why no more records are taken; None while they are."""
        self.gate: Final = gate
        """As given; also asked before a record is made ready."""
        self.sender = 0
        """Id of the sending thread."""
        self.queues: dict[str, TopicQueue] = {}
        """By topic. Read by anybody, changed under the lock."""
        self.limit = limit
        self.used = 0
        """Bytes in it: waiting and under way."""
        self._linger = linger
        self._batch_size = batch_size
        self._max_block_ms = max_block_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._line: deque[SimpleQueue[None]] = deque()
        """Threads that wait for room, first come first served; each is woken through its queue to look again."""
        self._turns: dict[TopicQueue, None] = {}
        """Topics that have batches; the next in turn first."""
        self._unsettled: dict[ProducerBatch, None] = {}
        _living.add(self)

    # --- sending threads -----------------------------------------------------------------------

    def queue(self, info: TopicInfo) -> TopicQueue:
        """The queue of a topic; a new one for a new topic, or a new life of an old one."""
        with self._lock:
            known = self.queues.get(info.name)
            if known is not None and known.topic_id == info.topic_id:
                known.learn(info, self._clock.monotonic())
                return known
            if known is not None:
                known.gone = True
            fresh = self.queues[info.name] = TopicQueue(info, self._clock.monotonic())
            return fresh

    def add(self, queue: TopicQueue, row: Row, size: int) -> tuple[BatchResult, int] | None:
        """Put a record at the end of its topic's queue.

        Args:
            queue: of the topic.
            row: the record.
            size: its bytes, no more than `limit`.

        Returns:
            What reports its outcome, and its row there; None when the topic is gone, so it must be looked up again.

        Raises:
            KafkaTimeoutError: there was no room for it in time.
            IllegalStateError: closed, or used after a fork.
            KafkaError: what `gate` raises.
        """
        with self._lock:
            used = self.used + size
            # A callback that sends must not wait: it runs in the thread that makes room.
            if (used <= self.limit and not self._line) or threading.get_ident() == self.sender:
                # What `_put` does for most records, without the call: 5 % of a `send` of a few bytes.
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
        """Put a batch of columns at the end of its topic's queue: behind what is queued, before what comes later.

        One with more bytes than `limit` waits until nothing else is in the buffer.

        Args:
            queue: of the topic.
            columns: the records.

        Returns:
            What reports its outcome; None when the topic is gone, so it must be looked up again.

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
        queue.last = None  # what is sent later goes behind
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
        # In one line, between whose parts nothing can interrupt: `release` gives back what both have.
        self.used, batch.size = self.used + size, batch.size + size
        if not batch.due and batch.size >= self._batch_size * queue.num_partitions:
            self._work.notify()
            batch.due = True
        fields.extend(row)
        return batch.outcome, number

    def _open(self, queue: TopicQueue) -> ProducerBatch:
        batch = ProducerBatch(BatchResult(queue.name, self.sender), self._clock.monotonic())
        # An empty batch in its queue is settled by the sender; one that a flush knows must be in its queue.
        self._work.notify()
        queue.batches.append(batch)
        self._turns.setdefault(queue)
        self._unsettled[batch] = None
        queue.last = batch
        return batch

    def _put_in_turn(self, put: Callable[[], T], size: int) -> T:
        """Wait for room, then put.

        Leaves the line also when it is interrupted: else later threads would wait behind it for ever. Twice, as
        `kafkalike.model.concurrency` says.
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
            self._work.notify()  # nobody lingers while somebody waits
            self._line.append(ticket)
        while True:
            with self._lock:
                room = self.used + min(size, self.limit) <= self.limit and self._line[0] is ticket
                if room or self.refusal is not None:
                    return put()
                left = deadline.remaining()
                if left <= 0:
                    raise KafkaTimeoutError(
                        f"no room for {size} bytes within max_block_ms={self._max_block_ms:g}: "
                        f"{self.used} of buffer_memory={self.limit} bytes are waiting or under way"
                    )
            with suppress(Empty):
                ticket.get(timeout=min(left, threading.TIMEOUT_MAX))

    def _leave(self, ticket: SimpleQueue[None]) -> None:
        with self._lock:
            self._call_line()
            if ticket in self._line:
                self._line.remove(ticket)

    def _call_line(self) -> None:
        """Let those who wait for room look again. Caller: holds the lock."""
        for ticket in self._line:
            ticket.put(None)

    def flush(self, timeout: float | None) -> None:
        """Wait until everything that was added before is settled, callbacks included; none of it lingers.

        Args:
            timeout: seconds; None without end.

        Raises:
            KafkaTimeoutError: something is still under way.
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
                raise KafkaTimeoutError(f"records are still under way after {timeout} s")

    # --- the sender ----------------------------------------------------------------------------

    def take(self) -> tuple[TopicQueue, ProducerBatch] | None:
        """Wait for a batch that is due, and take it out; None when the buffer is closed and empty. Caller: sender."""
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
        # One that takes no more records has nothing to linger for. An interrupted send may leave an empty one.
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
        """The first batch of a topic, and those behind it that go into the same append."""
        parts = [self._start(queue)]
        size = parts[0].size
        # In a transaction each one is staged by itself.
        while self.gate is None and queue.batches and can_join(parts[-1], queue.batches[0], size, now):
            parts.append(self._start(queue))
            size += parts[-1].size
        return parts[0] if len(parts) == 1 else JoinedBatch(parts)

    def put_back(self, queue: TopicQueue, batch: ProducerBatch, retry_at: float) -> None:
        """Put a batch before all others of its topic, to be taken again at a monotonic time (s). Caller: sender."""
        with self._lock:
            batch.retry_at = retry_at
            queue.batches.appendleft(batch)
            self._turns.setdefault(queue)

    def release(self, batch: ProducerBatch) -> None:
        """Give a batch's bytes back. Caller: whoever settles it, before."""
        with self._lock:
            self.used -= batch.size
            if self._line:
                self._call_line()

    def forget(self, batch: ProducerBatch) -> None:
        """No flush needs to wait for a batch any more. Caller: whoever settles it, after."""
        with self._lock:
            self._unsettled.pop(batch, None)

    def retire(self, queue: TopicQueue) -> list[ProducerBatch]:
        """Take out all batches of a topic that is gone. Caller: sender, which fails them."""
        with self._lock:
            queue.gone = True
            if self.queues.get(queue.name) is queue:
                del self.queues[queue.name]
            return self._empty(queue)

    def drop_idle(self, queue: TopicQueue) -> bool:
        """Forget a topic that nothing is queued for; the next send looks it up again. Caller: sender.

        Returns:
            False when something is queued for it: then nothing is changed.
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
        """Take no more records; what is in it is still sent, and nothing lingers."""
        with self._lock:
            self._work.notify()
            self._call_line()
            self.refusal = self.refusal or CLOSED

    def empty(self) -> list[ProducerBatch]:
        """Take out all batches that are not under way. Caller: whoever fails them."""
        with self._lock:
            return [batch for queue in list(self._turns) for batch in self._empty(queue)]

    def forked(self) -> None:
        """Be of no use in a child process. Takes no lock: the parent may have held it."""
        self.refusal = FORKED


_living: WeakSet[RecordAccumulator] = WeakSet()
"""Those that a fork would copy without their sender."""


def _after_fork() -> None:
    for buffer in list(_living):
        buffer.forked()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_after_fork)
