"""Producer sequences: the last batches of idempotent producers, and the verdict on their next batch.

The rules follow Kafka's `ProducerStateManager`. Each commit of a topic's table notes the sequences of its
batches, and the plan of the next append judges new batches by them. So a batch is written once, whichever process
writes it.

A note holds the batches of its own commit. Some notes also hold all that was known before, so that a process that
loads a checkpoint has to read few older commits.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kafkalike.errors import InvalidProducerEpochError, KafkaError, OutOfOrderSequenceNumberError
from kafkalike.model.record_batch import RESERVED_APPS
from kafkalike.model.row_value import UNREADABLE

KEPT_BATCHES: Final = 5
"""Batches that are remembered of each producer and partition: a producer has at most as many under way."""

SEQUENCES: Final = 2**31
"""Number of sequences: the one after 2^31 - 1 is 0."""

EXPIRATION_MS: Final = 600_000
"""Time after the last batch of a producer at which it is forgotten, ms. A producer retries for two minutes by default,
and an append that waits beside a table is not taken after five."""

MOST_PRODUCERS: Final = 20_000
"""Number of producers and partitions that are remembered. Beyond it the least recent writers are forgotten."""

PRODUCERS_APP: Final = f"{RESERVED_APPS}producers"
"""Delta application that records the latest commit with sequences. Its version is the lowest table version that the
commit could get; it differs from that of any other commit with sequences."""

BATCHES_KEY: Final = "producers"
"""Key of the sequences in a commit's user metadata: producer id, epoch, partition, first sequence, number of records
and first offset of each batch."""

BEFORE_KEY: Final = "producersBefore"
"""Key of the version of `PRODUCERS_APP` before the commit; -1 for none."""

KNOWN_KEY: Final = "producersKnown"
"""Key of all sequences known before the commit."""

MOST_LINKS: Final = 32
"""Most commits with sequences between two that hold all known ones."""


@dataclass(frozen=True, slots=True)
class SequencedBatch:
    """The sequence of a batch that an idempotent producer sends to a partition."""

    producer_id: int
    epoch: int
    partition: int
    first: int
    """Sequence of the first record, from 0 to 2^31 - 1."""
    count: int

    @property
    def key(self) -> tuple[int, int]:
        """Producer id and partition, which sequences belong to."""
        return self.producer_id, self.partition

    @property
    def last(self) -> int:
        """Sequence of the last record."""
        return (self.first + self.count - 1) % SEQUENCES


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """The last batches of a producer in a partition."""

    epoch: int
    batches: tuple[tuple[int, int, int], ...]
    """First sequence, last sequence and first offset of its latest batches, oldest first; never empty."""
    time_ms: int
    """Time of the latest one, ms."""

    def after(self, batch: SequencedBatch, offset: int, time_ms: int) -> ProducerEntry:
        """Return the entry after the next batch."""
        older = self.batches if batch.epoch == self.epoch else ()
        batches = (*older, (batch.first, batch.last, offset))[-KEPT_BATCHES:]
        return ProducerEntry(batch.epoch, batches, max(time_ms, self.time_ms))

    def placed(self, producer_id: int, partition: int) -> Iterator[tuple[SequencedBatch, int]]:
        """Yield the latest batches with their first offsets, as a commit that wrote them records them."""
        for first, last, offset in self.batches:
            count = (last - first) % SEQUENCES + 1
            yield SequencedBatch(producer_id, self.epoch, partition, first, count), offset

    def judge(self, batch: SequencedBatch) -> int | None:
        """Return the first offset of a batch that was written before; None for one to write.

        Raises:
            InvalidProducerEpochError: a producer with a newer epoch has written.
            OutOfOrderSequenceNumberError: batches before this one are missing.
        """
        of = f"producer {batch.producer_id} in partition {batch.partition}"
        if batch.epoch == self.epoch:
            for first, last, offset in self.batches:
                if (first, last) == (batch.first, batch.last):
                    return offset
            latest = self.batches[-1][1]
            if batch.first != (latest + 1) % SEQUENCES:
                raise OutOfOrderSequenceNumberError(
                    f"sequence {batch.first} of {of} does not follow its latest one, {latest}"
                )
        elif batch.epoch < self.epoch:
            raise InvalidProducerEpochError(f"{of} has epoch {batch.epoch}, and epoch {self.epoch} has written since")
        elif batch.first:
            raise OutOfOrderSequenceNumberError(
                f"sequence {batch.first} of {of} begins epoch {batch.epoch}, which must begin with 0"
            )
        return None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decision of an append about a batch. If no field is set, the append writes the batch."""

    offset: int | None = None
    """First offset of the batch in the log, if it was written before."""
    twin: int | None = None
    """Position in the same append of the batch that it repeats."""
    error: KafkaError | None = None

    @property
    def writes(self) -> bool:
        """True if the append writes the batch."""
        return self.offset is None and self.twin is None and self.error is None


