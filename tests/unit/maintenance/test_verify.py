"""The rules of a sound log: every kind of damage is named, with its place."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.maintenance.verify.file_check import SegmentCheck, misplaced_keys
from kafkalike.maintenance.verify.log_rules import (
    check_commits,
    check_committed,
    check_coverage,
    check_group_rows,
    check_partitions,
    check_place,
    check_schema,
)
from kafkalike.maintenance.verify.topic_history import CommitInfo
from kafkalike.maintenance.verify.verify_report import Finding
from kafkalike.model.group_rows import MEMBER, OFFSET, GroupRow
from kafkalike.model.group_state import GroupsState
from kafkalike.model.murmur2 import partition_for_key
from kafkalike.model.segments import Segment


def segment(start: int, stop: int, *, partition: int = 0, times: tuple[int, int] = (0, 100)) -> Segment:
    return Segment(
        partition=partition,
        start=start,
        stop=stop,
        num_records=stop - start,
        min_timestamp=times[0],
        max_timestamp=times[1],
        size_bytes=1,
        path=f"partition={partition}/{start}.parquet",
    )


def kinds(findings: list[Finding]) -> list[str]:
    return [finding.kind for finding in findings]


# --- coverage ----------------------------------------------------------------------------------


@given(st.lists(st.integers(min_value=1, max_value=50), max_size=20), st.integers(min_value=0, max_value=1000))
def test_segments_that_follow_each_other_are_sound(lengths: list[int], first: int) -> None:
    """Dense runs from log start to log end have no finding."""
    stops = np.cumsum([first, *lengths]).tolist()
    segments = [segment(a, b) for a, b in pairwise(stops)]

    assert check_coverage("t", 0, segments, range(first, stops[-1]), holes_below=0) == []


@given(st.lists(st.integers(min_value=1, max_value=50), min_size=1, max_size=20), st.data())
def test_a_lost_segment_is_a_gap_wherever_it_was(lengths: list[int], data: st.DataObject) -> None:
    """Any one missing file is named by exactly its offsets, at the log end as well."""
    stops = np.cumsum([0, *lengths]).tolist()
    segments = [segment(a, b) for a, b in pairwise(stops)]
    lost = segments.pop(data.draw(st.integers(min_value=0, max_value=len(segments) - 1)))

    (found,) = check_coverage("t", 0, segments, range(stops[-1]), holes_below=0)

    assert (found.kind, found.offsets, found.warning) == ("gap", lost.offsets, False)


def test_a_log_start_inside_a_segment_is_sound() -> None:
    """Retention may begin the log within a file."""
    assert check_coverage("t", 0, [segment(0, 10), segment(10, 20)], range(5, 20), holes_below=0) == []


def test_an_emptied_partition_is_sound() -> None:
    """A log whose start is its end needs no file."""
    assert check_coverage("t", 0, [], range(7, 7), holes_below=0) == []


def test_offsets_in_two_files_are_an_overlap() -> None:
    """Two writers that did not see each other leave offsets twice."""
    (found,) = check_coverage("t", 0, [segment(0, 10), segment(8, 20)], range(20), holes_below=0)

    assert (found.kind, found.offsets) == ("overlap", range(8, 10))


def test_a_file_above_the_log_end_is_named() -> None:
    """No file may hold offsets that were not given out."""
    (found,) = check_coverage("t", 0, [segment(0, 12)], range(10), holes_below=0)

    assert found.kind == "beyond-log-end"


def test_holes_of_a_compacted_topic_are_sound() -> None:
    """Compaction removes records."""
    assert check_coverage("t", 0, [segment(0, 5), segment(9, 20)], range(20), holes_below=10**9) == []


def test_a_file_in_the_folder_of_another_partition_is_named() -> None:
    """The folder and the registered partition must agree."""
    moved = replace(segment(0, 5), partition=1)

    assert kinds(check_place("t", moved)) == ["wrong-partition"]


def test_a_file_of_a_partition_that_does_not_exist_is_named() -> None:
    """A topic of two partitions has no partition 7."""
    (found,) = check_partitions("t", [7, 0, 1], 2)

    assert (found.kind, found.partition) == ("unknown-partition", 7)


# --- records of a file -----------------------------------------------------------------------------


def check(
    what: Segment, *batches: list[int], times: int = 50, key: bytes | None = None, holes_below: int = 0, of: int = 1
) -> SegmentCheck:
    checked = SegmentCheck("t", what, of, holes_below=holes_below)
    for offsets in batches:
        column = np.array(offsets, np.int64)
        checked.feed(column, np.full(len(offsets), times, np.int64), [key] * len(offsets))
    return checked


def test_a_file_that_holds_what_the_log_says_is_sound() -> None:
    """Batches may cut a file anywhere."""
    assert check(segment(5, 10), [5, 6], [], [7, 8, 9]).finish() == []


@pytest.mark.parametrize(
    ("batches", "kind", "offsets"),
    [
        ([[5, 6, 6, 8, 9]], "duplicate-offset", range(6, 7)),
        ([[5, 6], [6, 8, 9]], "duplicate-offset", range(6, 7)),
        ([[5, 7, 6, 8, 9]], "unsorted", range(6, 7)),
        ([[5, 8], [7, 6, 9]], "unsorted", range(7, 8)),
        ([[5, 6, 9, 10, 11]], "hole-in-file", range(7, 9)),
        ([[5, 6], [9]], "hole-in-file", range(7, 9)),
    ],
)
def test_offsets_out_of_order_are_named(batches: list[list[int]], kind: str, offsets: range) -> None:
    """Each way to be out of order is found within a batch and between two."""
    found = {finding.kind: finding for finding in check(segment(5, 10), *batches).finish()}

    assert found[kind].offsets == offsets


def test_holes_in_a_file_of_a_compacted_topic_are_sound() -> None:
    """A compacted file has fewer records than offsets."""
    compacted = replace(segment(5, 10), num_records=3)

    assert check(compacted, [5, 7, 9], holes_below=10**9).finish() == []


def test_a_file_with_other_offsets_than_its_statistics_is_named() -> None:
    """Reads by statistics would look in the wrong file."""
    assert kinds(check(segment(5, 10), [6, 7, 8, 9, 10]).finish()) == ["offset-statistics"]


def test_a_file_with_fewer_records_than_the_log_says_is_named() -> None:
    """A file that lost its tail is short of records, and of offsets."""
    assert kinds(check(segment(5, 10), [5, 6]).finish()) == ["record-count", "offset-statistics"]


def test_an_empty_file_is_named() -> None:
    """No records at all is a wrong count."""
    assert kinds(check(segment(5, 10)).finish()) == ["record-count"]


@pytest.mark.parametrize("time", [-1, 101])
def test_a_time_outside_the_statistics_is_named(time: int) -> None:
    """Look-ups by time skip files by their statistics."""
    assert kinds(check(segment(5, 6), [5], times=time).finish()) == ["time-statistics"]


def test_a_damaged_file_has_one_finding_of_a_kind() -> None:
    """A file that is wrong at every record must not flood the report."""
    assert kinds(check(segment(0, 6), [5, 4, 3], [2, 1, 0]).finish()).count("unsorted") == 1


def test_keys_in_another_partition_are_one_warning() -> None:
    """An explicit partition is allowed, so it is no error."""
    key = b"customer-7"
    elsewhere = (partition_for_key(key, 4) + 1) % 4
    checked = check(segment(0, 3, partition=elsewhere), [0, 1, 2], key=key, of=4)

    (found,) = misplaced_keys("t", elsewhere, [checked])

    assert checked.finish() == []
    assert (found.kind, found.warning) == ("key-partition", True)
    assert found.message.startswith("records with keys that hash to other partitions: 3, ")


def test_keys_in_their_partition_and_no_keys_are_sound() -> None:
    """The default partitioner's own choice has no finding."""
    key = b"customer-7"
    home = partition_for_key(key, 4)
    checked = [check(segment(0, 1, partition=home), [0], key=k, of=4) for k in (key, None)]

    assert misplaced_keys("t", home, checked) == []


