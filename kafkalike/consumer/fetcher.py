"""Fetcher: positions in, records of the assigned partitions out; reads ahead into a buffer per partition."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalike.consumer.context import Context
from kafkalike.consumer.subscription import PartitionState
from kafkalike.errors import (
    IllegalStateError,
    KafkaError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    TopicDeletedError,
)
from kafkalike.log.port import PartitionReader, TopicLog
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.chunk import Chunk

log = logging.getLogger(__name__)

Build = Callable[["TopicPartition", "Chunk"], tuple[Any, RecordDeserializationError | None]]
"""Makes of a chunk what a caller gets; also the error of the first record that could not be made, which then is the
one after those that were."""


@dataclass(slots=True)
class Taken:
    """What one poll hands out of one partition."""

    tp: TopicPartition
    state: PartitionState
    next_offset: int
    """The position after these records."""
    parts: list[Any] = field(default_factory=list)
    """What `Build` made, in offset order."""


@dataclass(slots=True)
class _Feed:
    """What was read of one partition and not handed out yet."""

    tp: TopicPartition
    state: PartitionState
    topic_id: str | None
    start: int
    """Offset after what was handed out; where the buffer, or else the reader, goes on."""
    chunks: deque[Chunk] = field(default_factory=deque)
    reader: PartitionReader | None = None
    log: TopicLog | None = None

    @property
    def end(self) -> int:
        """Offset after what was read."""
        return self.chunks[-1].next_offset if self.chunks else self.start

    @property
    def num_bytes(self) -> int:
        """Bytes in the buffer."""
        return sum(chunk.num_bytes for chunk in self.chunks)

    def rewind(self, offset: int) -> None:
        """Read again from an offset."""
        self.start = offset
        self.chunks.clear()
        self.reader = None


@dataclass(slots=True)
class _Turn:
    """What is left to do, and what was done, in one call of `collect`."""

    room: float
    """Records that may still be handed out."""
    budget: int
    """Bytes that may still be read."""
    taken: dict[TopicPartition, Taken] = field(default_factory=dict)
    failed: TopicPartition | None = None
    """The partition whose error waits for the next call."""


class Fetcher:
    """Reads the partitions of a subscription in turn.

    A partition that gave records goes to the end of the queue, so that all of them get their turn however long one
    is. Nothing here moves the consumer's positions but `advance` and a reset: what was collected and never arrived
    (an interrupt, an error) is read again.
    """

    def __init__(self, context: Context) -> None:
        self._logs = context.logs
        self._subscription = context.subscription
        self._config = context.config
        self._clock = context.clock
        self._metrics = context.metrics
        self._feeds: dict[TopicPartition, _Feed] = {}
        """In the order of the next turn."""
        self._collecting = False
        self._held_since: float | None = None
        """Since when records wait for `fetch_min_bytes`; seconds of the monotonic clock."""

    @property
    def buffered(self) -> bool:
        """Whether the next `collect` can do without reading."""
        return any(feed.chunks and feed.state.fetchable for feed in self._feeds.values())

    def clear(self) -> None:
        """Drop all buffers. Caller: client."""
        self._feeds.clear()
        self._held_since = None

    def collect(self, limit: int | None, build: Build) -> list[Taken]:
        """Take records from the positions on; moves no position.

        Args:
            limit: most records; None leaves it to `fetch_max_bytes`.
            build: makes what is handed out.

        Returns:
            What there is, partition by partition; empty when there is nothing or `fetch_min_bytes` are not there.

        Raises:
            KafkaError: the first partition in turn cannot be read, or its next record cannot be deserialised. If
                others gave records before, those are returned, and the error is raised by the next call.
        """
        if self._collecting:
            raise IllegalStateError("a deserializer cannot poll the consumer it works for")
        turn = _Turn(float("inf") if limit is None else limit, self._config.fetch_max_bytes)
        self._collecting = True
        try:
            self._logs.new_round()
            feeds = self._feeds_in_turn()
            if self._config.fetch_min_bytes > 1 and not self._enough(feeds):
                return []
            while turn.room > 0 and self._pass(feeds, build, turn):
                pass
            self._requeue(turn)
        except KafkaError:
            raise
        except BaseException:
            # An interrupt may have hit between a read and its place in the buffer: read again from the positions.
            self.clear()
            raise
        finally:
            self._collecting = False
        return list(turn.taken.values())

    @staticmethod
    def advance(taken: list[Taken]) -> None:
        """Move the positions past what was collected. Caller: client, when it hands the records out."""
        for part in taken:
            part.state.position = part.next_offset

    # --- one turn ----------------------------------------------------------------------------

    def _feeds_in_turn(self) -> list[_Feed]:
        """Feeds of the fetchable partitions, each beginning at its partition's position."""
        for tp in [tp for tp in self._feeds if tp not in self._subscription]:
            del self._feeds[tp]
        for tp, state in self._subscription.items():
            feed = self._feeds.get(tp)
            if not state.fetchable or state.position is None:
                continue
            if feed is None or feed.state is not state or feed.topic_id != state.topic_id:
                self._feeds[tp] = _Feed(tp, state, state.topic_id, state.position)
            elif feed.start != state.position:
                feed.rewind(state.position)
        return [feed for feed in self._feeds.values() if feed.state.fetchable]

    def _pass(self, feeds: list[_Feed], build: Build, turn: _Turn) -> bool:
        """Give each partition one turn; returns whether another pass may give more."""
        gave = False
        for feed in feeds:
            if turn.room <= 0:
                break
            try:
                gave |= self._take(feed, build, turn)
            except KafkaError:
                if not turn.taken:
                    raise
                turn.failed = feed.tp
                return False
        return gave

    def _take(self, feed: _Feed, build: Build, turn: _Turn) -> bool:
        """Take what one partition has next; returns whether it had anything."""
        chunk = feed.chunks.popleft() if feed.chunks else self._read(feed, turn)
        if chunk is None:
            return False
        rest: Chunk | None = None
        if len(chunk) > turn.room:
            chunk, rest = chunk.split(int(turn.room))
        made, error = build(feed.tp, chunk)
        next_offset = chunk.next_offset if error is None else error.offset
        if len(made):
            taken = turn.taken.setdefault(feed.tp, Taken(feed.tp, feed.state, next_offset))
            taken.parts.append(made)
            taken.next_offset = next_offset
            turn.room -= len(made)
        if error is not None:
            feed.rewind(next_offset)
            raise error
        feed.start = next_offset
        if rest is not None:
            feed.chunks.appendleft(rest)
        return True

    def _requeue(self, turn: _Turn) -> None:
        """Who gave records goes to the end, who failed to the front."""
        for tp in turn.taken:
            self._feeds[tp] = self._feeds.pop(tp)
        if turn.failed is not None:
            self._feeds = {turn.failed: self._feeds.pop(turn.failed), **self._feeds}

    # --- reading -----------------------------------------------------------------------------

    def _read(self, feed: _Feed, turn: _Turn) -> Chunk | None:
        """Read what follows a feed's buffer; None when there is nothing, or the turn's bytes are used up."""
        if turn.budget <= 0:
            return None
        topic, partition = feed.tp
        try:
            topic_log = self._logs.of(topic, feed.topic_id)
            feed.state.highwater = topic_log.log_end(partition)
            if feed.reader is None or feed.log is not topic_log:
                feed.reader, feed.log = topic_log.reader(partition, feed.end), topic_log
            chunk = feed.reader.read(self._config.max_partition_fetch_bytes)
        except TopicDeletedError:
            self._subscription.forget_topic(topic)
            raise
        except OffsetOutOfRangeError as error:
            feed.reader = None
            return self._after_reset(feed, turn, error)
        except KafkaError:
            feed.reader = None
            raise
        if chunk is not None:
            turn.budget -= chunk.num_bytes
            self._metrics.fetches += 1
            self._metrics.bytes_fetched += chunk.num_bytes
        return chunk

    def _after_reset(self, feed: _Feed, turn: _Turn, error: OffsetOutOfRangeError) -> Chunk | None:
        """Go where `auto_offset_reset` says and read there."""
        if feed.chunks:  # what was read before is handed out first; the position is still in it
            return None
        if self._config.auto_offset_reset == "none" or feed.log is None:
            raise error
        partition = feed.tp.partition
        earliest = self._config.auto_offset_reset == "earliest"
        position = feed.log.log_start(partition) if earliest else feed.log.log_end(partition)
        log.warning("%s; auto_offset_reset=%s takes it to %s", error, self._config.auto_offset_reset, position)
        feed.state.seek(position)
        feed.rewind(position)
        return self._read(feed, turn)

    def _enough(self, feeds: list[_Feed]) -> bool:
        """Whether `fetch_min_bytes` are there, or were waited for long enough; reads ahead to find out."""
        wanted = self._config.fetch_min_bytes
        held = sum(feed.num_bytes for feed in feeds)
        turn = _Turn(float("inf"), self._config.fetch_max_bytes)
        for feed in feeds:
            if held >= wanted:
                break
            try:
                chunk = self._read(feed, turn)
            except KafkaError:
                return True  # `collect` meets the error again, after what is there
            if chunk is not None:
                feed.chunks.append(chunk)
                held += chunk.num_bytes
        now = self._clock.monotonic()
        if held and self._held_since is None:
            self._held_since = now
        waited = self._held_since is not None and (now - self._held_since) * 1000 >= self._config.fetch_max_wait_ms
        if held >= wanted or waited:
            self._held_since = None
            return True
        return False
