"""The index of unsettled decisions: after any rows it says what a walk over all ids says."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace

import pytest

from kafkalike.model.group_rows import transaction_rows
from kafkalike.model.group_state import GroupsState
from kafkalike.model.transactions import transaction_views as pending_decisions
from kafkalike.model.transactions.roll_forward import pending
from kafkalike.model.transactions.rules import plan_drop
from kafkalike.model.transactions.transaction_views import PendingDecision, PendingDecisions
from kafkalike.model.transactions.transactional_id import (
    CommittedTransaction,
    Entries,
    StagedFile,
    TopicLife,
    TransactionalIdState,
    TransactionAttempt,
    TransactionPart,
    Why,
)
from tests.tools.effort import examples

TOPICS = [TopicLife(f"topic {n}", f"id {n}") for n in range(6)]


def walked(state: GroupsState) -> dict[str, list[PendingDecision]]:
    """What the index is to say, from all ids."""
    found: defaultdict[str, list[PendingDecision]] = defaultdict(list)
    for name, standing in state.transactions.items():
        decision = standing.unsettled
        for part in () if decision is None else decision.parts:
            assert decision is not None
            found[part.topic.topic_id].append(PendingDecision(decision.seq, name, decision, part, standing.changed_ms))
    return {topic_id: sorted(dues, key=lambda due: due.seq) for topic_id, dues in found.items()}


def random_entries(chance: random.Random, state: GroupsState, ids: int) -> Entries | None:
    """The next row of some id: decided, decided and left out of a topic, anything else, or forgotten."""
    name, now_ms, seq = f"id {chance.randrange(ids)}", chance.randrange(99), state.seq + 1
    known = state.transactions.get(name)
    what = chance.choice(["commit"] * 6 + ["drop", "forget", *Why])
    if what == "forget":
        return Entries(transactional_id=name, standing=None, now_ms=now_ms)
    if what == "drop":
        topic = chance.choice(TOPICS)
        decision = None if known is None else known.unsettled
        return None if decision is None else plan_drop(state, name, decision.seq, topic.topic_id, now_ms)
    standing = TransactionalIdState(producer_id=1, epoch=0, number=seq, why=Why(what), timeout_ms=1, changed_ms=now_ms)
    if standing.why is Why.COMMIT:
        parts = tuple(
            TransactionPart(topic=topic, counts={0: 1}, files=(StagedFile("0", 1, 2),))
            for topic in chance.sample(TOPICS, chance.randrange(4))
        )
        standing = replace(
            standing, committed=CommittedTransaction(attempt=TransactionAttempt(1, 0, seq), seq=seq, parts=parts)
        )
    return Entries(transactional_id=name, standing=standing, now_ms=now_ms)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(16, 5)))
def test_the_index_is_what_a_walk_over_all_ids_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all rows are read at once, where compaction has taken those that do not count, and in older states."""
    chance = random.Random(seed)
    monkeypatch.setattr(pending_decisions, "BLOCK", chance.choice([2, 3, 8, 128]))
    state, rows, held = GroupsState(), [], []
    ids = chance.choice([2, 10, 60])

    for step in range(300):
        entries = random_entries(chance, state, ids)
        if entries is None:
            continue
        made = transaction_rows(state.seq + 1, entries)
        rows += made
        state = state.applied(made)
        if step % 50 == 0:
            held.append((state, walked(state)))
            expected = walked(state)
            applied, upto = sorted(chance.sample(range(state.seq + 2), 2))
            for topic in TOPICS:
                late = pending(state, topic.topic_id, applied, upto)
                assert list(late) == [d for d in expected.get(topic.topic_id, []) if applied < d.seq <= upto]

    last = {row.group_id: row for row in rows}
    counting = GroupsState().applied(row for row in rows if last[row.group_id] is row)
    at_once = GroupsState().applied(rows)
    for known, expected in [*held, (state, walked(state)), (at_once, walked(state)), (counting, walked(state))]:
        assert {topic_id: list(dues) for topic_id, dues in known.unsettled.items()} == expected
        assert {topic_id: dues.last for topic_id, dues in known.unsettled.items()} == {
            topic_id: dues[-1].seq for topic_id, dues in expected.items()
        }


@pytest.mark.parametrize("order", ["in turn", "at random"])
def test_blocks_stay_few(order: str) -> None:
    """Ids that commit again and again leave no crumbs: a change stays cheap."""
    chance, dues, numbers = random.Random(1), PendingDecisions(), dict.fromkeys(range(500), 0)
    decision, part = (
        CommittedTransaction(attempt=TransactionAttempt(1, 0, 1), seq=1),
        TransactionPart(topic=TOPICS[0], counts={}, files=()),
    )

    for seq in range(1, 3_000):
        of = seq % len(numbers) if order == "in turn" else chance.randrange(len(numbers))
        dues = dues.drop(numbers[of], str(of)).put(PendingDecision(seq, str(of), decision, part, 0))
        numbers[of] = seq

    assert [due.seq for due in dues] == sorted(seq for seq in numbers.values() if seq)
    assert dues.last == 2_999
    assert len(dues._blocks) <= 4 * len(numbers) / pending_decisions.BLOCK + 2
    assert max(map(len, dues._blocks)) <= pending_decisions.BLOCK


def test_a_block_is_split_at_its_end_or_in_its_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most come at the end, and leave full blocks behind."""
    monkeypatch.setattr(pending_decisions, "BLOCK", 4)
    decision, part = (
        CommittedTransaction(attempt=TransactionAttempt(1, 0, 1), seq=1),
        TransactionPart(topic=TOPICS[0], counts={}, files=()),
    )

    def dues(*seqs: int) -> PendingDecisions:
        made = PendingDecisions()
        for seq in seqs:
            made = made.put(PendingDecision(seq, "id", decision, part, 0))
        return made

    def blocks(made: PendingDecisions) -> list[list[int]]:
        return [[due.seq for due in block] for block in made._blocks]

    assert blocks(dues(1, 3, 5, 7, 9)) == [[1, 3, 5, 7], [9]]
    assert blocks(dues(1, 3, 5, 7, 6)) == [[1, 3], [5, 6, 7]]
    assert blocks(dues(5, 3)) == [[3], [5]]
    assert blocks(dues(1, 3, 5, 7, 9, 11).drop(1, "id").drop(3, "id").drop(5, "id").drop(11, "id")) == [[7, 9]]
    assert blocks(dues(1, 3, 5, 7, 9, 11).drop(3, "id").drop(5, "id").drop(11, "id")) == [[1, 7], [9]]
    assert blocks(dues(1, 3).drop(2, "id").drop(3, "other")) == [[1, 3]]


def test_a_decision_of_the_same_number_and_id_takes_the_place_of_the_one_before() -> None:
    decision, part = (
        CommittedTransaction(attempt=TransactionAttempt(1, 0, 1), seq=1),
        TransactionPart(topic=TOPICS[0], counts={}, files=()),
    )
    first, again = PendingDecision(1, "id", decision, part, 0), PendingDecision(1, "id", decision, part, 9)

    assert list(PendingDecisions().put(first).put(again)) == [again]
    assert list(PendingDecisions().put(first).put(again._replace(transactional_id="other"))) == [
        first,
        again._replace(transactional_id="other"),
    ]
