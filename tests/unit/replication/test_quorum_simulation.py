"""Voters of the metadata under a seeded scheduler: no version gets two contents, and nothing acknowledged is lost.

With clean-up of registers and logs, voters that are lost, and others that take over. Each safeguard is taken away once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kafkalike.model.replication import quorum_protocol, registers, takeover
from kafkalike.model.replication.registers import SlotState, UnreachableVoterError
from tests.tools import quorum_world
from tests.tools.effort import examples, seeds
from tests.tools.quorum_world import Content, Voters, play

STEPS = 1_500
WORLDS = examples(200, 40)


@pytest.mark.slow
def test_no_history_of_voters_breaks_an_obligation() -> None:
    counts: Counter[str] = Counter()

    for seed in range(WORLDS):
        counts.update(play(seed, STEPS).counts)

    assert counts["ack"] > WORLDS
    assert counts["refused"] > WORLDS // 2
    assert counts["checkpoint"] > WORLDS
    assert counts["takeover"] > WORLDS // 4
    assert counts["late"] > WORLDS // 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6024, 12413])
def test_histories_that_were_broken_once_are_sound(seed: int) -> None:
    """A voter that has been replaced votes no more: not by a request that it has and never confirmed (12413), and not
    as somebody who slept opens it again (6024)."""
    assert play(seed, STEPS).counts["takeover"] > 0


def nobody_asks_how_a_voter_stands(patch: pytest.MonkeyPatch) -> None:
    changed(patch, registers.Stand, lambda _: SlotState())


def clean_up_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    changed(patch, registers.Stand, lambda found: found._replace(closed=False))


def marks_are_overlooked(patch: pytest.MonkeyPatch) -> None:
    changed(patch, registers.Stand, lambda found: found._replace(replaced=False))


def new_voters_are_open_at_once(patch: pytest.MonkeyPatch) -> None:
    real = Voters.do

    def do(self: Voters, client: Any, act: Any) -> Any:
        found = real(self, client, act)
        if isinstance(act, takeover.PutMark):
            self.roots[act.voter.root].open.add(found.epoch)
        return found

    patch.setattr(Voters, "do", do)


def what_the_old_voters_accepted_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    def accepted(version: int, reached: Any) -> Any:
        yield from ()

    patch.setattr(takeover, "_accepted", accepted)


def it_is_told_before_it_is_published(patch: pytest.MonkeyPatch) -> None:
    real = quorum_protocol.publishing

    def publishing(version: int, content: Any, voters: Any) -> Any:
        try:
            yield from real(version, content, voters[:1])
        except registers.NoMajorityError:
            return

    patch.setattr(quorum_protocol, "publishing", publishing)


def what_one_voter_has_is_shown(patch: pytest.MonkeyPatch) -> None:
    def confirming(version: int, voters: Any) -> Any:
        yield from ()

    patch.setattr(quorum_protocol, "confirming", confirming)


def data_lie_at_one_voter(patch: pytest.MonkeyPatch) -> None:
    real = Voters.do

    def do(self: Voters, client: Any, act: Any) -> Any:
        if isinstance(act, quorum_world.StoreFile) and act.voter.root != 1:
            return None
        return real(self, client, act)

    patch.setattr(Voters, "do", do)


def a_version_is_put_behind_a_gap(patch: pytest.MonkeyPatch) -> None:
    def bringing(voter: Any, version: int, content: Any, sources: Any, deciders: Any) -> Any:
        yield quorum_protocol.SupplyVersion(voter, content, tuple(sources))
        yield quorum_protocol.PutVersion(voter, version, content)
        return True

    patch.setattr(quorum_protocol, "bringing", bringing)


def changed(patch: pytest.MonkeyPatch, kind: type, change: Any) -> None:
    """Change what acts of a kind come to."""
    real = Voters.do

    def do(self: Voters, client: Any, act: Any) -> Any:
        found = real(self, client, act)
        return change(found) if isinstance(act, kind) and found is not None else found

    patch.setattr(Voters, "do", do)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        nobody_asks_how_a_voter_stands,
        clean_up_is_overlooked,
        marks_are_overlooked,
        new_voters_are_open_at_once,
        what_the_old_voters_accepted_is_overlooked,
        it_is_told_before_it_is_published,
        what_one_voter_has_is_shown,
        data_lie_at_one_voter,
        a_version_is_put_behind_a_gap,
    ],
)
def test_a_safeguard_of_the_voters_taken_away_shows(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)

    for seed in range(20_000):
        try:
            play(seed, STEPS)
        except (AssertionError, UnreachableVoterError):
            return
    pytest.fail(f"{fault.__name__} is not noticed")


def test_a_record_without_data_says_who_took_over() -> None:
    world = play(3, STEPS)

    opened = {content.opens for content in world.truth.values() if content.opens is not None}

    assert opened == set(range(1, max(world.sets) + 1)) or world.dead
    assert all(isinstance(content, Content) for content in world.truth.values())


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_no_history_of_many_voters_breaks_an_obligation() -> None:
    """Other seeds, or those of KAFKALIKE_SEEDS; `tests/tools/many_histories.py` is faster."""
    for seed in seeds(100_000, 100_000):
        play(10**6 + seed, STEPS)
