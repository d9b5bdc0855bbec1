"""Share delivery: the records that a share consumer has acquired and holds, with their verdicts, and their reading."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from kafkalike.errors import IllegalStateError, InvalidRecordStateError, KafkaError, OffsetOutOfRangeError
from kafkalike.log.topic.chunk import Chunk
from kafkalike.model.shares.share_partition import (
    Acknowledgement,
    Acknowledgements,
    RecordRun,
    RecordVerdict,
)
from kafkalike.model.shares.share_runs import merged_offsets
from kafkalike.model.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from kafkalike.consumer.record_builders import Build
    from kafkalike.log.topic.topic_log import TopicLog


@dataclass(slots=True)
class HeldRecord:
    """A record that this consumer has acquired."""

    deliveries: int
    verdict: RecordVerdict | None = None
    """None until the record is acknowledged."""
    pending: bool = False
    """True if the verdict awaits its commit; False once it is, or if a transaction commits it."""
    due_ms: int = 0
    """Time of the next delivery, for released records."""

    @property
    def is_open(self) -> bool:
        """True if the application has not acknowledged the record."""
        return self.verdict is None


class HeldRecords:
    """The records that a consumer has acquired and not finished, by partition and offset. One thread at a time."""

    def __init__(self) -> None:
        self._held: dict[TopicPartition, dict[int, HeldRecord]] = {}

    def __len__(self) -> int:
        """Return the number of records."""
        return sum(map(len, self._held.values()))

    def note(self, tp: TopicPartition, offsets: Iterable[int], deliveries: int) -> None:
        """Add records that are handed out."""
        held = self._held.setdefault(tp, {})
        for offset in offsets:
            held[offset] = HeldRecord(deliveries)

    def judge(self, tp: TopicPartition, offset: int, verdict: RecordVerdict, due_ms: int = 0) -> None:
        """Record a verdict, which replaces an earlier verdict without a commit.

        Raises:
            IllegalStateError: the consumer does not hold the record.
        """
        found = self._held.get(tp, {}).get(offset)
        if found is None:
            raise IllegalStateError(
                f"the record {tp.topic}-{tp.partition} @ {offset} cannot be acknowledged: this consumer does not hold "
                "it, because it did not deliver it or has committed its acknowledgement"
            )
        found.verdict, found.due_ms, found.pending = verdict, due_ms, True

    def judge_open(self, verdict: RecordVerdict) -> None:
        """Record a verdict for all records without one."""
        for held in self._held.values():
            for one in held.values():
                if one.is_open:
                    one.verdict, one.pending = verdict, True

    def open_record(self) -> tuple[TopicPartition, int] | None:
        """Return a record without a verdict; None if there is none."""
        for tp, held in self._held.items():
            for offset, one in held.items():
                if one.is_open:
                    return tp, offset
        return None

    def acknowledgements(self) -> dict[TopicPartition, list[Acknowledgement]]:
        """Return the verdicts that await their commit, as ranges."""
        found = {}
        for tp, held in self._held.items():
            said = (
                (offset, (one.verdict, one.deliveries, one.due_ms))
                for offset, one in sorted(held.items())
                if one.pending
            )
            acks = [Acknowledgement(first, last, *facts) for first, last, facts in merged_offsets(said)]
            if acks:
                found[tp] = acks
        return found

    def ranges(self) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Return the held offsets as sorted ranges."""
        return {
            tp: [(first, last) for first, last, _ in merged_offsets((offset, ()) for offset in sorted(held))]
            for tp, held in self._held.items()
        }

    def settle(self, acknowledgements: Mapping[TopicPartition, Sequence[Acknowledgement]]) -> None:
        """Drop the records of committed or refused acknowledgements; renewed ones stay, until their next verdict."""
        for tp, acks in acknowledgements.items():
            held = self._held.get(tp, {})
            for ack in acks:
                for offset in range(ack.first, ack.last + 1):
                    if ack.verdict is RecordVerdict.RENEW and offset in held:
                        held[offset].pending = False
                    else:
                        held.pop(offset, None)
            if not held:
                self._held.pop(tp, None)

    def stage(self, acknowledgements: Mapping[TopicPartition, Sequence[Acknowledgement]]) -> None:
        """Leave acknowledgements to a transaction."""
        for tp, acks in acknowledgements.items():
            for ack in acks:
                for offset in range(ack.first, ack.last + 1):
                    self._held[tp][offset].pending = False

    def keep(self, owned: Mapping[TopicPartition, Sequence[RecordRun]]) -> None:
        """Drop records that wait for nothing, and that the group's state does not give to this consumer any more."""
        for tp, held in list(self._held.items()):
            mine = {(offset, run.deliveries) for run in owned.get(tp, ()) for offset in range(run.first, run.last + 1)}
            for offset, one in list(held.items()):
                if not (one.pending or one.is_open) and (offset, one.deliveries) not in mine:
                    del held[offset]
            if not held:
                del self._held[tp]

    @property
    def has_idle(self) -> bool:
        """True if it has renewed records, or verdicts that a transaction commits."""
        return any(not (one.pending or one.is_open) for held in self._held.values() for one in held.values())

    def clear(self) -> None:
        """Forget all records that were handed out."""
        self._held.clear()