# --- tables ------------------------------------------------------------------------------------------


def test_columns_that_differ_are_named() -> None:
    """Missing, other and further columns are each said."""
    (found,) = check_schema("t", "its table", {"a": "int", "c": "text"}, {"a": "long", "b": "long"})

    assert found.message == "its table: column a is int, not long; column b is missing; column c is not a topic's"


def test_equal_columns_are_sound() -> None:
    """The order of columns does not matter."""
    assert check_schema("t", "its table", {"b": "x", "a": "y"}, {"a": "y", "b": "x"}) == []


def commit_info(operation: str, append_id: str | None = None) -> CommitInfo:
    return CommitInfo(
        version=3,
        timestamp_ms=0,
        operation=operation,
        append_id=append_id,
        added=(),
        removed=(),
        engine="someone",
    )


@pytest.mark.parametrize("operation", ["WRITE", "RESTORE", "UPDATE", "MERGE", "ADD COLUMNS", "UPGRADE PROTOCOL"])
def test_a_commit_by_a_foreign_writer_is_named(operation: str) -> None:
    """Only appends with an id are kafkalike's."""
    (found,) = check_commits("t", [commit_info(operation)])

    assert (found.kind, found.warning) == ("foreign-commit", False)
    assert operation in found.message
    assert "version 3" in found.message


