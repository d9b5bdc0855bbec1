"""Transaction state: the phase of a transactional producer and a call in; the next state, or why not, out.

Pure rules. A state is a value: whoever changes it replaces it whole, so that an interrupt finds the one before or the
one after.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kafkalike.errors import (
    AuthorizationError,
    CommitFailedError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
    RebalanceInProgressError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions.group_claims import GroupClaim, GroupOffsets, joined_lives

if TYPE_CHECKING:
    from kafkalike.log.dead_letter_buffer import DeadLetterBuffer


class TxnPhase(StrEnum):
    """Kafka's states of a transactional producer."""

    UNINITIALIZED = "uninitialized"
    READY = "ready"
    """Initialised; no transaction is open."""
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    """A commit was asked for, and it is not known to have succeeded or failed: it may be asked for again."""
    ABORTING = "aborting"
    """An abort was asked for, and may be asked for again."""
    ABORTABLE_ERROR = "failed, to be aborted"
    FATAL_ERROR = "failed for good"


class TxnCall(StrEnum):
    """What a program may ask for."""

    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    SEND = "send"
    SEND_OFFSETS = "send_offsets_to_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


FATAL: Final = (ProducerFencedError, InvalidProducerEpochError, AuthorizationError)
"""Errors after which only `close` is of use: somebody else has the transactional id now, or nobody may use it."""

