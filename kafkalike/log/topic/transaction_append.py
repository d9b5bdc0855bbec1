"""Transaction append: apply the records of a committed transaction to a topic, and find them there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from kafkalike.delta.actions import Add, log_name, parse_commit
from kafkalike.delta.damage import storage_errors
from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.log.topic.batch_payload import BEFORE_KEY, BatchPayload, Loose, Payload
from kafkalike.log.topic.topic_commits import segment_of
from kafkalike.model.record_batch import TRANSACTIONS, Appended, RecordBatch, TxnId
from kafkalike.model.transactions.transaction_views import TopicCut
from kafkalike.model.transactions.transactional_id import BATCHES, StagedFile, TransactionPart, WriteName

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.clock import Deadline
    from kafkalike.model.config.topic_config import TopicConfig
    from kafkalike.model.topic import TopicInfo
    from kafkalike.storage.port import Storage

JOINED_BYTES: Final = 32 * 1024 * 1024
"""Most staged bytes that become one data file of a partition and are held in memory at a time."""

Load = Callable[[StagedFile], Loose]
"""Reads and checks a staged file.

Raises:
    LogCorruptError: the file is missing or damaged."""


class StagedFileError(LogCorruptError):
    """A staged file of a decided transaction is missing or damaged."""

    @classmethod
    def of(cls, where: str, why: str, topic: str, seq: int) -> StagedFileError:
        """Return the error for a file.

        Args:
            where: the file.
            why: its defect, such as "is missing".
            topic: the topic of its records.
            seq: number of the decision.
        """
        return cls(
            f"{where} {why}; without it transaction {seq} cannot be applied to topic {topic!r}, nor any later one; "
            "`kafkalike verify --repair` skips it"
        )


class DecidedRecords(Payload, Protocol):
    """The records of one transaction for one topic, as a payload."""

    @property
    def codec(self) -> str:
        """The producer's codec."""
        ...


class DecidedPayload:
    """The records of one transaction for one topic, as a payload.

    The topic's rules were checked when the records were staged. They are not checked again, because a decided
    transaction must be applied.

    Args:
        part: the decision's entry for the topic.
        load: see `Load`.
    """

    def __init__(self, part: TransactionPart, load: Load) -> None:
        if part.layout != BATCHES:
            raise LogCorruptError(
                f"{part.topic.name}: staged records have the layout {part.layout!r}, which this release cannot read"
            )
        self._part = part
        self._load = load

    @property
    def codec(self) -> str:
        """The producer's codec; reads the first file."""
        return self._load(self._part.files[0])[1]

    def counts(self) -> Mapping[int, int]:
        """Return the number of records by partition."""
        return self._part.counts

    def check(self, info: TopicInfo, config: TopicConfig, now_ms: int) -> None:
        """Check that the partitions exist; partitions are never removed."""
        del config, now_ms
        unknown = [p for p in self._part.counts if p not in info.partitions]
        if unknown:
            raise LogCorruptError(
                f"{info.name}: a decided transaction has records for partitions {unknown}, which do not exist"
            )

    def write(
        self,
        files: Storage,
        plan: Mapping[int, range],
        *,
        codec: str,
        now_ms: int,
        now_counts: bool,
    ) -> list[Add]:
        """Write a file for each partition, or more for very many records; see `Payload.write`."""
        adds: list[Add] = []
        at = {p: run.start for p, run in plan.items()}
        try:
            for batch in self.batches():
                counts = Counter(batch.partitions)
                runs = {p: range(at.get(p, 0), at.get(p, 0) + count) for p, count in counts.items()}
                if any(p not in plan or run.stop > plan[p].stop for p, run in runs.items()):
                    raise self._wrong()
                adds += BatchPayload(batch).write(files, runs, codec=codec, now_ms=now_ms, now_counts=now_counts)
                at |= {p: run.stop for p, run in runs.items()}
            if any(at[p] != run.stop for p, run in plan.items()):
                raise self._wrong()
        except KafkaError:
            for add in adds:
                files.remove(add.path, quietly=True)
            raise
        return adds

    def batches(self) -> Iterator[RecordBatch]:
        """Yield the records in their order, some files at a time.

        Raises:
            LogCorruptError: a file is missing or damaged.
        """
        whole, size = RecordBatch(), 0
        for file in self._part.files:
            batch = self._load(file)[0]
            if len(whole) and size + file.size > JOINED_BYTES:
                yield whole
                whole, size = RecordBatch(), 0
            size += file.size
            whole.extend(batch)
        if len(whole):
            yield whole

    def _wrong(self) -> LogCorruptError:
        return LogCorruptError(
            f"{self._part.topic.name}: the staged files of a decided transaction do not hold the records that it counts"
        )


def name_of(seq: int, also: WriteName | None = None) -> TxnId:
    """Return the name of a decision's write to a topic.

    Args:
        seq: number of the decision.
        also: the application's own name for the write.
    """
    return TxnId(TRANSACTIONS, seq, own=True, also=also)


class TopicDecisions:
    """Decisions in the table of a topic. All methods may raise `TopicDeletedError`.

    Args:
        log: the topic.
    """

    def __init__(self, log: TopicLog) -> None:
        self._log = log

    @property
    def last(self) -> int:
        """The newest decision known to be in the topic; 0 for none."""
        return self._log.last_transaction

    def look(self) -> int:
        """Look at the topic, and return its newest decision."""
        self._log.refresh()
        return self._log.last_transaction

    def bring(self, seq: int, payload: DecidedRecords, deadline: Deadline, also: WriteName | None) -> Appended:
        """Append a decision, unless the topic has it or a later one.

        Args:
            seq: its number.
            payload: the records.
            deadline: until when to try.
            also: the application's own name for the write, which the topic records, too.

        Raises:
            LogCorruptError: the payload cannot be read; nothing was written. Other errors as in `TopicLog.append`.
        """
        return self._log.append_payload(payload, codec=payload.codec, deadline=deadline, txn=name_of(seq, also))

    def where(self, seq: int) -> Appended:
        """Return the offsets of a decision's records in the topic; empty if the log no longer has its commit."""
        self._log.refresh_table()
        found = self._log.already_appended(name_of(seq))
        assert found is not None, (self._log.info.name, seq)
        return found

    def as_of(self, seq: int) -> TopicCut | None:
        """Return the newest version without later decisions; None if the log no longer has the commits after it.

        Reads only the commits after that version.
        """
        log = self._log
        log.refresh()
        while True:
            last = log.last_transaction
            version, ends = log.snapshot()
            if last == log.last_transaction and version == log.version:
                break
        while last > seq:
            try:
                with storage_errors(log.files.uri):
                    commit = parse_commit(version, log.files.read(log_name(version)), log.files.uri)
            except FileNotFoundError:
                return None
            version -= 1
            if commit.is_append:
                for segment in (segment_of(add, log.files) for add in commit.adds):
                    ends[segment.partition] = min(ends[segment.partition], segment.start)
            if commit.txns.get(TRANSACTIONS) == last:
                last = int(commit.note[BEFORE_KEY])
        return TopicCut(topic_id=log.info.topic_id, version=version, ends=ends)
