"""Phases of a transactional producer: each call in each phase, each error, and what kafka-python and Java refuse."""

from dataclasses import replace

import pytest

from kafkalike.errors import (
    AuthorizationError,
    CommitFailedError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    KafkaStorageError,
    KafkaTimeoutError,
    LogCorruptError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    RebalanceInProgressError,
    TopicDeletedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationFailedError,
    UnknownOutcomeError,
)
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions.group_claims import GroupClaim
from kafkalike.producer.transaction_state import ProducerTransactionState, TxnCall, TxnPhase

TOO_LARGE = MessageSizeTooLargeError("too large")
FENCED = ProducerFencedError("a newer one is there")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

UNINITIALIZED = ProducerTransactionState()
READY = UNINITIALIZED.completed()
OPEN = READY.after(TxnCall.BEGIN)
COMMITTING = OPEN.after(TxnCall.COMMIT)
ABORTING = OPEN.after(TxnCall.ABORT)
FAILED = OPEN.failed(TOO_LARGE)
DEAD = COMMITTING.refused(TxnCall.COMMIT, FENCED)

TABLE: list[tuple[ProducerTransactionState, dict[TxnCall, TxnPhase | type[KafkaError]]]] = [
    (
        UNINITIALIZED,
        {
            TxnCall.INIT: TxnPhase.UNINITIALIZED,
            TxnCall.BEGIN: IllegalStateError,
            TxnCall.SEND: IllegalStateError,
            TxnCall.SEND_OFFSETS: IllegalStateError,
            TxnCall.SEND_ACKNOWLEDGEMENTS: IllegalStateError,
            TxnCall.COMMIT: IllegalStateError,
            TxnCall.ABORT: IllegalStateError,
        },
    ),
    (
        READY,
        {
            TxnCall.INIT: TxnPhase.READY,
            TxnCall.BEGIN: TxnPhase.IN_TRANSACTION,
            TxnCall.SEND: IllegalStateError,
            TxnCall.SEND_OFFSETS: IllegalStateError,
            TxnCall.SEND_ACKNOWLEDGEMENTS: IllegalStateError,
            TxnCall.COMMIT: IllegalStateError,
            TxnCall.ABORT: IllegalStateError,
        },
    ),
    (
        OPEN,
        {
            TxnCall.INIT: TxnPhase.IN_TRANSACTION,
            TxnCall.BEGIN: IllegalStateError,
            TxnCall.SEND: TxnPhase.IN_TRANSACTION,
            TxnCall.SEND_OFFSETS: TxnPhase.IN_TRANSACTION,
            TxnCall.SEND_ACKNOWLEDGEMENTS: TxnPhase.IN_TRANSACTION,
            TxnCall.COMMIT: TxnPhase.COMMITTING,
            TxnCall.ABORT: TxnPhase.ABORTING,
        },
    ),
    (
        COMMITTING,
        {
            TxnCall.INIT: TxnPhase.COMMITTING,
            TxnCall.BEGIN: IllegalStateError,
            TxnCall.SEND: IllegalStateError,
            TxnCall.SEND_OFFSETS: IllegalStateError,
            TxnCall.SEND_ACKNOWLEDGEMENTS: IllegalStateError,
            TxnCall.COMMIT: TxnPhase.COMMITTING,
            TxnCall.ABORT: TxnPhase.COMMITTING,
        },
    ),
    (
        ABORTING,
        {
            TxnCall.INIT: TxnPhase.ABORTING,
            TxnCall.BEGIN: IllegalStateError,
            TxnCall.SEND: IllegalStateError,
            TxnCall.SEND_OFFSETS: IllegalStateError,
            TxnCall.SEND_ACKNOWLEDGEMENTS: IllegalStateError,
            TxnCall.COMMIT: IllegalStateError,
            TxnCall.ABORT: TxnPhase.ABORTING,
        },
    ),
    (
        FAILED,
        {
            TxnCall.INIT: TxnPhase.ABORTABLE_ERROR,
            TxnCall.BEGIN: TransactionAbortableError,
            TxnCall.SEND: TransactionAbortableError,
            TxnCall.SEND_OFFSETS: TransactionAbortableError,
            TxnCall.SEND_ACKNOWLEDGEMENTS: TransactionAbortableError,
            TxnCall.COMMIT: TransactionAbortableError,
            TxnCall.ABORT: TxnPhase.ABORTING,
        },
    ),
    (DEAD, dict.fromkeys(TxnCall, ProducerFencedError)),
]


