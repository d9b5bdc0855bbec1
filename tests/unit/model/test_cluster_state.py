"""Rows of `__cluster_metadata` and `__consumer_offsets`: what they add up to, and that compacting changes nothing."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import UnknownTopicOrPartitionError
from kafkalike.model.cluster_state import ClusterState, MetadataRow, log_start_row, topic_row
from kafkalike.model.group_rows import OFFSET, GroupRow, roster_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.maintenance.control_rows import kept_metadata_rows
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.structs import TopicPartition
from kafkalike.model.topic import TopicInfo

changes = st.lists(
    st.tuples(
        st.sampled_from(["create", "delete", "grow", "configure", "move"]), st.sampled_from("ab"), st.integers(0, 5)
    ),
    max_size=25,
)


def rows_of(steps: Sequence[tuple[str, str, int]]) -> list[MetadataRow]:
    """The rows that a cluster would write for these changes, as far as they are possible."""
    state, rows = ClusterState(), []
    for number, (step, name, amount) in enumerate(steps, start=1):
        info = state.topics.get(name)
        seq = state.seq + 1
        if step == "create" and info is None:
            new = TopicInfo(name=TopicName(name), topic_id=TopicId(f"id{number}"), location=name, num_partitions=1)
            row = topic_row(seq, number, new, "created")
        elif info is None or step == "create":
            continue
        elif step == "delete":
            row = topic_row(seq, number, info, "deleted", deleted=True)
        elif step == "grow":
            row = topic_row(seq, number, replace(info, num_partitions=info.num_partitions + 1), "raised")
        elif step == "configure":
            row = topic_row(seq, number, replace(info, configs={"retention.ms": str(amount)}), "configs changed")
        else:
            row = log_start_row(seq, number, info, {0: info.log_start(0) + amount}, reason="retention", run="r")
        rows.append(row)
        state = state.applied([row])
    return rows


def state_of(rows: Sequence[MetadataRow]) -> ClusterState:
    return ClusterState().applied(rows)


@given(steps=changes)
def test_latest_rows_add_up_to_the_same_state(steps: list[tuple[str, str, int]]) -> None:
    """Topics with their log starts, the names ever used, and the number of the last row."""
    rows = rows_of(steps)

    kept = kept_metadata_rows(rows, len(rows) + 1)

    whole, compacted = state_of(rows), state_of(kept)
    assert compacted.topics == whole.topics
    assert (compacted.topics.keys() | compacted.gone.keys()) == (whole.topics.keys() | whole.gone.keys())
    assert compacted.seq == whole.seq
    assert len(kept) <= len(rows)


@given(steps=changes, data=st.data())
def test_rows_that_come_again_change_nothing(steps: list[tuple[str, str, int]], data: st.DataObject) -> None:
    """A reader that starts over in the middle ends with the same state."""
    rows = rows_of(steps)
    state = state_of(rows)
    before = dict(state.topics)

    after = state.applied(rows[: data.draw(st.integers(0, len(rows)))])

    assert after is state
    assert after.topics == before


def test_a_log_start_of_an_earlier_life_does_not_count() -> None:
    """Nor one that would move it back."""
    first = TopicInfo(name=TopicName("a"), topic_id=TopicId("one"), location="a", num_partitions=1)
    second = replace(first, topic_id=TopicId("two"))
    rows = [
        topic_row(1, 1, first, "created"),
        topic_row(2, 2, first, "deleted", deleted=True),
        topic_row(3, 3, second, "created"),
        log_start_row(4, 1, first, {0: 9}, reason="r", run="r"),
    ]

    assert state_of(rows).topics["a"].log_start(0) == 0
    rows += [log_start_row(seq, 1, second, {0: offset}, reason="r", run="r") for seq, offset in ((5, 9), (6, 4))]
    assert state_of(rows).topics["a"].log_start(0) == 9


def test_the_last_topic_of_a_name_is_known_deleted_or_not() -> None:
    """None for a name that no topic ever had."""
    topic = TopicInfo(name=TopicName("a"), topic_id=TopicId("one"), location="a", num_partitions=1)
    created = topic_row(1, 1, topic, "created")
    deleted = topic_row(2, 2, topic, "deleted", deleted=True)

    alive, gone = state_of([created]).last("a"), state_of([created, deleted]).last("a")

    assert alive is not None
    assert gone is not None
    assert alive.topic_id == gone.topic_id == "one"
    assert state_of([created]).last("b") is None


def test_an_unknown_topic_is_named() -> None:
    """With the name in quotes."""
    with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere'"):
        ClusterState().require("nowhere")


def test_a_group_is_gone_with_its_last_offset_unless_it_has_a_member() -> None:
    """As Kafka drops an empty group without offsets."""
    state = GroupsState()
    offset = GroupRow(seq=1, kind=OFFSET, group_id="g", topic="a", topic_id="i", partition=0, offset=5, time_ms=1)
    member = roster_row(2, "h", Roster(generation=3, members={"m": Member(member_id="m")}))
    for row in (offset, member, replace(offset, seq=3, group_id="h")):
        state = state.applied([row])

    state = state.applied([replace(offset, seq=4, offset=None)])
    state = state.applied([replace(offset, seq=5, group_id="h", offset=None)])

    assert set(state.groups) == {"h"}
    assert (state.group("h").generation, set(state.group("h").members), dict(state.group("h").offsets)) == (
        3,
        {"m"},
        {},
    )
    assert state.group("g").offsets == {}


def test_a_deleted_offset_may_come_again() -> None:
    """The latest row of a partition wins."""
    state = GroupsState()
    row = GroupRow(seq=1, kind=OFFSET, group_id="g", topic="a", topic_id="i", partition=0, offset=5, time_ms=1)

    for at, offset in enumerate((5, None, 3), start=1):
        state = state.applied([replace(row, seq=at, offset=offset)])

    assert state.group("g").offsets[TopicPartition("a", 0)].position.offset == 3


@given(steps=changes, cuts=st.sets(st.integers(0, 25)))
def test_rows_that_come_one_by_one_or_together_make_the_same_state(
    steps: list[tuple[str, str, int]], cuts: set[int]
) -> None:
    """In whatever portions a client reads them."""
    rows = rows_of(steps)
    state = ClusterState()

    for begin, end in pairwise(sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})):
        state = state.applied(rows[begin:end])

    assert state == state_of(rows)


@given(
    made=st.lists(st.tuples(st.sampled_from("gh"), st.integers(0, 2), st.none() | st.integers(0, 3)), max_size=20),
    cuts=st.sets(st.integers(0, 20)),
)
def test_rows_of_groups_that_come_one_by_one_or_together_make_the_same_state(
    made: list[tuple[str, int, int | None]], cuts: set[int]
) -> None:
    """Partition 2 stands for a change of members, with none of them left when it has no offset."""
    rows = []
    for seq, (group, partition, offset) in enumerate(made, start=1):
        members = {} if offset is None else {"m": Member(member_id="m")}
        if partition == 2:
            rows.append(roster_row(seq, group, Roster(generation=seq, members=members, changed_ms=seq)))
        else:
            rows.append(
                GroupRow(seq=seq, kind=OFFSET, group_id=group, topic="t", partition=partition, offset=offset, time_ms=1)
            )
    state = GroupsState()

    for begin, end in pairwise(sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})):
        state = state.applied(rows[begin:end])

    assert state == GroupsState().applied(rows)
