"""Batch result: where the records of a batch are, or why not.

A record's future is a reference to its batch and a row number. Lock, event and callbacks belong to the batch, so
that 200,000 records that wait do not need 200,000 locks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from kafkalike.errors import IllegalStateError
from kafkalike.model.concurrency import Latch

NO_OFFSET: Final = -1
"""Offset of a record whose outcome nobody waits for (`acks=0`)."""

_NO_ERRORS: Final[Mapping[int, Exception]] = MappingProxyType({})


class BatchResult:
    """The result of the records of one batch.

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

    @property
    def ranges(self) -> Mapping[int, range]:
        """Offsets written, by partition; empty when they are not known."""
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
