"""Courses of transactions, act by act: what is asked for, in which order, and what each answer leads to.

The answers are written out here; `test_transaction_simulation.py` lets a world give them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from kafkalike.errors import KafkaStorageError, LogCorruptError, ProducerFencedError, UnknownTopicOrPartitionError
from kafkalike.model.group_rows import transaction_rows
from kafkalike.model.group_state import GroupsState
from kafkalike.model.record_batch import Appended
from kafkalike.model.transactions.roll_forward import (
    Apply,
    Beside,
    CutAt,
    Find,
    ListFolders,
    LookAtGroups,
    LookAtTopic,
    LookAtTopics,
    Remove,
    TransactionEffect,
    TransactionProtocol,
    Write,
    cutting,
    finishing,
    helping,
    looking,
    rolling,
)
from kafkalike.model.transactions.rules import CommitRequest, UnsettledError
from kafkalike.model.transactions.transaction_protocol import (
    aborting,
    beginning,
    committing,
    continuing,
    fencing,
    forgetting,
    is_over,
    leaving_out,
    maintaining,
)
from kafkalike.model.transactions.transaction_views import LostPart, Past, TopicCut, whole_versions
from kafkalike.model.transactions.transactional_id import (
    CommittedTransaction,
    Entries,
    StagedFile,
    StagedFolder,
    TopicLife,
    TransactionalIdState,
    TransactionAttempt,
    TransactionPart,
    Why,
)

A, B = TopicLife("a", "a-id"), TopicLife("b", "b-id")
PART_A = TransactionPart(topic=A, counts={0: 2}, files=(StagedFile("0", 1, 2),))
PART_B = TransactionPart(topic=B, counts={1: 1}, files=(StagedFile("1", 3, 4),))
ATTEMPT = TransactionAttempt(7, 3, 2)
OPEN = TransactionalIdState(producer_id=7, epoch=3, number=1, why=Why.INIT, timeout_ms=40, client_id="c", changed_ms=50)
DECISION = CommittedTransaction(attempt=ATTEMPT, seq=1, parts=(PART_A, PART_B))
DECIDED = replace(OPEN, number=2, why=Why.COMMIT, committed=DECISION)
PLACE_A = Appended(version=1, ranges={0: range(2)}, append_time_ms=60)
PLACE_B = Appended(version=1, ranges={1: range(1)}, append_time_ms=60)
NOW: Final = 60
GONE = KafkaStorageError("no answer")


def table(*standings: tuple[str, TransactionalIdState | None]) -> GroupsState:
    """A table with a row for each of these."""
    state = GroupsState()
    for name, standing in standings:
        state = state.applied(
            transaction_rows(
                state.seq + 1,
                Entries(transactional_id=name, standing=standing, now_ms=standing.changed_ms if standing else 0),
            )
        )
    return state


class Told:
    """Carries a course out by answers in their order; an answer that is an exception is thrown in.

    A `Write` calls its plan with the answer, a table, and comes to the table after it; `Beside` comes to the answer.
    """

    def __init__(self, course: TransactionProtocol, answers: Sequence[object]) -> None:
        self.acts: list[TransactionEffect] = []
        self.written: list[Entries | None] = []
        """What the plans made."""
        left, answer = list(answers), None
        try:
            act = next(course)
            while True:
                self.acts.append(act)
                if isinstance(act, Remove):
                    act = course.send(None)
                    continue
                answer = left.pop(0)
                if isinstance(act, Write) and isinstance(answer, GroupsState):
                    try:
                        made = act.plan(answer, NOW)
                    except Exception as error:  # noqa: BLE001 - as the log does
                        act = course.throw(error)
                        continue
                    self.written.append(made)
                    if made is not None:
                        answer = answer.applied(transaction_rows(answer.seq + 1, made))
                act = course.throw(answer) if isinstance(answer, Exception) else course.send(answer)
        except StopIteration as end:
            self.returned: Any = end.value
        assert not left, f"nobody asked for {left}"

    @property
    def steps(self) -> list[object]:
        """The acts; of a change of the table only what it is for."""
        return [act.step if isinstance(act, Write) else act for act in self.acts]


def steps_until(error: type[Exception], course: TransactionProtocol, answers: Sequence[object]) -> list[object]:
    """The acts up to an error that comes out."""
    seen: list[object] = []

    def noted() -> TransactionProtocol:
        answer = None
        act = next(course)
        while True:
            seen.append(act.step if isinstance(act, Write) else act)
            try:
                answer = yield act
            except Exception as raised:  # noqa: BLE001 - handed on
                act = course.throw(raised)
            else:
                act = course.send(answer)

    with pytest.raises(error):
        Told(noted(), answers)
    return seen


# --- producers -------------------------------------------------------------------------------


def test_a_new_id_begins_with_one_row() -> None:
    told = Told(beginning("id", timeout_ms=9, client_id="c"), [table(), table()])

    assert told.steps == [LookAtGroups(), "begin"]
    assert told.returned == TransactionalIdState(
        producer_id=1, epoch=0, why=Why.INIT, timeout_ms=9, client_id="c", changed_ms=NOW
    )


def test_whoever_takes_an_id_over_brings_in_its_decision_and_removes_the_files_of_its_epoch() -> None:
    known = table(("id", DECIDED))

    told = Told(beginning("id", timeout_ms=9, client_id="c"), [known, [PLACE_A, PLACE_B], known])

    beside = told.acts[1]
    assert isinstance(beside, Beside)
    assert len(beside.protocols) == 2
    assert told.steps == [LookAtGroups(), beside, Remove(*ATTEMPT), "begin", Remove(7, 3)]
    assert told.returned == TransactionalIdState(
        producer_id=7,
        epoch=4,
        why=Why.INIT,
        timeout_ms=9,
        client_id="c",
        changed_ms=NOW,
        committed=replace(DECISION, parts=()),
    )


def test_an_id_that_decides_meanwhile_is_settled_again() -> None:
    """The row that is in the way is of a decision after the look."""
    told = Told(
        beginning("id", timeout_ms=9, client_id="c"),
        [
            table(("id", OPEN)),
            table(("id", DECIDED)),
            table(("id", DECIDED)),
            [PLACE_A, PLACE_B],
            table(("id", DECIDED)),
        ],
    )

    assert [type(act) for act in told.acts] == [LookAtGroups, Write, LookAtGroups, Beside, Remove, Write, Remove]
    assert told.returned.epoch == 4


def test_next_epoch_of_a_producer_removes_the_files_of_the_one_before() -> None:
    open_table = table(("id", OPEN))

    told = Told(continuing("id", ATTEMPT), [open_table, open_table])

    assert told.steps == [LookAtGroups(), "continue", Remove(7, 3)]
    assert told.returned == replace(OPEN, epoch=4, number=0, changed_ms=NOW, follows=(7, 3))


@pytest.mark.parametrize(
    ("course", "step"),
    [
        (lambda: continuing("id", ATTEMPT), "continue"),
        (lambda: beginning("id", timeout_ms=9, client_id="c", after=(7, 3)), "begin"),
    ],
    ids=["EndTxn", "InitProducerId"],
)
def test_next_epoch_that_was_given_before_is_returned_and_nothing_is_written(
    course: Callable[[], TransactionProtocol], step: str
) -> None:
    given = replace(OPEN, epoch=4, number=0, follows=(7, 3))

    told = Told(course(), [table(("id", given)), table(("id", given))])

    assert told.steps == [LookAtGroups(), step]
    assert told.written == [None]
    assert told.returned == given


def wanted(settled: int = 0) -> CommitRequest:
    return CommitRequest(transactional_id="id", attempt=ATTEMPT, parts=(PART_A, PART_B), offsets={}, settled=settled)


def test_a_commit_decides_and_then_brings_it_into_the_topics() -> None:
    told = Told(committing(wanted()), [{"a": "a-id", "b": "b-id"}, 0, None, table(("id", OPEN)), [PLACE_A, PLACE_B]])

    assert told.steps[:4] == [LookAtTopics(), LookAtTopic(A, fresh=False), LookAtTopic(B, fresh=False), "commit"]
    assert told.steps[5:] == [Remove(*ATTEMPT)]
    decided = replace(DECISION, seq=2)
    assert told.returned == (decided, {"a": PLACE_A, "b": PLACE_B})
    (made,) = told.written
    assert made is not None
    assert made.standing == replace(DECIDED, changed_ms=NOW, committed=decided)
    beside = told.acts[4]
    assert isinstance(beside, Beside)
    assert Told(beside.protocols[0], [0, PLACE_A]).steps == [CACHED, Apply(decided, PART_A)]


def test_a_commit_of_nothing_looks_at_no_topics() -> None:
    nothing = CommitRequest(transactional_id="id", attempt=ATTEMPT, offsets={}, settled=0)

    told = Told(committing(nothing), [table(("id", OPEN)), []])

    assert told.steps == ["commit", Beside([]), Remove(*ATTEMPT)]


def test_a_repeated_commit_brings_in_what_was_decided() -> None:
    told = Told(committing(wanted()), [{"a": "a-id", "b": "b-id"}, 1, 0, table(("id", DECIDED)), [PLACE_A, None]])

    assert told.written == [None]
    assert told.returned == (DECISION, {"a": PLACE_A})


def test_a_repeated_commit_knows_its_parts_when_the_table_does_not_any_more() -> None:
    fact = replace(DECISION, parts=())
    known = table(("id", DECIDED), ("id", replace(DECIDED, number=3, why=Why.ABORT, committed=fact)))

    told = Told(committing(wanted()), [{"a": "a-id", "b": "b-id"}, 1, 1, known, [PLACE_A, PLACE_B]])

    assert told.returned == (DECISION, {"a": PLACE_A, "b": PLACE_B})


def test_a_commit_into_a_topic_that_is_gone_is_refused_for_what_is_wrong_first() -> None:
    course = committing(wanted())

    with pytest.raises(ProducerFencedError):
        Told(course, [{}, None, None, GroupsState()])


def test_a_topic_that_is_ahead_of_the_table_stops_a_commit() -> None:
    """The table was removed or rewound: the next numbers would be taken for done."""
    course = committing(wanted())

    with pytest.raises(LogCorruptError) as raised:
        Told(course, [{"a": "a-id", "b": "b-id"}, 1, 2, table(("id", OPEN))])

    assert str(raised.value) == (
        "b has transaction 2, and the groups' table ends at row 1: it was removed or rewound; transactions cannot be "
        "brought into the topic"
    )


def test_an_abort_is_a_row_and_then_the_files_go() -> None:
    told = Told(aborting("id", ATTEMPT, settled=0, in_doubt=False), [table(("id", OPEN))])

    assert told.steps == ["abort", Remove(*ATTEMPT)]
    (made,) = told.written
    assert made is not None
    assert made.standing == replace(OPEN, number=2, why=Why.ABORT, changed_ms=NOW)


@pytest.mark.parametrize(
    ("standing", "error", "files"),
    [
        (replace(OPEN, epoch=4), ProducerFencedError, [Remove(*ATTEMPT)]),
        (replace(OPEN, producer_id=9), ProducerFencedError, [Remove(*ATTEMPT)]),
        (
            replace(DECIDED, committed=replace(DECISION, attempt=TransactionAttempt(7, 3, 1)), number=1),
            UnsettledError,
            [],
        ),
    ],
)
def test_files_of_an_epoch_that_is_over_go_though_the_abort_is_refused(
    standing: TransactionalIdState, error: type[Exception], files: list[Remove]
) -> None:
    """Of what is not over they stay."""
    course = aborting("id", ATTEMPT, settled=0, in_doubt=False)

    assert steps_until(error, course, [table(("id", standing))]) == ["abort", *files]


def test_an_abort_knows_what_is_settled_and_what_is_in_doubt() -> None:
    before = replace(DECIDED, number=1, committed=replace(DECISION, attempt=TransactionAttempt(7, 3, 1)))

    told = Told(aborting("id", ATTEMPT, settled=1, in_doubt=False), [table(("id", before))])
    with pytest.raises(ProducerFencedError, match="is not known any more"):
        Told(aborting("id", ATTEMPT, settled=0, in_doubt=True), [table()])

    assert told.steps == ["abort", Remove(*ATTEMPT)]


def test_a_fence_brings_in_what_was_decided() -> None:
    known = table(("id", DECIDED))

    told = Told(fencing("id", Why.ADMIN), [known, [PLACE_A, PLACE_B], known])

    assert told.steps[2:] == [Remove(*ATTEMPT), "fence", Remove(7, 3)]
    assert told.returned.committed == replace(DECISION, parts=())


def test_a_fence_is_an_epoch_and_then_the_files_of_the_one_before_go() -> None:
    told = Told(fencing("id", Why.ADMIN), [table(("id", OPEN)), table(("id", OPEN))])

    assert told.steps == [LookAtGroups(), "fence", Remove(7, 3)]
    assert told.returned == replace(OPEN, epoch=4, number=0, why=Why.ADMIN, changed_ms=NOW)


def test_a_fence_of_a_transaction_that_is_over_touches_no_files() -> None:
    known = table(("id", replace(OPEN, number=2, why=Why.ABORT)))

    told = Told(fencing("id", Why.TIMEOUT, ATTEMPT), [known, known])

    assert told.steps == [LookAtGroups(), "fence"]
    assert told.returned is None


@pytest.mark.parametrize(
    ("standing", "settled", "forgotten"),
    [
        (OPEN, 0, True),
        (replace(OPEN, changed_ms=NOW), 0, True),
        (DECIDED, 1, True),
        (DECIDED, 0, False),
        (None, 0, False),
    ],
)
def test_an_id_is_forgotten_unless_it_has_decided_something_meanwhile(
    standing: TransactionalIdState | None, settled: int, *, forgotten: bool
) -> None:
    told = Told(forgetting("id", settled), [table(("id", standing))])

    assert told.steps == ["forget"]
    assert [made for made in told.written if made is not None] == (
        [Entries(transactional_id="id", standing=None, now_ms=NOW)] if forgotten else []
    )


# --- settling --------------------------------------------------------------------------------

FIRST = CommittedTransaction(attempt=TransactionAttempt(5, 0, 1), seq=1, parts=(PART_A,))
SECOND = CommittedTransaction(attempt=TransactionAttempt(6, 0, 1), seq=2, parts=(PART_A, PART_B))
TWO = table(
    ("x", replace(OPEN, producer_id=5, epoch=0, number=1, why=Why.COMMIT, committed=FIRST)),
    ("y", replace(OPEN, producer_id=6, epoch=0, number=1, why=Why.COMMIT, committed=SECOND)),
)
CACHED, LOOK = LookAtTopic(A, fresh=False), LookAtTopic(A)
APPLY_FIRST, APPLY_SECOND = Apply(FIRST, PART_A), Apply(SECOND, PART_A)


def test_a_look_says_which_decision_a_topic_has() -> None:
    told = Told(looking(A), [3])

    assert told.steps == [LookAtTopic(A)]
    assert told.returned == 3


@pytest.mark.parametrize(
    ("wanted", "answers", "steps", "returned"),
    [
        # Its own decision is the only one that is missing: no second look.
        (2, [1, PLACE_A], [CACHED, APPLY_SECOND], PLACE_A),
        # Another one before it: it may be there by now.
        (2, [0, 0, PLACE_B, PLACE_A], [CACHED, LOOK, APPLY_FIRST, APPLY_SECOND], PLACE_A),
        (2, [0, 1, PLACE_A], [CACHED, LOOK, APPLY_SECOND], PLACE_A),
        (2, [0, 2], [CACHED, LOOK], None),
        (0, [1, 1, PLACE_A], [CACHED, LOOK, APPLY_SECOND], None),
        (2, [2], [CACHED], None),
        # The topic is gone, at any of the steps.
        (2, [None], [CACHED], None),
        (2, [0, None], [CACHED, LOOK], None),
        (2, [0, 0, None], [CACHED, LOOK, APPLY_FIRST], None),
    ],
)
def test_decisions_come_into_a_topic_in_the_order_of_their_rows(
    wanted: int, answers: list[object], steps: list[TransactionEffect], returned: Appended | None
) -> None:
    told = Told(rolling(A, TWO, 2, wanted), answers)

    assert told.steps == steps
    assert told.returned == returned


def test_only_decisions_up_to_the_wanted_one_come_in() -> None:
    told = Told(rolling(A, TWO, 1), [0, 0, PLACE_A])

    assert told.steps == [CACHED, LOOK, APPLY_FIRST]


def test_a_topic_ahead_of_what_is_known_of_the_table_needs_a_newer_look() -> None:
    """Somebody has decided more meanwhile; or the table was rewound, which is an error."""
    later = table(*[("x", OPEN)] * 3)

    assert Told(rolling(A, TWO, 2), [3, later]).steps == [CACHED, LookAtGroups()]
    assert Told(rolling(A, TWO, 2), [2]).steps == [CACHED]
    assert steps_until(LogCorruptError, rolling(A, TWO, 2), [4, later]) == [CACHED, LookAtGroups()]


def test_a_decision_is_finished_when_all_topics_were_tried() -> None:
    """Its files stay where one has failed."""
    course = finishing(TWO, SECOND)

    (beside,) = steps_until(KafkaStorageError, course, [[PLACE_A, GONE]])

    assert isinstance(beside, Beside)
    assert len(beside.protocols) == len(SECOND.parts)


def test_the_place_of_a_decision_is_where_it_is_brought() -> None:
    (beside,) = steps_until(KafkaStorageError, finishing(TWO, SECOND), [GONE])
    assert isinstance(beside, Beside)

    told = Told(beside.protocols[0], [1, PLACE_A])

    assert told.steps == [CACHED, APPLY_SECOND]
    assert told.returned == PLACE_A


@pytest.mark.parametrize(
    ("applied", "steps", "returned"),
    [
        (2, [LOOK, Find(SECOND, PART_A)], PLACE_B),
        (3, [LOOK, Find(SECOND, PART_A)], PLACE_B),
        (1, [LOOK], None),
        (None, [LOOK], None),
    ],
)
def test_the_place_of_a_decision_that_another_one_brought_is_found(
    applied: int | None, steps: list[TransactionEffect], returned: Appended | None
) -> None:
    """Else the topic is gone, or was left out of it."""
    (beside,) = steps_until(KafkaStorageError, finishing(TWO, SECOND), [GONE])
    assert isinstance(beside, Beside)

    told = Told(beside.protocols[0], [2, applied, *([PLACE_B] if returned else [])])

    assert told.steps == [CACHED, *steps]
    assert told.returned == returned


def test_help_says_what_failed_and_goes_on() -> None:
    told = Told(helping({A: 2, B: 1}, TWO), [[None, GONE]])

    (beside,) = told.acts
    assert isinstance(beside, Beside)
    assert told.returned == [GONE]
    assert Told(beside.protocols[0], [1, 1, PLACE_A]).steps == [CACHED, LOOK, APPLY_SECOND]
    # Of the other topic nothing is wanted that was decided after row 1.
    assert Told(beside.protocols[1], [0]).steps == [LookAtTopic(B, fresh=False)]


def test_a_cut_is_one_row_of_the_table() -> None:
    cut_a, cut_b = TopicCut(topic_id="a-id", version=4, ends={0: 2}), TopicCut(topic_id="b-id", version=5, ends={0: 2})

    told = Told(cutting([A, B]), [TWO, [cut_a, cut_b]])

    assert told.returned == (TWO, [cut_a, cut_b])
    beside = told.acts[1]
    assert isinstance(beside, Beside)
    one = Told(beside.protocols[0], [1, 1, PLACE_A, cut_a])
    assert one.steps == [CACHED, LOOK, APPLY_SECOND, CutAt(A, 2)]
    assert one.returned == cut_a


def test_a_cut_of_a_topic_that_goes_meanwhile_is_refused() -> None:
    with pytest.raises(UnknownTopicOrPartitionError) as raised:
        Told(cutting([A, B]), [TWO, [TopicCut(topic_id="a-id", version=4, ends={}), None]])
    with pytest.raises(KafkaStorageError, match="no answer"):
        Told(cutting([A]), [TWO, [GONE]])

    assert str(raised.value) == "topic 'b' was deleted meanwhile"


# --- upkeep ----------------------------------------------------------------------------------


def test_maintenance_looks_at_the_files_first() -> None:
    told = Told(maintaining(10, NOW), [[], table(), [], []])

    assert told.steps == [ListFolders(), LookAtGroups(), Beside([]), Beside([])]
    assert told.returned == []


def upkeep(
    standing: TransactionalIdState | None, *folders: StagedFolder, results: Sequence[object] = (), expiration: int = 99
) -> Told:
    """Maintenance of one id, whose decision meets these results."""
    known = table(("id", standing))
    return Told(maintaining(expiration, NOW), [folders, known, list(results), []])


@pytest.mark.parametrize(
    ("standing", "attempt", "removed"),
    [
        (None, ATTEMPT, True),
        (replace(OPEN, number=2, why=Why.ABORT), ATTEMPT, True),
        (replace(OPEN, epoch=4), ATTEMPT, True),
        (replace(OPEN, producer_id=8), ATTEMPT, True),
        (replace(OPEN, epoch=2), ATTEMPT, False),
        (OPEN, ATTEMPT, False),
    ],
)
def test_files_go_that_nobody_can_need(
    standing: TransactionalIdState | None, attempt: TransactionAttempt, *, removed: bool
) -> None:
    """Those of a later epoch than is known were begun after the look; those of an open transaction stay."""
    told = upkeep(standing, StagedFolder(attempt, 40))

    assert told.steps == [
        ListFolders(),
        LookAtGroups(),
        Beside([]),
        *([Remove(*attempt)] if removed else []),
        Beside([]),
    ]


@pytest.mark.parametrize(("results", "removed"), [([None, None], True), ([None, GONE], False)])
def test_files_of_a_decision_go_when_all_topics_have_it(results: list[object], *, removed: bool) -> None:
    told = upkeep(DECIDED, StagedFolder(ATTEMPT, 1), results=results)

    assert (Remove(*ATTEMPT) in told.steps) is removed
    assert told.returned == [result for result in results if result is not None]


def test_a_decision_that_was_not_looked_at_is_not_over() -> None:
    assert is_over(DECIDED, ATTEMPT, {}) is False
    assert not is_over(DECIDED, ATTEMPT, {1: False})
    assert is_over(DECIDED, ATTEMPT, {1: True})
    assert is_over(DECIDED, TransactionAttempt(7, 3, 1), {})
    assert not is_over(DECIDED, TransactionAttempt(7, 4, 1), {})
    assert not is_over(DECIDED, TransactionAttempt(8, 0, 1), {})


@pytest.mark.parametrize(("age_ms", "aborted"), [(40, False), (41, True)])
def test_a_transaction_that_was_open_for_longer_than_its_timeout_is_aborted(age_ms: int, *, aborted: bool) -> None:
    told = upkeep(OPEN, StagedFolder(ATTEMPT, age_ms))

    last = told.acts[-1]
    assert isinstance(last, Beside)
    assert len(last.protocols) == aborted
    for course in last.protocols:
        known = table(("id", OPEN))
        fenced = Told(course, [known, known])
        assert fenced.steps == [LookAtGroups(), "fence", Remove(7, 3)]
        assert fenced.returned == replace(OPEN, epoch=4, number=0, why=Why.TIMEOUT, changed_ms=NOW)


def test_maintenance_aborts_only_the_transaction_that_it_has_seen() -> None:
    """It may be over by now, and another one begun."""
    last = upkeep(OPEN, StagedFolder(ATTEMPT, 41)).acts[-1]
    assert isinstance(last, Beside)
    over = table(("id", replace(OPEN, number=2, why=Why.ABORT)))

    assert Told(last.protocols[0], [over, over]).steps == [LookAtGroups(), "fence"]


def test_maintenance_brings_all_decisions_into_their_topics() -> None:
    told = Told(maintaining(99, NOW), [[], TWO, [None, None], []])

    beside = told.acts[2]
    assert isinstance(beside, Beside)
    assert Told(beside.protocols[0], [0, 1, PLACE_A]).steps == [CACHED, LOOK, APPLY_SECOND]
    assert Told(beside.protocols[1], [0, 0, PLACE_B]).acts[-1] == Apply(SECOND, PART_B)


@pytest.mark.parametrize(
    ("standing", "folders", "results", "expiration", "row"),
    [
        (OPEN, (), (), 10, True),
        (OPEN, (), (), 11, False),
        (OPEN, (StagedFolder(ATTEMPT, 1),), (), 10, False),
        (DECIDED, (), (None, None), 10, True),
    ],
)
def test_an_id_is_forgotten_that_was_not_used_for_long_and_has_no_files(
    standing: TransactionalIdState,
    folders: tuple[StagedFolder, ...],
    results: tuple[object, ...],
    expiration: int,
    *,
    row: bool,
) -> None:
    told = upkeep(standing, *folders, results=results, expiration=expiration)

    last = told.acts[-1]
    assert isinstance(last, Beside)
    assert len(last.protocols) == row
    for course in last.protocols:
        forgot = Told(course, [table(("id", standing))])
        assert forgot.steps == ["forget"]
        assert forgot.written == [Entries(transactional_id="id", standing=None, now_ms=NOW)]


def test_an_id_stays_whose_decision_is_not_in_all_topics_or_that_was_used_just_now() -> None:
    late = upkeep(DECIDED, results=[GONE, None], expiration=10).acts[-1]
    used = upkeep(OPEN, expiration=10).acts[-1]
    assert isinstance(late, Beside)
    assert isinstance(used, Beside)

    assert Told(late.protocols[0], []).steps == []
    assert Told(used.protocols[0], [table(("id", replace(DECIDED, changed_ms=0)))]).written == []
    assert Told(used.protocols[0], []).returned is None


def test_problems_of_maintenance_are_all_told() -> None:
    known = table(("id", replace(DECIDED, changed_ms=0)))
    other = KafkaStorageError("another one")

    told = Told(maintaining(10, NOW), [[], known, [GONE, None], [other, None]])

    assert told.returned == [GONE, other]


def test_a_topic_is_left_out_of_a_decision_once() -> None:
    lost = LostPart(transactional_id="id", seq=1, topic="a", topic_id="a-id", counts={0: 2}, why="gone")
    left = replace(DECIDED, changed_ms=NOW, committed=replace(DECISION, parts=(PART_B,)))

    first = Told(leaving_out(lost), [table(("id", DECIDED))])
    again = Told(leaving_out(lost), [table(("id", left))])

    assert first.steps == again.steps == ["leave_out"]
    assert (first.returned, again.returned) == (True, False)
    assert first.written == [Entries(transactional_id="id", standing=left, now_ms=NOW)]
    assert again.written == [None]


# --- the past --------------------------------------------------------------------------------


def test_versions_of_a_time_show_whole_transactions() -> None:
    """What one topic shows of the time, the others show too, though it came to them later."""
    pasts = {
        "a": Past(version=4, applied=7, later=((5, 8), (6, 9))),
        "b": Past(version=2, applied=0, later=((3, 5), (8, 7), (9, 8))),
        "c": Past(version=1, applied=6),
    }

    assert whole_versions(pasts) == (7, {"a": 4, "b": 8, "c": 1})
    assert whole_versions({}) == (0, {})
