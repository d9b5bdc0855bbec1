"""Transaction manager: the calls of a transactional producer in order, with their offsets and batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalike import errors
from kafkalike.log.group.group_offsets import GroupOffsets, given_ids
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.config.producer_config import ProducerConfig
from kafkalike.model.names import check_group_id
from kafkalike.model.record_batch import Appended, RecordBatch
from kafkalike.model.structs import ConsumerGroupMetadata, ShareGroupMetadata, TopicPartition
from kafkalike.model.transactions.group_claims import GroupClaim, acknowledged_shares, check_claim, with_lives
from kafkalike.producer.record_accumulator import FORKED, RecordAccumulator
from kafkalike.producer.transaction_state import ProducerTransactionState, Ranges, TransactionGate, TxnCall, TxnPhase

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.cluster.control_logs import GroupsLog
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.log.transactions.session import TransactionSession
    from kafkalike.model.shares.share_partition import Acknowledgements


log = logging.getLogger(__name__)


class TransactionManager:
    """Runs the transactions of a producer with a `transactional_id`.

    Calls of the program take turns; `stage`, `failed` and `refusal` may come from any thread at any time. The
    producer's state is one value, replaced as a whole, so after an interrupt at any line the next call can continue: an
    interrupted commit or abort is simply called again.

    Args:
        cluster: the cluster of the topics and groups.
        config: the producer's settings, with a `transactional_id`.
        buffer: the buffer of its records.
        gate: the producer's state, shared with the buffer.
        clock: time.
    """

    def __init__(
        self, cluster: Cluster, config: ProducerConfig, buffer: RecordAccumulator, gate: TransactionGate, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._buffer = buffer
        self._clock = clock
        self._offsets = GroupOffsets.of(cluster, clock)
        self._gate = gate
        self._session: TransactionSession | None = None
        self._lettered = 0
        """Number of the last transaction whose dead letters are staged."""
        self._turn = threading.RLock()
        """Held during a call of the program."""

    @property
    def phase(self) -> TxnPhase:
        """Phase of the producer's state."""
        return self._gate.state.phase

    @property
    def owner(self) -> object:
        """Owner of the open transaction, as given to `begin`."""
        return self._gate.state.owner

    # --- calls of the program ------------------------------------------------------------------

    def init(self) -> None:
        """Open the session of the transactional id, once; see `KafkaProducer.init_transactions`."""
        self._check_caller(TxnCall.INIT)
        with self._turn:
            standing = self._take(TxnCall.INIT)
            if self._session is None:
                self._session = self._new_session()
            if standing.phase is TxnPhase.UNINITIALIZED:
                self._gate.replace(ProducerTransactionState.completed)

    def _new_session(self) -> TransactionSession:
        config = self._config
        try:
            return self._cluster.transactions.begin_session(
                str(config.transactional_id), int(config.transaction_timeout_ms), str(config.client_id), self._limit()
            )
        except errors.KafkaError as error:
            self._refused(TxnCall.INIT, error)
            raise

    def begin(self, owner: object = None) -> None:
        """Begin a transaction with an owner; see `KafkaProducer.begin_transaction`."""
        self._check_caller(TxnCall.BEGIN)
        with self._turn:
            self._gate.replace(lambda standing: replace(standing.after(TxnCall.BEGIN), owner=owner))

    def send_offsets(self, offsets: object, group_metadata: object) -> None:
        """Add a group's offsets to the open transaction; see `KafkaProducer.send_offsets_to_transaction`."""
        self._check_caller(TxnCall.SEND_OFFSETS)
        claim = claim_of(group_metadata, str(self._config.client_id))
        checked = self._offsets.checked(offsets)
        # Most producers never need this import, which loads some ten modules.
        from kafkalike.log.dead_letter_buffer import MetadataWithLetters

        letters = group_metadata.box if isinstance(group_metadata, MetadataWithLetters) else None
        with self._turn:
            self._take(TxnCall.SEND_OFFSETS)
            if checked:
                try:
                    check_member(self._cluster.groups, claim)
                    lives = given_ids(self._cluster.metadata, {tp.topic for tp in checked}, group_metadata)
                    self._gate.replace(lambda standing: standing.with_offsets(claim, checked, letters, lives))
                except errors.KafkaError as error:
                    self._refused(TxnCall.SEND_OFFSETS, error)
                    raise

    def send_acknowledgements(self, acknowledgements: Acknowledgements, member: object) -> None:
        """Add a share consumer's acknowledgements; see `KafkaProducer.send_share_acknowledgements_to_transaction`."""
        self._check_caller(TxnCall.SEND_ACKNOWLEDGEMENTS)
        if not isinstance(member, ShareGroupMetadata):
            raise TypeError(f"share_group_metadata must be a ShareGroupMetadata, not {member!r}")
        with self._turn:
            self._take(TxnCall.SEND_ACKNOWLEDGEMENTS)
            if acknowledgements:
                try:
                    acknowledged_shares(
                        self._cluster.groups.refresh(waiting=True), {member: acknowledgements}, self._clock.now_ms()
                    )
                    self._gate.replace(lambda standing: standing.with_acknowledgements(member, acknowledgements))
                except errors.KafkaError as error:
                    self._refused(TxnCall.SEND_ACKNOWLEDGEMENTS, error)
                    raise

    def commit(self) -> Ranges:
        """Commit the open transaction and return its offsets; see `KafkaProducer.commit_transaction`."""
        self._check_caller(TxnCall.COMMIT)
        with self._turn:
            standing = self._take(TxnCall.COMMIT)
            limit = self._limit()
            self._buffer.flush(limit.remaining())
            self._take(TxnCall.COMMIT)  # a record may have failed meanwhile
            try:
                self._stage_letters(standing, limit)
                done = self._decide(standing, limit)
            except errors.KafkaError as error:
                self._refused(TxnCall.COMMIT, error)
                raise
            self._gate.replace(ProducerTransactionState.completed)
            return {
                TopicPartition(topic, partition): found
                for topic, appended in done.items()
                for partition, found in sorted(appended.ranges.items())
            }

    def _stage_letters(self, standing: ProducerTransactionState, limit: Deadline) -> None:
        """Stage the dead letters below the offsets, once, even if the commit is retried.

        Raises:
            TransactionAbortableError: a dead-letter topic rejects them.
            KafkaError: not done; commit again.
        """
        if not standing.letters or self._lettered == standing.number:
            return
        from kafkalike.log.dead_letter_buffer import plain
        from kafkalike.log.dead_letter_topic import stage

        try:
            for claim, box in standing.letters.items():
                letters = box.due(plain(standing.offsets[claim]))
                stage(self._cluster, self._opened(), standing.number, letters, limit, once=str(claim))
        except errors.KafkaError as error:
            if error.retriable or isinstance(error, errors.UnknownOutcomeError):
                raise
            self.failed(error)
            raise errors.TransactionAbortableError(
                f"dead letters were rejected; abort the transaction: {error}"
            ) from error
        self._lettered = standing.number

    def _decide(self, standing: ProducerTransactionState, limit: Deadline) -> Mapping[str, Appended]:
        offsets = with_lives(standing.offsets, standing.lives)
        done = self._opened().commit(standing.number, offsets, limit, acknowledgements=standing.acknowledgements)
        for claim, box in standing.letters.items():
            box.note({tp: at.offset for tp, at in standing.offsets[claim].items()})
        return done

    def commit_surely(self) -> Ranges:
        """Commit, and retry while the outcome is unknown, for at most `delivery_timeout_ms`."""
        limit = Deadline(self._clock, self._config.delivery_timeout_ms)
        while True:
            try:
                return self.commit()
            except errors.KafkaError as error:
                again = isinstance(error, errors.UnknownOutcomeError) or error.retriable
                if not again or self.phase is not TxnPhase.COMMITTING or limit.expired():
                    raise
                log.info("producer %s: %s; retrying the commit", self._config.client_id, error)
            self._clock.sleep(self._config.retry_backoff_ms / 1000)

    def abort(self) -> None:
        """Abort the open transaction; see `KafkaProducer.abort_transaction`."""
        self._check_caller(TxnCall.ABORT)
        self._abort(self._limit())

    def _abort(self, limit: Deadline) -> None:
        with self._turn:
            standing = self._take(TxnCall.ABORT)
            self._buffer.flush(limit.remaining())
            try:
                self._opened().abort(standing.number, limit)
            except errors.KafkaError as error:
                self._refused(TxnCall.ABORT, error)
                raise
            self._gate.replace(ProducerTransactionState.completed)

    def end(self, timeout: float | None = None) -> None:
        """Close the open transaction: finish a decided one, abort any other.

        For `close`, and for blocks that end with an error. Raises nothing, but logs a failure. A transaction that stays
        open is aborted by the next `init_transactions` of the id, or by its timeout.

        Args:
            timeout: seconds; None takes `max_block_ms`.
        """
        if self.phase in {TxnPhase.UNINITIALIZED, TxnPhase.READY, TxnPhase.FATAL_ERROR}:
            return
        if self._buffer.refusal == FORKED:
            return  # the transaction is the parent's
        limit = self._limit() if timeout is None else Deadline(self._clock, timeout * 1000)
        with self._turn:
            try:
                self._end(limit)
            except errors.KafkaError as error:
                log.warning(
                    "producer %s: the open transaction of %r is left to the next init_transactions: %s",
                    self._config.client_id,
                    self._config.transactional_id,
                    error,
                )

    def _end(self, limit: Deadline) -> None:
        with suppress(errors.InvalidTxnStateError):
            self._abort(limit)
            return
        # A commit without an answer has decided the transaction.
        self._decide(self._gate.state, limit)
        self._gate.replace(ProducerTransactionState.completed)

    # --- the sender, and sending threads -------------------------------------------------------

    def refusal(self) -> Exception | None:
        """Return the reason why queued records must not be staged; None if they may. Caller: sender."""
        return self._gate.state.unwritten()

    def stage(self, topic: TopicLog, records: RecordBatch, codec: str, timeout_ms: float) -> None:
        """Stage a batch of the open transaction. Caller: sender. Errors as `TransactionSession.stage`."""
        deadline = Deadline(self._clock, timeout_ms)
        self._opened().stage(self._gate.state.number, topic, records, codec=codec, deadline=deadline)

    def failed(self, error: Exception) -> None:
        """Record that a record of the open transaction failed. Caller: sender, before it completes the futures."""
        self._gate.replace(lambda standing: standing.failed(error))

    # --- shared --------------------------------------------------------------------------------

    def _check_caller(self, call: TxnCall) -> None:
        if self._buffer.refusal is not None:
            raise errors.IllegalStateError(self._buffer.refusal)
        if threading.get_ident() == self._buffer.sender:
            raise errors.IllegalStateError(
                f"{call.value} must not be called in a callback: it runs in the thread that sends"
            )

    def _take(self, call: TxnCall) -> ProducerTransactionState:
        return self._gate.replace(lambda standing: standing.after(call))

    def _refused(self, call: TxnCall, error: errors.KafkaError) -> None:
        self._gate.replace(lambda standing: standing.refused(call, error))

    def _opened(self) -> TransactionSession:
        assert self._session is not None, "`ProducerTransactionState.after` lets nobody in before `init`"
        return self._session

    def _limit(self) -> Deadline:
        return Deadline(self._clock, self._config.max_block_ms)


