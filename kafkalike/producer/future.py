"""Futures: the result of a batch, and kafka-python's future of a record or of an Arrow table on top of it.

The future of a record is a reference to its batch's result and a row number. Lock, event and callbacks belong to the
batch, so that 200,000 waiting records do not need 200,000 locks.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from kafkalike.errors import IllegalStateError, KafkaTimeoutError, NotEnoughReplicasAfterAppendError
from kafkalike.model.concurrency import Latch, ReportErrors
from kafkalike.model.structs import RecordMetadata, SettableFuture, TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")


class BatchMetadata(NamedTuple):
    """The offsets of a batch."""

    topic: str
    records: int
    """Number of records in it."""
    offsets: Mapping[int, range]
    """Offsets of the records by partition, in the order of the batch. Empty if they are unknown: with `acks=0`, and in
    a transaction, whose commit returns them."""
    append_time_ms: int | None
    """Timestamp of all records in a topic with LogAppendTime; None if they keep their own."""


class OutcomeFuture(Generic[T]):
    """The future of a record or of a batch; thread-safe.

    Callbacks run in the producer's sending thread, in the order of the records and then in the order in which they were
    added. If the record is done already, they run at once in the thread that adds them. They should be short, because
    the producer sends nothing meanwhile. An error in a callback is logged.
    """

    __slots__ = ("_outcome", "_row")

    _outcome: BatchResult
    _row: int

    @abstractmethod
    def _metadata(self) -> T:
        """Return the metadata of a written record or batch."""

    def get(self, timeout: float | None = None) -> T:
        """Wait for the record's outcome.

        Args:
            timeout: seconds to wait; None waits without end (`delivery_timeout_ms` limits it).

        Returns:
            Partition and offset of the record.

        Raises:
            KafkaTimeoutError: still in progress after `timeout`, or not written within `delivery_timeout_ms`.
            UnknownOutcomeError: the record may or may not have been written.
            NotEnoughReplicasAfterAppendError: the record was written, but too few replicas may have it.
            KafkaError: the record was not written, and why.
            IllegalStateError: called in a callback, for a record in progress.
        """
        outcome = self._outcome
        if not outcome.done and not outcome.wait(timeout):
            raise KafkaTimeoutError(
                f"topic {outcome.topic!r}: the record is still in progress after {timeout} s; call get() again"
            )
        error = outcome.error_of(self._row)
        if error is not None:
            # Many records share one error. Its traceback, which the cause keeps, would grow with each `get` and keep
            # the sender's variables alive.
            raise error.with_traceback(None)
        return self._metadata()

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the record's outcome in asyncio: `metadata = await producer.send(…)`.

        If the waiting task is cancelled, the record is sent all the same.

        Raises:
            KafkaError: see `get`.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def settle() -> None:
            if not waiter.done():
                waiter.set_result(None)

        def wake() -> None:
            # The loop may already be closed, with nobody waiting.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle)

        self._outcome.when_done(self._row, wake)
        yield from waiter
        return self.get()

    @property
    def is_done(self) -> bool:
        """True once the outcome is known."""
        return self._outcome.done

    @property
    def value(self) -> T | None:
        """The metadata of a written record; None if it is not written, or not yet."""
        return self._metadata() if self.succeeded() else None

    @property
    def exception(self) -> Exception | None:
        """The error of a failed record; None if it is written, or if that is unknown yet."""
        return self._outcome.error_of(self._row)

    def succeeded(self) -> bool:
        """True if the record is written."""
        return self._outcome.done and self._outcome.error_of(self._row) is None

    def failed(self) -> bool:
        """True if the record failed."""
        return self._outcome.error_of(self._row) is not None

    def retriable(self) -> bool:
        """True if it failed and a retry may succeed without duplicating it."""
        error = self.exception
        # Kafka calls the second kind retriable, too, but its records are written.
        return getattr(error, "retriable", False) and not isinstance(error, NotEnoughReplicasAfterAppendError)

    def add_callback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:  # noqa: ANN401
        """Call `f(*args, metadata, **kwargs)` when the record is written. Returns this future."""
        call = partial(f, *args, **kwargs) if args or kwargs else f
        self._outcome.when_done(self._row, partial(self._on_success, call))
        return self

    def add_errback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:  # noqa: ANN401
        """Call `f(*args, exception, **kwargs)` when the record failed. Returns this future."""
        call = partial(f, *args, **kwargs) if args or kwargs else f
        self._outcome.when_done(self._row, partial(self._on_failure, call))
        return self

    def add_both(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Self:  # noqa: ANN401
        """Call `f` in both cases, with the metadata or the exception. Returns this future."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def chain(self, future: SettableFuture) -> Self:
        """Pass the outcome on to another future. Returns this one."""
        return self.add_callback(future.success).add_errback(future.failure)

    def _on_success(self, call: Callable[[T], object]) -> None:
        if self.exception is None:
            self._run(call, self._metadata())

    def _on_failure(self, call: Callable[[Exception], object]) -> None:
        error = self.exception
        if error is not None:
            self._run(call, error)

    def _run(self, call: Callable[[Any], object], outcome: object) -> None:
        with ReportErrors(log, "topic %r: a callback of a sent record failed", self._outcome.topic):
            call(outcome)


class FutureRecordMetadata(OutcomeFuture[RecordMetadata]):
    """The future of one record, made by `KafkaProducer.send`."""

    __slots__ = ("_sizes", "_timestamp")

    def __init__(self, outcome: BatchResult, row: int, timestamp: int, sizes: tuple[int, int, int]) -> None:
        self._outcome = outcome
        self._row = row
        self._timestamp = timestamp
        self._sizes = sizes

    def _metadata(self) -> RecordMetadata:
        topic = self._outcome.topic
        partition, offset, timestamp = self._outcome.place_of(self._row, self._timestamp)
        where = TopicPartition(topic, partition)
        return RecordMetadata(topic, partition, where, offset, timestamp, None, *self._sizes)