def offsets_in(acks: Iterable[Acknowledgement]) -> Iterator[int]:
    """Yield the offsets of acknowledgements."""
    for ack in acks:
        yield from range(ack.first, ack.last + 1)


def record_count(acknowledgements: Acknowledgements) -> int:
    """Return the number of records in acknowledgements."""
    return sum(ack.last - ack.first + 1 for said in acknowledgements.values() for ack in said)


class ShareReader:
    """Reads acquired records. Keeps the last chunk of each partition, because members acquire parts of it in turn.

    Args:
        build: makes records of a chunk.
        read_bytes: bytes near which one read stops.
    """

    def __init__(self, build: Build, read_bytes: int) -> None:
        self._build = build
        self._read_bytes = read_bytes
        self._chunks: dict[TopicPartition, tuple[TopicLog, int, Chunk]] = {}
        """The log, the first covered offset, and the records."""

    def read(
        self, log: TopicLog, tp: TopicPartition, run: RecordRun, max_bytes: int
    ) -> tuple[list[ConsumerRecord], int, KafkaError | None]:
        """Return the records of a run, in offset order.

        Args:
            log: the topic.
            tp: the partition.
            run: the acquired offsets; compaction may have removed some of them.
            max_bytes: bytes after which reading stops.

        Returns:
            The records; the offset up to which the run was read; and the error of the record at that offset, if it
            could not be deserialized.

        Raises:
            KafkaError: the log cannot be read.
        """
        at, size = run.first, 0
        records: list[ConsumerRecord] = []
        while at <= run.last and (size < max_bytes or not records):
            try:
                chunk, after = self._part(log, tp, at, run.last)
            except OffsetOutOfRangeError:
                # Retention has removed it: the next acquisition moves the start.
                break
            if chunk is not None and len(chunk):
                size += chunk.num_bytes
                made, error = self._build(tp, chunk)
                records += made
                if error is not None:
                    return records, error.offset, error
            at = after
        return records, min(at, run.last + 1), None

    def _part(self, log: TopicLog, tp: TopicPartition, first: int, last: int) -> tuple[Chunk | None, int]:
        """Return records from `first` on, at most up to `last`, and the offset after them."""
        known = self._chunks.get(tp)
        if known is None or known[0] is not log or not known[1] <= first < known[2].next_offset:
            read = log.reader(tp.partition, first).read(self._read_bytes)
            if read is None:
                return None, last + 1
            known = self._chunks[tp] = log, first, read
        chunk = known[2]
        begin, end = chunk.count_below(first), chunk.count_below(last + 1)
        after = min(chunk.next_offset, last + 1)
        if begin == end:
            return None, after
        return Chunk(tp.partition, chunk.table.slice(begin, end - begin), after), after

    def clear(self) -> None:
        """Drop the kept chunks."""
        self._chunks.clear()


def divided(
    acknowledgements: Acknowledgements, refused: Acknowledgements
) -> tuple[dict[TopicPartition, Sequence[Acknowledgement]], dict[TopicPartition, Sequence[Acknowledgement]]]:
    """Return the accepted and the refused parts of acknowledgements."""
    good: dict[TopicPartition, Sequence[Acknowledgement]] = {}
    bad: dict[TopicPartition, Sequence[Acknowledgement]] = {}
    for tp, said in acknowledgements.items():
        no = set(offsets_in(refused.get(tp, ())))
        for into, wanted in ((good, False), (bad, True)):
            offsets = (
                (offset, tuple(ack[2:]))
                for ack in said
                for offset in range(ack.first, ack.last + 1)
                if (offset in no) is wanted
            )
            parts = [Acknowledgement(first, last, *facts) for first, last, facts in merged_offsets(offsets)]
            if parts:
                into[tp] = parts
    return good, bad


