"""Futures: an outcome in, kafka-python's interface to it out; of a record, and of a batch of columns."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from kafkalike.errors import KafkaTimeoutError
from kafkalike.model.concurrency import ReportErrors
from kafkalike.model.structs import RecordMetadata, TopicPartition
from kafkalike.producer.batch_result import BatchResult

log = logging.getLogger(__name__)

T = TypeVar("T")


class _Settable(Protocol):
    """The future that `chain` completes."""

    def success(self, value: Any) -> object:  # noqa: ANN401
        """Complete the future with a value."""
        ...

    def failure(self, e: Exception) -> object:
        """Complete the future with an error."""
        ...


class BatchMetadata(NamedTuple):
    """The offsets of a batch."""

    topic: str
    records: int
    """How many there were."""
    offsets: Mapping[int, range]
    """By partition, the offsets of its records, in the order of the batch; empty where they are not known: with
    `acks=0`, and in a transaction, whose commit gives them."""
    append_time_ms: int | None
    """Timestamp of all records in a topic with LogAppendTime; None: they keep their own."""


class OutcomeFuture(Generic[T]):
    """The future of a record or of a batch; thread-safe.

    Callbacks run in the producer's sending thread, in the order of the records and then in the order in which they
    were added; when the record is done already, at once in the thread that adds them. They should be short: nothing
    is sent meanwhile. An error in a callback is logged.
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
        """Why it was not written; None when it is, or when that is not known yet."""
        return self._outcome.error_of(self._row)

    def succeeded(self) -> bool:
        """True if the record is written."""
        return self._outcome.done and self._outcome.error_of(self._row) is None

    def failed(self) -> bool:
        """True if the record failed."""
        return self._outcome.error_of(self._row) is not None

    def retriable(self) -> bool:
        """True if it failed and a retry may succeed without duplicating it."""
        return bool(getattr(self.exception, "retriable", False))

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

    def chain(self, future: _Settable) -> Self:
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
    """The future of one record. Made by `KafkaProducer.send`."""

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
    """The future of a batch: all of its records are written, or none. Made by `KafkaProducer.send_arrow`."""

    __slots__ = ("_records",)

    def __init__(self, outcome: BatchResult, records: int) -> None:
        self._outcome = outcome
        self._row = 0
        self._records = records

    def _metadata(self) -> BatchMetadata:
        outcome = self._outcome
        return BatchMetadata(outcome.topic, self._records, outcome.ranges, outcome.append_time)
