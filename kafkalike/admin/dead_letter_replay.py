"""Dead letter replay: send dead letters to their source topics, in transactions with the progress of a group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafkalike import errors
from kafkalike.log.dead_letter_topic import Filter, StoredLetter, letters_of
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.model import faults
from kafkalike.model.clock import RETRY_BACKOFF_SECONDS, Clock, Deadline
from kafkalike.model.dead_letter import Replayed
from kafkalike.model.murmur2 import partition_for_key
from kafkalike.model.names import check_group_id, check_topic_name
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions.group_claims import GroupClaim

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.log.transactions.session import TransactionSession

GROUP: Final = "dlq-replay"
"""Default group whose offsets record the progress."""

MOST_LETTERS: Final = 5_000
"""Letters after which a transaction is committed."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of records after which a transaction is committed."""

TIMEOUT_MS: Final = 60_000
TIDY_MS: Final = 10_000

Change = Callable[[StoredLetter], StoredLetter | None]


@dataclass(slots=True)
class Replay:
    """Result of a replay or a dry run."""

    executed: bool
    letters: int = 0
    skipped: int = 0
    """Letters that were replayed before."""
    left: int = 0
    """Letters excluded by the filter or the change function."""
    targets: Counter[str] = field(default_factory=Counter)
    """Number of letters by target topic."""
    classes: Counter[str] = field(default_factory=Counter)
    """Number of letters by error class."""
    ranges: dict[TopicPartition, list[range]] = field(default_factory=dict)
    """Offsets of the sent records, by partition."""

    def add(self, letter: StoredLetter, target: str) -> None:
        """Count a letter that is sent to a topic."""
        self.letters += 1
        self.targets[target] += 1
        self.classes[letter.context.exception if letter.context else ""] += 1


@dataclass(slots=True)
class _Batch:
    """Letters of a transaction."""

    records: dict[str, RecordBatch] = field(default_factory=dict)
    runs: dict[int, list[range]] = field(default_factory=dict)
    """Offsets of the letters, and skipped offsets between them, by partition."""
    count: int = 0
    size: int = 0

    @property
    def full(self) -> bool:
        return self.count >= MOST_LETTERS or self.size >= MOST_BYTES

    def passed(self, partition: int, run: range) -> None:
        """Record offsets that need not be read again."""
        if run:
            self.runs.setdefault(partition, []).append(run)


