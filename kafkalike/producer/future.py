"""Futures: what became of a batch in, what became of each of its records out; kafka-python's interface.

A record's future is a reference to its batch and a row number. Lock, event and callbacks belong to the batch, so
that 200,000 records that wait do not need 200,000 locks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from kafkalike.errors import IllegalStateError, KafkaTimeoutError
from kafkalike.latch import Latch
from kafkalike.model.structs import RecordMetadata, TopicPartition

log = logging.getLogger(__name__)

NO_OFFSET: Final = -1
"""Offset of a record whose outcome nobody waits for (`acks=0`)."""

_NO_ERRORS: Final[Mapping[int, Exception]] = {}


class Settable(Protocol):
    """What `chain` passes an outcome on to."""

    def success(self, value: Any) -> object:  # noqa: ANN401
        """Take a value."""
        ...

    def failure(self, e: Exception) -> object:
        """Take an error."""
        ...


class Outcome:
    """What becomes of the records of one batch.

    The sender settles it once, with `succeed` or `fail`; any thread may wait, ask and add callbacks.

    Args:
        topic: where the records go.
        sender: id of the thread that settles it, which must not wait for it; 0 when there is none.
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
        """Whether it is settled. The callbacks may still be running."""
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
        """Say where the records are, and run the callbacks. Caller: sender, once.

        Args:
            partitions: the partition of each record, refused ones included.
            ranges: offsets written, by partition; None when they are not known (`acks=0`).
            append_time_ms: timestamp of the records in a topic with LogAppendTime, else None.
            errors: why single records were refused, by row.
        """
        self._partitions = partitions
        self._ranges = ranges
        self._append_time = append_time_ms
        self._errors = errors
        self._settle()

    def fail(self, error: Exception, errors: Mapping[int, Exception] = _NO_ERRORS) -> None:
        """Say that no record was written, or that nobody knows, and run the callbacks. Caller: sender, once.

        Args:
            error: what holds for all records but those in `errors`.
            errors: why single records were refused, by row.
        """
        self._failure = error
        self._errors = errors
        self._settle()

    def _settle(self) -> None:
        with self._lock:
            self.done = True
            callbacks, self._callbacks = self._callbacks, []
        # In the order of the records, and for one record in the order they were added: the sort is stable.
        callbacks.sort(key=lambda entry: entry[0])
        try:
            for _, run in callbacks:
                run()
        finally:
            self._settled.open()

    # --- asking: any thread --------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is settled and the callbacks added before have run.

        Args:
            timeout: seconds; None without end.

        Returns:
            False when time ran out.

        Raises:
            IllegalStateError: called by the sender itself, from a callback.
        """
        if threading.get_ident() == self.sender:
            # In a callback of this very batch it is settled; any other would wait for the thread it is in.
            if self.done:
                return True
            raise IllegalStateError("a callback must not wait for another record: it runs in the thread that sends")
        return self._settled.wait(timeout)

    def when_done(self, row: int, run: Callable[[], object]) -> None:
        """Call `run` when it is settled, or now when it is. `run` must not raise."""
        with self._lock:
            if not self.done:
                self._callbacks.append((row, run))
                return
        run()

    def error_of(self, row: int) -> Exception | None:
        """Why a record was not written; None as long as that is not known, or when it was."""
        if not self.done:
            return None
        return self._errors.get(row, self._failure)

    def place_of(self, row: int, timestamp: int) -> tuple[int, int, int]:
        """Partition, offset and timestamp (ms) of a record that was written.

        Args:
            row: the record's number in the batch.
            timestamp: the one it was sent with.
        """
        when = timestamp if self._append_time is None else self._append_time
        if self._ranges is None:
            return self._partitions[row], NO_OFFSET, when
        if self._offsets is None:
            # Nobody asks for most records, so offsets are counted out at the first question.
            self._offsets = _offsets(self._partitions, self._ranges, self._errors)
        return self._partitions[row], self._offsets[row], when


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


class FutureRecordMetadata:
    """What becomes of one record. Made by `KafkaProducer.send`; thread-safe.

    Callbacks run in the producer's sending thread, in the order of the records and then in the order in which they
    were added; when the record is done already, at once in the thread that adds them. They should be short: nothing
    is sent meanwhile. An error in a callback is logged.
    """

    __slots__ = ("_outcome", "_row", "_sizes", "_timestamp")

    def __init__(self, outcome: Outcome, row: int, timestamp: int, sizes: tuple[int, int, int]) -> None:
        self._outcome = outcome
        self._row = row
        self._timestamp = timestamp
        self._sizes = sizes

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the record's outcome.

        Args:
            timeout: seconds to wait; None without end (`delivery_timeout_ms` is one).

        Returns:
            Where the record is.

        Raises:
            KafkaTimeoutError: still under way after `timeout`, or not written within `delivery_timeout_ms`.
            UnknownOutcomeError: it may have been written or not.
            KafkaError: it was not written, and why.
            IllegalStateError: called in a callback for a record that is under way.
        """
        outcome = self._outcome
        if not outcome.done and not outcome.wait(timeout):
            raise KafkaTimeoutError(f"topic {outcome.topic!r}: the record is still under way after {timeout} s")
        error = outcome.error_of(self._row)
        if error is not None:
            # One error stands for many records. Without the traceback of where it came from, which its cause has,
            # it would grow with each `get`, and keep the sender's variables alive.
            raise error.with_traceback(None)
        return self._metadata()

    def _metadata(self) -> RecordMetadata:
        topic = self._outcome.topic
        partition, offset, timestamp = self._outcome.place_of(self._row, self._timestamp)
        where = TopicPartition(topic, partition)
        return RecordMetadata(topic, partition, where, offset, timestamp, None, *self._sizes)

    @property
    def is_done(self) -> bool:
        """Whether the outcome is known."""
        return self._outcome.done

    @property
    def value(self) -> RecordMetadata | None:
        """Where the record is; None when it is not written, or not yet."""
        return self._metadata() if self.succeeded() else None

    @property
    def exception(self) -> Exception | None:
        """Why it was not written; None when it is, or when that is not known yet."""
        return self._outcome.error_of(self._row)

    def succeeded(self) -> bool:
        """Whether the record is written."""
        return self._outcome.done and self._outcome.error_of(self._row) is None

    def failed(self) -> bool:
        """Whether it is known that it failed."""
        return self._outcome.error_of(self._row) is not None

    def retriable(self) -> bool:
        """Whether it failed and sending it again may help, without doubling it."""
        return bool(getattr(self.exception, "retriable", False))

    def add_callback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> FutureRecordMetadata:  # noqa: ANN401
        """Call `f(*args, record_metadata, **kwargs)` when the record is written. Returns this future."""
        call = partial(f, *args, **kwargs) if args or kwargs else f
        self._outcome.when_done(self._row, partial(self._on_success, call))
        return self

    def add_errback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> FutureRecordMetadata:  # noqa: ANN401
        """Call `f(*args, exception, **kwargs)` when the record failed. Returns this future."""
        call = partial(f, *args, **kwargs) if args or kwargs else f
        self._outcome.when_done(self._row, partial(self._on_failure, call))
        return self

    def add_both(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> FutureRecordMetadata:  # noqa: ANN401
        """Call `f` in both cases, with the metadata or the exception. Returns this future."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def chain(self, future: Settable) -> FutureRecordMetadata:
        """Pass the outcome on to another future. Returns this one."""
        return self.add_callback(future.success).add_errback(future.failure)

    def _on_success(self, call: Callable[[RecordMetadata], object]) -> None:
        if self.exception is None:
            self._run(call, self._metadata())

    def _on_failure(self, call: Callable[[Exception], object]) -> None:
        error = self.exception
        if error is not None:
            self._run(call, error)

    def _run(self, call: Callable[[Any], object], outcome: object) -> None:
        try:
            call(outcome)
        except Exception:
            log.exception("topic %r: a callback of a sent record failed", self._outcome.topic)
