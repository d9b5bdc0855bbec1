"""TransactionSession: one epoch of a transactional id; stages, commits and aborts its transactions."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kafkalike import errors
from kafkalike.log.topic.batch_payload import Loose
from kafkalike.log.topic.record_rules import check_batch, codec_for
from kafkalike.log.topic.transaction_append import DecidedRecords
from kafkalike.log.transactions.effect_runner import EffectRunner, HeldTransaction
from kafkalike.log.transactions.transaction_files import TRIES, FilesToStage, Staging
from kafkalike.model import faults
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.record_batch import Appended, RecordBatch
from kafkalike.model.transactions import transaction_protocol as protocol
from kafkalike.model.transactions import transactional_id as txn
from kafkalike.model.transactions.group_claims import GroupOffsets, Groups, ShareAcknowledgements
from kafkalike.model.transactions.roll_forward import finishing
from kafkalike.model.transactions.rules import CommitRequest

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog


NO_ACKNOWLEDGEMENTS: Final[ShareAcknowledgements] = MappingProxyType({})

Drive = Callable[[Deadline, HeldTransaction], EffectRunner]


class TransactionSession:
    """One producer id and epoch of a transactional id, as returned by `init_transactions`.

    The caller numbers transactions from 1 on, each number above the previous one. One thread makes the calls, but
    several may call `stage`. After a fork only the original process may continue; calls in the copy fail.

    Args:
        transactional_id: the id.
        standing: its state after `init_transactions`.
        staging: the staged files.
        drive: creates an effect runner.
        clock: time.
    """

    def __init__(
        self, transactional_id: str, standing: txn.TransactionalIdState, staging: Staging, drive: Drive, clock: Clock
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = standing.producer_id
        self.epoch = standing.epoch
        self._timeout_ms = standing.timeout_ms
        self._staging = staging
        self._drive = drive
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._current: SessionTransaction | None = None
        self._settled = 0
        """Number of the newest decision that is in all of its topics."""

    # --- staging -----------------------------------------------------------------------------------

    def stage(
        self,
        number: int,
        log: TopicLog,
        batch: RecordBatch,
        *,
        codec: str = "none",
        deadline: Deadline | None = None,
        once: str = "",
    ) -> None:
        """Store records of a transaction in staged files, which readers do not see and which survive this process.

        The topic's rules are checked here, and not again when the transaction is committed. Records of one topic keep
        the order of the calls. The epoch is not checked: a fenced producer learns of it at `commit`.

        Args:
            number: the transaction; the first call with a number begins it.
            log: the topic, as of its last `refresh`.
            batch: at least one record, with its partition.
            codec: see `TopicLog.append`.
            deadline: until when to try; None without limit.
            once: name of the records within transaction and topic. A second call with the name does nothing, so an
                interrupted call may be repeated. The caller serializes calls with the same name.

        Raises:
            IllegalStateError: the transaction has ended, or an earlier one has not.
            MessageSizeTooLargeError, InvalidTimestampError, InvalidRecordError: as `TopicLog.append`; nothing was
                written, and the transaction may continue without the batch.
            KafkaStorageError, KafkaTimeoutError: the storage refused, or did not answer. The batch is not part of the
                transaction: stage it again, or continue without it.
            ProducerFencedError: this is a copy of the producer, made by a fork.
        """
        self._check_process()
        if once and self._has(number, log, once):
            return
        check_batch(batch, log.info, log.config, self._clock.now_ms(), log.schemas)
        codec_for(log.config, codec)
        topic = txn.TopicLife(log.info.name, log.info.topic_id)
        with self._lock:
            current, place = self._placed(number, log, txn.BATCHES)
        staged = self._staging.put(current.attempt, place, topic.topic_id, batch=batch, codec=codec, deadline=deadline)
        with self._lock:
            current.note(topic, place, Staged(staged, Counter(batch.partitions), once), (batch, codec, None))
        faults.point("transaction.staged")

    def stage_files(self, number: int, log: TopicLog, files: FilesToStage, deadline: Deadline) -> None:
        """Add files that are stored elsewhere to a transaction; the counterpart of `stage` for jobs of many tasks.

        Args:
            number: see `stage`.
            log: the topic of the records. All files of a topic have one layout.
            files: the files, checked by the topic's rules.
            deadline: until when to try.

        Raises:
            IllegalStateError, KafkaStorageError, KafkaTimeoutError, ProducerFencedError: see `stage`.
        """
        self._check_process()
        topic = txn.TopicLife(log.info.name, log.info.topic_id)
        with self._lock:
            current, place = self._placed(number, log, files.layout)
            current.others += files.names
        try:
            files.move(self._staging.make_place(current.attempt))
        except OSError as cause:
            raise errors.KafkaStorageError(
                f"{topic.name}: the storage refused the records of a transaction: {cause}"
            ) from cause
        staged = self._staging.put_content(current.attempt, place, topic.topic_id, files.content, deadline)
        with self._lock:
            current.note(topic, place, Staged(staged, Counter(files.counts)))
        faults.point("transaction.staged")

    def _has(self, number: int, log: TopicLog, once: str) -> bool:
        """True if the open transaction has records of this name in a topic."""
        with self._lock:
            current = self._current
            if current is None or current.attempt.number != number:
                return False
            return current.has(txn.TopicLife(log.info.name, log.info.topic_id), once)

    def _placed(self, number: int, log: TopicLog, layout: str) -> tuple[SessionTransaction, int]:
        """Return the transaction, and a number for its next file. The caller holds the lock."""
        current = self._begun(number)
        topic = txn.TopicLife(log.info.name, log.info.topic_id)
        if current.outcome is not TransactionOutcome.OPEN or current.maybe:
            raise errors.IllegalStateError(
                f"transaction {number} of {self.transactional_id!r} accepts no more records, because it was ended"
            )
        if not current.takes(layout, topic):
            raise errors.IllegalStateError(
                f"transaction {number} of {self.transactional_id!r} has other records for topic {topic.name!r}"
            )
        place, current.next_file = current.next_file, current.next_file + TRIES
        current.held.logs[topic.topic_id] = log
        return current, place

    def _begun(self, number: int) -> SessionTransaction:
        """Return the transaction of a number; begin it if it is the next one. The caller holds the lock."""
        current = self._current
        if current is not None and current.attempt.number == number:
            return current
        if current is not None and current.outcome in {TransactionOutcome.OPEN, TransactionOutcome.DECIDED}:
            before = current.attempt.number
            raise errors.IllegalStateError(
                f"transaction {before} of {self.transactional_id!r} has not ended; commit or abort it before {number}"
            )
        if number < 1 or (current is not None and number < current.attempt.number):
            raise errors.IllegalStateError(f"transaction {number} of {self.transactional_id!r} has ended")
        attempt = txn.TransactionAttempt(self.producer_id, self.epoch, number)
        begun = SessionTransaction(attempt, self._clock.monotonic(), HeldTransaction(attempt=attempt))
        self._current = begun
        return begun

    # --- ending ------------------------------------------------------------------------------------

    def commit(
        self,
        number: int,
        offsets: GroupOffsets,
        deadline: Deadline,
        *,
        name: txn.WriteName | None = None,
        payloads: Mapping[str, DecidedRecords] | None = None,
        acknowledgements: ShareAcknowledgements = NO_ACKNOWLEDGEMENTS,
        decide: bool = False,
    ) -> Mapping[str, Appended]:
        """Commit the transaction with the offsets and acknowledgements, and apply it to all of its topics.

        The commit is one change of the groups' table. From then on the transaction is committed, and the offsets are
        visible. This call, or any other process, then applies the records. After `KafkaTimeoutError`,
        `UnknownOutcomeError` or an error of the storage, call again with the same arguments; steps that were done are
        recognized.

        Args:
            number: the transaction; it may have no records, or no offsets.
            offsets: checked positions, by claim and partition.
            deadline: until when to try.
            name: the application's name for the transaction; stays with the id's rows, and topics record it.
            payloads: by topic, the staged records in a form that can be applied faster than the files.
            acknowledgements: verdicts on records of share groups, by member.
            decide: write a decision even if there is nothing to commit, because files outside of topics depend on it.

        Returns:
            By topic, the offsets of the records. A topic that was deleted meanwhile is missing; ranges are empty if the
            topic's log no longer has them. Empty if there was nothing to commit.

        Raises:
            ProducerFencedError: a later `init_transactions` of the id has fenced this one; nothing was committed. After
                an earlier call without an answer it may have been committed; then the message says that this is
                unknown.
            InvalidProducerEpochError: maintenance or an administrator has aborted it; nothing was committed.
            CommitFailedError, FencedInstanceIdError, RebalanceInProgressError: the group has rebalanced; nothing was
                committed, abort.
            InvalidRecordStateError: a share consumer has lost the lock of an acknowledged record; nothing was
                committed, abort.
            TransactionAbortableError: it was open for longer than its timeout; nothing was committed, abort.
            UnknownTopicOrPartitionError: a topic of the records or offsets was deleted; nothing was committed, abort.
            InvalidTxnStateError: it was aborted.
            KafkaTimeoutError, KafkaStorageError: not finished in time; `decided` tells whether it is committed
                nevertheless.
            LogCorruptError: it is committed, and it or an earlier transaction cannot be applied to a topic; names the
                file. Or nothing was committed, because the groups' table was rewound.
            UnknownOutcomeError: it may be committed; call again.
        """
        self._check_process()
        with self._lock:
            current = self._begun(number)
        if current.outcome is TransactionOutcome.COMMITTED:
            return current.places
        if current.outcome is TransactionOutcome.ABORTED:
            raise errors.InvalidTxnStateError(f"transaction {number} of {self.transactional_id!r} was aborted")
        if not (decide or current.files or any(offsets.values()) or any(acknowledgements.values())):
            current.outcome = TransactionOutcome.COMMITTED
            return current.places
        held = self._held(current)
        held.payloads = payloads or {}
        driver = self._drive(deadline, held)
        if current.decision is None:
            self._check_in_time(current)
            driver.check_partitions(offsets)
            wanted = CommitRequest(
                transactional_id=self.transactional_id,
                attempt=current.attempt,
                parts=current.parts(),
                offsets=offsets,
                acknowledgements=acknowledgements,
                settled=self._settled,
                in_doubt=current.maybe,
                name=name,
            )
            current.maybe = True
            current.decision = driver.run(protocol.deciding(wanted))
            current.outcome = TransactionOutcome.DECIDED
        known, committed = current.decision
        places = driver.run(finishing(known, committed))
        self._settled, current.places = committed.seq, places
        current.outcome = TransactionOutcome.COMMITTED
        current.held = HeldTransaction()
        return current.places

    def decided(self, number: int) -> bool:
        """True if a transaction is known to be committed, possibly not yet in all topics. Contacts no storage."""
        current = self._current
        return (
            current is not None
            and current.attempt.number == number
            and (current.decision is not None or current.outcome is TransactionOutcome.COMMITTED)
        )

    def abort(self, number: int, deadline: Deadline) -> None:
        """Abort the transaction. May be called again after an error.

        Raises:
            InvalidTxnStateError: an earlier call of `commit` without an answer has committed it: commit again.
            ProducerFencedError, InvalidProducerEpochError: see `commit`; it is aborted nevertheless.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or possibly not; call again.
        """
        self._check_process()
        with self._lock:
            current = self._begun(number)
        if current.outcome is TransactionOutcome.ABORTED:
            return
        if current.decision is not None or current.outcome is TransactionOutcome.COMMITTED:
            raise errors.InvalidTxnStateError(
                f"transaction {number} of {self.transactional_id!r} is committed: commit it again"
            )
        if current.next_file or current.maybe:
            # Records may not be added from here on, because the files are removed.
            was_maybe, current.maybe = current.maybe, True
            driver = self._drive(deadline, self._held(current))
            try:
                driver.run(
                    protocol.aborting(self.transactional_id, current.attempt, settled=self._settled, in_doubt=was_maybe)
                )
            except (errors.ProducerFencedError, errors.InvalidProducerEpochError):
                current.outcome = TransactionOutcome.ABORTED
                raise
        current.outcome = TransactionOutcome.ABORTED
        current.held = HeldTransaction()

    def forget(self, deadline: Deadline) -> None:
        """Forget the transactional id, which will not be used again. The caller has no open transaction.

        Raises:
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or possibly not; maintenance does it
                later.
        """
        self._check_process()
        self._drive(deadline, HeldTransaction()).run(protocol.forgetting(self.transactional_id, self._settled))

    def _held(self, current: SessionTransaction) -> HeldTransaction:
        with self._lock:
            return current.holding()

    def _check_in_time(self, current: SessionTransaction) -> None:
        if current.maybe or (self._clock.monotonic() - current.began) * 1000 <= self._timeout_ms:
            return
        raise errors.TransactionAbortableError(
            f"transaction {current.attempt.number} of {self.transactional_id!r} was open for longer than "
            f"transaction_timeout_ms={self._timeout_ms}; nothing was committed: abort it"
        )

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise errors.ProducerFencedError(
                f"{self.transactional_id!r}: this is a copy of its producer, made by a fork; create a new producer "
                "in this process"
            )


HELD_BYTES: Final = 16 * 1024 * 1024
"""Staged bytes of a transaction that its producer also keeps in memory, to avoid reading them again."""


class TransactionOutcome(Enum):
    """State of a transaction."""

    OPEN = "open"
    DECIDED = "decided"
    """Committed, and not known to be in all topics."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged file with its counts."""

    file: txn.StagedFile
    counts: Counter[int]
    """Number of records by partition."""
    once: str = ""
    """Name of the records; see `TransactionSession.stage`."""


