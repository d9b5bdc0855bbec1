"""The protocol of transactions under a seeded scheduler: whatever happens in whatever order, no obligation is broken.

A failure names its seed; `World(seed).run(STEPS)` plays it again. Each safeguard is taken away once: that must show.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import pytest

from kafkalike.errors import KafkaError, KafkaStorageError
from kafkalike.model.transactions import group_claims, roll_forward, rules
from kafkalike.model.transactions import roll_forward as effects
from kafkalike.model.transactions import transaction_protocol as protocol
from kafkalike.model.transactions import transaction_protocol as upkeep
from kafkalike.model.transactions.transactional_id import Why
from tests.tools.effort import examples
from tests.tools.transaction_world import Broken, World

STEPS = 600
QUICK_WORLDS = 60
WORLDS = examples(400, QUICK_WORLDS)


def play(seed: int, steps: int = STEPS, broken: Broken | None = None) -> World:
    """One history, to its end."""
    world = World(seed, broken)
    try:
        world.run(steps)
        world.settle()
    except AssertionError as failed:
        message = f"seed {seed}, {steps} steps: {failed}"
        raise AssertionError(message) from failed
    return world


@pytest.mark.slow
def test_no_history_breaks_an_obligation() -> None:
    """One outcome, everywhere once if it is "committed", never visible otherwise; offsets with it; no zombie decides;
    in order; files stay as long as they are needed; a cut shows no part; what producers are told is so."""
    counts: Counter[str] = Counter()

    for seed in range(WORLDS):
        counts.update(play(seed).counts)

    assert counts["commit"] > 5 * WORLDS
    assert counts["abort"] > WORLDS
    assert counts["fence"] > 5 * WORLDS
    assert counts["doubt"] > WORLDS // 2
    assert counts["cut"] > WORLDS
    # Rare: the few histories of `make mutants` have none.
    assert counts["forget"] > 0 or WORLDS < QUICK_WORLDS
    # A topic's rules were tightened, and its disk was full, between a decision and its coming into the topic.
    assert min(counts["refused"], counts["tightened"], counts["full"]) > WORLDS // 10


def test_a_seed_plays_the_same_again() -> None:
    """So a failure can be looked at."""
    first, second = (play(7) for _ in range(2))

    assert first.rows == second.rows
    assert first.rows


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_history_breaks_an_obligation_in_two_million_steps() -> None:
    """Other seeds, longer histories. It prints what happened."""
    began, counts, steps = time.monotonic(), Counter[str](), 0
    for seed in range(10**6, 10**6 + 700):
        world = play(seed, 3_000)
        counts.update(world.counts)
        steps += world.steps
    print(f"{steps} steps in {time.monotonic() - began:.0f} s: {dict(counts)}")  # noqa: T201

    assert steps >= 2_000_000


# --- safeguards taken away ---------------------------------------------------------------------------


Patch = Callable[[pytest.MonkeyPatch], Broken | None]
MUTANTS: dict[str, Patch] = {}


def mutant(make: Patch) -> Patch:
    MUTANTS[make.__name__] = make
    return make


@mutant
def a_zombie_of_an_older_epoch_decides(patch: pytest.MonkeyPatch) -> None:
    real = rules.current_state

    def current(groups: Any, name: str, attempt: Any, **rest: Any) -> Any:
        return groups.transactions.get(name) or real(groups, name, attempt, **rest)

    patch.setattr(rules, "current_state", current)


@mutant
def a_repeat_is_not_recognised(patch: pytest.MonkeyPatch) -> None:
    # In the plan alone: there the repeat is refused then, or decided again.
    patch.setattr(rules, "committed_as", lambda *_: None)


@mutant
def an_aborted_number_is_decided(patch: pytest.MonkeyPatch) -> None:
    real = rules.plan_commit

    def plan(groups: Any, wanted: Any, topics: Any, now_ms: int) -> Any:
        known = groups.transactions.get(wanted.transactional_id)
        if known is not None and known.why is Why.ABORT:
            standings = {**groups.transactions, wanted.transactional_id: replace(known, number=0)}
            groups = replace(groups, transactions=standings)
        return real(groups, wanted, topics, now_ms)

    patch.setattr(rules, "plan_commit", plan)


@mutant
def a_row_follows_a_decision_that_is_not_everywhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "_check_settled", lambda *_: None)


@mutant
def a_topic_gets_only_the_decision_that_is_wanted(patch: pytest.MonkeyPatch) -> None:
    real = roll_forward.pending
    patch.setattr(roll_forward, "pending", lambda *args: real(*args)[-1:])


@mutant
def a_topic_gets_decisions_in_any_order(patch: pytest.MonkeyPatch) -> None:
    real = roll_forward.pending
    patch.setattr(roll_forward, "pending", lambda *args: real(*args)[::-1])


@mutant
def files_go_before_the_row_of_an_abort(patch: pytest.MonkeyPatch) -> None:
    real = protocol.aborting

    def aborting(name: str, attempt: Any, **rest: Any) -> Generator[Any, Any, None]:
        yield effects.Remove(*attempt)
        yield from real(name, attempt, **rest)

    patch.setattr(protocol, "aborting", aborting)


@mutant
def files_go_before_the_row_of_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    real = protocol._taking_over

    def taking_over(name: str, plan: Any, step: str) -> Generator[Any, Any, Any]:
        known = (yield effects.LookAtGroups()).transactions.get(name)
        if known is not None:
            yield effects.Remove(known.producer_id, known.epoch)
        return (yield from real(name, plan, step))

    patch.setattr(protocol, "_taking_over", taking_over)


@mutant
def files_go_before_all_topics_have_them(patch: pytest.MonkeyPatch) -> None:
    real = roll_forward.settling

    def settle(known: Any, committed: Any) -> Generator[Any, Any, Any]:
        yield effects.Remove(*committed.attempt)
        return (yield from real(known, committed))

    patch.setattr(roll_forward, "settling", settle)


@mutant
def maintenance_removes_files_of_what_is_not_settled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(upkeep, "is_over", lambda *_: True)


@mutant
def maintenance_looks_at_the_files_last(patch: pytest.MonkeyPatch) -> None:
    real = upkeep.maintaining

    def maintaining(*args: int) -> Generator[Any, Any, Any]:
        whole = real(*args)
        next(whole)  # wants the files
        known = yield effects.LookAtGroups()
        folders = yield effects.ListFolders()
        whole.send(folders)  # wants the table
        answer = known
        while True:
            try:
                act = whole.send(answer)
            except StopIteration as end:
                return end.value
            answer = yield act

    patch.setattr(upkeep, "maintaining", maintaining)


@mutant
def any_open_transaction_counts_as_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "is_open", lambda *_: False)


@mutant
def an_id_is_forgotten_with_its_decision(patch: pytest.MonkeyPatch) -> None:
    real = rules.plan_forget

    def plan(groups: Any, name: str, *, settled: int, **rest: Any) -> Any:
        known = groups.transactions.get(name)
        unsettled = None if known is None else known.unsettled
        return real(groups, name, settled=settled if unsettled is None else unsettled.seq, **rest)

    def forgetting(name: str, _standing: Any, _settled: Any, expiration_ms: int) -> Generator[Any, Any, None]:
        yield effects.Write(
            lambda groups, now_ms: plan(groups, name, settled=0, expiration_ms=expiration_ms, now_ms=now_ms),
            "forget",
        )

    def settling_all(known: Any, _problems: Any) -> Generator[Any, Any, dict[int, bool]]:
        yield effects.LookAtGroups()
        return {s.unsettled.seq: False for s in known.transactions.values() if s.unsettled is not None}

    patch.setattr(upkeep, "_forgetting", forgetting)
    patch.setattr(upkeep, "_settling_all", settling_all)


@mutant
def a_forgotten_id_gets_its_producer_id_again(patch: pytest.MonkeyPatch) -> None:
    real = rules.plan_init

    def plan(groups: Any, name: str, **rest: Any) -> Any:
        made: Any = real(groups, name, **rest)
        if name not in groups.transactions:
            standing: Any = made.standing
            made = replace(made, standing=replace(standing, producer_id=1 + len(name)))
        return made

    patch.setattr(rules, "plan_init", plan)


@mutant
def a_consumer_of_an_old_generation_commits(patch: pytest.MonkeyPatch) -> None:
    def check(roster: Any, *_: Any) -> None:
        del roster

    patch.setattr(group_claims, "check_commit", check)
    patch.setattr(rules, "offset_commit", _offset_as_claimed)


def _offset_as_claimed(groups: Any, claim: Any, tp: Any, at: Any, topics: Any) -> Any:
    made = _real_offset(groups, claim, tp, at, topics)
    return replace(made, generation=claim.generation)


_real_offset = group_claims.offset_commit


@mutant
def a_committed_transaction_is_aborted(patch: pytest.MonkeyPatch) -> None:
    real = rules.plan_abort

    def plan(groups: Any, name: str, attempt: Any, **rest: Any) -> Any:
        known = groups.transactions.get(name)
        if rules.committed_as(groups, name, attempt) is not None and known.why is Why.COMMIT:
            changed = replace(known, number=attempt.number - 1, committed=None, why=Why.ABORT)
            groups = replace(groups, transactions={**groups.transactions, name: changed})
        return real(groups, name, attempt, **rest)

    patch.setattr(rules, "plan_abort", plan)


@mutant
def a_cut_takes_the_newest_versions(patch: pytest.MonkeyPatch) -> None:
    def cutting(topic: Any, known: Any) -> Generator[Any, Any, Any]:
        yield from roll_forward.rolling(topic, known, known.seq)
        return (yield effects.CutAt(topic, 10**9))

    patch.setattr(roll_forward, "_cutting", cutting)


@mutant
def a_cut_brings_nothing_forward(patch: pytest.MonkeyPatch) -> None:
    def cutting(topic: Any, known: Any) -> Generator[Any, Any, Any]:
        return (yield effects.CutAt(topic, known.seq))

    patch.setattr(roll_forward, "_cutting", cutting)


@mutant
def a_topic_takes_a_decision_twice(patch: pytest.MonkeyPatch) -> Broken:
    del patch
    return Broken(doubles=True)


@mutant
def a_tightened_topic_refuses_what_is_decided(patch: pytest.MonkeyPatch) -> Broken:
    del patch
    return Broken(checks_again=True)


@mutant
def a_full_disk_is_taken_for_a_topic_that_is_gone(patch: pytest.MonkeyPatch) -> None:
    real = roll_forward.rolling

    def rolling(*args: Any, **rest: Any) -> Generator[Any, Any, Any]:
        try:
            return (yield from real(*args, **rest))
        except KafkaStorageError:
            return None

    patch.setattr(roll_forward, "rolling", rolling)


@mutant
def what_a_full_disk_keeps_out_is_aborted(patch: pytest.MonkeyPatch) -> None:
    real = roll_forward.finishing

    def finishing(known: Any, committed: Any) -> Generator[Any, Any, Any]:
        try:
            return (yield from real(known, committed))
        except KafkaStorageError:
            yield effects.Remove(*committed.attempt)
            raise

    patch.setattr(roll_forward, "finishing", finishing)


@mutant
def a_topic_is_known_by_its_name(patch: pytest.MonkeyPatch) -> Broken:
    del patch
    return Broken(by_name=True)


@pytest.fixture(params=sorted(MUTANTS))
def planted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Broken | None:
    return MUTANTS[request.param](monkeypatch)


def test_a_missing_safeguard_shows(planted: Broken | None) -> None:
    """Each row of the crash table rests on one of them."""
    for seed in range(2_000):
        try:
            play(seed, STEPS, planted)
        except (AssertionError, KafkaError):
            # An error that somebody gets who should not is as bad.
            return
    pytest.fail("2,000 histories do not show it")
