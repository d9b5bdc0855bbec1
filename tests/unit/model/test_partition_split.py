"""Partition split: records of a key stay together, and a position means the same records before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalike.errors import InvalidPartitionsError, RebalanceInProgressError
from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.partition_split import check_split, family, holds, parent, split_rows, successor
from kafkalike.model.murmur2 import partition_for_key
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.offset_commit import OffsetCommit, Position, moved_offsets, orphaned
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import TopicPartition
from kafkalike.model.topic import RepartitionTarget, TopicInfo
from tests.tools.effort import examples

OLD, NEW = TopicId("old"), TopicId("new")


def topic(before: int, after: int) -> TopicInfo:
    target = RepartitionTarget(topic_id=NEW, location="t~1", num_partitions=after)
    return TopicInfo(name=TopicName("t"), topic_id=OLD, location="t", num_partitions=before, target=target)


def committed(state: GroupsState, group: str, topic_id: str, offsets: dict[int, int]) -> GroupsState:
    positions = tuple(Position("t", topic_id, p, offset, -1, "") for p, offset in sorted(offsets.items()))
    commit = OffsetCommit(
        group_id=group,
        generation=-1,
        member_id="",
        group_instance_id=None,
        client_id="c",
        time_ms=7,
        positions=positions,
    )
    return state.applied(commit(state))


def moved(state: GroupsState, info: TopicInfo) -> GroupsState:
    assert info.target is not None
    return state.applied(moved_offsets(state, info, info.target, 9))


@dataclass(frozen=True)
class History:
    """Records by partition, with keys that may lie in any partition, and committed offsets of a group."""

    before: int
    after: int
    records: dict[int, list[bytes | None]]
    offsets: dict[int, int]


@st.composite
def histories(draw: st.DrawFn) -> History:
    before = draw(st.integers(1, 4))
    after = before * draw(st.integers(2, 4))
    keys = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"key-1", b"key-2", b"key-3"]), st.binary(max_size=9))
    records: dict[int, list[bytes | None]] = {p: [] for p in range(before)}
    by_key = draw(st.booleans())
    for key in draw(st.lists(keys, max_size=40)):
        place = partition_for_key(key, before) if by_key and key is not None else draw(st.integers(0, before - 1))
        records[place].append(key)
    offsets = {p: draw(st.integers(0, len(rows))) for p, rows in records.items() if draw(st.booleans())}
    return History(before, after, records, offsets)


@settings(max_examples=examples(300, 60))
@given(histories())
def test_group_reads_exactly_the_records_it_had_not_read_and_each_key_in_order(history: History) -> None:
    """The oracle keeps single records: what was read is a set of (partition, offset), and it must be the same set."""
    info = topic(history.before, history.after)
    places: dict[int, list[tuple[int, bytes | None]]] = {q: [] for q in range(history.after)}
    unread: set[tuple[int, int]] = set()
    for p, keys in history.records.items():
        for offset, q in enumerate(split_rows(keys, [p] * len(keys), history.before, history.after)):
            places[q].append((offset, keys[offset]))
            if p in history.offsets and offset >= history.offsets[p]:
                unread.add((p, offset))

    state = moved(committed(GroupsState(), "g", OLD, history.offsets), info)

    after = {tp.partition: at for tp, at in state.group("g").offsets.items()}
    assert all(at.topic_id == NEW for at in after.values())
    left = [
        (parent(q, history.before), offset)
        for q, at in after.items()
        for offset, _ in places[q]
        if offset >= at.position.offset
    ]
    assert sorted(left) == sorted(unread)
    for q, found in places.items():
        assert found == sorted(found, key=lambda row: row[0])
        assert q in family(parent(q, history.before), history.before, history.after)
    for p, keys in history.records.items():
        for key in {k for k in keys if k is not None}:
            assert len({q for q in family(p, history.before, history.after) if key in [k for _, k in places[q]]}) == 1


@settings(max_examples=examples(200, 40))
@given(st.integers(1, 6), st.integers(2, 5), st.lists(st.binary(max_size=12), max_size=30))
def test_records_of_the_default_partitioner_go_where_it_sends_their_keys_next(
    before: int, times: int, keys: list[bytes]
) -> None:
    old = [partition_for_key(key, before) for key in keys]

    found = split_rows(keys, old, before, before * times)

    assert found == [partition_for_key(key, before * times) for key in keys]


def test_split_of_a_batch_leaves_unrouted_records_and_those_without_key() -> None:
    made = RecordBatch()
    for partition, key in ((-1, b"alice"), (0, b"alice"), (1, b"alice"), (1, None)):
        made.add(partition, key, b"v", 0)

    made.split(2, 8)

    assert made.partitions == [-1, 4, 5, 1]


@pytest.mark.parametrize("after", [0, 1, 4, 6, -8], ids=str)
def test_number_that_is_not_a_higher_multiple_is_refused(after: int) -> None:
    with pytest.raises(InvalidPartitionsError, match=r"'t' has 4 partitions.*choose 8, 12"):
        check_split("t", 4, after)


def test_commit_for_the_old_topic_is_refused_once_offsets_moved() -> None:
    state = moved(committed(GroupsState(), "g", OLD, {0: 5}), topic(2, 4))

    for group in ("g", "another"):
        with pytest.raises(RebalanceInProgressError, match="'t' is being repartitioned"):
            committed(state, group, OLD, {0: 6})
    assert committed(state, "g", NEW, {0: 6}).group("g").offsets[TopicPartition("t", 0)].position.offset == 6


def test_offsets_that_moved_belong_to_both_topics_until_the_switch() -> None:
    """So a client that still knows the old topic finds them, and no maintenance takes them for leftovers."""
    state = moved(committed(GroupsState(), "g", OLD, {1: 5}), topic(2, 4))

    assert successor(state.groups, "t", OLD) == NEW
    assert successor(state.groups, "t", NEW) is None
    assert [holds(state.groups, NEW, "t", topic_id) for topic_id in (OLD, NEW, "x", None)] == [True, True, False, False]
    group = state.group("g")
    assert orphaned(group, {"t": OLD}, state.groups) == orphaned(group, {"t": NEW}, state.groups) == []
    assert orphaned(group, {"t": "x"}, state.groups) == [TopicPartition("t", 1), TopicPartition("t", 3)]


def test_moved_offset_keeps_its_metadata_and_time_and_other_topics_keep_theirs() -> None:
    kept: dict[str, Any] = {"leader_epoch": 3, "metadata": "m", "generation": 4, "member_id": "i", "client_id": "c"}
    rows = [
        GroupRow(seq=1, kind=OFFSET, group_id="g", topic="t", topic_id=OLD, partition=0, offset=5, time_ms=1, **kept),
        GroupRow(seq=2, kind=OFFSET, group_id="g", topic="t", topic_id="gone", partition=1, offset=5, time_ms=1),
        GroupRow(seq=3, kind=OFFSET, group_id="g", topic="u", topic_id="u", partition=0, offset=5, time_ms=1),
    ]
    state = GroupsState().applied(rows)

    after = moved(state, topic(2, 4))

    known, found = state.group("g").offsets, after.group("g").offsets
    assert found[TopicPartition("u", 0)] == known[TopicPartition("u", 0)]
    assert found[TopicPartition("t", 1)] == known[TopicPartition("t", 1)]
    for q in (0, 2):
        at, before = found[TopicPartition("t", q)], known[TopicPartition("t", 0)]
        assert (at.topic_id, at.position, at.time_ms, at.member_id) == (NEW, before.position, 1, "i")
    assert "__repartitions" not in after.consumer_groups


def test_copy_that_begins_anew_moves_the_moved_offsets_to_the_next_successor() -> None:
    info = topic(2, 4)
    state = moved(committed(GroupsState(), "g", OLD, {0: 5}), info)
    newer = RepartitionTarget(topic_id=TopicId("newer"), location="t~2", num_partitions=4)

    again = state.applied(moved_offsets(state, info, newer, 10))

    assert {tp.partition: at.topic_id for tp, at in again.group("g").offsets.items()} == {0: "newer", 2: "newer"}
    assert successor(again.groups, "t", OLD) == "newer"