def test_the_table_has_every_call_in_every_phase() -> None:
    """So that nothing is left to chance."""
    assert {standing.phase for standing, _ in TABLE} == set(TxnPhase)
    assert all(row.keys() == set(TxnCall) for _, row in TABLE)


@pytest.mark.parametrize(
    ("standing", "call", "expected"),
    [
        pytest.param(standing, call, expected, id=f"{call.value} when {standing.phase.value}")
        for standing, row in TABLE
        for call, expected in row.items()
    ],
)
def test_each_call_in_each_phase(
    standing: ProducerTransactionState, call: TxnCall, expected: TxnPhase | type[KafkaError]
) -> None:
    """A phase or an error; an error changes nothing."""
    if isinstance(expected, TxnPhase):
        assert standing.after(call).phase is expected
    else:
        with pytest.raises(expected) as refused:
            standing.after(call)
        assert type(refused.value) is expected


def test_what_failed_is_the_cause_of_what_is_refused_afterwards() -> None:
    """Java's and kafka-python's clients say the first error, too."""
    with pytest.raises(TransactionAbortableError, match="too large") as refused:
        FAILED.after(TxnCall.COMMIT)
    with pytest.raises(ProducerFencedError, match="a newer one is there") as dead:
        DEAD.after(TxnCall.BEGIN)

    assert refused.value.__cause__ is TOO_LARGE
    assert dead.value.__cause__ is FENCED
    assert dead.value is not FENCED


def test_transactions_are_numbered_from_one_on_and_never_again() -> None:
    """Also over failures."""
    second = FAILED.after(TxnCall.ABORT).completed().after(TxnCall.BEGIN)

    assert (READY.number, OPEN.number, second.number) == (0, 1, 2)


def test_the_transaction_that_begins_has_nothing_of_the_one_before() -> None:
    """No offsets, no error, no owner."""
    before = replace(OPEN.with_offsets(GroupClaim(group_id="g"), {T0: OffsetAndMetadata(1)}), owner="somebody")

    after = before.failed(TOO_LARGE).after(TxnCall.ABORT).completed().after(TxnCall.BEGIN)

    assert (dict(after.offsets), after.error, after.owner) == ({}, None, None)


