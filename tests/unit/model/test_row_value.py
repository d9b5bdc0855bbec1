"""Rows of control tables that are damaged, or that an older or a newer release wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import KafkaError, LogCorruptError, UnsupportedVersionError
from kafkalike.maintenance.fork import log_starts_at
from kafkalike.model.cluster_state import LOG_START, TOPIC, ClusterState, MetadataRow, log_start_row, topic_row
from kafkalike.model.group_rows import MEMBER, OFFSET, GroupRow, roster_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.structs import TopicPartition
from kafkalike.model.topic import TopicInfo

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
INFO = TopicInfo(name=TopicName("t"), topic_id=TopicId("id"), location="t", num_partitions=2, configs={"a": "b"})
ROSTER = Roster(
    generation=1,
    protocol="range",
    members={
        "m": Member(
            member_id="m",
            group_instance_id="i",
            client_id="c",
            subscription=("t",),
            protocols=("range",),
            assignment=(T0, T1),
            target=(T0,),
        )
    },
    topics={"t": ("id", 2)},
)
METADATA = [
    topic_row(1, 1, INFO, "created"),
    log_start_row(2, 2, INFO, {0: 5, 1: 6}, reason="retention", run="r"),
    topic_row(3, 3, replace(INFO, num_partitions=3), "raised"),
    topic_row(4, 4, INFO, "deleted", deleted=True),
    topic_row(5, 5, replace(INFO, topic_id=TopicId("id2")), "created"),
]
OFFSET_ROW = GroupRow(seq=2, kind=OFFSET, group_id="g", topic="t", topic_id="id", partition=0, offset=5, time_ms=2)
GROUPS = [
    roster_row(1, "g", ROSTER, by="m"),
    OFFSET_ROW,
    replace(OFFSET_ROW, seq=3, partition=1),
    replace(OFFSET_ROW, seq=4, offset=None),
    roster_row(5, "g", Roster(generation=2)),
    replace(OFFSET_ROW, seq=6, partition=1, offset=None),
]

State = ClusterState | GroupsState
TABLES: list[tuple[Callable[[], State], list[Any], str]] = [
    (ClusterState, METADATA, "__cluster_metadata"),
    (GroupsState, GROUPS, "__consumer_offsets"),
]

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def spoilt(draw: st.DrawFn, text: str) -> str:
    """A row's value cut off, replaced by anything, or with one thing in it replaced or taken away."""
    how = draw(st.sampled_from(["cut", "text", "json", "replaced", "removed"]))
    if how == "cut":
        return text[: draw(st.integers(1, len(text) - 1))] if len(text) > 1 else "{"
    if how == "text":
        return draw(st.text(min_size=1))
    if how == "json" or not text:
        return json.dumps(draw(json_values))
    found = json.loads(text)
    key = draw(st.sampled_from(sorted(found)))
    if how == "removed":
        del found[key]
    else:
        found[key] = draw(json_values)
    return json.dumps(found)


def content(state: State) -> object:
    """A copy of all that a state says."""
    if isinstance(state, ClusterState):
        return state.seq, dict(state.topics), set(state.topics.keys() | state.gone.keys())
    return state.seq, deepcopy(state.groups), {g: state.group(g) for g in ("g", "h")}


def state_of(new: Callable[[], State], rows: Sequence[Any]) -> State:
    return new().applied(rows)


@pytest.mark.parametrize(("new", "rows", "table"), TABLES)
@given(data=st.data())
def test_a_row_that_cannot_be_read_is_the_same_error_each_time_and_changes_nothing(
    new: Callable[[], State], rows: list[Any], table: str, data: st.DataObject
) -> None:
    """Wherever it is, whatever stands in it; the right row in its place is taken afterwards."""
    at = data.draw(st.integers(0, len(rows) - 1))
    state = state_of(new, rows[:at])
    before = content(state)
    bad = replace(rows[at], value=data.draw(spoilt(rows[at].value)))

    errors = []
    for _ in range(2):
        try:
            state.applied([bad])
        except KafkaError as error:
            errors.append(error)
            assert content(state) == before

    if errors:
        assert [type(error) for error in errors] * 2 in ([LogCorruptError] * 4, [UnsupportedVersionError] * 4)
        assert str(errors[0]) == str(errors[1])
        assert f"row {bad.seq} of {table}" in str(errors[0])
        assert repr(bad.kind) in str(errors[0])
        assert content(state.applied([rows[at]])) == content(state_of(new, rows[: at + 1]))
    else:
        # It is a row all the same: the state is one that such rows make.
        assert state.applied([bad]).seq == bad.seq


@pytest.mark.parametrize(("new", "rows", "table"), TABLES)
def test_any_prefix_of_the_rows_goes_on_to_the_same_state(
    new: Callable[[], State], rows: list[Any], table: str
) -> None:
    """Also when it begins again from the first row."""
    del table
    whole = content(state_of(new, rows))

    for at in range(len(rows) + 1):
        assert content(state_of(new, [*rows[:at], *rows])) == whole


