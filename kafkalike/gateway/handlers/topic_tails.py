"""Topic tails: the open logs of topics that clients of the gateway read.

A long poll waits without a thread. One thread looks at all topics that anyone waits for, and wakes those whose topic
has a new version.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalike import errors
from kafkalike.gateway.error_codes import DONE, Outcome
from kafkalike.gateway.gateway_cluster import UNUSED_SECONDS, GatewayCluster
from kafkalike.gateway.handlers.cluster_metadata import LEADER_EPOCH, check_leader_epoch
from kafkalike.log.wire.record_encoder import encode, encode_hole

if TYPE_CHECKING:
    from kafkalike.log.topic.reader import PartitionReader
    from kafkalike.log.topic.topic_log import TopicLog

T = TypeVar("T")

MAX_READERS: Final = 256
"""Open readers of one topic: one for each partition and position at which clients will probably continue."""

CHUNK_BYTES: Final = 1024 * 1024
"""Most bytes of one partition in an answer; a client that wants more asks again."""

IDLE_FACTOR: Final = 8
"""How much longer the time between two looks gets while nothing happens."""

FRESH_SECONDS: Final = 0.1
"""Age of a look at a topic up to which a client at the log's end waits at once, without another look."""

MAX_KNOWN_PARTITIONS: Final = 1000
"""Partitions of a topic up to which the ends of all of them are kept after each look."""

REST: Final = 4
"""How much longer the looks at all topics rest than they compute, so that many topics take a fifth of a core."""

LEAST_TAIL_SECONDS: Final = 0.004
"""Shortest time between two looks at the topics that clients wait for."""


@dataclass(frozen=True, slots=True)
class WantedPartition:
    """A client's request for one partition."""

    partition: int
    offset: int
    max_bytes: int
    current_leader_epoch: int

    @classmethod
    def of(cls, item: Any) -> WantedPartition:  # noqa: ANN401 - of any version
        """Return the request that a client sent."""
        epoch = int(getattr(item, "current_leader_epoch", -1))
        return cls(int(item.partition), int(item.fetch_offset), int(item.partition_max_bytes), epoch)


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The answer for one partition."""

    partition: int
    outcome: Outcome
    log_start: int = -1
    log_end: int = -1
    records: bytes = b""

    def answer(self) -> dict[str, Any]:
        """Return the fields of the answer."""
        return {
            "partition_index": self.partition,
            "error_code": self.outcome.code,
            "high_watermark": self.log_end,
            "last_stable_offset": self.log_end,
            "log_start_offset": self.log_start,
            # librdkafka refuses null records.
            "aborted_transactions": (),
            "records": self.records,
        }


class TopicTail:
    """The open log of one topic. Thread-safe.

    Args:
        log: the log, which belongs to this object.
        codec: compression of the answers.
    """

    def __init__(self, log: TopicLog, codec: str) -> None:
        self.topic_id = uuid.UUID(log.info.topic_id)
        self.used = time.monotonic()
        """Time of the last request, s of the monotonic clock."""
        self._log = log
        self._codec = codec
        self._info = log.info
        self._lock = threading.Lock()
        self._readers: OrderedDict[tuple[int, int], PartitionReader] = OrderedDict()
        self._known: tuple[float, int, Mapping[int, tuple[int, int]]] = (0.0, -1, {})
        """Time and version of the last look, and log start and end by partition. Replaced whole: the event loop reads
        it while a thread looks."""

    def at_end(self, wanted: Sequence[WantedPartition]) -> list[FetchedPartition] | None:
        """Return empty answers if all positions are log ends as of a recent look; None to read. Does not wait."""
        looked, _, ends = self._known
        if time.monotonic() - looked > FRESH_SECONDS:
            return None
        found = []
        for one in wanted:
            known = ends.get(one.partition)
            if known is None or known[1] != one.offset or one.current_leader_epoch > LEADER_EPOCH:
                return None
            found.append(FetchedPartition(one.partition, DONE, *known))
        return found

    def _looked(self) -> None:
        now, log, (_, seen, ends) = time.monotonic(), self._log, self._known
        version = log.version
        if version != seen or log.info is not self._info:
            self._info, partitions = log.info, log.info.partitions
            few = partitions if len(partitions) <= MAX_KNOWN_PARTITIONS else ()
            ends = {p: (log.log_start(p), log.log_end(p)) for p in few}
        self._known = now, version, ends

    def use(self, call: Callable[[TopicLog], T]) -> T:
        """Refresh the log, and call a function with it."""
        with self._lock:
            self._log.refresh()
            return call(self._log)

    def look(self, *, metadata: bool) -> int:
        """Look for new commits, and at the topics unless the caller has just done so; return the table's version."""
        with self._lock:
            self._log.refresh(metadata=metadata, waiting=True)
            self._looked()
            return self._log.version

    def read(self, wanted: Sequence[WantedPartition], left: int) -> list[FetchedPartition]:
        """Read partitions in order.

        Args:
            wanted: the partitions.
            left: most bytes of all records; at most one partition exceeds them.
        """
        with self._lock:
            self._log.refresh(waiting=True)
            self._looked()
            found = []
            for one in wanted:
                fetched = self._partition(one, left)
                left -= len(fetched.records)
                found.append(fetched)
            return found

    def _partition(self, wanted: WantedPartition, left: int) -> FetchedPartition:
        log, partition = self._log, wanted.partition
        if partition not in log.info.partitions:
            error = errors.UnknownTopicOrPartitionError(f"{log.info.name} has {log.info.num_partitions} partitions")
            return FetchedPartition(partition, Outcome.of(error))
        try:
            check_leader_epoch(wanted)
            records = b""
            if wanted.offset != log.log_end(partition) and left > 0:
                records = self._records(partition, wanted.offset, min(wanted.max_bytes, left, CHUNK_BYTES))
            start, end = log.log_start(partition), log.log_end(partition)
        except (errors.KafkaError, OSError) as error:
            return FetchedPartition(partition, Outcome.of(error))
        return FetchedPartition(partition, DONE, start, end, records)

    def _records(self, partition: int, offset: int, max_bytes: int) -> bytes:
        reader = self._readers.pop((partition, offset), None) or self._log.reader(partition, offset)
        chunk = reader.read(max(1, max_bytes))
        if chunk is None:
            # Only holes up to the log's end, from compaction. A consumer that waited there would never reach the end.
            return encode_hole(offset, reader.position) if reader.position > offset else b""
        self._readers[partition, reader.position] = reader
        if len(self._readers) > MAX_READERS:
            self._readers.popitem(last=False)
        return encode(chunk, codec=self._codec)