@pytest.mark.parametrize(
    ("error", "phase"),
    [
        (FENCED, TxnPhase.FATAL_ERROR),
        (InvalidProducerEpochError("timed out"), TxnPhase.FATAL_ERROR),
        (TransactionalIdAuthorizationFailedError("no"), TxnPhase.FATAL_ERROR),
        (AuthorizationError("no"), TxnPhase.FATAL_ERROR),
        (CommitFailedError("moved on"), TxnPhase.ABORTABLE_ERROR),
        (FencedInstanceIdError("moved on"), TxnPhase.ABORTABLE_ERROR),
        (RebalanceInProgressError("moving"), TxnPhase.ABORTABLE_ERROR),
        (GroupAuthorizationFailedError("no"), TxnPhase.ABORTABLE_ERROR),
        (TopicDeletedError("t", "1", None), TxnPhase.ABORTABLE_ERROR),
        (TransactionAbortableError("too late"), TxnPhase.ABORTABLE_ERROR),
        (InvalidTxnStateError("aborted before"), TxnPhase.ABORTABLE_ERROR),
        (KafkaTimeoutError("late"), TxnPhase.COMMITTING),
        (KafkaStorageError("full"), TxnPhase.COMMITTING),
        (UnknownOutcomeError("commit", "1"), TxnPhase.COMMITTING),
        (LogCorruptError("damaged"), TxnPhase.COMMITTING),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_becomes_of_a_commit_that_raised(error: KafkaError, phase: TxnPhase) -> None:
    """A rule's refusal is to be aborted; what may have happened may be asked for again."""
    assert COMMITTING.refused(TxnCall.COMMIT, error).phase is phase


@pytest.mark.parametrize("error", [CommitFailedError("moved on"), FencedInstanceIdError("moved on")])
def test_offsets_that_a_group_refuses_make_the_transaction_one_to_be_aborted(error: KafkaError) -> None:
    """A storage that does not answer may be asked again."""
    assert OPEN.refused(TxnCall.SEND_OFFSETS, error).phase is TxnPhase.ABORTABLE_ERROR
    assert OPEN.refused(TxnCall.SEND_OFFSETS, KafkaStorageError("away")).phase is TxnPhase.IN_TRANSACTION


def test_an_abort_that_finds_a_commit_leaves_the_commit_to_be_finished() -> None:
    """A commit without an answer has decided it: it cannot be undone any more."""
    committed = InvalidTxnStateError("it is committed")

    for standing in (COMMITTING, ABORTING):
        assert standing.refused(TxnCall.ABORT, committed).phase is TxnPhase.COMMITTING


@pytest.mark.parametrize("error", [KafkaTimeoutError("late"), UnknownOutcomeError("abort", "1")])
def test_an_abort_without_an_answer_may_be_asked_for_again(error: KafkaError) -> None:
    """Whatever it was that was aborted."""
    assert ABORTING.refused(TxnCall.ABORT, error).phase is TxnPhase.ABORTING
    assert COMMITTING.refused(TxnCall.ABORT, error).phase is TxnPhase.COMMITTING


def test_an_initialisation_that_failed_may_be_asked_for_again_unless_it_is_forbidden() -> None:
    """Nothing has begun yet."""
    assert UNINITIALIZED.refused(TxnCall.INIT, KafkaTimeoutError("late")).phase is TxnPhase.UNINITIALIZED
    assert UNINITIALIZED.refused(TxnCall.INIT, AuthorizationError("no")).phase is TxnPhase.FATAL_ERROR


@pytest.mark.parametrize(
    ("standing", "phase"),
    [
        (READY, TxnPhase.READY),
        (OPEN, TxnPhase.ABORTABLE_ERROR),
        (COMMITTING, TxnPhase.ABORTABLE_ERROR),
        (ABORTING, TxnPhase.ABORTING),
        (FAILED, TxnPhase.ABORTABLE_ERROR),
        (DEAD, TxnPhase.FATAL_ERROR),
    ],
    ids=lambda value: value.phase.value if isinstance(value, ProducerTransactionState) else "",
)
def test_a_record_that_fails_makes_an_open_transaction_one_to_be_aborted(
    standing: ProducerTransactionState, phase: TxnPhase
) -> None:
    """Also while a commit waits for its records."""
    after = standing.failed(KafkaTimeoutError("late"))

    assert after.phase is phase
    assert (after is standing) or type(after.error) is KafkaTimeoutError


def test_the_first_error_is_the_one_that_counts() -> None:
    """The others follow from it."""
    assert FAILED.failed(KafkaTimeoutError("late")).error is TOO_LARGE


def test_records_that_wait_are_staged_unless_the_transaction_is_over() -> None:
    """After an abort they fail as aborted, or with what made the abort necessary (KIP-654)."""
    assert [standing.unwritten() for standing in (OPEN, COMMITTING, FAILED)] == [None, None, None]
    assert type(ABORTING.unwritten()) is TransactionAbortedError
    assert FAILED.after(TxnCall.ABORT).unwritten() is TOO_LARGE
    assert type(DEAD.unwritten()) is ProducerFencedError


def test_offsets_add_up_by_claim_and_the_later_one_counts() -> None:
    """In the order of the calls, so that the later claim of a group is the later one of the rows."""
    one, two = (
        GroupClaim(group_id="g", generation=1, member_id="a"),
        GroupClaim(group_id="g", generation=2, member_id="a"),
    )

    standing = OPEN.with_offsets(one, {T0: OffsetAndMetadata(1), T1: OffsetAndMetadata(5)})
    standing = standing.with_offsets(two, {T0: OffsetAndMetadata(2)})
    standing = standing.with_offsets(one, {T0: OffsetAndMetadata(3)})

    assert list(standing.offsets) == [two, one]
    assert standing.offsets[one] == {T0: OffsetAndMetadata(3), T1: OffsetAndMetadata(5)}


def test_the_phase_alone_says_whether_a_record_is_let_in() -> None:
    """So it is all that `TransactionGate.let_in` looks at, for each record."""
    assert {standing.phase for standing, row in TABLE if row[TxnCall.SEND] is TxnPhase.IN_TRANSACTION} == {
        TxnPhase.IN_TRANSACTION
    }
    assert all(row[TxnCall.SEND] is TxnPhase.IN_TRANSACTION for standing, row in TABLE if standing.phase is OPEN.phase)
