"""Session: one epoch of a transactional id; stages, commits and aborts its transactions."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from kafkalike.errors import (
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaStorageError,
    ProducerFencedError,
    TransactionAbortableError,
)
from kafkalike.log.port.topic import TopicLog
from kafkalike.log.port.transactions import FilesToStage
from kafkalike.log.topic.decided import DecidedRecords
from kafkalike.log.topic.validate import check_batch, codec_for
from kafkalike.log.transactions.driver import Driver, Held
from kafkalike.log.transactions.open_transaction import OpenTransaction, Outcome, Staged
from kafkalike.log.transactions.staging import TRIES, Staging
from kafkalike.model import faults
from kafkalike.model.appends import Appended
from kafkalike.model.batch import RecordBatch
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.transactions import course
from kafkalike.model.transactions.claims import GroupOffsets
from kafkalike.model.transactions.rules import Wanted
from kafkalike.model.transactions.settling import finishing
from kafkalike.model.transactions.values import (
    BATCHES,
    Attempt,
    Standing,
    Topic,
    WriteName,
)

Drive = Callable[[Deadline, Held], Driver]


class Session:
    """See `TransactionSession`.

    Args:
        transactional_id: whose.
        standing: what `init_transactions` has made of it.
        staging: the staged files.
        drive: makes a driver.
        clock: time.
    """

    def __init__(self, transactional_id: str, standing: Standing, staging: Staging, drive: Drive, clock: Clock) -> None:
        self.transactional_id = transactional_id
        self.producer_id = standing.producer_id
        self.epoch = standing.epoch
        self._timeout_ms = standing.timeout_ms
        self._staging = staging
        self._drive = drive
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._current: OpenTransaction | None = None
        self._settled = 0
        """Number of the last decision, which is in all topics."""

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
        """See `TransactionSession.stage`."""
        self._check_process()
        if once and self._has(number, log, once):
            return
        check_batch(batch, log.info, log.config, self._clock.now_ms(), log.schemas)
        codec_for(log.config, codec)
        topic = Topic(log.info.name, log.info.topic_id)
        with self._lock:
            current, place = self._placed(number, log, BATCHES)
        staged = self._staging.put(current.attempt, place, topic.topic_id, batch=batch, codec=codec, deadline=deadline)
        with self._lock:
            current.note(topic, place, Staged(staged, Counter(batch.partitions), once), (batch, codec, None))
        faults.point("transaction.staged")

    def stage_files(self, number: int, log: TopicLog, files: FilesToStage, deadline: Deadline) -> None:
        """See `TransactionSession.stage_files`."""
        self._check_process()
        topic = Topic(log.info.name, log.info.topic_id)
        with self._lock:
            current, place = self._placed(number, log, files.layout)
            current.others += files.names
        try:
            files.move(self._staging.make_place(current.attempt))
        except OSError as cause:
            raise KafkaStorageError(
                f"{topic.name}: the storage refused the records of a transaction: {cause}"
            ) from cause
        staged = self._staging.put_content(current.attempt, place, topic.topic_id, files.content, deadline)
        with self._lock:
            current.note(topic, place, Staged(staged, Counter(files.counts)))
        faults.point("transaction.staged")

    def _has(self, number: int, log: TopicLog, once: str) -> bool:
        """Whether the open transaction has records of this name in a topic."""
        with self._lock:
            current = self._current
            if current is None or current.attempt.number != number:
                return False
            return current.has(Topic(log.info.name, log.info.topic_id), once)

    def _placed(self, number: int, log: TopicLog, layout: str) -> tuple[OpenTransaction, int]:
        """The transaction, and a number for its next file. Caller: holds the lock."""
        current = self._begun(number)
        topic = Topic(log.info.name, log.info.topic_id)
        if current.outcome is not Outcome.OPEN or current.maybe:
            raise IllegalStateError(
                f"transaction {number} of {self.transactional_id!r} takes no more records: it was ended"
            )
        if not current.takes(layout, topic):
            raise IllegalStateError(
                f"transaction {number} of {self.transactional_id!r} has other records for topic {topic.name!r}"
            )
        place, current.next_file = current.next_file, current.next_file + TRIES
        current.held.logs[topic.topic_id] = log
        return current, place

    def _begun(self, number: int) -> OpenTransaction:
        """The transaction of a number, begun if it is the next one. Caller: holds the lock."""
        current = self._current
        if current is not None and current.attempt.number == number:
            return current
        if current is not None and current.outcome in {Outcome.OPEN, Outcome.DECIDED}:
            before = current.attempt.number
            raise IllegalStateError(
                f"transaction {before} of {self.transactional_id!r} is not over; {number} cannot begin"
            )
        if number < 1 or (current is not None and number < current.attempt.number):
            raise IllegalStateError(f"transaction {number} of {self.transactional_id!r} is over")
        attempt = Attempt(self.producer_id, self.epoch, number)
        begun = OpenTransaction(attempt, self._clock.monotonic(), Held(attempt=attempt))
        self._current = begun
        return begun

    # --- ending ------------------------------------------------------------------------------------

    def commit(
        self,
        number: int,
        offsets: GroupOffsets,
        deadline: Deadline,
        *,
        name: WriteName | None = None,
        payloads: Mapping[str, DecidedRecords] | None = None,
    ) -> Mapping[str, Appended]:
        """See `TransactionSession.commit`."""
        self._check_process()
        with self._lock:
            current = self._begun(number)
        if current.outcome is Outcome.COMMITTED:
            return current.places
        if current.outcome is Outcome.ABORTED:
            raise InvalidTxnStateError(f"transaction {number} of {self.transactional_id!r} was aborted")
        if not current.files and not any(offsets.values()):
            current.outcome = Outcome.COMMITTED
            return current.places
        held = self._held(current)
        held.payloads = payloads or {}
        driver = self._drive(deadline, held)
        if current.decision is None:
            self._check_in_time(current)
            driver.check_partitions(offsets)
            wanted = Wanted(
                transactional_id=self.transactional_id,
                attempt=current.attempt,
                parts=current.parts(),
                offsets=offsets,
                settled=self._settled,
                in_doubt=current.maybe,
                name=name,
            )
            current.maybe = True
            current.decision = driver.run(course.deciding(wanted))
            current.outcome = Outcome.DECIDED
        known, committed = current.decision
        places = driver.run(finishing(known, committed))
        self._settled, current.places = committed.seq, places
        current.outcome = Outcome.COMMITTED
        current.held = Held()
        return current.places

    def decided(self, number: int) -> bool:
        """See `TransactionSession.decided`."""
        current = self._current
        return (
            current is not None
            and current.attempt.number == number
            and (current.decision is not None or current.outcome is Outcome.COMMITTED)
        )

    def abort(self, number: int, deadline: Deadline) -> None:
        """See `TransactionSession.abort`."""
        self._check_process()
        with self._lock:
            current = self._begun(number)
        if current.outcome is Outcome.ABORTED:
            return
        if current.decision is not None or current.outcome is Outcome.COMMITTED:
            raise InvalidTxnStateError(
                f"transaction {number} of {self.transactional_id!r} is committed: commit it again"
            )
        if current.next_file or current.maybe:
            # Nothing may be added from here on: its files go.
            was_maybe, current.maybe = current.maybe, True
            driver = self._drive(deadline, self._held(current))
            try:
                driver.run(
                    course.aborting(self.transactional_id, current.attempt, settled=self._settled, in_doubt=was_maybe)
                )
            except (ProducerFencedError, InvalidProducerEpochError):
                current.outcome = Outcome.ABORTED
                raise
        current.outcome = Outcome.ABORTED
        current.held = Held()

    def forget(self, deadline: Deadline) -> None:
        """See `TransactionSession.forget`."""
        self._check_process()
        self._drive(deadline, Held()).run(course.forgetting(self.transactional_id, self._settled))

    def _held(self, current: OpenTransaction) -> Held:
        with self._lock:
            return current.holding()

    def _check_in_time(self, current: OpenTransaction) -> None:
        if current.maybe or (self._clock.monotonic() - current.began) * 1000 <= self._timeout_ms:
            return
        raise TransactionAbortableError(
            f"transaction {current.attempt.number} of {self.transactional_id!r} was open for longer than "
            f"transaction_timeout_ms={self._timeout_ms}; nothing was committed: abort it"
        )

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ProducerFencedError(
                f"{self.transactional_id!r}: this is a copy of its producer, made by a fork; init_transactions anew"
            )