def refusal(bad: Acknowledgements) -> KafkaError:
    """Return the error of acknowledgements that do not count."""
    places = ", ".join(f"{tp.topic}-{tp.partition} @ {a.first}-{a.last}" for tp, said in bad.items() for a in said)
    return InvalidRecordStateError(
        f"{places}: not acknowledged, because the lock has ended and another member has acquired the records, or "
        "because an interrupted call has acknowledged them. They may be processed twice: finish sooner, renew the "
        "lock, or raise share_record_lock_duration_ms"
    )


HAND_OUT_SECONDS: Final = 0.25
"""How long a consumer hands out records of one acquisition before it commits its acknowledgements and acquires again.
The records left then are returned."""

COSTLY: Final = 4
"""An acquisition is enlarged if the application takes less than this multiple of its duration for its records."""


def _hand_out_seconds(lock_ms: int) -> float:
    return min(HAND_OUT_SECONDS, lock_ms / 8000)


class ShareSlice:
    """The records of one acquisition that the application has not got, and the size of the next one."""

    def __init__(self) -> None:
        self.records: deque[tuple[ConsumerRecord, int]] = deque()
        """With the number of deliveries."""
        self._size = 0
        self._begun = self._ended = 0.0
        self._count = 0
        self._topics: tuple[str, ...] = ()

    def size(self, most: int, largest: int, now: float, lock_ms: int) -> int:
        """Return how many records to acquire next; at least `most`.

        Acquisitions double while the application is done with their records faster than they cost, and they take a
        small part of the duration of a lock. They never exceed the number of records that the application takes
        before the next acquisition: others are returned, or count as delivered if this consumer dies.
        """
        spent, cost = now - self._ended, self._ended - self._begun
        handed = self._count - len(self.records)
        if not self.records and handed >= self._size and spent < COSTLY * cost < lock_ms / 1000:
            self._size *= 2
        if handed and spent > 0:
            polls = int(handed / most * _hand_out_seconds(lock_ms) / spent)
            largest = min(largest, polls * most)
        self._size = max(most, min(self._size, largest))
        return self._size

    def fill(
        self, records: Iterable[tuple[ConsumerRecord, int]], topics: tuple[str, ...], begun: float, ended: float
    ) -> None:
        """Hold the records of an acquisition that lasted from `begun` to `ended`, s of the monotonic clock."""
        self.records.extend(records)
        self._count, self._topics, self._begun, self._ended = len(self.records), topics, begun, ended

    def take(self, most: int, topics: tuple[str, ...], now: float, lock_ms: int) -> list[tuple[ConsumerRecord, int]]:
        """Return records for the application; none if it is time to acquire, by the duration of the locks in ms."""
        if not self.records or topics != self._topics or now - self._ended > _hand_out_seconds(lock_ms):
            return []
        return [self.records.popleft() for _ in range(min(most, len(self.records)))]

    def give_back(self) -> dict[TopicPartition, list[Acknowledgement]]:
        """Return acknowledgements that return the records left, and drop them."""
        left = sorted((TopicPartition(r.topic, r.partition), r.offset, n) for r, n in self.records)
        self.records.clear()
        found: dict[TopicPartition, list[Acknowledgement]] = {}
        for tp, own in groupby(left, key=itemgetter(0)):
            parts = merged_offsets((offset, (n,)) for _, offset, n in own)
            found[tp] = [Acknowledgement(a, b, RecordVerdict.RETURN, n) for a, b, (n,) in parts]
        return found


@dataclass(slots=True)
class ShareMetrics:
    """Totals since the consumer was made."""

    polls: int = 0
    records_acquired: int = 0
    records_delivered: int = 0
    acknowledgements: int = 0
    acknowledgements_refused: int = 0
    records_archived: int = 0

    def as_dict(self) -> dict[str, float]:
        """Return the totals by metric name."""
        return {f"{name.replace('_', '-')}-total": value for name, value in asdict(self).items()}
