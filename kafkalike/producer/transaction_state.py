"""Transaction state: pure rules from the state of a transactional producer and a call to the next state or an error.

A state is a value that is replaced as a whole, so an interrupt finds either the old or the new state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kafkalike import errors
from kafkalike.model.structs import OffsetAndMetadata, ShareGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.dead_letter_buffer import DeadLetterBuffer
    from kafkalike.model.shares.share_partition import Acknowledgements
    from kafkalike.model.transactions.group_claims import GroupClaim, GroupOffsets, ShareAcknowledgements


class TxnPhase(StrEnum):
    """Kafka's states of a transactional producer."""

    UNINITIALIZED = "uninitialized"
    READY = "ready"
    """Initialized; no transaction is open."""
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    """A commit was requested, and its outcome is unknown; it may be repeated."""
    ABORTING = "aborting"
    """An abort was requested, and may be repeated."""
    ABORTABLE_ERROR = "failed, to be aborted"
    FATAL_ERROR = "failed for good"


class TxnCall(StrEnum):
    """Calls of a program."""

    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    SEND = "send"
    SEND_OFFSETS = "send_offsets_to_transaction"
    SEND_ACKNOWLEDGEMENTS = "send_share_acknowledgements_to_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


FATAL: Final = (errors.ProducerFencedError, errors.InvalidProducerEpochError, errors.AuthorizationError)
"""Errors after which only `close` is useful: another producer has the transactional id, or nobody may use it."""

REFUSED: Final = (
    errors.CommitFailedError,
    errors.FencedInstanceIdError,
    errors.GroupAuthorizationFailedError,
    errors.IllegalGenerationError,
    errors.InvalidRecordStateError,
    errors.InvalidTxnStateError,
    errors.RebalanceInProgressError,
    errors.TransactionAbortableError,
    errors.UnknownMemberIdError,
    errors.UnknownTopicOrPartitionError,
)
"""Errors of a call that a rule rejects: nothing was decided, and a repeated call is rejected again.
`InvalidTxnStateError`: an interrupted abort came first."""


NOT_TRANSACTIONAL: Final = "the producer has no transactional_id, so it has no transactions"

Ranges = Mapping[TopicPartition, range]
"""Offsets of a transaction's records, by partition."""

