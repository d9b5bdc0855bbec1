"""Producer append: write batches of several producers in one table commit, each batch of an idempotent producer once.

Each batch gets a verdict of its own inside the plan of the append. A batch that is in the log already, or that its
topic or its sequence rules out, does not keep the others from being written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from kafkalike.delta.actions import Add, TableCommit, log_name, parse_commit
from kafkalike.delta.damage import storage_errors
from kafkalike.delta.table_change import Change, LastOf
from kafkalike.delta.table_state import TableState
from kafkalike.errors import KafkaError, LogCorruptError, UnknownTopicOrPartitionError
from kafkalike.log.topic.batch_payload import Payload, StagedSequences
from kafkalike.log.topic.record_rules import RECORD_ERRORS, SchemasOf
from kafkalike.model.appends import producer_sequences
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.record_batch import Appended, RecordBatch, TxnId
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from kafkalike.log.topic.column_batch import ColumnBatch
    from kafkalike.model.config.topic_config import TopicConfig
    from kafkalike.model.topic import TopicInfo

PlacedSequence = tuple[producer_sequences.SequencedBatch, int]
"""The sequence of a batch, and the offset of its first record."""

MOST_MISSED: Final = 64
"""Most versions that other writers make between the plan of a commit with sequences and the commit."""


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch as a producer sent it to one partition."""

    columns: ColumnBatch
    """Its records, at least one, all of the partition."""
    sequence: producer_sequences.SequencedBatch | None = None
    """Its sequence; None if the producer is not idempotent."""

    @property
    def partition(self) -> int:
        """Partition of all records."""
        return int(self.columns.partitions[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """Outcome of a batch."""

    base_offset: int = -1
    """Offset of its first record; -1 if the batch was refused."""
    append_time_ms: int = -1
    """Time of the append, ms; -1 if this append did not write the batch."""
    duplicate: bool = False
    """True if the batch was in the log before."""
    error: KafkaError | None = None
    """Reason of a refusal."""


class AppendableLog(Protocol):
    """The methods of `TopicLog` that an append of batches uses."""

    clock: Clock

    @property
    def schemas(self) -> SchemasOf: ...  # noqa: D102

    def append_payload(  # noqa: D102
        self, payload: Payload, *, codec: str, deadline: Deadline, txn: TxnId | None
    ) -> Appended: ...


def append_batches(
    log: AppendableLog,
    batches: Sequence[SentBatch],
    *,
    codec: str = "none",
    timeout_ms: float | None = 120_000,
    whole: ColumnBatch | None = None,
) -> list[BatchOutcome]:
    """Write batches in one table commit, and return the outcome of each.

    Records of one partition get offsets in the order of the batches.

    Args:
        log: the topic.
        batches: at least one.
        codec: as in `TopicLog.append`.
        timeout_ms: as in `TopicLog.append`.
        whole: the records of all batches in their order; None joins them.

    Raises:
        KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: as in `TopicLog.append`; the outcome is that of all
            batches. Appending them again is safe for those with a sequence.
    """
    payload = SequencedPayload(batches, log.schemas, whole)
    try:
        appended = log.append_payload(payload, codec=codec, deadline=Deadline(log.clock, timeout_ms), txn=None)
    except SettledError:
        return payload.results({}, -1)
    return payload.results(appended.ranges, appended.append_time_ms)


class SettledError(KafkaError):
    """Ends an append of which no batch is left to write: each has its verdict."""


class SequencedPayload:
    """Batches of producers as a payload; the latest verdicts decide which of them it writes.

    Args:
        batches: at least one.
        schemas: the cluster's schema registry.
        whole: the records of all batches in their order; None joins them.
    """

    def __init__(self, batches: Sequence[SentBatch], schemas: SchemasOf, whole: ColumnBatch | None = None) -> None:
        self.batches = batches
        self.verdicts: list[producer_sequences.Verdict] = [producer_sequences.WRITE] * len(batches)
        """Verdicts of the latest plan."""
        self._schemas = schemas
        self._refused: dict[int, producer_sequences.Verdict] = {}
        """Verdicts on batches with records that the topic rejects."""
        self._final: dict[int, producer_sequences.Verdict] = {}
        """Verdicts on batches that are not part of the staged append, and that no later plan changes."""
        from kafkalike.log.topic.column_batch import joined

        self._every = joined([batch.columns for batch in batches]) if whole is None else whole

    @property
    def size(self) -> int:
        """Total bytes of the records of all batches."""
        return self._every.size

    @property
    def written(self) -> list[SentBatch]:
        """The batches that the latest plan writes."""
        return [batch for batch, verdict in zip(self.batches, self.verdicts, strict=True) if verdict.writes]

    @property
    def refused(self) -> bool:
        """True if the latest plan refuses a batch."""
        return any(verdict.error is not None for verdict in self.verdicts)

    @property
    def staged(self) -> list[SentBatch]:
        """The batches that may wait in a staged file."""
        return [batch for at, batch in enumerate(self.batches) if at not in self._final]

    def counts(self) -> Mapping[int, int]:
        """Return the number of records to write by partition."""
        return _counts(sequences_of(self.written))

    def check(self, info: TopicInfo, config: TopicConfig, now_ms: int) -> None:
        """Find the batches that the topic rejects. Raises only errors that concern all of them."""
        from kafkalike.log.topic.column_batch import ColumnPayload

        refused = (*RECORD_ERRORS, UnknownTopicOrPartitionError)
        self._refused = {}
        try:
            ColumnPayload(self._every, self._schemas).check(info, config, now_ms)
        except refused as cause:
            for at, batch in enumerate(self.batches):
                try:
                    if len(self.batches) > 1:
                        ColumnPayload(batch.columns, self._schemas).check(info, config, now_ms)
                        continue
                except refused as error:
                    self._refused[at] = producer_sequences.Verdict(error=error)
                else:
                    self._refused[at] = producer_sequences.Verdict(error=cause)

    def judge(self, known: producer_sequences.ProducerSequences, now_ms: int, *, final: bool = False) -> None:
        """Find the batches to write, after `check`.

        Args:
            known: what the topic's producers have written.
            now_ms: the present.
            final: True if batches that are not to be written now must not be written later.
        """
        settled = self._refused | self._final
        self.verdicts = producer_sequences.judge_all(
            known.entries, [batch.sequence for batch in self.batches], now_ms, settled
        )
        if final:
            self._final = {at: verdict for at, verdict in enumerate(self.verdicts) if not verdict.writes}

    def payload(self, most_loose: int = -1) -> Payload:
        """Return the records to write; see `payload_of`."""
        from kafkalike.log.topic.column_batch import joined, payload_of

        written = self.written
        columns = self._every if len(written) == len(self.batches) else joined([batch.columns for batch in written])
        return payload_of(columns, self._schemas, most_loose)

    def records(self, batches: Sequence[SentBatch]) -> RecordBatch:
        """Return the records of some of the batches as Python objects."""
        whole = RecordBatch()
        for batch in batches:
            whole.extend(batch.columns.records())
        return whole

    def write(
        self, files: Storage, plan: Mapping[int, range], *, codec: str, now_ms: int, now_counts: bool
    ) -> list[Add]:
        """Write the data files of the records to write; see `Payload.write`."""
        return self.payload().write(files, plan, codec=codec, now_ms=now_ms, now_counts=now_counts)

    def record(self, change: Change, state: TableState, runs: Mapping[int, range]) -> Change:
        """Return the change that writes the batches, with their sequences; see `record_sequences`."""
        return record_sequences(change, state, placed_sequences(sequences_of(self.written), runs))

    def results(self, ranges: Mapping[int, range], time_ms: int) -> list[BatchOutcome]:
        """Return the outcome of each batch.

        Args:
            ranges: offsets of the records that were written, by partition.
            time_ms: time of the append.
        """
        staged = [at for at in range(len(self.batches)) if at not in self._final]
        # If another writer took the staged append, it has taken all of it, whatever a plan of ours found before.
        whole = _counts(sequences_of(self.staged)) == {p: len(run) for p, run in ranges.items()}
        written = staged if whole else [at for at, verdict in enumerate(self.verdicts) if verdict.writes]
        sequences = sequences_of([self.batches[at] for at in written])
        offsets = dict(zip(written, _offsets(sequences, ranges), strict=True))
        results = list[BatchOutcome]()
        for at, verdict in enumerate(self.verdicts):
            if at in offsets:
                result = BatchOutcome(base_offset=offsets[at], append_time_ms=time_ms)
            elif verdict.error is not None:
                result = BatchOutcome(error=verdict.error)
            elif verdict.twin is not None:
                result = BatchOutcome(base_offset=results[verdict.twin].base_offset, duplicate=True)
            else:
                assert verdict.offset is not None
                result = BatchOutcome(base_offset=verdict.offset, duplicate=True)
            results.append(result)
        return results


def sequences_of(batches: Sequence[SentBatch]) -> StagedSequences:
    """Return the partition, number of records and sequence of each batch."""
    return [(batch.partition, len(batch.columns), batch.sequence) for batch in batches]


def _counts(batches: StagedSequences) -> Counter[int]:
    counts = Counter[int]()
    for partition, count, _ in batches:
        counts[partition] += count
    return counts


def _offsets(batches: StagedSequences, ranges: Mapping[int, range]) -> Iterator[int]:
    """Yield the first offset of each batch."""
    following = {partition: run.start for partition, run in ranges.items()}
    for partition, count, _ in batches:
        yield following[partition]
        following[partition] += count


def placed_sequences(batches: StagedSequences, ranges: Mapping[int, range]) -> list[PlacedSequence]:
    """Return the sequences of batches with their first offsets."""
    offsets = _offsets(batches, ranges)
    return [(sequence, at) for (_, _, sequence), at in zip(batches, offsets, strict=True) if sequence is not None]


def record_sequences(change: Change, state: TableState, placed: Sequence[PlacedSequence]) -> Change:
    """Return a change that also records sequences, and that must be planned again if another one records some first.

    Args:
        change: the change that writes the records.
        state: the table that it was planned on; its sequences are complete, see `recalled`.
        placed: the sequences, each with the first offset of its batch.
    """
    before = state.txns.get(producer_sequences.PRODUCERS_APP)
    requires = [*change.requires, LastOf(producer_sequences.PRODUCERS_APP, before)]
    if not placed:
        return replace(change, requires=requires)
    note = {**change.note, **state.producers.to_note(placed, before, change.time_ms)}
    return replace(
        change, requires=requires, note=note, txns={**change.txns, producer_sequences.PRODUCERS_APP: state.version + 1}
    )


def recalled(state: TableState, files: Storage, now_ms: int) -> producer_sequences.ProducerSequences:
    """Return the sequences of a table's producers, and complete them in its state.

    Commits below the loaded checkpoint are read, back from the latest commit with sequences until a commit holds all
    known sequences.

    Args:
        state: the table.
        files: its files.
        now_ms: the present.

    Raises:
        KafkaStorageError: the storage does not answer.
    """
    known = state.producers
    if known.complete:
        return known
    link = (
        state.txns.get(producer_sequences.PRODUCERS_APP, producer_sequences.NO_COMMIT)
        if known.before is None
        else known.before
    )
    commits, top = list[TableCommit](), known.since
    while link != producer_sequences.NO_COMMIT:
        found = _commit_of(link, top, files)
        if found is None:
            # The log does not reach back so far, and keeps an hour at least.
            break
        commits.append(found)
        if producer_sequences.KNOWN_KEY in found.note or found.timestamp_ms < now_ms - producer_sequences.EXPIRATION_MS:
            break
        link, top = int(found.note.get(producer_sequences.BEFORE_KEY, producer_sequences.NO_COMMIT)), found.version - 1
    older = producer_sequences.ProducerSequences(since=-1 if not commits else commits[-1].version)
    for commit in reversed(commits):
        older.note(commit.note, commit.timestamp_ms)
    state.producers = known.after(older)
    return state.producers


def _commit_of(link: int, top: int, files: Storage) -> TableCommit | None:
    """Return the commit with sequences that recorded a version of `PRODUCERS_APP`.

    Args:
        link: that version.
        top: highest table version that the commit can have.
        files: the table.
    """
    for version in range(link, min(top, link + MOST_MISSED) + 1):
        try:
            with storage_errors(files.uri):
                commit = parse_commit(version, files.read(log_name(version)), files.uri)
        except (FileNotFoundError, LogCorruptError):
            continue
        if commit.txns.get(producer_sequences.PRODUCERS_APP) == link:
            return commit
    return None
