"""Commits: the rows of a table of groups and what callers were told in, the verdict out.

The `metadata` of each row is the label of its change: `c:who:group:number:generation` for a commit of offsets of two
partitions, `r:who:group:number` for a roster, `d:who:group:number` for four rows that are one decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafkalike.log.group.group_offsets import Membership
from kafkalike.model.group_rows import OFFSET, GroupRow, roster_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.roster import Member, check_commit
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition

SIZES: Mapping[str, int] = {"c": 2, "r": 1, "d": 4, "f": 1}
"""Rows of a change, by the first letter of its label."""


@dataclass
class Told:
    """What callers were told, by label."""

    acked: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    fenced: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def offset_row(seq: int, group: str, label: str, member: str = "") -> GroupRow:
    """A committed offset."""
    return GroupRow(
        seq=seq,
        kind=OFFSET,
        group_id=group,
        topic="t",
        topic_id="id",
        partition=0,
        offset=1,
        metadata=label,
        member_id=member,
        time_ms=1,
    )


def commit_label(who: str, group: str, number: int, generation: int) -> str:
    """Of a commit by a member, or from outside the membership (-1)."""
    return f"c:{who}:{group}:{number}:{generation}"


def member_of(label: str) -> Membership:
    """In whose name a commit is made."""
    _, who, group, _, generation = label.split(":")
    return Membership(group_id=group, generation=int(generation), member_id=who if int(generation) >= 0 else "")


def offsets_of(label: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """What it commits."""
    number = int(label.split(":")[3])
    return {TopicPartition("t", n): OffsetAndMetadata(number, label) for n in range(2)}


def moved(state: GroupsState, group: str, who: str, label: str, *, leaves: bool, alone: bool = False) -> list[GroupRow]:
    """The row of a new generation: a member comes or begins anew, or leaves; it may drive out all others."""
    roster = state.group(group).roster
    generation = roster.generation + 1
    members = {m: known for m, known in roster.members.items() if m != who and not alone}
    if not leaves:
        members[who] = Member(member_id=who, since=generation)
    after = replace(roster, generation=generation, members=members, changed_ms=1)
    return [roster_row(state.seq + 1, group, after, who, label)]


def decided(state: GroupsState, label: str) -> list[GroupRow]:
    """Rows of several kinds and groups that are one decision, as a transaction's will be."""
    rows = [offset_row(state.seq + 1 + n, f"x{n}", label) for n in range(3)]
    roster = replace(state.group("x9").roster, generation=state.group("x9").generation + 1)
    return [*rows, roster_row(state.seq + 4, "x9", roster, why=label)]


def judge(rows: Sequence[GroupRow], told: Iterable[Told]) -> None:
    """Each change is there once and whole, or not at all, as its caller was told; none against the rule of commits."""
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    places: dict[str, list[int]] = {}
    state = GroupsState()
    for row in rows:
        places.setdefault(row.metadata, []).append(row.seq)
        if row.metadata.startswith("c:"):
            by = member_of(row.metadata)
            check_commit(state.group(by.group_id).roster, by.group_id, by.member_id, by.generation)
        state = state.applied([row])
    order: dict[str, list[int]] = {}
    for label, seqs in places.items():
        assert seqs == list(range(seqs[0], seqs[0] + SIZES[label[0]])), f"{label} is torn, or twice there: {seqs}"
        if label[0] in "crd":
            _, who, _, number = label.split(":")[:4]
            order.setdefault(who, []).append(int(number))
    for who, numbers in order.items():
        assert numbers == sorted(numbers), f"{who}: {numbers}"
    for each in told:
        assert [label for label in each.acked if label not in places] == []
        assert [label for label in each.refused + each.fenced if label in places] == []