LEFT_BEHIND: Final = (errors.CommitFailedError, errors.FencedInstanceIdError, errors.RebalanceInProgressError)
"""Errors for a consumer that is not a current member of the group with these partitions."""


def claim_of(metadata: object, client_id: str) -> GroupClaim:
    """Return the member, or the group, that commits the offsets.

    Raises:
        TypeError: neither a `ConsumerGroupMetadata` nor the id of a group.
        InvalidGroupIdError: a missing or invalid group id.
        IllegalArgumentError: a generation without a member.
    """
    if not isinstance(metadata, str | ConsumerGroupMetadata):
        raise TypeError(f"group_metadata must be a ConsumerGroupMetadata or the id of a group, not {metadata!r}")
    group_id = metadata if isinstance(metadata, str) else metadata.group_id
    if group_id is None:
        raise errors.InvalidGroupIdError("the consumer has no group_id, so it has no offsets to commit")
    check_group_id(group_id)
    claim = GroupClaim.of(metadata, client_id)
    if claim.generation > 0 and not claim.member_id:
        raise errors.IllegalArgumentError(f"generation {claim.generation} needs the member_id that is in it")
    return claim


def check_member(groups: GroupsLog, claim: GroupClaim) -> None:
    """Reject a consumer that its group has left behind. The commit checks again, in the change that it makes.

    Args:
        groups: the groups' table.
        claim: the committing member.

    Raises:
        CommitFailedError, FencedInstanceIdError, RebalanceInProgressError: the group has moved on.
        KafkaStorageError: the storage does not answer.
    """
    if not claim.of_member:
        return
    try:
        # If looks cost money, a recent one is enough: the commit rejects changes that it missed.
        check_claim(groups.refresh(waiting=True).group(claim.group_id).roster, claim)
    except LEFT_BEHIND:
        # The consumer may know more than that look.
        check_claim(groups.refresh().group(claim.group_id).roster, claim)
