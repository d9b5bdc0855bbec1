"""Units that go together: rows of those that hold, each asked on the state right before it; no unit is torn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalike.errors import CommitFailedError, FencedInstanceIdError
from kafkalike.model.appends.waiting_appends import InTurn, in_turn
from kafkalike.model.group_rows import GroupRow, roster_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.offset_commit import OffsetCommit, Position, load_commit
from tests.tools.effort import examples


@dataclass(frozen=True)
class Row:
    seq: int
    owner: str
    of: int
    """Rows of its unit."""


@dataclass(frozen=True)
class State:
    """Who may write: the one whom the last row of an owner named."""

    seq: int = 0
    owner: str = ""

    def applied(self, rows: Any) -> State:
        state = self
        for row in rows:
            assert row.seq == state.seq + 1
            state = State(row.seq, row.owner or state.owner)
        return state


@dataclass(frozen=True)
class Take:
    """Be the owner from now on, and write so many rows; refused at the row where it is not the one that it expects."""

    owner: str
    expected: str
    rows: int

    def __call__(self, state: State) -> Sequence[Row]:
        if state.owner != self.expected:
            raise CommitFailedError("fenced")
        return [Row(state.seq + n + 1, self.owner, self.rows) for n in range(self.rows)]


NAMES = st.sampled_from(["", "a", "b", "c"])
TAKES = st.builds(Take, NAMES, NAMES, st.integers(0, 4))
PARTS = st.lists(st.lists(TAKES, max_size=4), max_size=5)


def judge(parts: list[list[Take]], found: InTurn[Row]) -> None:
    """What the rows and the runs must be, by asking one unit after the other in the plainest way."""
    state, rows = State(7, ""), list[Row]()
    for units, runs in zip(parts, found.runs, strict=True):
        for nth, unit in enumerate(units):
            holds = state.owner == unit.expected
            assert (nth in runs) == holds, f"{unit} on {state}"
            if holds:
                assert runs[nth] == range(state.seq + 1, state.seq + 1 + unit.rows)
                made = [Row(number, unit.owner, unit.rows) for number in runs[nth]]
                rows += made
                state = state.applied(made)
    assert list(found.rows) == rows


@pytest.mark.slow
@given(PARTS)
@settings(max_examples=examples(2000, 200), deadline=None)
def test_each_unit_is_asked_on_the_state_right_before_it(parts: list[list[Take]]) -> None:
    judge(parts, in_turn(State(7, ""), parts))


def _one_state_for_all(state: State, parts: Any) -> InTurn[Any]:
    found = [in_turn(state, [units]) for units in parts]
    return InTurn([row for each in found for row in each.rows], [each.runs[0] for each in found])


def _a_part_stands_or_falls_as_one(state: State, parts: Any) -> InTurn[Any]:
    honest = in_turn(state, parts)
    whole = [runs if len(runs) == len(units) else {} for units, runs in zip(parts, honest.runs, strict=True)]
    return InTurn(honest.rows, whole)


def _a_refused_one_ends_it(state: State, parts: Any) -> InTurn[Any]:
    honest = in_turn(state, parts)
    return InTurn(honest.rows, [{n: run for n, run in runs.items() if n == 0} for runs in honest.runs])


def _the_first_row_is_enough(state: State, parts: Any) -> InTurn[Any]:
    def first(unit: Any) -> Any:
        return lambda now: unit(now)[:1]

    return in_turn(state, [[first(unit) for unit in units] for units in parts])


def _last_come_first_served(state: State, parts: Any) -> InTurn[Any]:
    found = in_turn(state, parts[::-1])
    return InTurn(found.rows, found.runs[::-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    [
        _one_state_for_all,
        _a_part_stands_or_falls_as_one,
        _a_refused_one_ends_it,
        _the_first_row_is_enough,
        _last_come_first_served,
    ],
)
def test_a_wrong_rule_is_found(mutant: Callable[..., InTurn[Any]]) -> None:
    @given(PARTS)
    @settings(max_examples=2000, deadline=None, database=None, report_multiple_bugs=False)
    def holds(parts: list[list[Take]]) -> None:
        judge(parts, mutant(State(7, ""), parts))

    with pytest.raises(AssertionError):
        holds()


# --- commits of offsets --------------------------------------------------------------------------


def commit(generation: int, member: str = "m") -> OffsetCommit:
    return OffsetCommit(
        group_id="g",
        generation=generation,
        member_id=member,
        group_instance_id="i",
        client_id="c",
        time_ms=5,
        positions=(Position("t", "id", 0, 2**63 - 1, 3, "'é漢😀"), Position("u", "id2", 7, 0, -1, "")),
    )


def owned_by(member: str, generation: int) -> Callable[[GroupsState], Sequence[Any]]:
    members = {member: Member(member_id=member, since=generation)}
    roster = Roster(generation=generation, members=members)
    return lambda state: [roster_row(state.seq + 1, "g", roster)]


def test_a_commit_is_a_row_for_each_partition() -> None:
    """In the generation that the group has, which may be later than the member's; outside of it there is none."""
    state = GroupsState()
    for unit in (owned_by("m", 1), owned_by("m", 4)):
        state = state.applied(unit(state))
    state = state.applied([roster_row(3, "g", replace(state.group("g").roster, generation=6))])
    row = GroupRow(
        seq=4,
        kind="offset",
        group_id="g",
        topic="t",
        topic_id="id",
        partition=0,
        offset=2**63 - 1,
        leader_epoch=3,
        metadata="'é漢😀",
        generation=6,
        member_id="m",
        client_id="c",
        time_ms=5,
    )
    other = replace(row, seq=5, topic="u", topic_id="id2", partition=7, offset=0, leader_epoch=-1, metadata="")

    assert commit(4)(state) == [row, other]
    assert [found.generation for found in commit(-1, "")(GroupsState())] == [-1, -1]
    assert [found.generation for found in commit(0, "m")(GroupsState().applied(owned_by("m", 0)(GroupsState())))] == [
        0,
        0,
    ]


