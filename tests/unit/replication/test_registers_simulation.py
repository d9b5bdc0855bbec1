"""Voters that run nothing, under a seeded scheduler: no slot gets two values, and one is decided when all is well."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

import pytest

from kafkalike.model.replication import registers
from kafkalike.model.replication.registers import (
    Accept,
    Ballot,
    NoMajorityError,
    Prepare,
    ProposalBackoff,
    PutRequest,
    ReadRow,
    Request,
    SlotState,
    Stand,
    UnreachableVoterError,
    Voted,
    decided,
    proposing,
)
from tests.tools.effort import examples

Steps = Generator[Any, Any, Any]


class Voters:
    """Rows of files, a network, and proposers, one act at a time."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.count = self.chance.choice((1, 3, 3, 5))
        self.rows: list[list[Request]] = [[] for _ in range(self.count)]
        self.late: list[PutRequest] = []
        self.lost = self.chance.choice((0.0, 0.05, 0.2))
        self.blocked: set[tuple[int, int]] = set()
        self.told: set[Any] = set()
        self.faulty = True

    def run(self) -> None:
        """Proposers compete; some stop for ever; then one is left alone."""
        proposers = [self.proposer(n) for n in range(self.chance.choice((2, 3, 4)))]
        pending: list[tuple[Steps, Any]] = [(steps, None) for steps in proposers]
        for _ in range(150):
            if not pending:
                break
            n = self.chance.randrange(len(pending))
            for _ in range(self.chance.choice((1, 1, 4, 12))):
                steps, send = pending[n]
                found = self.step(n, steps, send)
                if found is None:
                    del pending[n]
                    break
                pending[n] = steps, found[0]
            if self.late and self.chance.random() < 0.1:
                self.land(self.late.pop(self.chance.randrange(len(self.late))))
            if self.chance.random() < 0.05:
                self.blocked ^= {(self.chance.randrange(4), self.chance.randrange(self.count))}
        self.faulty = False
        for late in self.late:
            self.land(late)
        self.finish(99, self.proposer(99))
        self.finish(98, self.learner())
        assert len(self.told) == 1, self.told
        last = decided(self.rows, self.count)
        assert last is not None
        assert {last.value} == self.told

    def finish(self, n: int, steps: Steps) -> None:
        send: Any = None
        for _ in range(1_000):
            found = self.step(n, steps, send)
            if found is None:
                return
            send = found[0]
        raise AssertionError("it does not come to an end")

    def proposer(self, n: int) -> Steps:
        for attempt in range(3):
            try:
                found = yield from proposing(0, range(self.count), f"{n}.{attempt}", n)
            except NoMajorityError:
                continue
            self.told.add(found)
            assert len(self.told) == 1, self.told
            return

    def learner(self) -> Steps:
        rows = []
        for voter in range(self.count):
            rows.append((yield ReadRow(voter, 0, 0)))  # noqa: PERF401 - a comprehension cannot yield
        found = decided(rows, self.count)
        assert found is not None
        self.told.add(found.value)

    def step(self, n: int, steps: Steps, send: Any) -> tuple[Any] | None:
        try:
            act = steps.send(send)
            while True:
                try:
                    return (self.carry_out(n, act),)
                except UnreachableVoterError as failed:
                    act = steps.throw(failed)
        except StopIteration:
            return None

    def carry_out(self, n: int, act: Any) -> Any:
        if isinstance(act, ProposalBackoff):
            return None
        if self.faulty and ((n, act.voter) in self.blocked or self.chance.random() < self.lost):
            if isinstance(act, PutRequest) and (n, act.voter) not in self.blocked:
                self.late.append(act)
                if self.chance.random() < 0.5:
                    self.land(self.late.pop())
            raise UnreachableVoterError
        if isinstance(act, Stand):
            return SlotState()
        if isinstance(act, ReadRow):
            return self.rows[act.voter][act.since :]
        return self.land(act)

    def land(self, act: PutRequest) -> bool:
        row = self.rows[act.voter]
        assert act.place <= len(row), "a file is put behind a gap"
        if act.place < len(row):
            return False
        row.append(act.request)
        return True


@pytest.mark.slow
def test_no_slot_gets_two_values() -> None:
    for seed in range(examples(2_000, 300)):
        Voters(seed).run()


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_no_slot_of_a_million_gets_two_values() -> None:
    for seed in range(10**6, 2 * 10**6):
        Voters(seed).run()


def test_a_request_that_comes_too_late_has_no_effect() -> None:
    first, second = Ballot(1, "a"), Ballot(2, "b")

    voted = Voted().after(Prepare(first)).after(Prepare(second)).after(Accept(first, "x"))

    assert voted == Voted(second, None)


def test_one_of_two_rows_of_three_does_not_say_what_is_decided() -> None:
    accept = Accept(Ballot(1, "a"), "x")

    assert decided([[Prepare(accept.ballot), accept], []], 3) is None
    assert decided([[accept], [accept]], 3) == accept


def half_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(registers, "majority", lambda voters: max(1, voters // 2))


def what_was_accepted_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    real = registers._asked

    def asked(*asked_for: Any) -> Steps:
        found = yield from real(*asked_for)
        return [voted._replace(accepted=None) for voted in found]

    patch.setattr(registers, "_asked", asked)


def promises_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    """Neither by who puts a request, nor by who reads the row."""

    def put(slot: int, voter: int, row: list[Request], request: Request) -> Steps:
        while True:
            row += yield ReadRow(voter, slot, len(row))
            if (yield PutRequest(voter, slot, len(row), request)):
                row.append(request)
                voted = Voted()
                for earlier in row:
                    voted = voted.after(earlier)
                return voted

    def after(self: Voted, request: Request) -> Voted:
        return Voted(request.ballot, request if isinstance(request, Accept) else self.accepted)

    patch.setattr(Voted, "after", after)
    patch.setattr(registers, "_put", put)


def the_first_value_found_is_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(registers, "_by_ballot", lambda accept: Ballot(-accept.ballot.number, ""))


@pytest.mark.parametrize(
    "fault", [half_is_enough, what_was_accepted_is_overlooked, promises_are_not_kept, the_first_value_found_is_taken]
)
def test_a_safeguard_taken_away_shows(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)

    for seed in range(20_000):
        try:
            Voters(seed).run()
        except AssertionError:
            return
    pytest.fail(f"{fault.__name__} is not noticed")