@pytest.mark.parametrize("operation", ["DELETE", "OPTIMIZE"])
def test_maintenance_without_mark_is_a_warning(operation: str) -> None:
    """It may be the operator's."""
    (found,) = check_commits("t", [commit_info(operation)])

    assert found.warning


@pytest.mark.parametrize(("operation", "append_id"), [("CREATE TABLE", None), ("WRITE", "id"), ("VACUUM END", None)])
def test_own_commits_are_sound(operation: str, append_id: str | None) -> None:
    """Creation, appends and VACUUM are as they should be."""
    assert check_commits("t", [commit_info(operation, append_id)]) == []


# --- groups ------------------------------------------------------------------------------------------


def offset_row(seq: int, offset: int, *, partition: int = 0, generation: int = -1, topic_id: str = "id") -> GroupRow:
    return GroupRow(
        seq=seq,
        kind=OFFSET,
        group_id="g",
        topic="t",
        topic_id=topic_id,
        partition=partition,
        offset=offset,
        generation=generation,
        member_id="m",
        time_ms=0,
    )


def member_row(seq: int, generation: int) -> GroupRow:
    return GroupRow(seq=seq, kind=MEMBER, group_id="g", generation=generation, member_id="m", time_ms=0)


def state(*rows: GroupRow) -> GroupsState:
    groups = GroupsState()
    for row in rows:
        groups = groups.applied([row])
    return groups


@pytest.mark.parametrize("offset", [5, 7, 10])
def test_an_offset_within_the_log_is_sound(offset: int) -> None:
    """Both ends of the log may be committed."""
    assert check_committed(state(offset_row(1, offset)), "t", "id", {0: range(5, 10)}) == []


def test_an_offset_beyond_the_log_end_is_named() -> None:
    """The group would wait for records that other records will take the offsets of."""
    (found,) = check_committed(state(offset_row(1, 11)), "t", "id", {0: range(5, 10)})

    assert (found.kind, found.offsets, found.warning) == ("committed-beyond-end", range(11, 12), False)


def test_an_offset_below_the_log_start_is_a_warning() -> None:
    """Retention overtook the group: it lost records, the log did not."""
    (found,) = check_committed(state(offset_row(1, 3)), "t", "id", {0: range(5, 10)})

    assert (found.kind, found.offsets, found.warning) == ("committed-below-start", range(3, 5), True)


def test_an_offset_of_a_partition_that_does_not_exist_is_named() -> None:
    """Partitions are never removed."""
    assert kinds(check_committed(state(offset_row(1, 3, partition=9)), "t", "id", {0: range(5)})) == [
        "committed-unknown-partition"
    ]


def test_an_offset_of_an_earlier_life_of_the_topic_is_left_out() -> None:
    """The name was deleted and created again."""
    assert check_committed(state(offset_row(1, 99, topic_id="old")), "t", "id", {0: range(5)}) == []


def test_generations_that_rise_are_sound() -> None:
    """Commits of the present generation and from outside are allowed."""
    rows = [member_row(1, 1), offset_row(2, 5, generation=1), member_row(3, 2), offset_row(4, 6)]

    assert check_group_rows(rows) == []


def test_a_generation_that_goes_back_is_named() -> None:
    """Two members took the group over at once."""
    assert kinds(check_group_rows([member_row(1, 2), member_row(2, 1)])) == ["generation-back"]


def test_a_commit_of_an_old_generation_is_named() -> None:
    """A member that was replaced must be refused."""
    assert kinds(check_group_rows([member_row(1, 2), offset_row(2, 5, generation=1)])) == ["zombie-commit"]


def test_a_row_number_given_twice_is_named() -> None:
    """Two writers did not see each other."""
    assert kinds(check_group_rows([member_row(1, 1), offset_row(1, 5)])) == ["group-sequence"]


# --- a finding ---------------------------------------------------------------------------------------


def test_a_finding_says_severity_place_offsets_and_kind() -> None:
    """One line is enough to act on."""
    finding = Finding(kind="gap", message="lost", topic="orders", partition=3, offsets=range(5, 9))

    assert str(finding) == "ERROR orders-3 [5, 9): gap: lost"
    assert finding.as_dict() == {
        "severity": "error",
        "kind": "gap",
        "topic": "orders",
        "partition": 3,
        "offsets": [5, 9],
        "message": "lost",
    }
