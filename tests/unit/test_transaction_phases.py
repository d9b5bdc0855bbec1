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
from kafkalike.producer.transaction_state import Call, Phase, Standing

TOO_LARGE = MessageSizeTooLargeError("too large")
FENCED = ProducerFencedError("a newer one is there")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

UNINITIALIZED = Standing()
READY = UNINITIALIZED.completed()
OPEN = READY.after(Call.BEGIN)
COMMITTING = OPEN.after(Call.COMMIT)
ABORTING = OPEN.after(Call.ABORT)
FAILED = OPEN.failed(TOO_LARGE)
DEAD = COMMITTING.refused(Call.COMMIT, FENCED)

TABLE: list[tuple[Standing, dict[Call, Phase | type[KafkaError]]]] = [
    (
        UNINITIALIZED,
        {
            Call.INIT: Phase.UNINITIALIZED,
            Call.BEGIN: IllegalStateError,
            Call.SEND: IllegalStateError,
            Call.SEND_OFFSETS: IllegalStateError,
            Call.COMMIT: IllegalStateError,
            Call.ABORT: IllegalStateError,
        },
    ),
    (
        READY,
        {
            Call.INIT: Phase.READY,
            Call.BEGIN: Phase.IN_TRANSACTION,
            Call.SEND: IllegalStateError,
            Call.SEND_OFFSETS: IllegalStateError,
            Call.COMMIT: IllegalStateError,
            Call.ABORT: IllegalStateError,
        },
    ),
    (
        OPEN,
        {
            Call.INIT: Phase.IN_TRANSACTION,
            Call.BEGIN: IllegalStateError,
            Call.SEND: Phase.IN_TRANSACTION,
            Call.SEND_OFFSETS: Phase.IN_TRANSACTION,
            Call.COMMIT: Phase.COMMITTING,
            Call.ABORT: Phase.ABORTING,
        },
    ),
    (
        COMMITTING,
        {
            Call.INIT: Phase.COMMITTING,
            Call.BEGIN: IllegalStateError,
            Call.SEND: IllegalStateError,
            Call.SEND_OFFSETS: IllegalStateError,
            Call.COMMIT: Phase.COMMITTING,
            Call.ABORT: Phase.COMMITTING,
        },
    ),
    (
        ABORTING,
        {
            Call.INIT: Phase.ABORTING,
            Call.BEGIN: IllegalStateError,
            Call.SEND: IllegalStateError,
            Call.SEND_OFFSETS: IllegalStateError,
            Call.COMMIT: IllegalStateError,
            Call.ABORT: Phase.ABORTING,
        },
    ),
    (
        FAILED,
        {
            Call.INIT: Phase.ABORTABLE_ERROR,
            Call.BEGIN: TransactionAbortableError,
            Call.SEND: TransactionAbortableError,
            Call.SEND_OFFSETS: TransactionAbortableError,
            Call.COMMIT: TransactionAbortableError,
            Call.ABORT: Phase.ABORTING,
        },
    ),
    (DEAD, dict.fromkeys(Call, ProducerFencedError)),
]


def test_the_table_has_every_call_in_every_phase() -> None:
    """So that nothing is left to chance."""
    assert {standing.phase for standing, _ in TABLE} == set(Phase)
    assert all(row.keys() == set(Call) for _, row in TABLE)


@pytest.mark.parametrize(
    ("standing", "call", "expected"),
    [
        pytest.param(standing, call, expected, id=f"{call.value} when {standing.phase.value}")
        for standing, row in TABLE
        for call, expected in row.items()
    ],
)
def test_each_call_in_each_phase(standing: Standing, call: Call, expected: Phase | type[KafkaError]) -> None:
    """A phase or an error; an error changes nothing."""
    if isinstance(expected, Phase):
        assert standing.after(call).phase is expected
    else:
        with pytest.raises(expected) as refused:
            standing.after(call)
        assert type(refused.value) is expected


def test_what_failed_is_the_cause_of_what_is_refused_afterwards() -> None:
    """Java's and kafka-python's clients say the first error, too."""
    with pytest.raises(TransactionAbortableError, match="too large") as refused:
        FAILED.after(Call.COMMIT)
    with pytest.raises(ProducerFencedError, match="a newer one is there") as dead:
        DEAD.after(Call.BEGIN)

    assert refused.value.__cause__ is TOO_LARGE
    assert dead.value.__cause__ is FENCED
    assert dead.value is not FENCED


def test_transactions_are_numbered_from_one_on_and_never_again() -> None:
    """Also over failures."""
    second = FAILED.after(Call.ABORT).completed().after(Call.BEGIN)

    assert (READY.number, OPEN.number, second.number) == (0, 1, 2)


