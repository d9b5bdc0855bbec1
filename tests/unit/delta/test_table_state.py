"""The state of a table: a commit in, what is known afterwards out; and what a change was planned on, asked of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kafkalike.delta.actions import APPEND, APPEND_KEY, Add, TableCommit
from kafkalike.delta.table_change import EndsAt, FilesLive, LastOf, Requirement, Still
from kafkalike.delta.table_state import FENCE, REPAIR, REWINDING, TableState, end_app, records_ends, rewinds, took
from kafkalike.errors import LogCorruptError
from kafkalike.model.appends.producer_sequences import BATCHES_KEY, BEFORE_KEY, ProducerEntry
from kafkalike.model.appends.taken_appends import PARTS_KEY, Placed
from kafkalike.model.segments import Segment, SegmentIndex


def add(path: str, start: int, stop: int, partition: int = 0) -> Add:
    return Add(
        path=path, partition=partition, size=7, modification_ms=1, data_change=True, stats={"run": [start, stop]}
    )


def segment_of(added: Add) -> Segment:
    if not added.stats:
        raise LogCorruptError("no statistics")
    start, stop = added.stats["run"]
    return Segment(added.partition or 0, start, stop, stop - start, 0, 0, added.size, added.path)


def commit(version: int, operation: str, note: Mapping[str, Any] | None = None, **more: Any) -> TableCommit:
    """Ours where it has a note."""
    return TableCommit(
        version=version,
        timestamp_ms=more.pop("timestamp_ms", version),
        operation=operation,
        engine="e",
        user_metadata=None if note is None else json.dumps({APPEND_KEY: "id", **note}),
        **more,
    )


def state(**known: Any) -> TableState:
    usual: dict[str, Any] = {"version": 4, "table_id": "t", "index": SegmentIndex(), "txns": {}}
    return TableState(**{**usual, **known})


def applied(*commits: TableCommit, **known: Any) -> TableState:
    made = state(**known)
    for one in commits:
        made.apply(one, [segment_of(added) for added in one.adds])
    return made


def test_a_commit_brings_and_takes_files_and_writes() -> None:
    known = applied(
        commit(5, APPEND, {}, adds=(add("a", 0, 3),), txns={"app": 7, end_app(0): 3}, timestamp_ms=90),
        commit(6, APPEND, {}, adds=(add("b", 3, 4),), removes=("a",), txns={end_app(0): 4}, timestamp_ms=80),
    )

    assert (known.version, known.last_commit_ms, known.txns) == (6, 90, {"app": 7, end_app(0): 4})
    assert list(known.index.paths) == ["b"]
    assert (known.end(0), known.end(1)) == (4, 0)
    assert known.appended == "id"
    assert known.ends_recorded


def test_a_log_end_outlives_its_records() -> None:
    assert state(txns={end_app(2): 9}).end(2) == 9
    assert applied(commit(5, "WRITE", adds=(add("a", 0, 12, 2),)), txns={end_app(2): 9}).end(2) == 12
    assert end_app(2) == "kafkalike.end/2"


def test_a_partition_is_unrecorded_while_the_table_says_a_lower_end() -> None:
    foreign = commit(5, "WRITE", adds=(add("a", 0, 3), add("b", 0, 2, 1)), txns={end_app(1): 2})
    ours = commit(6, APPEND, {}, adds=(add("c", 3, 4),), txns={end_app(0): 4})

    assert applied(foreign).unrecorded == {0}
    assert applied(foreign, ours).unrecorded == set()
    assert not applied(foreign).ends_recorded


def test_a_file_that_ends_below_offset_0_leaves_the_partition_at_its_begin() -> None:
    """A foreign writer may number records below 0; the table can still be read."""
    known = applied(commit(5, "WRITE", adds=(add("a", -3, 0),)))

    assert (known.version, known.end(0), known.unrecorded) == (5, 0, set())


def test_a_change_of_the_table_itself_is_taken_over() -> None:
    before = state(properties={"a": "1"}, schema="old")
    before.apply(commit(5, APPEND, {}), [])
    assert (before.table_id, before.properties, before.schema) == ("t", {"a": "1"}, "old")

    before.apply(commit(6, "SET", table_id="u", properties={"b": "2"}, schema="new"), [])

    assert (before.table_id, before.properties, before.schema) == ("u", {"b": "2"}, "new")


def test_commit_that_closes_the_table_leaves_its_metadata() -> None:
    before = state(properties={"a": "1"}, schema="old")
    before.apply(commit(5, "UPGRADE PROTOCOL", {}, closed=True), [])

    assert (before.closed, before.table_id, before.properties, before.schema) == (True, "t", {"a": "1"}, "old")


def test_partitions_with_a_lower_recorded_end_are_noted_as_unrecorded() -> None:
    index = SegmentIndex([Segment(0, 0, 3, 3, 0, 0, 1, "a"), Segment(1, 0, 2, 2, 0, 0, 1, "b")])
    known = state(index=index, txns={end_app(0): 3, end_app(1): 1}, unrecorded={0})

    known.note_recorded([0, 1])

    assert known.unrecorded == {1}


@pytest.mark.parametrize("operation", sorted(REWINDING))
def test_a_rewind_counts_until_a_change_of_ours_follows(operation: str) -> None:
    """A fence or a repair may follow one that is still to be refused."""
    rewind = commit(5, operation)
    assert rewinds(rewind)
    assert not rewinds(commit(5, "DELETE"))

    for harmless in (commit(6, FENCE, {}), commit(6, REPAIR, {}), commit(6, "DELETE")):
        known = applied(rewind, harmless)
        assert (known.rewound, known.went_on) == (rewind, False)
    for ours in (commit(6, APPEND, {}), commit(6, "OPTIMIZE", {})):
        known = applied(rewind, ours)
        assert (known.rewound, known.went_on) == (None, True)


def test_a_fence_is_known_by_its_version() -> None:
    assert (applied(commit(5, FENCE, {})).fenced, applied(commit(5, APPEND, {})).fenced) == (5, -1)


def test_appends_that_a_commit_took_for_others_are_known() -> None:
    """And an append whose writer has not looked for any is deaf."""
    took_two = commit(5, APPEND, {PARTS_KEY: [["a", 3, {"0": [0, 2]}], ["", 0, {}]], "time": 70})
    deaf, foreign = commit(6, APPEND, {}), commit(6, APPEND)

    assert took(deaf) is None
    assert took(took_two) == {"a": Placed(3, 5, {0: range(2)}, 70)}
    assert took(commit(5, APPEND, {PARTS_KEY: [["a", 3, {"0": [0, 2]}]]})) == {"a": Placed(3, 5, {0: range(2)}, 5)}
    assert took(commit(5, APPEND, {PARTS_KEY: []})) == {}
    assert [applied(one).deaf for one in (took_two, deaf, foreign)] == [False, True, False]
    assert applied(foreign).appended is None
    known = applied(took_two)
    assert known.taken.latest["a"] == Placed(3, 5, {0: range(2)}, 70)
    assert applied(deaf).taken.latest == {}


def test_sequences_of_producers_are_known_from_the_notes_of_appends() -> None:
    """A batch of producer 9 in partition 0: sequences 5 and 6, from offset 10 on, at the time of its commit."""
    sent = commit(5, APPEND, {BATCHES_KEY: [[9, 1, 0, 5, 2, 10]], BEFORE_KEY: 4}, timestamp_ms=70)

    assert applied(sent).producers.entries == {(9, 0): ProducerEntry(1, ((5, 6, 10),), 70)}
    assert applied(commit(5, APPEND, {})).producers.entries == {}


def test_ends_are_recorded_by_appends_of_ours_that_say_them() -> None:
    ends = {end_app(0): 1}

    assert records_ends(commit(5, APPEND, {}, txns=ends))
    assert not records_ends(commit(5, APPEND, {}, txns={"app": 1}))
    assert not records_ends(commit(5, APPEND, txns=ends))
    assert not records_ends(commit(5, FENCE, {}, txns=ends))


def test_commits_below_a_checkpoint_raise_log_ends_of_what_is_gone() -> None:
    """Newest first; a file that the table still has says nothing new, and one without statistics nothing at all."""
    known = applied(commit(5, APPEND, {}, adds=(add("there", 0, 2),)), last_commit_ms=50)
    bare = Add(path="bare", partition=0, size=7, modification_ms=1, data_change=True, stats={})
    old = commit(3, "WRITE", adds=(add("there", 0, 99), bare, add("gone", 4, 9)), timestamp_ms=70)

    assert known.saw_below(old, segment_of, rewind_possible=True)

    assert (known.end(0), known.last_commit_ms, known.version) == (9, 70, 5)
    assert list(known.index.paths) == ["there"]


def test_a_rewind_below_a_checkpoint_counts_where_nothing_of_ours_is_above_it() -> None:
    rewind, ours, fence = commit(3, "RESTORE"), commit(3, APPEND, {}), commit(3, FENCE, {})
    known = state()

    assert not known.saw_below(rewind, segment_of, rewind_possible=False)
    assert known.rewound is None
    assert not known.saw_below(ours, segment_of, rewind_possible=True)
    assert known.saw_below(fence, segment_of, rewind_possible=True)
    assert not known.saw_below(rewind, segment_of, rewind_possible=True)
    assert known.rewound == rewind


def test_what_a_change_rests_on_is_asked_of_the_state() -> None:
    known = applied(commit(5, APPEND, {}, adds=(add("a", 0, 3),), txns={"app": 7}))

    holds: list[Requirement] = [
        EndsAt(0, 3),
        FilesLive(["a"]),
        FilesLive([]),
        LastOf("app", 7),
        LastOf("other", None),
        Still(lambda: True, "the topic"),
    ]
    fails: list[Requirement] = [
        EndsAt(0, 2),
        FilesLive(["a", "b"]),
        LastOf("app", 6),
        LastOf("app", None),
        Still(lambda: False, "the topic"),
    ]
    assert [one.broken(known) for one in holds] == [""] * len(holds)
    assert [one.broken(known) for one in fails] == [
        "the log end of partition 0 moved to 3",
        "b was replaced or removed",
        "the latest version of app is 7",
        "the latest version of app is 7",
        "the topic changed",
    ]


@pytest.mark.parametrize(("value", "refused"), [("true", True), ("TRUE", True), ("false", False), ("", False)])
def test_a_table_that_is_append_only_refuses_removals(value: str, *, refused: bool) -> None:
    why = state(properties={"delta.appendOnly": value}).removal_refusal

    assert (why is not None) is refused
    assert state().removal_refusal is None
    if why is not None:
        assert why == (
            "the table property delta.appendOnly=true forbids to remove files, and maintenance does that; take it "
            "away, or leave the topic out: ALTER TABLE … UNSET TBLPROPERTIES ('delta.appendOnly')"
        )