@dataclass(slots=True, kw_only=True)
class ReplayRun:
    """A call of `DeadLetters.replay`, which documents the fields."""

    cluster: Cluster
    clock: Clock
    source: TopicLog
    group: str
    to: str | None
    change: Change | None
    timeout_ms: float
    _logs: dict[str, TopicLog] = field(default_factory=dict)
    _session: TransactionSession | None = None
    _number: int = 0

    def run(self, which: Filter, *, dry_run: bool) -> Replay:
        """Replay the letters that match the filter, or only count them."""
        check_group_id(self.group)
        name = self.source.info.name
        if self.to is not None and check_topic_name(self.to) == name:
            raise errors.IllegalArgumentError(f"letters of {name!r} cannot be replayed to it")
        partitions = which.partitions_of(self.source.info)
        if not dry_run:
            # First fence any other replay for this group, and complete its last committed transaction.
            self._begin()
        ends = {partition: self.source.log_end(partition) for partition in partitions}
        done = self._progress(ends)
        told = Replay(not dry_run)
        batch = _Batch()
        for partition, end in ends.items():
            seen = done[partition].below
            for letter in self._waiting(partition, end, done, told):
                # Offsets removed by compaction count as replayed.
                batch.passed(partition, range(seen, letter.offset))
                seen = letter.offset + 1
                if letter.offset in done[partition]:
                    told.skipped += 1
                    continue
                changed = self._changed(letter) if which.takes(letter) else None
                if changed is None:
                    told.left += 1
                    continue
                told.add(letter, self._put(batch, letter, changed))
                if batch.full and not dry_run:
                    self._commit(batch, done, told)
                    batch = _Batch()
            batch.passed(partition, range(seen, end))
        if not dry_run:
            if batch.count:
                self._commit(batch, done, told)
            self._close()
        return told

    # --- reading ---------------------------------------------------------------------------------

    def _progress(self, ends: Mapping[int, int]) -> dict[int, Replayed]:
        name = self.source.info.name
        tps = [TopicPartition(name, partition) for partition in ends]
        ids: dict[str, str] = {name: self.source.info.topic_id}
        committed = GroupOffsets.of(self.cluster, self.clock).committed(self.group, tps, ids)
        return {tp.partition: Replayed.of(committed.get(tp), self.source.log_start(tp.partition)) for tp in tps}

    def _waiting(self, partition: int, end: int, done: Mapping[int, Replayed], told: Replay) -> Iterator[StoredLetter]:
        """Yield the letters after those replayed before."""
        below = min(done[partition].below, end)
        told.skipped += max(0, below - self.source.log_start(partition))
        return letters_of(self.source, partition, below, end)

    def _changed(self, letter: StoredLetter) -> StoredLetter | None:
        return letter if self.change is None else self.change(letter)

    def _put(self, batch: _Batch, letter: StoredLetter, changed: StoredLetter) -> str:
        """Add the record of a letter to the batch; return its topic."""
        origin = None if letter.context is None else letter.context.origin
        target = self.to or (None if origin is None else origin.topic)
        if target is None:
            raise errors.IllegalArgumentError(
                f"{letter.topic}-{letter.partition}: the letter at offset {letter.offset} has no source topic; pass "
                "the topic to replay it to"
            )
        log = self._logs.get(target)
        if log is None:
            log = self._logs[target] = self.cluster.log(target)
        count = log.info.num_partitions
        if self.to is None and origin is not None and origin.partition in log.info.partitions:
            partition = origin.partition
        elif changed.key is not None:
            partition = partition_for_key(changed.key, count)
        else:
            partition = letter.partition % count
        records = batch.records.setdefault(target, RecordBatch())
        records.add(partition, changed.key, changed.value, changed.timestamp_ms, changed.headers)
        batch.passed(letter.partition, range(letter.offset, letter.offset + 1))
        batch.count += 1
        batch.size += len(changed.key or b"") + len(changed.value or b"") + 100
        return target

    # --- writing ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        longest = int(self.cluster.server.get("transaction.max.timeout.ms"))
        self._session = self.cluster.transactions.begin_session(
            f"dlq replay {self.group} {self.source.info.name}",
            min(TIMEOUT_MS, longest),
            "kafkalike dlq",
            self._deadline(),
            longest_ms=longest,
        )
        self.source.refresh()

    def _commit(self, batch: _Batch, done: dict[int, Replayed], told: Replay) -> None:
        assert self._session is not None
        session, deadline = self._session, self._deadline()
        after = {partition: done[partition].with_these(runs) for partition, runs in batch.runs.items()}
        positions = {TopicPartition(self.source.info.name, p): found.position() for p, found in after.items()}
        self._check(positions)
        self._number += 1
        claim = GroupClaim(
            group_id=self.group,
            client_id="kafkalike dlq",
            alone=True,
            lives=((self.source.info.name, self.source.info.topic_id),),
        )
        try:
            for target, records in batch.records.items():
                log = self._logs[target]
                log.refresh()
                session.stage(self._number, log, records, deadline=deadline)
                faults.point("dlq.staged")
            places = self._decided(session, claim, positions, deadline)
        except errors.KafkaError:
            with suppress(errors.KafkaError):
                session.abort(self._number, Deadline(self.clock, TIDY_MS))
            raise
        faults.point("dlq.committed")
        done.update(after)
        for tp, run in places.items():
            told.ranges.setdefault(tp, []).append(run)

    def _decided(
        self,
        session: TransactionSession,
        claim: GroupClaim,
        positions: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
    ) -> Mapping[TopicPartition, range]:
        while True:
            try:
                places = session.commit(self._number, {claim: positions}, deadline)
            except errors.UnknownOutcomeError:
                if deadline.expired():
                    raise
            except errors.CommitFailedError as cause:
                cause.add_note(f"the group {self.group!r} records the replay progress, so it must not have members")
                raise
            else:
                return {
                    TopicPartition(topic, partition): run
                    for topic, appended in places.items()
                    for partition, run in sorted(appended.ranges.items())
                }
            self.clock.sleep(RETRY_BACKOFF_SECONDS)

    def _check(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        try:
            GroupOffsets.of(self.cluster, self.clock).checked(positions)
        except errors.OffsetMetadataTooLargeError as cause:
            raise errors.IllegalArgumentError(
                f"the letters excluded by the filter are too scattered for the offset metadata of group "
                f"{self.group!r} ({cause}); replay fewer offsets at once, or use a separate group for this filter"
            ) from cause

    def _close(self) -> None:
        """Delete the transactional id; the next call creates it again."""
        if self._session is not None:
            with suppress(errors.KafkaError):
                self._session.forget(Deadline(self.clock, TIDY_MS))

    def _deadline(self) -> Deadline:
        return Deadline(self.clock, self.timeout_ms)