class FutureBatchMetadata(OutcomeFuture[BatchMetadata]):
    """The future of a batch, made by `KafkaProducer.send_arrow`: all of its records are written, or none."""

    __slots__ = ("_records",)

    def __init__(self, outcome: BatchResult, records: int) -> None:
        self._outcome = outcome
        self._row = 0
        self._records = records

    def _metadata(self) -> BatchMetadata:
        outcome = self._outcome
        return BatchMetadata(outcome.topic, self._records, outcome.ranges, outcome.append_time)


NO_OFFSET: Final = -1
"""Offset of a record whose outcome is not awaited (`acks=0`)."""

_NO_ERRORS: Final[Mapping[int, Exception]] = MappingProxyType({})


class BatchResult:
    """The result of the records of one batch.

    The sender completes it once, with `succeed` or `fail`. Any thread may wait, read it and add callbacks.

    Args:
        topic: the records' topic.
        sender: id of the thread that completes it and must not wait for it; 0 if there is none.
    """

    __slots__ = (
        "_append_time",
        "_callbacks",
        "_errors",
        "_failure",
        "_lock",
        "_offsets",
        "_partitions",
        "_ranges",
        "_settled",
        "done",
        "sender",
        "topic",
    )

    def __init__(self, topic: str, sender: int) -> None:
        self.topic = topic
        self.sender = sender
        self.done = False
        """True once the result is known. Callbacks may still be running."""
        self._lock = threading.Lock()
        self._settled = Latch()
        self._callbacks: list[tuple[int, Callable[[], object]]] = []
        self._failure: Exception | None = None
        self._errors = _NO_ERRORS
        self._partitions: Sequence[int] = ()
        self._ranges: Mapping[int, range] | None = None
        self._offsets: list[int] | None = None
        self._append_time: int | None = None

    # --- settling: the sender ------------------------------------------------------------------

    def succeed(
        self,
        partitions: Sequence[int],
        ranges: Mapping[int, range] | None,
        append_time_ms: int | None = None,
        errors: Mapping[int, Exception] = _NO_ERRORS,
    ) -> None:
        """Record the offsets of the records, and run the callbacks. Caller: sender, once.

        Args:
            partitions: the partition of each record, including rejected ones.
            ranges: written offsets, by partition; None if they are unknown (`acks=0`).
            append_time_ms: timestamp of the records in a topic with LogAppendTime, else None.
            errors: errors of rejected records, by row.
        """
        self._partitions = partitions
        self._ranges = ranges
        self._append_time = append_time_ms
        self._errors = errors
        self._settle()

    def fail(self, error: Exception, errors: Mapping[int, Exception] = _NO_ERRORS) -> None:
        """Record that no record was written, or that this is unknown, and run the callbacks. Caller: sender, once.

        Args:
            error: the error of all records that are not in `errors`.
            errors: errors of rejected records, by row.
        """
        self._failure = error
        self._errors = errors
        self._settle()

    def _settle(self) -> None:
        with self._lock:
            self.done = True
            callbacks, self._callbacks = self._callbacks, []
        # In the order of the records; for one record, the stable sort keeps the order in which callbacks were added.
        callbacks.sort(key=lambda entry: entry[0])
        try:
            for _, run in callbacks:
                run()
        finally:
            self._settled.open()

    # --- asking: any thread --------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is completed and the callbacks added before have run.

        Args:
            timeout: seconds; None waits without end.

        Returns:
            False after a timeout.

        Raises:
            IllegalStateError: called by the sender itself, from a callback.
        """
        if threading.get_ident() == self.sender:
            # In a callback of this batch, the result is complete. Any other batch would wait for its own thread.
            if self.done:
                return True
            raise IllegalStateError("a callback must not wait for another record: it runs in the thread that sends")
        return self._settled.wait(timeout)

    def when_done(self, row: int, run: Callable[[], object]) -> None:
        """Call `run` at completion, or now if it is complete. `run` must not raise."""
        with self._lock:
            if not self.done:
                self._callbacks.append((row, run))
                return
        run()

    def error_of(self, row: int) -> Exception | None:
        """Return the error of a record; None if it was written, or if that is unknown yet."""
        if not self.done:
            return None
        return self._errors.get(row, self._failure)

    def place_of(self, row: int, timestamp: int) -> tuple[int, int, int]:
        """Return partition, offset and timestamp (ms) of a written record.

        Args:
            row: the record's number in the batch.
            timestamp: the timestamp it was sent with.
        """
        when = timestamp if self._append_time is None else self._append_time
        if self._ranges is None:
            return self._partitions[row], NO_OFFSET, when
        if self._offsets is None:
            # Computed at the first question, because most records are never asked about.
            self._offsets = _offsets(self._partitions, self._ranges, self._errors)
        return self._partitions[row], self._offsets[row], when

    @property
    def ranges(self) -> Mapping[int, range]:
        """Written offsets, by partition; empty if they are unknown."""
        return self._ranges or {}

    @property
    def append_time(self) -> int | None:
        """Timestamp of the records in a topic with LogAppendTime, else None."""
        return self._append_time


def _offsets(partitions: Sequence[int], ranges: Mapping[int, range], errors: Mapping[int, Exception]) -> list[int]:
    following = {p: run.start for p, run in ranges.items()}
    offsets = []
    for row, p in enumerate(partitions):
        if row in errors:
            offsets.append(NO_OFFSET)
            continue
        offset = following[p]
        following[p] = offset + 1
        offsets.append(offset)
    return offsets
