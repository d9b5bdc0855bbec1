"""Transaction append: what a committed transaction brings into a topic, as a payload, and where it is then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from kafkalike.delta.actions import Add, append_info, log_name, parse_commit
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
"""Staged bytes that become one data file of a partition at most, and are held in memory at a time."""

Load = Callable[[StagedFile], Loose]
"""Reads a staged file, checked.

Raises:
    LogCorruptError: it is gone or damaged.
"""


class StagedFileError(LogCorruptError):
    """A staged file of a decided transaction is gone or damaged."""

    @classmethod
    def of(cls, where: str, why: str, topic: str, seq: int) -> StagedFileError:
        """The error for a file.

        Args:
            where: the file.
            why: what is wrong with it.
            topic: whose records it has.
            seq: number of the decision.
        """
        return cls(
            f"{where} {why}; without it transaction {seq} cannot be brought into topic {topic!r}, nor any later one; "
            "`kafkalike verify --repair` leaves it out"
        )


class DecidedRecords(Payload, Protocol):
    """The records of a part as a payload."""

    @property
    def codec(self) -> str:
        """The producer's codec."""
        ...


class DecidedPayload:
    """The records of a part as a payload.

    Its topic's rules were checked when they were staged, and count no more: what is decided must come in.

    Args:
        part: what the decision says.
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
        """See `Payload`."""
        return self._part.counts

    def check(self, info: TopicInfo, config: TopicConfig, now_ms: int) -> None:
        """See `Payload`. Partitions are never taken away."""
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
        """See `Payload`. A file for each partition, or more where there are very many records."""
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
        """The records in their order, some files at a time.

        Raises:
            LogCorruptError: a file is gone or damaged.
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
    """The name of a decision among the writes of a topic.

    Args:
        seq: its number.
        also: what its application calls it.
    """
    return TxnId(TRANSACTIONS, seq, own=True, also=also)


class TopicDecisions:
    """Decisions in the table of a topic. All may raise `TopicDeletedError`.

    Args:
        log: the topic.
    """

    def __init__(self, log: TopicLog) -> None:
        self._log = log

    @property
    def last(self) -> int:
        """The last decision that it is known to have; 0 for none."""
        return self._log.last_transaction

    def look(self) -> int:
        """The last decision that it has now."""
        self._log.refresh()
        return self._log.last_transaction

    def bring(self, seq: int, payload: DecidedRecords, deadline: Deadline, also: WriteName | None) -> Appended:
        """Append a decision, unless the topic has it or a later one.

        Args:
            seq: its number.
            payload: the records.
            deadline: until when to try.
            also: what its application calls it; the topic notes that, too.

        Raises:
            LogCorruptError: the payload cannot be read; nothing was written. And see `TopicLog.append`.
        """
        return self._log.append_payload(payload, codec=payload.codec, deadline=deadline, txn=name_of(seq, also))

    def where(self, seq: int) -> Appended:
        """Where the records of a decision are that the topic has; without ranges where its log has forgotten them."""
        self._log.refresh_table()
        found = self._log.already_appended(name_of(seq))
        assert found is not None, (self._log.info.name, seq)
        return found

    def as_of(self, seq: int) -> TopicCut | None:
        """The newest version without later decisions; None when the log does not have the commits that say it.

        Reads no more than the commits after that version.
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
                last = int(append_info(commit.user_metadata)[BEFORE_KEY])
        return TopicCut(topic_id=log.info.topic_id, version=version, ends=ends)