NO_LIVES: Final[Mapping[str, str]] = MappingProxyType({})
"""For offsets that may belong to any topic of the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerTransactionState:
    """State of a transactional producer."""

    phase: TxnPhase = TxnPhase.UNINITIALIZED
    number: int = 0
    """Number of the last transaction that was begun; the first one is 1."""
    error: Exception | None = None
    """The error, in the two failed phases."""
    offsets: GroupOffsets = field(default_factory=dict)
    """Offsets of consumer groups in the open transaction, in the order of the calls."""
    lives: Mapping[str, str] = field(default_factory=dict)
    """Ids, by name, of the topics of these offsets."""
    acknowledgements: ShareAcknowledgements = field(default_factory=dict)
    """Verdicts on records of share groups in the open transaction."""
    letters: Mapping[GroupClaim, DeadLetterBuffer] = field(default_factory=dict)
    """Dead letters of the consumers of these offsets; those below the offsets are committed with them."""
    owner: object = None
    """Owner of the open transaction, if one was given."""

    # --- what a program asks for ---------------------------------------------------------------

    def after(self, call: TxnCall) -> ProducerTransactionState:
        """Return the state after a call was accepted, before the call's work is done.

        Raises:
            IllegalStateError: the call is out of order.
            TransactionAbortableError: the transaction failed and must be aborted first.
            ProducerFencedError, InvalidProducerEpochError, AuthorizationError: the producer failed fatally.
        """
        if self.phase is TxnPhase.FATAL_ERROR:
            raise self._fatal()
        if call is TxnCall.INIT:
            return self  # as in kafka-python, once it is initialized there is nothing to do
        if self.phase is TxnPhase.UNINITIALIZED:
            raise errors.IllegalStateError(f"{call.value} needs init_transactions() before it")
        if call is TxnCall.ABORT and self.phase is not TxnPhase.READY:
            # After a commit that may have been decided, the phase stays COMMITTING until the abort has succeeded.
            return self if self.phase is TxnPhase.COMMITTING else replace(self, phase=TxnPhase.ABORTING)
        if self.phase is TxnPhase.ABORTABLE_ERROR:
            raise errors.TransactionAbortableError(
                f"{call.value} is refused: the transaction failed and must be aborted: {self.error}"
            ) from self.error
        if self.phase not in _ALLOWED[call]:
            raise errors.IllegalStateError(f"{call.value} is out of order: {_WHY[self.phase]}")
        if call is TxnCall.BEGIN:
            return ProducerTransactionState(phase=TxnPhase.IN_TRANSACTION, number=self.number + 1)
        return replace(self, phase=TxnPhase.COMMITTING) if call is TxnCall.COMMIT else self

    def with_offsets(
        self,
        group: GroupClaim,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        letters: DeadLetterBuffer | None = None,
        lives: Mapping[str, str] = NO_LIVES,
    ) -> ProducerTransactionState:
        """Return the state with more offsets for the transaction; later offsets of a partition replace earlier ones.

        Raises:
            UnknownTopicOrPartitionError: the earlier ones belong to another topic of the same name.
        """
        from kafkalike.model.transactions.group_claims import joined_lives  # here: most producers have no transactions

        others = {known: old for known, old in self.offsets.items() if known != group}
        return replace(
            self,
            offsets={**others, group: {**self.offsets.get(group, {}), **offsets}},
            lives=joined_lives(self.lives, lives),
            letters=self.letters if letters is None else {**self.letters, group: letters},
        )

    def with_acknowledgements(
        self, member: ShareGroupMetadata, acknowledgements: Acknowledgements
    ) -> ProducerTransactionState:
        """Return the state with more acknowledgements of a member for the transaction."""
        known = self.acknowledgements.get(member, {})
        after = {tp: (*known.get(tp, ()), *acknowledgements.get(tp, ())) for tp in {**known, **acknowledgements}}
        return replace(self, acknowledgements={**self.acknowledgements, member: after})

    # --- what became of it ---------------------------------------------------------------------

    def completed(self) -> ProducerTransactionState:
        """Return the state after initialization, a commit or an abort."""
        return ProducerTransactionState(phase=TxnPhase.READY, number=self.number)

    def failed(self, error: Exception) -> ProducerTransactionState:
        """Return the state after a record of the transaction could not be staged."""
        if self.phase is TxnPhase.FATAL_ERROR:
            return self
        if _is_fatal(error):
            return replace(self, phase=TxnPhase.FATAL_ERROR, error=error)
        if self.phase in {TxnPhase.IN_TRANSACTION, TxnPhase.COMMITTING}:
            return replace(self, phase=TxnPhase.ABORTABLE_ERROR, error=error)
        return self

    def refused(self, call: TxnCall, error: Exception) -> ProducerTransactionState:
        """Return the state after a call failed.

        After an error that is neither fatal nor a rule's rejection, the call may have taken effect: the phase stays,
        and the call may be repeated.
        """
        if call is TxnCall.ABORT and isinstance(error, errors.InvalidTxnStateError):
            return replace(self, phase=TxnPhase.COMMITTING)  # a commit without an answer has decided it
        if _is_fatal(error) or isinstance(error, REFUSED):
            return self.failed(error)
        return self

    def unwritten(self) -> Exception | None:
        """Return the reason why a queued record must not be staged; None if it may."""
        if self.phase is TxnPhase.FATAL_ERROR:
            return self._fatal()
        if self.phase is TxnPhase.ABORTING:
            return self.error or errors.TransactionAbortedError(
                "the transaction was aborted before the record was written"
            )
        return None

    def _fatal(self) -> errors.KafkaError:
        # Each call gets its own error, with the first one as its cause.
        kind = next((known for known in FATAL if isinstance(self.error, known)), errors.KafkaError)
        found = kind(f"the producer failed for good, close it: {self.error}")
        found.__cause__ = self.error
        return found


def _is_fatal(error: Exception) -> bool:
    return isinstance(error, FATAL) and not isinstance(error, errors.GroupAuthorizationFailedError)


_ALLOWED: Final[Mapping[TxnCall, frozenset[TxnPhase]]] = {
    TxnCall.BEGIN: frozenset({TxnPhase.READY}),
    TxnCall.SEND: frozenset({TxnPhase.IN_TRANSACTION}),
    TxnCall.SEND_OFFSETS: frozenset({TxnPhase.IN_TRANSACTION}),
    TxnCall.SEND_ACKNOWLEDGEMENTS: frozenset({TxnPhase.IN_TRANSACTION}),
    TxnCall.COMMIT: frozenset({TxnPhase.IN_TRANSACTION, TxnPhase.COMMITTING}),
    TxnCall.ABORT: frozenset(),
}
"""The phases in which a call is allowed; `after` handles errors, `init_transactions` and aborts."""

_WHY: Final[Mapping[TxnPhase, str]] = {
    TxnPhase.READY: "no transaction is open; begin_transaction() begins one",
    TxnPhase.IN_TRANSACTION: "a transaction is open",
    TxnPhase.COMMITTING: "the transaction is being committed; call commit_transaction() again until it has returned",
    TxnPhase.ABORTING: "the transaction is being aborted; call abort_transaction() again until it has returned",
}


class TransactionGate:
    """The state of a transactional producer; admits records while a transaction is open.

    Made before the accumulator, which calls it under its lock, so that a later flush includes the record.
    """

    __slots__ = ("_change", "state")

    def __init__(self) -> None:
        self.state = ProducerTransactionState()
        """Replaced as a whole, only by `replace`."""
        self._change = threading.Lock()

    def replace(self, step: Callable[[ProducerTransactionState], ProducerTransactionState]) -> ProducerTransactionState:
        """Replace the state by the result of `step`; any thread may."""
        with self._change:
            found = self.state = step(self.state)
            return found

    def let_in(self) -> None:
        """Admit a record. Caller: any sending thread, twice per record.

        Raises:
            KafkaError: no transaction accepts records; see `ProducerTransactionState.after`.
        """
        # `after` allows only this phase, and takes ten times as long.
        if self.state.phase is not _OPEN:
            self.state.after(TxnCall.SEND)


_OPEN: Final = TxnPhase.IN_TRANSACTION
