"""Fetcher: reads the assigned partitions from their positions on, and prefetches into one buffer each."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafkalike.consumer.consumer_context import ConsumerContext
from kafkalike.consumer.record_builders import Build
from kafkalike.consumer.subscription import PartitionState
from kafkalike.errors import IllegalStateError, KafkaError, OffsetOutOfRangeError, TopicDeletedError
from kafkalike.model.concurrency import ActiveBlock
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.call_view import CallView
    from kafkalike.log.topic.chunk import Chunk
    from kafkalike.log.topic.reader import PartitionReader
    from kafkalike.log.topic.topic_log import TopicLog


log = logging.getLogger(__name__)


class Fetcher:
    """Reads the partitions of a subscription in turn.

    A partition that gave records moves to the end of the queue, so that all partitions get their turn. A partition that
    was read to its end is skipped until its topic's table has a new version: an idle poll costs one look per topic,
    however many partitions it has. Only `advance` and a reset move the consumer's positions: records that were
    collected but not delivered (an interrupt, an error) are read again.
    """

    def __init__(self, context: ConsumerContext) -> None:
        self._logs = context.logs
        self._subscription = context.subscription
        self._config = context.config
        self._clock = context.clock
        self._metrics = context.metrics
        self._feeds: dict[TopicPartition, FetchBuffer] = {}
        """Buffers of partitions that may have records, in the order of the next turn."""
        self._idle: dict[str, IdleTopic] = {}
        """Buffers of partitions without further records, by topic. Their positions are at the log end: nothing is
        buffered, and nothing waits for delivery."""
        self._synced = -1
        """Subscription changes up to which `_feeds` and `_idle` are current."""
        self._collecting = ActiveBlock()
        self._held_since: float | None = None
        """Start of the wait for `fetch_min_bytes`; seconds of the monotonic clock."""

    @property
    def buffered(self) -> bool:
        """True if the next `collect` needs no reading."""
        for feed in self._feeds.values():  # noqa: SIM110 - each poll asks, and a generator is several calls
            if feed.chunks and feed.state.fetchable:
                return True
        return False

    @property
    def idle_logs(self) -> list[TopicLog]:
        """Logs of the topics without further records."""
        return [idle.log for idle in self._idle.values()]

    @property
    def is_idle(self) -> bool:
        """True if no partition has further records."""
        return not any(feed.state.fetchable for feed in self._feeds.values())

    def clear(self) -> None:
        """Drop all buffers. Caller: client."""
        self._synced = -1  # first: an interrupt may hit any line
        self._feeds, self._idle = {}, {}
        self._held_since = None

    def collect(self, limit: int | None, build: Build, view: CallView) -> list[FetchedRecords]:
        """Take records from the positions on, without moving the positions.

        Args:
            limit: maximum number of records; None leaves it to `fetch_max_bytes`.
            build: makes the result of a chunk.
            view: the call's.

        Returns:
            Records by partition; empty if there are none, or fewer than `fetch_min_bytes`.

        Raises:
            KafkaError: the first partition in turn cannot be read, or its next record cannot be deserialized. If other
                partitions gave records before, those are returned, and the next call raises the error.
        """
        if self._collecting.now:
            raise IllegalStateError("a deserializer cannot poll the consumer it works for")
        turn = FetchRound(view, float("inf") if limit is None else limit, self._config.fetch_max_bytes)
        try:
            with self._collecting:
                feeds = self._feeds_in_turn(view)
                if self._config.fetch_min_bytes > 1 and not self._enough(feeds, view):
                    return []
                if feeds:
                    while turn.room > 0 and self._pass(feeds, build, turn):
                        pass
                    self._requeue(turn)
        except KafkaError:
            raise
        except BaseException:
            # An interrupt may have hit between a read and its place in the buffer, so read again from the positions.
            self.clear()
            raise
        return list(turn.taken.values())

    @staticmethod
    def advance(taken: list[FetchedRecords]) -> None:
        """Move the positions past the collected records. Caller: client, at delivery."""
        for part in taken:
            part.state.position = part.next_offset

    @staticmethod
    def retreat(taken: list[FetchedRecords]) -> None:
        """Undo `advance`, even if it was interrupted: the records were not delivered. Caller: client."""
        for part in taken:
            if part.state.position == part.next_offset:
                part.state.position = part.start

    # --- one turn ----------------------------------------------------------------------------

    def _feeds_in_turn(self, view: CallView) -> list[FetchBuffer]:
        """Return the buffers of fetchable partitions that may have records, each at its partition's position."""
        changes = self._subscription.changes.count
        if changes == self._synced:
            if self._logs.looks_ahead:
                self._look_ahead(view)
            self._wake(view)
        else:
            self._sync()
            if self._logs.looks_ahead:
                self._look_ahead(view)
        for feed in self._feeds.values():
            if feed.state.position is not None and feed.start != feed.state.position:
                feed.rewind(feed.state.position)
        self._synced = changes
        return [feed for feed in self._feeds.values() if feed.state.fetchable]

    def _sync(self) -> None:
        """Keep one buffer for each fetchable partition of the assignment."""
        for topic in list(self._idle):
            idle = self._idle.pop(topic)
            self._feeds.update(idle.feeds)
            for woken in idle.feeds.values():
                woken.idle_end = None
        for tp in [tp for tp in self._feeds if tp not in self._subscription]:
            del self._feeds[tp]
        for tp, state in self._subscription.items():
            feed = self._feeds.get(tp)
            if not state.fetchable or state.position is None:
                continue
            if feed is None or feed.state is not state or feed.topic_id != state.topic_id:
                self._feeds[tp] = FetchBuffer(tp, state, state.topic_id, state.position)

    def _look_ahead(self, view: CallView) -> None:
        """Look in parallel at the topics that need new data."""
        wanting = {feed.tp.topic for feed in self._feeds.values() if feed.needs_data}
        self._logs.ahead(wanting | self._idle.keys(), view, waiting=True)

    def _wake(self, view: CallView) -> None:
        """Reactivate idle partitions whose log has grown, or whose topic cannot be read, so that they report that."""
        for topic, idle in list(self._idle.items()):
            try:
                topic_log = self._logs.of(topic, idle.topic_id, view, waiting=True)
            except KafkaError:
                woken = dict(idle.feeds)
            else:
                version = topic_log.version
                if topic_log is idle.log and version == idle.version:
                    continue
                same = topic_log is idle.log
                woken = {
                    tp: feed
                    for tp, feed in idle.feeds.items()
                    if not same or topic_log.log_end(tp.partition) != feed.idle_end
                }
                idle.version = version
            for tp, feed in woken.items():
                feed.idle_end = None
                self._feeds[tp] = idle.feeds.pop(tp)
            if not idle.feeds:
                del self._idle[topic]

    def _rest(self, feed: FetchBuffer, topic_log: TopicLog, version: int, end: int) -> None:
        """Make a partition idle that was read to its end and whose records were all delivered."""
        if feed.chunks or feed.start != feed.state.position or feed.reader is None or feed.reader.position != end:
            return
        if feed.passed is not None:
            return  # its position must move first
        idle = self._idle.setdefault(feed.tp.topic, IdleTopic(feed.topic_id, topic_log, version))
        if idle.log is not topic_log or idle.version != version:
            return  # the others are of an older version: `_wake` updates them first
        feed.idle_end = end
        idle.feeds[feed.tp] = feed
        self._feeds.pop(feed.tp, None)

    def _pass(self, feeds: list[FetchBuffer], build: Build, turn: FetchRound) -> bool:
        """Give each partition one turn; return whether another pass may give more."""
        gave = False
        for feed in feeds:
            if turn.room <= 0:
                break
            if feed.idle_end is not None:
                continue
            try:
                gave |= self._take(feed, build, turn)
            except KafkaError:
                if not turn.taken:
                    raise
                turn.failed = feed.tp
                return False
        return gave

    def _take(self, feed: FetchBuffer, build: Build, turn: FetchRound) -> bool:
        """Take a partition's next records; return whether it had any."""
        chunk = feed.chunks.popleft() if feed.chunks else self._read(feed, turn)
        if chunk is None:
            return self._pass_gap(feed, turn)
        rest: Chunk | None = None
        if len(chunk) > turn.room:
            chunk, rest = chunk.split(int(turn.room))
        try:
            made, error = build(feed.tp, chunk)
        except KafkaError:
            feed.rewind(feed.start)
            raise
        next_offset = chunk.next_offset if error is None else error.offset
        # Skipped records move the position, too.
        if len(made) or next_offset > chunk.offset_at(0):
            taken = turn.taken.setdefault(feed.tp, FetchedRecords(feed.tp, feed.state, feed.start, next_offset))
            taken.next_offset = next_offset
            if len(made):
                taken.parts.append(made)
                turn.room -= len(made)
        if error is not None:
            feed.rewind(next_offset)
            raise error
        feed.start = next_offset
        if rest is not None:
            feed.chunks.appendleft(rest)
        return True

    @staticmethod
    def _pass_gap(feed: FetchBuffer, turn: FetchRound) -> bool:
        """Move past a gap at the end of the log; return whether there was one."""
        passed = feed.passed
        if passed is None:
            return False
        turn.taken.setdefault(feed.tp, FetchedRecords(feed.tp, feed.state, feed.start, passed)).next_offset = passed
        feed.start = passed
        return True

    def _requeue(self, turn: FetchRound) -> None:
        """Move partitions that gave records to the end, and a failed one to the front."""
        for tp in turn.taken:
            self._feeds[tp] = self._feeds.pop(tp)
        if turn.failed is not None:
            self._feeds = {turn.failed: self._feeds.pop(turn.failed), **self._feeds}

    # --- reading -----------------------------------------------------------------------------

    def _read(self, feed: FetchBuffer, turn: FetchRound) -> Chunk | None:
        """Read the records after a buffer; None if there are none, or the byte budget is used up."""
        if turn.budget <= 0:
            return None
        topic, partition = feed.tp
        try:
            topic_log = self._logs.of(topic, feed.topic_id, turn.view, waiting=True)
            version, end = topic_log.version, topic_log.log_end(partition)
            feed.state.highwater = end
            if feed.reader is None or feed.log is not topic_log:
                feed.reader, feed.log = topic_log.reader(partition, feed.end), topic_log
            chunk = feed.reader.read(self._config.max_partition_fetch_bytes)
        except TopicDeletedError as error:
            if not self._logs.is_repartitioned(error):
                self._subscription.forget_topic(topic)
            raise
        except OffsetOutOfRangeError as error:
            feed.reader = None
            return self._after_reset(feed, turn, error)
        except KafkaError:
            feed.reader = None
            raise
        if chunk is None:
            self._rest(feed, topic_log, version, end)
            return None
        size = chunk.num_bytes
        turn.budget -= size
        self._metrics.fetches += 1
        self._metrics.bytes_fetched += size
        return chunk

    def _after_reset(self, feed: FetchBuffer, turn: FetchRound, error: OffsetOutOfRangeError) -> Chunk | None:
        """Apply `auto_offset_reset` and read there."""
        if feed.chunks:  # the buffered records come first; the position is among them
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

    def _enough(self, feeds: list[FetchBuffer], view: CallView) -> bool:
        """Return True if `fetch_min_bytes` are buffered or `fetch_max_wait_ms` is over; prefetch to find out."""
        wanted = self._config.fetch_min_bytes
        held = sum(feed.num_bytes for feed in feeds)
        turn = FetchRound(view, float("inf"), self._config.fetch_max_bytes)
        for feed in feeds:
            if held >= wanted:
                break
            try:
                chunk = self._read(feed, turn)
            except KafkaError:
                return True  # `collect` meets the error again, after the buffered records
            if chunk is not None:
                feed.chunks.append(chunk)
                held += chunk.num_bytes
            elif feed.passed is not None:
                return True  # a gap has no bytes that could ever become enough
        now = self._clock.monotonic()
        if held and self._held_since is None:
            self._held_since = now
        waited = self._held_since is not None and (now - self._held_since) * 1000 >= self._config.fetch_max_wait_ms
        if held >= wanted or waited:
            self._held_since = None
            return True
        return False


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
    """Offset after the delivered records, where the buffer, or else the reader, continues."""
    chunks: deque[Chunk] = field(default_factory=deque)
    reader: PartitionReader | None = None
    log: TopicLog | None = None
    idle_end: int | None = None
    """Log end up to which nothing is left to read; None while there may be more."""

    @property
    def end(self) -> int:
        """Offset after the records that were read."""
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
        """Offset after a gap at the log's end that the reader has crossed; None if it has crossed none.

        All records in the gap were removed: undone, forgotten or compacted.
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
    """Table version at that time."""
    feeds: dict[TopicPartition, FetchBuffer] = field(default_factory=dict)


@dataclass(slots=True)
class FetchRound:
    """The limits and the results of one call of `collect`."""

    view: CallView
    """The tables as this call has seen them."""
    room: float
    """Number of records that may still be returned."""
    budget: int
    """Bytes that may still be read."""
    taken: dict[TopicPartition, FetchedRecords] = field(default_factory=dict)
    failed: TopicPartition | None = None
    """The partition whose error the next call raises."""