WRITE: Final = Verdict()

Entries = Mapping[tuple[int, int], ProducerEntry]
"""Entries by producer id and partition."""


def judge_all(
    known: Entries,
    batches: Sequence[SequencedBatch | None],
    now_ms: int,
    settled: Mapping[int, Verdict] | None = None,
) -> list[Verdict]:
    """Return the verdict on each batch of an append, in order.

    Args:
        known: the entries of the topic.
        batches: None for a batch of a producer that is not idempotent.
        now_ms: the present; entries of producers that are silent for `EXPIRATION_MS` do not count.
        settled: verdicts that are known already, by position.
    """
    own = dict[tuple[int, int], ProducerEntry]()
    verdicts = list[Verdict]()
    for at, batch in enumerate(batches):
        verdict = (settled or {}).get(at, WRITE)
        if batch is not None and verdict.writes:
            entry = own.get(batch.key) or known.get(batch.key)
            if entry is not None and entry.time_ms < now_ms - EXPIRATION_MS:
                entry = None
            verdict = WRITE if entry is None else _verdict(entry, batch)
            if verdict.writes:
                # Offsets are not known yet: negative ones stand for positions in the append.
                entry = entry or ProducerEntry(batch.epoch, (), now_ms)
                own[batch.key] = entry.after(batch, -1 - at, now_ms)
        verdicts.append(verdict)
    return verdicts


def _verdict(entry: ProducerEntry, batch: SequencedBatch) -> Verdict:
    try:
        offset = entry.judge(batch)
    except KafkaError as error:
        return Verdict(error=error)
    if offset is None:
        return WRITE
    return Verdict(offset=offset) if offset >= 0 else Verdict(twin=-1 - offset)


@dataclass(slots=True)
class ProducerSequences:
    """The entries of a topic, kept up commit by commit. Its owner changes it as `TableState` is changed."""

    since: int
    """Every commit above this version is known."""
    entries: dict[tuple[int, int], ProducerEntry] = field(default_factory=dict)
    """By producer id and partition; the latest writers are at the end."""
    links: int = 0
    """Commits with sequences since the last commit that held all known sequences."""
    whole: bool = False
    """True if the entries rest on a commit that held all known ones, so that older commits add nothing."""
    before: int | None = None
    """`BEFORE_KEY` of the oldest known commit with sequences; None if no such commit is known."""

    def note(self, note: Mapping[str, Any], time_ms: int) -> None:
        """Take in the user metadata of the next commit; malformed sequences are left out.

        Args:
            note: the metadata.
            time_ms: time of the commit.
        """
        if BATCHES_KEY not in note:
            return
        try:
            when = int(note.get("time", time_ms))
            before = int(note[BEFORE_KEY])
            rows = [tuple(map(int, row)) for row in note[BATCHES_KEY]]
            batches = [(SequencedBatch(*row[:-1]), row[-1]) for row in rows]
            known = None if KNOWN_KEY not in note else _entries_of(note[KNOWN_KEY])
        except UNREADABLE:
            return
        if known is not None and not self.complete:
            self.entries, self.whole = known, True
        for batch, offset in batches:
            entry = self.entries.pop(batch.key, None) or ProducerEntry(batch.epoch, (), when)
            self.entries[batch.key] = entry.after(batch, offset, when)
            oldest = next(iter(self.entries))
            # Twice the time, because the clocks of two writers may differ.
            if len(self.entries) > MOST_PRODUCERS or self.entries[oldest].time_ms < when - 2 * EXPIRATION_MS:
                del self.entries[oldest]
        self.links = 0 if known is not None else self.links + 1
        self.before = before if self.before is None else self.before

    def after(self, older: ProducerSequences) -> ProducerSequences:
        """Return these entries, completed by the entries of older commits."""
        entries = dict(older.entries)
        for key, entry in self.entries.items():
            was = entries.pop(key, None)
            more = was.batches if was is not None and was.epoch == entry.epoch else ()
            entries[key] = replace(entry, batches=(*more, *entry.batches)[-KEPT_BATCHES:])
        return ProducerSequences(since=-1, entries=entries, links=older.links + self.links)

    @property
    def complete(self) -> bool:
        """True if older commits add nothing."""
        return self.whole or self.since < 0 or self.before == NO_COMMIT

    def to_note(self, batches: Iterable[tuple[SequencedBatch, int]], before: int | None, now_ms: int) -> dict[str, Any]:
        """Return the entries of the user metadata of a commit with sequences.

        Args:
            batches: the commit's batches, each with its first offset.
            before: the latest version of `PRODUCERS_APP`; None if there is none.
            now_ms: the present.
        """
        rows = [[b.producer_id, b.epoch, b.partition, b.first, b.count, offset] for b, offset in batches]
        note: dict[str, Any] = {BATCHES_KEY: rows, BEFORE_KEY: NO_COMMIT if before is None else before}
        alive = [item for item in self.entries.items() if item[1].time_ms >= now_ms - EXPIRATION_MS]
        if self.links + 1 >= min(MOST_LINKS, len(alive)):
            note[KNOWN_KEY] = [
                [producer_id, partition, entry.epoch, entry.time_ms, list(map(list, entry.batches))]
                for (producer_id, partition), entry in alive
            ]
        return note


