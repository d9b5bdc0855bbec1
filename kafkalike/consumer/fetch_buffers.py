"""Fetch buffers: records read from each partition and not delivered yet, and the share of one poll in them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalike.consumer.subscription import PartitionState
from kafkalike.errors import RecordDeserializationError
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.call_view import CallView
    from kafkalike.log.topic.chunk import Chunk
    from kafkalike.log.topic.reader import PartitionReader
    from kafkalike.log.topic.topic_log import TopicLog

Build = Callable[["TopicPartition", "Chunk"], tuple[Any, RecordDeserializationError | None]]
"""Makes of a chunk what a caller gets; also the error of the first record that could not be made, which then is the
one after those that were."""


@dataclass(slots=True)
class FetchedRecords:
    """The records that one poll delivers from one partition."""

    tp: TopicPartition
    state: PartitionState
    start: int
    """The position before these records."""
    next_offset: int
    """The position after these records."""
    parts: list[Any] = field(default_factory=list)
    """The results of `Build`, in offset order; empty if all records were skipped."""


@dataclass(slots=True)
class FetchBuffer:
    """Records that were read from one partition and not delivered yet."""

    tp: TopicPartition
    state: PartitionState
    topic_id: str | None
    start: int
    """Offset after what was handed out; where the buffer, or else the reader, goes on."""
    chunks: deque[Chunk] = field(default_factory=deque)
    reader: PartitionReader | None = None
    log: TopicLog | None = None
    idle_end: int | None = None
    """Log end up to which there is nothing left to read; None while there may be more."""

    @property
    def end(self) -> int:
        """Offset after what was read."""
        return self.chunks[-1].next_offset if self.chunks else self.start

    @property
    def num_bytes(self) -> int:
        """Bytes in the buffer."""
        return sum(chunk.num_bytes for chunk in self.chunks)

    @property
    def needs_data(self) -> bool:
        """True if there is nothing to read before the log is refreshed."""
        if self.chunks or not self.state.fetchable:
            return False
        highwater = self.state.highwater
        return self.reader is None or highwater is None or self.reader.position >= highwater

    @property
    def passed(self) -> int | None:
        """Offset after a gap at the log's end that the reader has crossed; None where it has crossed none.

        All records there were removed: undone, forgotten or compacted.
        """
        reader = self.reader
        return reader.position if reader is not None and not self.chunks and reader.position > self.start else None

    def rewind(self, offset: int) -> None:
        """Read again from an offset."""
        self.start = offset
        self.chunks.clear()
        self.reader = self.idle_end = None


@dataclass(slots=True)
class IdleTopic:
    """Partitions of one topic that were read to their ends."""

    topic_id: str | None
    log: TopicLog
    version: int
    """Of the table, when that was."""
    feeds: dict[TopicPartition, FetchBuffer] = field(default_factory=dict)


@dataclass(slots=True)
class FetchRound:
    """The limits and the results of one call of `collect`."""

    view: CallView
    """The tables as this call has seen them."""
    room: float
    """Records that may still be handed out."""
    budget: int
    """Bytes that may still be read."""
    taken: dict[TopicPartition, FetchedRecords] = field(default_factory=dict)
    failed: TopicPartition | None = None
    """The partition whose error waits for the next call."""