REFUSED: Final = (
    CommitFailedError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    InvalidTxnStateError,
    RebalanceInProgressError,
    TransactionAbortableError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
"""What a call raises that is refused by a rule: nothing was decided, and the same call would be refused again.
`InvalidTxnStateError`: an abort that was interrupted has come first."""


NOT_TRANSACTIONAL: Final = "the producer has no transactional_id, so it has no transactions"

Ranges = Mapping[TopicPartition, range]
"""Offsets of a transaction's records, by partition."""

NO_LIVES: Final[Mapping[str, str]] = MappingProxyType({})
"""Of offsets that may belong to whichever topic has the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerTransactionState:
    """Where a transactional producer stands."""

    phase: TxnPhase = TxnPhase.UNINITIALIZED
    number: int = 0
    """Of the last transaction that was begun; the first one is 1."""
    error: Exception | None = None
    """Why it failed, in the two phases of failure."""
    offsets: GroupOffsets = field(default_factory=dict)
    """What the open transaction commits for consumer groups, in the order of the calls."""
    lives: Mapping[str, str] = field(default_factory=dict)
    """Ids by name, of the topics that these offsets belong to."""
    letters: Mapping[GroupClaim, DeadLetterBuffer] = field(default_factory=dict)
    """Dead letters of the consumers whose offsets these are: those below the offsets are committed with them."""
    owner: object = None
    """Whose the open transaction is, where somebody said so."""

    # --- what a program asks for ---------------------------------------------------------------

    def after(self, call: TxnCall) -> ProducerTransactionState:
        """Where it stands once a call was taken, before what the call does is done.

        Raises:
            IllegalStateError: the call is out of order.
            TransactionAbortableError: the transaction failed and must be aborted first.
            ProducerFencedError, InvalidProducerEpochError, AuthorizationError: the producer failed for good.
        """
        if self.phase is TxnPhase.FATAL_ERROR:
            raise self._fatal()
        if call is TxnCall.INIT:
            return self  # as in kafka-python, once it is initialised there is nothing to do
        if self.phase is TxnPhase.UNINITIALIZED:
            raise IllegalStateError(f"{call.value} needs init_transactions() before it")
        if call is TxnCall.ABORT and self.phase is not TxnPhase.READY:
            # During a commit that may have been decided it stays a commit until the abort has succeeded.
            return self if self.phase is TxnPhase.COMMITTING else replace(self, phase=TxnPhase.ABORTING)
        if self.phase is TxnPhase.ABORTABLE_ERROR:
            raise TransactionAbortableError(
                f"{call.value} is refused: the transaction failed and must be aborted: {self.error}"
            ) from self.error
        if self.phase not in _ALLOWED[call]:
            raise IllegalStateError(f"{call.value} is out of order: {_WHY[self.phase]}")
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
        """With offsets that the open transaction is to commit; a later one for a partition takes the place.

        Raises:
            UnknownTopicOrPartitionError: earlier ones belong to another topic of the same name.
        """
        others = {known: old for known, old in self.offsets.items() if known != group}
        return replace(
            self,
            offsets={**others, group: {**self.offsets.get(group, {}), **offsets}},
            lives=joined_lives(self.lives, lives),
            letters=self.letters if letters is None else {**self.letters, group: letters},
        )

    # --- what became of it ---------------------------------------------------------------------

    def completed(self) -> ProducerTransactionState:
        """Initialised, or the transaction is committed or aborted."""
        return ProducerTransactionState(phase=TxnPhase.READY, number=self.number)

    def failed(self, error: Exception) -> ProducerTransactionState:
        """A record of the transaction could not be staged."""
        if self.phase is TxnPhase.FATAL_ERROR:
            return self
        if _is_fatal(error):
            return replace(self, phase=TxnPhase.FATAL_ERROR, error=error)
        if self.phase in {TxnPhase.IN_TRANSACTION, TxnPhase.COMMITTING}:
            return replace(self, phase=TxnPhase.ABORTABLE_ERROR, error=error)
        return self

    def refused(self, call: TxnCall, error: Exception) -> ProducerTransactionState:
        """A call that asks the log raised.

        What is neither fatal nor a rule's refusal may have happened: the phase stays, and the call may be made again.
        """
        if call is TxnCall.ABORT and isinstance(error, InvalidTxnStateError):
            return replace(self, phase=TxnPhase.COMMITTING)  # a commit without an answer has decided it
        if _is_fatal(error) or isinstance(error, REFUSED):
            return self.failed(error)
        return self

    def unwritten(self) -> Exception | None:
        """Why a record that waits is not to be staged any more; None while it is."""
        if self.phase is TxnPhase.FATAL_ERROR:
            return self._fatal()
        if self.phase is TxnPhase.ABORTING:
            return self.error or TransactionAbortedError("the transaction was aborted before the record was written")
        return None

    def _fatal(self) -> KafkaError:
        # One error stands for many calls: each gets one of its own, and the first one as its cause.
        kind = next((known for known in FATAL if isinstance(self.error, known)), KafkaError)
        found = kind(f"the producer failed for good, close it: {self.error}")
        found.__cause__ = self.error
        return found


def _is_fatal(error: Exception) -> bool:
    return isinstance(error, FATAL) and not isinstance(error, GroupAuthorizationFailedError)


_ALLOWED: Final[Mapping[TxnCall, frozenset[TxnPhase]]] = {
    TxnCall.BEGIN: frozenset({TxnPhase.READY}),
    TxnCall.SEND: frozenset({TxnPhase.IN_TRANSACTION}),
    TxnCall.SEND_OFFSETS: frozenset({TxnPhase.IN_TRANSACTION}),
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
    """Where a transactional producer stands; lets records in while a transaction is open.

    Made before the accumulator, which asks it under its lock, so that a flush that comes later has the record.
    """

    __slots__ = ("_change", "state")

    def __init__(self) -> None:
        self.state = ProducerTransactionState()
        """Replaced whole, by `replace` alone."""
        self._change = threading.Lock()

    def replace(self, step: Callable[[ProducerTransactionState], ProducerTransactionState]) -> ProducerTransactionState:
        """Replace the state by what `step` makes of it; any thread may."""
        with self._change:
            found = self.state = step(self.state)
            return found

    def let_in(self) -> None:
        """Let a record in. Caller: any sending thread, for each record, twice.

        Raises:
            KafkaError: no transaction is open that takes records; see `ProducerTransactionState.after`.
        """
        # `after` lets them into this phase only, and takes ten times as long to say so.
        if self.state.phase is not _OPEN:
            self.state.after(TxnCall.SEND)


_OPEN: Final = TxnPhase.IN_TRANSACTION
