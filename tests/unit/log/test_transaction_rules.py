"""Rules of transactions, one by one: what the groups' table has and what is wanted in, the exact rows or the error out.

`test_transaction_simulation.py` says that they are the right ones together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kafkalike.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)
from kafkalike.model.group_rows import roster_row, transaction_rows
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions.group_claims import GroupClaim, offset_commit
from kafkalike.model.transactions.rules import (
    MAX_EPOCH,
    CommitRequest,
    UnsettledError,
    committed_as,
    expired,
    is_open,
    plan_abort,
    plan_commit,
    plan_drop,
    plan_fence,
    plan_forget,
    plan_init,
    plan_next_epoch,
    was_committed,
)
from kafkalike.model.transactions.transactional_id import (
    CommittedTransaction,
    Entries,
    StagedFile,
    TopicLife,
    TransactionalIdState,
    TransactionAttempt,
    TransactionOffset,
    TransactionPart,
    Why,
    WriteName,
)

A, B = TopicLife("a", "a-id"), TopicLife("b", "b-id")
TOPICS = {"a": "a-id", "b": "b-id"}
PART_A = TransactionPart(topic=A, counts={0: 2}, files=(StagedFile("0", 1, 2),))
PART_B = TransactionPart(topic=B, counts={1: 1}, files=(StagedFile("1", 3, 4),))
ATTEMPT = TransactionAttempt(7, 3, 2)
NAME = WriteName("app", 5)
OPEN = TransactionalIdState(producer_id=7, epoch=3, number=1, why=Why.INIT, timeout_ms=40, client_id="c", changed_ms=50)
"""Of an id whose transaction 2 may be open."""
DECISION = CommittedTransaction(attempt=ATTEMPT, seq=1, parts=(PART_A, PART_B), groups=("g",), name=NAME)
FACT = CommittedTransaction(attempt=ATTEMPT, seq=1, name=NAME)
"""What later rows keep of it."""
DECIDED = replace(OPEN, number=2, why=Why.COMMIT, committed=DECISION)
NOTHING = "; nothing was committed"
DOUBT = "; whether its last transaction was committed is not known any more"


def table(standing: TransactionalIdState | None, more: int = 0) -> GroupsState:
    """A table in which an id stands so, and that has some more rows of others. A decision is its row 1."""
    known = [] if standing is None else [("id", standing)]
    if standing is not None and standing.committed is not None and standing.unsettled is None:
        known.insert(0, ("id", DECIDED))
    state = GroupsState()
    for name, stands in [*known, *[("other", replace(OPEN, producer_id=99))] * more]:
        entries = Entries(transactional_id=name, standing=stands, now_ms=stands.changed_ms)
        state = state.applied(transaction_rows(state.seq + 1, entries))
    return state


def row(standing: TransactionalIdState | None, *offsets: TransactionOffset, now_ms: int = 60) -> Entries:
    return Entries(transactional_id="id", standing=standing, offsets=offsets, now_ms=now_ms)


def begin(groups: GroupsState, settled: int = 0, after: tuple[int, int] | None = None) -> Entries | None:
    return plan_init(groups, "id", settled=settled, timeout_ms=9, client_id="new", now_ms=60, after=after)


def wanted(**changed: object) -> CommitRequest:
    usual = {"transactional_id": "id", "attempt": ATTEMPT, "parts": (PART_A, PART_B), "offsets": {}, "settled": 0}
    return CommitRequest(**{**usual, **changed})  # type: ignore[arg-type]


def abort(groups: GroupsState, settled: int = 0, *, in_doubt: bool = False) -> Entries | None:
    return plan_abort(groups, "id", ATTEMPT, settled=settled, in_doubt=in_doubt, now_ms=60)


def fence(groups: GroupsState, settled: int = 0, only: TransactionAttempt | None = None) -> Entries | None:
    return plan_fence(groups, "id", why=Why.TIMEOUT, settled=settled, now_ms=60, only=only)


# --- init ------------------------------------------------------------------------------------


def test_a_new_id_gets_the_number_of_its_row_as_producer_id() -> None:
    made = TransactionalIdState(producer_id=1, epoch=0, why=Why.INIT, timeout_ms=9, client_id="new", changed_ms=60)

    assert begin(GroupsState()) == row(made)
    assert begin(table(None, more=3)) == row(replace(made, producer_id=4))


def test_a_known_id_gets_the_next_epoch_and_keeps_what_it_has_decided() -> None:
    made = TransactionalIdState(producer_id=7, epoch=4, why=Why.INIT, timeout_ms=9, client_id="new", changed_ms=60)

    assert begin(table(OPEN)) == row(made)
    assert begin(table(DECIDED), settled=1) == row(replace(made, committed=FACT))


def test_after_the_last_epoch_an_id_gets_another_producer_id() -> None:
    made = TransactionalIdState(producer_id=4, epoch=0, why=Why.INIT, timeout_ms=9, client_id="new", changed_ms=60)
    last = replace(OPEN, epoch=MAX_EPOCH)

    assert begin(table(replace(OPEN, epoch=MAX_EPOCH - 1))) == row(replace(made, producer_id=7, epoch=MAX_EPOCH))
    assert begin(table(last, more=2)) == row(made)
    assert begin(table(last, more=2), after=(7, MAX_EPOCH)) == row(replace(made, follows=(7, MAX_EPOCH)))


def test_producer_that_asks_for_its_next_epoch_again_gets_the_same_one() -> None:
    made = begin(table(OPEN), after=(7, 3))

    assert made is not None
    assert made.standing is not None
    assert (made.standing.epoch, made.standing.follows) == (4, (7, 3))
    assert begin(table(made.standing), after=(7, 3)) is None


@pytest.mark.parametrize("standing", [OPEN, replace(OPEN, epoch=5), replace(OPEN, epoch=5, follows=(7, 4))])
def test_fenced_producer_gets_no_next_epoch(standing: TransactionalIdState) -> None:
    with pytest.raises(ProducerFencedError, match="'id' has a newer producer"):
        begin(table(standing), after=(7, 2))


def test_producer_whose_id_was_deleted_starts_over() -> None:
    made = TransactionalIdState(producer_id=1, epoch=0, why=Why.INIT, timeout_ms=9, client_id="new", changed_ms=60)

    assert begin(GroupsState(), after=(7, 3)) == row(made)


@pytest.mark.parametrize("settled", [0, 2])
def test_no_row_of_an_id_follows_a_decision_that_is_not_in_all_topics(settled: int) -> None:
    groups = table(DECIDED)
    calls: list[Callable[[], object]] = [
        lambda: begin(groups, settled),
        lambda: plan_commit(groups, wanted(attempt=TransactionAttempt(7, 3, 3), settled=settled), TOPICS, 60),
        lambda: plan_abort(groups, "id", TransactionAttempt(7, 3, 3), settled=settled, in_doubt=False, now_ms=60),
        lambda: fence(groups, settled),
        lambda: plan_forget(groups, "id", settled=settled, expiration_ms=0, now_ms=60),
    ]

    for call in calls:
        with pytest.raises(UnsettledError) as raised:
            call()
        assert str(raised.value) == "'id': its transaction before this one is not in all topics yet"


# --- the next epoch --------------------------------------------------------------------------

NEXT = TransactionalIdState(
    producer_id=7, epoch=4, why=Why.INIT, timeout_ms=40, client_id="c", changed_ms=60, follows=(7, 3)
)
"""After transaction 2 of `OPEN` has ended."""
LAST = replace(NEXT, producer_id=8, epoch=0, follows=(7, MAX_EPOCH))
"""After a transaction of the last epoch has ended."""


def next_epoch(groups: GroupsState, settled: int = 0) -> Entries | None:
    return plan_next_epoch(groups, "id", ATTEMPT, settled=settled, now_ms=60)


def test_producer_of_an_ended_transaction_gets_the_next_epoch_with_its_timeout_and_client() -> None:
    assert next_epoch(table(OPEN)) == row(NEXT)
    assert next_epoch(table(DECIDED), settled=1) == row(replace(NEXT, committed=FACT))


def test_next_epoch_that_was_given_before_is_not_given_again() -> None:
    for standing, ended in ((NEXT, ATTEMPT), (LAST, TransactionAttempt(7, MAX_EPOCH, 1))):
        groups = table(standing)

        assert groups.transactions["id"] == standing
        assert plan_next_epoch(groups, "id", ended, settled=0, now_ms=60) is None


@pytest.mark.parametrize(
    ("standing", "error"),
    [
        (None, ProducerFencedError),
        (replace(OPEN, producer_id=8, epoch=0), ProducerFencedError),
        (replace(NEXT, follows=None), ProducerFencedError),
        (replace(NEXT, epoch=5), ProducerFencedError),
        (replace(NEXT, why=Why.TIMEOUT, follows=None), InvalidProducerEpochError),
    ],
    ids=["deleted", "another producer", "taken over", "two epochs later", "timed out"],
)
def test_producer_that_lost_its_id_gets_no_next_epoch(
    standing: TransactionalIdState | None, error: type[KafkaError]
) -> None:
    with pytest.raises(error):
        next_epoch(table(standing))


def test_next_epoch_tells_whether_the_transaction_before_it_was_committed() -> None:
    after_commit = replace(NEXT, committed=FACT)

    assert [was_committed(after_commit, 7, epoch) for epoch in (2, 3, 4)] == [False, True, False]
    assert not was_committed(NEXT, 7, 3)


# --- commit ----------------------------------------------------------------------------------


def test_a_decision_names_its_parts_its_groups_and_its_offsets() -> None:
    tp = TopicPartition("a", 1)
    claims = {
        GroupClaim(group_id="h", client_id="c"): {tp: OffsetAndMetadata(4, "m", 8)},
        GroupClaim(group_id="g"): {},
    }
    decided = CommittedTransaction(attempt=ATTEMPT, seq=3, parts=(PART_A, PART_B), groups=("g", "h"), name=NAME)
    offset = TransactionOffset(
        group_id="h",
        topic=A,
        partition=1,
        offset=4,
        leader_epoch=8,
        metadata="m",
        generation=-1,
        member_id="",
        client_id="c",
    )

    made = plan_commit(table(OPEN, more=1), wanted(offsets=claims, name=NAME), TOPICS, 60)

    assert made == row(replace(OPEN, number=2, why=Why.COMMIT, changed_ms=60, committed=decided), offset)


def test_a_decision_is_made_once() -> None:
    """Also when maintenance has left a topic of it out, and when later rows of the id have come."""
    left_out = replace(DECIDED, committed=replace(DECISION, parts=(PART_B,)))
    later = replace(DECIDED, why=Why.ABORT, number=3, committed=FACT)

    for known in (DECIDED, left_out, later):
        assert plan_commit(table(known), wanted(), TOPICS, 60) is None


def test_a_copy_of_a_producer_is_told_that_another_one_has_committed() -> None:
    with pytest.raises(ProducerFencedError) as raised:
        plan_commit(table(DECIDED), wanted(parts=(PART_A,)), TOPICS, 60)

    assert str(raised.value) == "'id': a copy of this producer, made by a fork, has committed another transaction"


@pytest.mark.parametrize("number", [2, 3])
def test_what_was_aborted_is_not_committed(number: int) -> None:
    with pytest.raises(InvalidTxnStateError) as raised:
        plan_commit(table(replace(OPEN, number=number, why=Why.ABORT)), wanted(), TOPICS, 60)

    assert str(raised.value) == "transaction 2 of 'id' was aborted"


@pytest.mark.parametrize("topics", [{"a": "a-id"}, {"a": "a-id", "b": "another"}])
def test_a_topic_that_is_gone_refuses_the_whole(topics: dict[str, str]) -> None:
    with pytest.raises(UnknownTopicOrPartitionError) as raised:
        plan_commit(table(OPEN), wanted(), topics, 60)

    assert str(raised.value) == "topic 'b' was deleted during the transaction; nothing was committed"


def test_a_repeat_finds_the_decision() -> None:
    assert committed_as(table(DECIDED), "id", ATTEMPT) == DECISION
    assert committed_as(table(DECIDED), "id", TransactionAttempt(7, 3, 1)) is None
    assert committed_as(table(DECIDED), "no such", ATTEMPT) is None
    assert committed_as(table(OPEN), "id", ATTEMPT) is None


# --- abort -----------------------------------------------------------------------------------


def test_an_abort_is_a_row_that_keeps_the_last_decision() -> None:
    before = replace(OPEN, why=Why.COMMIT, committed=replace(DECISION, attempt=TransactionAttempt(7, 3, 1)))
    fact = replace(FACT, attempt=TransactionAttempt(7, 3, 1))

    assert abort(table(OPEN)) == row(replace(OPEN, number=2, why=Why.ABORT, changed_ms=60))
    assert abort(table(before), settled=1) == row(replace(OPEN, number=2, why=Why.ABORT, changed_ms=60, committed=fact))


@pytest.mark.parametrize("number", [2, 3])
def test_an_abort_is_written_once(number: int) -> None:
    assert abort(table(replace(OPEN, number=number, why=Why.ABORT))) is None


def test_what_was_committed_is_not_aborted() -> None:
    with pytest.raises(InvalidTxnStateError) as raised:
        abort(table(DECIDED))

    assert str(raised.value) == (
        "transaction 2 of 'id' is committed, by a call whose answer did not come: commit it again"
    )


# --- an epoch that is over -------------------------------------------------------------------

FORGOTTEN = "'id' has expired, or has another producer"
NEWER = "'id' is in epoch {}, this producer is of epoch 3: another one has called init_transactions"
TIMED_OUT = "the transaction of 'id' was aborted: it was open for longer than its timeout"
BY_ADMIN = "the transaction of 'id' was aborted: an administrator asked for it"
LATER = replace(FACT, attempt=TransactionAttempt(7, 3, 3))
EARLIER = replace(FACT, attempt=TransactionAttempt(7, 3, 1))
ANOTHER = replace(FACT, attempt=TransactionAttempt(6, 9, 9))


@pytest.mark.parametrize(
    ("standing", "error", "text", "known"),
    [
        (None, ProducerFencedError, FORGOTTEN, False),
        (replace(OPEN, producer_id=8), ProducerFencedError, FORGOTTEN, False),
        (replace(OPEN, producer_id=8, committed=LATER), ProducerFencedError, FORGOTTEN, False),
        (replace(OPEN, producer_id=8, committed=EARLIER), ProducerFencedError, FORGOTTEN, True),
        (replace(OPEN, producer_id=8, committed=ANOTHER), ProducerFencedError, FORGOTTEN, True),
        (replace(OPEN, epoch=4), ProducerFencedError, NEWER.format(4), True),
        (replace(OPEN, epoch=4, committed=EARLIER), ProducerFencedError, NEWER.format(4), True),
        (replace(OPEN, epoch=4, committed=LATER), ProducerFencedError, NEWER.format(4), False),
        (replace(OPEN, epoch=4, why=Why.TIMEOUT), InvalidProducerEpochError, TIMED_OUT, True),
        (replace(OPEN, epoch=4, why=Why.ADMIN), InvalidProducerEpochError, BY_ADMIN, True),
        (replace(OPEN, epoch=4, why=Why.ADMIN, committed=LATER), InvalidProducerEpochError, BY_ADMIN, False),
        (replace(OPEN, epoch=5, why=Why.ADMIN), ProducerFencedError, NEWER.format(5), True),
    ],
)
@pytest.mark.parametrize("in_doubt", [True, False])
def test_a_producer_of_an_epoch_that_is_over_is_told_why_and_what_is_known(
    standing: TransactionalIdState | None, error: type[KafkaError], text: str, *, known: bool, in_doubt: bool
) -> None:
    """The outcome of its last transaction is not known where a call had no answer and a later decision hides it."""
    groups = table(standing)
    outcome = DOUBT if in_doubt and not known else NOTHING
    calls: list[Callable[[], object]] = [
        lambda: plan_commit(groups, wanted(in_doubt=in_doubt), TOPICS, 60),
        lambda: abort(groups, in_doubt=in_doubt),
    ]

    for call in calls:
        with pytest.raises(error) as raised:
            call()
        assert type(raised.value) is error
        assert str(raised.value) == text + outcome


# --- fence -----------------------------------------------------------------------------------


def test_a_fence_is_an_epoch_that_no_producer_has() -> None:
    fenced = replace(OPEN, epoch=4, number=0, why=Why.TIMEOUT, changed_ms=60)

    assert fence(table(OPEN)) == row(fenced)
    assert fence(table(OPEN), only=ATTEMPT) == row(fenced)
    assert fence(table(DECIDED), settled=1) == row(replace(fenced, committed=FACT))


def test_a_fence_of_one_transaction_leaves_others_alone() -> None:
    assert fence(table(None), only=ATTEMPT) is None
    assert fence(table(OPEN), only=TransactionAttempt(7, 3, 1)) is None
    assert fence(table(OPEN), only=TransactionAttempt(7, 2, 2)) is None
    assert fence(table(OPEN), only=TransactionAttempt(6, 3, 2)) is None


def test_an_id_that_is_not_there_cannot_be_fenced() -> None:
    with pytest.raises(TransactionalIdNotFoundError) as raised:
        fence(table(None))

    assert str(raised.value) == "transactional id 'id' does not exist"


def test_a_transaction_is_open_after_those_that_have_an_outcome() -> None:
    assert is_open(OPEN, ATTEMPT)
    assert not is_open(OPEN, TransactionAttempt(7, 3, 1))
    assert not is_open(OPEN, TransactionAttempt(7, 4, 2))


# --- forgetting and leaving out --------------------------------------------------------------


def test_an_id_is_forgotten_when_it_was_not_used_for_long() -> None:
    def forget(known: TransactionalIdState | None, now_ms: int, settled: int = 0) -> Entries | None:
        return plan_forget(table(known), "id", settled=settled, expiration_ms=10, now_ms=now_ms)

    assert not expired(OPEN, 10, 59)
    assert forget(OPEN, 59) is None
    assert forget(OPEN, 60) == row(None)
    assert forget(DECIDED, 60, settled=1) == row(None)
    assert forget(None, 60) is None


def test_a_topic_is_left_out_of_the_decision_that_is_meant() -> None:
    left = replace(DECIDED, changed_ms=60, committed=replace(DECISION, parts=(PART_B,)))

    assert plan_drop(table(DECIDED), "id", 1, "a-id", 60) == row(left)
    assert plan_drop(table(DECIDED), "id", 2, "a-id", 60) is None
    assert plan_drop(table(DECIDED), "id", 1, "c-id", 60) is None
    assert plan_drop(table(DECIDED), "no such", 1, "a-id", 60) is None
    assert plan_drop(table(replace(DECIDED, why=Why.ABORT, committed=FACT)), "id", 1, "a-id", 60) is None


# --- claims ----------------------------------------------------------------------------------

MEMBER = Member(member_id="m", client_id="c", protocols=("range",), subscription=("a",), group_instance_id="static")
ROSTER = Roster(members={"m": MEMBER}, generation=3, changed_ms=5)


def claimed(claim: GroupClaim, topics: dict[str, str] = TOPICS) -> TransactionOffset:
    groups = GroupsState().applied([roster_row(1, "g", ROSTER)])
    return offset_commit(groups, claim, TopicPartition("a", 1), OffsetAndMetadata(4, "note", 8), topics)


def test_a_claim_is_made_of_what_a_consumer_says_of_itself() -> None:
    metadata = ConsumerGroupMetadata("g", 3, "m", "static")

    assert GroupClaim.of(metadata, "c") == GroupClaim(
        group_id="g", generation=3, member_id="m", group_instance_id="static", client_id="c"
    )
    assert GroupClaim.of("g", "c") == GroupClaim(group_id="g", client_id="c")
    assert GroupClaim.of("g") == GroupClaim(group_id="g")
    assert GroupClaim.of(ConsumerGroupMetadata("g")) == GroupClaim(group_id="g")
    with pytest.raises(ValueError, match=r"^the consumer has no group$"):
        GroupClaim.of(ConsumerGroupMetadata(None))


def test_a_claim_is_a_members_when_it_says_any_of_a_membership() -> None:
    assert GroupClaim(group_id="g", generation=0).of_member
    assert GroupClaim(group_id="g", member_id="m").of_member
    assert not GroupClaim(group_id="g").of_member


def test_an_offset_of_a_member_counts_in_its_generation() -> None:
    expected = TransactionOffset(
        group_id="g",
        topic=A,
        partition=1,
        offset=4,
        leader_epoch=8,
        metadata="note",
        generation=3,
        member_id="m",
        client_id="c",
    )
    claim = GroupClaim(group_id="g", generation=3, member_id="m", group_instance_id="static", client_id="c")

    assert claimed(claim) == expected
    assert claimed(GroupClaim(group_id="g")) == replace(expected, generation=-1, member_id="", client_id="")


@pytest.mark.parametrize(
    ("claim", "error"),
    [
        (GroupClaim(group_id="g", generation=4, member_id="m"), CommitFailedError),
        (GroupClaim(group_id="g", generation=3, member_id="other"), CommitFailedError),
        (
            GroupClaim(group_id="g", generation=3, member_id="other", group_instance_id="static"),
            FencedInstanceIdError,
        ),
        (GroupClaim(group_id="g", alone=True), CommitFailedError),
    ],
)
def test_nobody_else_commits_in_a_members_name(claim: GroupClaim, error: type[KafkaError]) -> None:
    with pytest.raises(error, match=r"^group 'g': "):
        claimed(claim)


def test_offsets_of_a_topic_that_is_gone_are_refused_with_the_reason() -> None:
    claim = GroupClaim(group_id="g", lives=(("a", "old"), ("b", "a-id")))
    texts = []

    for topics in ({}, TOPICS):
        with pytest.raises(UnknownTopicOrPartitionError) as raised:
            claimed(claim, topics)
        texts.append(str(raised.value))

    assert texts == [
        "offsets of 'a' cannot be committed: the topic does not exist; nothing was committed",
        "offsets of 'a' cannot be committed: it was deleted and created again; nothing was committed",
    ]
    assert claimed(replace(claim, lives=(("a", "a-id"),))).topic == A