def test_the_transaction_that_begins_has_nothing_of_the_one_before() -> None:
    """No offsets, no error, no owner."""
    before = replace(OPEN.with_offsets(GroupClaim(group_id="g"), {T0: OffsetAndMetadata(1)}), owner="somebody")

    after = before.failed(TOO_LARGE).after(Call.ABORT).completed().after(Call.BEGIN)

    assert (dict(after.offsets), after.error, after.owner) == ({}, None, None)


@pytest.mark.parametrize(
    ("error", "phase"),
    [
        (FENCED, Phase.FATAL_ERROR),
        (InvalidProducerEpochError("timed out"), Phase.FATAL_ERROR),
        (TransactionalIdAuthorizationFailedError("no"), Phase.FATAL_ERROR),
        (AuthorizationError("no"), Phase.FATAL_ERROR),
        (CommitFailedError("moved on"), Phase.ABORTABLE_ERROR),
        (FencedInstanceIdError("moved on"), Phase.ABORTABLE_ERROR),
        (RebalanceInProgressError("moving"), Phase.ABORTABLE_ERROR),
        (GroupAuthorizationFailedError("no"), Phase.ABORTABLE_ERROR),
        (TopicDeletedError("t", "1", None), Phase.ABORTABLE_ERROR),
        (TransactionAbortableError("too late"), Phase.ABORTABLE_ERROR),
        (InvalidTxnStateError("aborted before"), Phase.ABORTABLE_ERROR),
        (KafkaTimeoutError("late"), Phase.COMMITTING),
        (KafkaStorageError("full"), Phase.COMMITTING),
        (UnknownOutcomeError("commit", "1"), Phase.COMMITTING),
        (LogCorruptError("damaged"), Phase.COMMITTING),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_becomes_of_a_commit_that_raised(error: KafkaError, phase: Phase) -> None:
    """A rule's refusal is to be aborted; what may have happened may be asked for again."""
    assert COMMITTING.refused(Call.COMMIT, error).phase is phase


@pytest.mark.parametrize("error", [CommitFailedError("moved on"), FencedInstanceIdError("moved on")])
def test_offsets_that_a_group_refuses_make_the_transaction_one_to_be_aborted(error: KafkaError) -> None:
    """A storage that does not answer may be asked again."""
    assert OPEN.refused(Call.SEND_OFFSETS, error).phase is Phase.ABORTABLE_ERROR
    assert OPEN.refused(Call.SEND_OFFSETS, KafkaStorageError("away")).phase is Phase.IN_TRANSACTION


def test_an_abort_that_finds_a_commit_leaves_the_commit_to_be_finished() -> None:
    """A commit without an answer has decided it: it cannot be undone any more."""
    committed = InvalidTxnStateError("it is committed")

    for standing in (COMMITTING, ABORTING):
        assert standing.refused(Call.ABORT, committed).phase is Phase.COMMITTING


@pytest.mark.parametrize("error", [KafkaTimeoutError("late"), UnknownOutcomeError("abort", "1")])
def test_an_abort_without_an_answer_may_be_asked_for_again(error: KafkaError) -> None:
    """Whatever it was that was aborted."""
    assert ABORTING.refused(Call.ABORT, error).phase is Phase.ABORTING
    assert COMMITTING.refused(Call.ABORT, error).phase is Phase.COMMITTING


def test_an_initialisation_that_failed_may_be_asked_for_again_unless_it_is_forbidden() -> None:
    """Nothing has begun yet."""
    assert UNINITIALIZED.refused(Call.INIT, KafkaTimeoutError("late")).phase is Phase.UNINITIALIZED
    assert UNINITIALIZED.refused(Call.INIT, AuthorizationError("no")).phase is Phase.FATAL_ERROR


@pytest.mark.parametrize(
    ("standing", "phase"),
    [
        (READY, Phase.READY),
        (OPEN, Phase.ABORTABLE_ERROR),
        (COMMITTING, Phase.ABORTABLE_ERROR),
        (ABORTING, Phase.ABORTING),
        (FAILED, Phase.ABORTABLE_ERROR),
        (DEAD, Phase.FATAL_ERROR),
    ],
    ids=lambda value: value.phase.value if isinstance(value, Standing) else "",
)
def test_a_record_that_fails_makes_an_open_transaction_one_to_be_aborted(standing: Standing, phase: Phase) -> None:
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
    assert FAILED.after(Call.ABORT).unwritten() is TOO_LARGE
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
    """So it is all that `TransactionManager.gate` looks at, for each record."""
    assert {standing.phase for standing, row in TABLE if row[Call.SEND] is Phase.IN_TRANSACTION} == {
        Phase.IN_TRANSACTION
    }
    assert all(row[Call.SEND] is Phase.IN_TRANSACTION for standing, row in TABLE if standing.phase is OPEN.phase)