@dataclass
class SessionTransaction:
    """A transaction of this session."""

    attempt: txn.TransactionAttempt
    began: float
    """Time of the monotonic clock, s."""
    held: HeldTransaction
    files: dict[txn.TopicLife, dict[int, Staged]] = field(default_factory=dict)
    """Staged files, by topic and number."""
    layouts: dict[txn.TopicLife, str] = field(default_factory=dict)
    """Layout of each topic's files."""
    others: list[str] = field(default_factory=list)
    """Files that may be staged, and that the decision does not name."""
    next_file: int = 0
    held_bytes: int = 0
    maybe: bool = False
    """True after the first attempt to decide it."""
    outcome: TransactionOutcome = TransactionOutcome.OPEN
    decision: tuple[Groups, txn.CommittedTransaction] | None = None
    places: Mapping[str, Appended] = field(default_factory=dict)

    def parts(self) -> tuple[txn.TransactionPart, ...]:
        """Return the transaction's entry for each topic."""
        found = []
        for topic, files in self.files.items():
            counts: Counter[int] = Counter()
            staged = [one for _, one in sorted(files.items())]
            for one in staged:
                counts.update(one.counts)
            names = tuple(one.file for one in staged)
            found.append(txn.TransactionPart(topic=topic, counts=dict(counts), files=names, layout=self.layouts[topic]))
        return tuple(found)

    def takes(self, layout: str, topic: txn.TopicLife) -> bool:
        """True if files of this layout may be added for the topic, whose files all have one layout."""
        return self.layouts.setdefault(topic, layout) == layout

    def has(self, topic: txn.TopicLife, once: str) -> bool:
        """True if records of a name are staged for a topic; see `TransactionSession.stage`."""
        return any(one.once == once for one in self.files.get(topic, {}).values())

    def note(self, topic: txn.TopicLife, place: int, staged: Staged, batch: Loose | None = None) -> None:
        """Add a staged file.

        Args:
            topic: the topic of its records.
            place: its number.
            staged: the file, with the name of its records, so that an interrupt leaves both or none.
            batch: its content, kept in memory if there is room.
        """
        known = self.files.get(topic)
        if known is None:
            # In one step, because a topic without a file could not be applied.
            self.files[topic] = {place: staged}
        else:
            known[place] = staged
        size = staged.file.size
        if batch is not None and self.held_bytes + size <= HELD_BYTES:
            self.held_bytes += size
            self.held.batches[staged.file.name] = batch

    def holding(self) -> HeldTransaction:
        """Return the parts in memory, with the names of all files that may be staged."""
        self.held.names = [one.file.name for files in self.files.values() for one in files.values()] + self.others
        return self.held