class TopicTails:
    """The open logs of all topics that clients read.

    Args:
        home: the cluster.
        codec: compression of the answers.
    """

    def __init__(self, home: GatewayCluster, codec: str) -> None:
        self._home = home
        self._codec = codec
        self._tails: dict[str, TopicTail] = {}
        self._waiting: dict[str, set[asyncio.Event]] = {}
        """Events of the long polls by topic."""
        self._seen: dict[str, int] = {}
        """Versions of the topics when the thread looked last."""
        self._task: asyncio.Task[None] | None = None
        self._poked = threading.Event()
        self._stopped = False

    def tail(self, name: str) -> TopicTail:
        """Return the open log of a topic. Call it in a thread.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
        """
        found = self._tails.get(name)
        if found is None:
            found = self._tails[name] = TopicTail(self._home.cluster.log(name), self._codec)
        found.used = time.monotonic()
        return found

    @property
    def open_logs(self) -> int:
        """Number of topics whose logs are open."""
        return len(self._tails)

    def close_unused(self, ids: Mapping[str, uuid.UUID]) -> None:
        """Close the logs of topics that were deleted, or that nobody has read for a while.

        Args:
            ids: the topics of the cluster.
        """
        since = time.monotonic() - UNUSED_SECONDS
        for name, tail in list(self._tails.items()):
            if tail.used < since or ids.get(name) != tail.topic_id:
                self.forget(name)

    def known(self, name: str) -> TopicTail | None:
        """Return the log of a topic if it is open."""
        return self._tails.get(name)

    def use(self, name: str, call: Callable[[TopicLog], T]) -> T:
        """Call a function with a topic's log, refreshed; a topic created again under the name is opened.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
        """
        try:
            return self.tail(name).use(call)
        except errors.TopicDeletedError:
            self.forget(name)
            return self.tail(name).use(call)

    def forget(self, name: str) -> None:
        """Close the log of a topic that was deleted."""
        self._tails.pop(name, None)
        self._seen.pop(name, None)

    def poke(self, name: str) -> None:
        """Look at once, because this gateway has appended to a topic."""
        if name in self._waiting:
            self._poked.set()

    @contextlib.contextmanager
    def waiter(self, names: Sequence[str]) -> Any:  # noqa: ANN401
        """Yield an event that is set after each new version of any of these topics."""
        event = asyncio.Event()
        for name in names:
            self._waiting.setdefault(name, set()).add(event)
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        try:
            yield event
        finally:
            for name in names:
                self._waiting[name].discard(event)
                if not self._waiting[name]:
                    del self._waiting[name]

    async def _watch(self) -> None:
        try:
            while self._waiting:
                await self._home.run(self._look)
        except asyncio.CancelledError:
            # The gateway stops.
            self._stopped = True
            self._poked.set()
            raise
        finally:
            self._task = None

    def _look(self) -> None:
        """Look at topics while clients wait for any; one long call costs half as much as a call for each look."""
        loop, shortest = self._home.loop, max(self._home.cluster.tail_interval, LEAST_TAIL_SECONDS)
        interval = shortest
        while (names := list(self._waiting)) and not self._stopped:
            self._poked.clear()
            begun = time.thread_time()
            changed = self._changed(names)
            rest = REST * (time.thread_time() - begun)
            if changed and loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._wake, changed)
            interval = shortest if changed else min(interval * 1.2, shortest * IDLE_FACTOR)
            if self._poked.wait(max(interval, rest)):
                interval = shortest

    def _wake(self, names: Sequence[str]) -> None:
        for name in names:
            for event in self._waiting.get(name, ()):
                event.set()

    def _changed(self, names: Sequence[str]) -> list[str]:
        """Look at topics; return topics with news and unreadable topics. Reading these reports the cause."""
        changed = []
        for at, name in enumerate(names):
            try:
                version = self.tail(name).look(metadata=not at)
            except (errors.KafkaError, OSError):
                # Not remembered: it may be any name that a client has thought of.
                changed.append(name)
                continue
            if version != self._seen.get(name):
                changed.append(name)
                self._seen[name] = version
        return changed