def test_nobody_else_commits_for_a_member() -> None:
    state = GroupsState().applied(owned_by("m", 4)(GroupsState()))

    for generation, member in ((3, "m"), (4, "n"), (-1, "")):
        with pytest.raises(CommitFailedError, match=r"^group 'g': "):
            commit(generation, member)(state)


def test_a_static_member_is_told_that_another_one_has_its_name() -> None:
    """By its instance id: to its member id alone the group would be unknown."""
    other = Member(member_id="other", since=4, group_instance_id="i")
    state = GroupsState().applied([roster_row(1, "g", Roster(generation=4, members={"other": other}))])

    with pytest.raises(FencedInstanceIdError):
        commit(4)(state)


def test_a_commit_is_loaded_as_it_was_dumped() -> None:
    """At the time of the machine, too."""
    late = replace(commit(4), time_ms=1_800_000_000_000)

    assert load_commit(commit(4).dumped()) == commit(4)
    assert load_commit(late.dumped()) == late


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["kind"], "other"),
        (["group"], 1),
        (["member"], None),
        (["client"], "\ud800"),
        (["instance"], 7),
        (["generation"], 2**31),
        (["generation"], "1"),
        (["time"], -1),
        (["time"], 2**48),
        (["offsets"], {}),
        (["offsets", 0], {}),
        (["offsets", 0, 0], 1),
        (["offsets", 0, 1], None),
        (["offsets", 0, 2], -1),
        (["offsets", 0, 2], 2**31),
        (["offsets", 0, 3], -1),
        (["offsets", 0, 3], 2**63),
        (["offsets", 0, 4], 2**31),
        (["offsets", 0, 5], b"x"),
    ],
)
def test_a_commit_of_another_process_is_checked_value_by_value(place: list[str | int], value: object) -> None:
    """Whoever wrote it; a newer release may know more kinds."""
    found: Any = commit(4).dumped()
    spot = found
    for step in place[:-1]:
        spot = spot[step]
    spot[place[-1]] = value

    with pytest.raises((ValueError, TypeError), match=r"^another kind of unit$" if place == ["kind"] else None):
        load_commit(found)


def test_a_commit_without_a_static_name_is_loaded_as_it_was_dumped() -> None:
    plain = replace(commit(-1, ""), group_instance_id=None)

    assert load_commit(plain.dumped()) == plain


def test_a_commit_that_its_group_has_overtaken_leaves_no_row() -> None:
    """In the same version as the change that overtakes it."""
    units: list[Callable[[GroupsState], Sequence[Any]]] = [
        owned_by("m", 1),
        commit(1),
        owned_by("n", 2),
        commit(1),
        commit(2, "n"),
        commit(-1, ""),
    ]

    found = in_turn(GroupsState(), [units])

    assert found.runs == [{0: range(1, 2), 1: range(2, 4), 2: range(4, 5), 4: range(5, 7)}]
    assert [row.generation for row in found.rows] == [1, 1, 1, 2, 2, 2]