@pytest.mark.parametrize("number", range(len(METADATA)))
def test_a_row_of_metadata_without_kind_or_value_is_refused(number: int) -> None:
    """No kind of row there goes without a value, or has two."""
    state, row = state_of(ClusterState, METADATA[:number]), METADATA[number]
    assert isinstance(state, ClusterState)

    for bad in (replace(row, kind=""), replace(row, value=""), replace(row, value=f"{row.value} {{}}")):
        with pytest.raises(KafkaError, match=f"row {number + 1} of __cluster_metadata"):
            state.applied([bad])


@pytest.mark.parametrize("bad", [replace(OFFSET_ROW, topic=None), replace(OFFSET_ROW, partition=None)])
def test_a_committed_offset_of_no_partition_is_refused(bad: GroupRow) -> None:
    """It was skipped in silence."""
    with pytest.raises(
        LogCorruptError, match=r"row 2 of __consumer_offsets, kind 'offset', cannot be read: .*no topic"
    ):
        GroupsState().applied([bad])


@pytest.mark.parametrize(("new", "rows", "table"), TABLES)
def test_a_kind_of_a_newer_release_stops_the_client(new: Callable[[], State], rows: list[Any], table: str) -> None:
    """It must not go on as if the row were not there."""
    state = state_of(new, rows[:1])

    for _ in range(2):
        with pytest.raises(
            UnsupportedVersionError,
            match=f"row 2 of {table} is of kind 'quota', .* newer kafkalike; upgrade this client",
        ):
            state.applied([replace(rows[1], kind="quota")])

    assert state.seq == 1


@pytest.mark.parametrize(("new", "rows", "table"), TABLES)
@pytest.mark.parametrize("number", range(5))
def test_a_format_of_a_newer_release_stops_the_client(
    new: Callable[[], State], rows: list[Any], table: str, number: int
) -> None:
    """Each kind of row can say that it has one, rows without a value of their own too."""
    value = json.loads(rows[number].value or "{}")
    newer = replace(rows[number], value=json.dumps({**value, "v": 9, "location": []}))

    with pytest.raises(
        UnsupportedVersionError, match=rf"row {number + 1} of {table} is of kind '{newer.kind}' in format 9, which"
    ):
        state_of(new, rows[:number]).applied([newer])


def test_rows_of_the_last_release_are_read() -> None:
    """They have no version, and a row for each partition whose log start moves."""
    topic = '{"configs": {}, "created_ms": 7, "deleted": false, "location": "t", "num_partitions": 2}'
    starts = [
        f'{{"offset": {offset}, "partition": {p}, "reason": "retention", "run": "r1"}}'
        for p, offset in ((0, 4), (1, 9), (0, 6))
    ]
    rows = [
        MetadataRow(seq=seq, time_ms=seq, kind=kind, topic="t", topic_id="id", change="", value=value)
        for seq, (kind, value) in enumerate([(TOPIC, topic), *((LOG_START, start) for start in starts)], start=1)
    ]
    roster = json.loads(GROUPS[0].value)
    del roster["v"]

    info = state_of(ClusterState, rows).require("t")  # type: ignore[union-attr]
    groups = state_of(GroupsState, [replace(GROUPS[0], value=json.dumps(roster))])

    assert (info.created_ms, info.num_partitions, [info.log_start(p) for p in (0, 1)]) == (7, 2, [6, 9])
    assert (info.log_starts[0].run, info.log_starts[0].time_ms) == ("r1", 4)
    assert groups.group("g").roster == ROSTER  # type: ignore[union-attr]
    assert log_starts_at(rows, "id", 3) == {0: 4, 1: 9}


def test_a_topic_that_was_handed_out_does_not_change() -> None:
    """What it says stays true of its moment while rows come."""
    state = state_of(ClusterState, METADATA[:2])
    assert isinstance(state, ClusterState)
    held = state.require("t")

    state = state.applied([log_start_row(3, 3, held, {0: 9}, reason="delete_records", run="r2")])

    assert (held.log_start(0), state.require("t").log_start(0), state.require("t").log_start(1)) == (5, 9, 6)
    assert held.why_gone(0, 1).startswith("log start moved to 5 by retention, run r,")


def test_the_log_starts_of_a_time_are_known_by_what_later_moves_say_was_before() -> None:
    """Maintenance has removed the rows of moves before: the first one after that time names where the log began."""
    first = log_start_row(2, 10, INFO, {0: 5, 1: 6}, reason="retention", run="r")
    moved = state_of(ClusterState, [METADATA[0], first])
    assert isinstance(moved, ClusterState)
    second = log_start_row(3, 20, moved.require("t"), {0: 8}, reason="delete_records", run="r")

    assert log_starts_at([first, second], "id", 15) == {0: 5, 1: 6}
    assert log_starts_at([second], "id", 15) == {0: 5}
    assert log_starts_at([second], "id", 20) == {0: 8}
    assert log_starts_at([first, second], "id", 5) == {0: 0, 1: 0}
    assert log_starts_at([first, second], "other", 15) == {}


def test_each_kind_says_its_own_format() -> None:
    """A row that older releases can read keeps the format that they know."""
    assert [json.loads(row.value)["v"] for row in METADATA] == [1, 2, 1, 1, 1]
    assert [row.value if row.kind == OFFSET else json.loads(row.value)["v"] for row in GROUPS] == [1, "", "", "", 1, ""]
    assert [row.kind for row in GROUPS].count(MEMBER) == 2