NO_COMMIT: Final = -1
"""Version of `PRODUCERS_APP` before the first commit with sequences."""


def _entries_of(rows: Any) -> dict[tuple[int, int], ProducerEntry]:  # noqa: ANN401 - any JSON
    found = {}
    for producer_id, partition, epoch, time_ms, batches in rows:
        checked = tuple((int(first), int(last), int(offset)) for first, last, offset in batches)
        if not checked:
            raise ValueError("a producer without batches")
        found[int(producer_id), int(partition)] = ProducerEntry(int(epoch), checked, int(time_ms))
    return found


@dataclass(slots=True, eq=False)
class TakenBatch:
    """A batch of a transaction that this gateway has taken."""

    batch: SequencedBatch
    number: int | None = None
    """Number of its transaction; None until it is staged."""


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """Place of a batch among those that its producer sent before to the partition, through this gateway."""

    link: TakenBatch
    """The batch; the earlier one if this is a retry."""
    retried: bool = False
    after: TakenBatch | None = None
    """The latest batch, if this one does not follow it."""


@dataclass(slots=True)
class TakenBatches:
    """The latest batches of transactions that one process has taken, by topic, producer and partition. Thread-safe.

    They have no offsets yet, so no table knows them.
    """

    known: OrderedDict[tuple[str, int, int], list[TakenBatch]] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def place(self, name: str, batch: SequencedBatch) -> BatchPlace:
        """Return the place of the next batch for a topic, and remember the batch if it follows."""
        with self.lock:
            links = self.known.pop((name, *batch.key), [])
            if links and links[-1].batch.epoch != batch.epoch:
                links = []
            found = BatchPlace(TakenBatch(batch))
            for link in links:
                if (link.batch.first, link.batch.last) == (batch.first, batch.last):
                    found = BatchPlace(link, retried=True)
            if not found.retried:
                if links and batch.first != (links[-1].batch.last + 1) % SEQUENCES:
                    found = BatchPlace(found.link, after=links[-1])
                else:
                    links = [*links[1 - KEPT_BATCHES :], found.link]
            self.known[name, *batch.key] = links
            if len(self.known) > MOST_PRODUCERS:
                self.known.popitem(last=False)
            return found

    def forget(self, name: str, batch: SequencedBatch) -> None:
        """Forget a producer: one of its batches was not stored, and its end decides what is missing."""
        with self.lock:
            self.known.pop((name, *batch.key), None)
