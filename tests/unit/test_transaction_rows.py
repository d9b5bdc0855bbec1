"""Rows of transactions: what was written is read, what is damaged is refused, and compaction keeps what counts."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import LogCorruptError, UnsupportedVersionError
from kafkalike.model.control_rows import kept_group_rows
from kafkalike.model.group_state import TRANSACTION, GroupRow, GroupsState, transaction_rows
from kafkalike.model.transactions.rules import plan_drop
from kafkalike.model.transactions.values import (
    Attempt,
    Committed,
    Entries,
    Part,
    StagedFile,
    Standing,
    Topic,
    Why,
    WriteName,
)

whole = st.integers(0, 2**40)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5).filter(
    lambda name: "/" not in name and name.strip(".") != ""
)


parts = st.builds(
    Part,
    topic=st.builds(Topic, names, names),
    counts=st.dictionaries(st.integers(0, 9), st.integers(1, 99), min_size=1, max_size=3),
    files=st.lists(st.builds(StagedFile, names, whole, whole), min_size=1, max_size=3).map(tuple),
    layout=names,
)


@st.composite
def standings(draw: st.DrawFn, seq: int = 9) -> Standing:
    why = draw(st.sampled_from(list(Why)))
    attempt = Attempt(draw(whole), draw(whole), draw(st.integers(1, 99)))
    committed = None
    name = draw(st.none() | st.builds(WriteName, names, whole))
    if why is Why.COMMIT:
        decided = tuple(draw(st.lists(parts, max_size=3)))
        at = draw(st.integers(1, seq))
        committed = Committed(
            attempt=attempt, seq=at, parts=decided, groups=tuple(draw(st.lists(names, max_size=2))), name=name
        )
    elif draw(st.booleans()):
        committed = Committed(
            attempt=Attempt(*draw(st.tuples(whole, whole, whole))), seq=draw(st.integers(1, seq - 1)), name=name
        )
    return Standing(
        producer_id=attempt.producer_id,
        epoch=attempt.epoch,
        number=attempt.number,
        why=why,
        timeout_ms=draw(whole),
        client_id=draw(names),
        changed_ms=5,
        committed=committed,
    )


def row(standing: Standing | None, seq: int = 9, name: str = "id") -> GroupRow:
    (made,) = transaction_rows(seq, Entries(transactional_id=name, standing=standing, now_ms=5))
    return made


@given(
    st.lists(st.one_of(st.integers(0, 30).map("{}.x".format), st.sampled_from(["01.x", "-1.x", "²3.x", "1.y", ".x"])))
)
def test_names_of_staged_files_are_kept(files: list[str]) -> None:
    """Most are written as numbers."""
    staged = tuple(StagedFile(name, 1, 2) for name in files)
    part = Part(topic=Topic("a", "x"), counts={0: 1}, files=staged)
    committed = Committed(attempt=Attempt(1, 2, 3), seq=9, parts=(part,))
    standing = replace(DECIDED, committed=committed, client_id="")

    assert GroupsState().applied([row(standing)]).transactions == {"id": standing}
    assert '"1.x"' not in row(standing).value


@given(standings())
def test_a_row_says_what_was_written(standing: Standing) -> None:
    assert GroupsState().applied([row(standing)]).transactions == {"id": standing}


def test_a_row_forgets_an_id() -> None:
    known = Standing(producer_id=1, epoch=0, why=Why.INIT, timeout_ms=1, changed_ms=5)

    assert GroupsState().applied([row(known, 1), row(None, 2)]).transactions == {}


DECIDED = Standing(
    producer_id=1,
    epoch=2,
    number=3,
    why=Why.COMMIT,
    timeout_ms=4,
    changed_ms=5,
    committed=Committed(
        attempt=Attempt(1, 2, 3),
        seq=9,
        parts=(Part(topic=Topic("a", "x"), counts={0: 1}, files=(StagedFile("0", 1, 2),)),),
        groups=("g",),
    ),
)


@given(st.data())
def test_a_damaged_row_is_refused_by_name(data: st.DataObject) -> None:
    """Whatever is put in the place of any value: read as something, or the one error that names the row."""
    value = json.loads(row(DECIDED).value)
    spot: Any = value
    while True:
        key = data.draw(st.sampled_from(list(spot) if isinstance(spot, dict) else list(range(len(spot)))))
        if not isinstance(spot[key], dict | list) or not spot[key] or data.draw(st.booleans()):
            break
        spot = spot[key]
    if data.draw(st.booleans()) and isinstance(spot, dict):
        del spot[key]
    else:
        spot[key] = data.draw(st.sampled_from([None, -1, 1.5, "", "x", [], {}, True, [1], "a/b"]))
    changed = replace(row(DECIDED), value=json.dumps(value))

    try:
        GroupsState().applied([changed])
    except LogCorruptError as error:
        assert "row 9 of __consumer_offsets" in str(error)  # noqa: PT017 - most values are refused


@pytest.mark.parametrize(
    "value",
    ['{"v":1}', '{"v":1,"why":"other"}', "[]", '{"v":1,"why":"commit","producer_id":1,"epoch":0,"number":0}', "{"],
)
def test_a_row_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(LogCorruptError, match="row 9 of __consumer_offsets"):
        GroupsState().applied([replace(row(DECIDED), value=value)])


def test_a_row_of_a_newer_format_stops_the_client() -> None:
    newer = json.loads(row(DECIDED).value) | {"v": 2}

    with pytest.raises(UnsupportedVersionError):
        GroupsState().applied([replace(row(DECIDED), value=json.dumps(newer))])


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 9)), max_size=12),
    st.integers(0, 10),
)
def test_compaction_keeps_the_last_row_of_each_id(said: list[tuple[str, bool, int]], since: int) -> None:
    init = Standing(producer_id=1, epoch=0, why=Why.INIT, timeout_ms=1, changed_ms=0)
    rows = [
        replace(row(replace(init, epoch=seq) if lives else None, seq, name), time_ms=at)
        for seq, (name, lives, at) in enumerate(said, start=1)
    ]
    kept = kept_group_rows(rows, since)

    assert GroupsState().applied(kept).transactions == GroupsState().applied(rows).transactions
    assert kept_group_rows(kept, since) == kept
    old = [r for r in kept if r.time_ms < since and r is not rows[-1]]
    assert len(old) == len({r.group_id for r in old})
    assert all(r.kind == TRANSACTION for r in kept)


def test_a_topic_is_taken_out_of_a_decision_that_keeps_its_place() -> None:
    state = GroupsState().applied([row(DECIDED), row(replace(DECIDED, why=Why.INIT, committed=None), 10, "other")])
    entries = plan_drop(state, "id", 9, "x", now_ms=7)
    assert entries is not None
    after = state.applied(transaction_rows(11, entries))

    unsettled = after.transactions["id"].unsettled
    assert unsettled is not None
    assert (unsettled.seq, unsettled.parts, unsettled.groups) == (9, (), ("g",))
    assert plan_drop(after, "id", 9, "x", now_ms=8) is None
