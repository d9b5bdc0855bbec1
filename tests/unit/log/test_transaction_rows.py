"""Rows of transactions: what was written is read, what is damaged is refused, and compaction keeps what counts."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import LogCorruptError, UnsupportedVersionError
from kafkalike.model.group_rows import TRANSACTION, GroupRow, transaction_rows
from kafkalike.model.group_state import GroupsState
from kafkalike.model.maintenance.control_rows import kept_group_rows
from kafkalike.model.transactions.rules import plan_drop
from kafkalike.model.transactions.transactional_id import (
    CommittedTransaction,
    Entries,
    StagedFile,
    TopicLife,
    TransactionalIdState,
    TransactionAttempt,
    TransactionPart,
    Why,
    WriteName,
)

whole = st.integers(0, 2**40)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5).filter(
    lambda name: "/" not in name and name.strip(".") != ""
)


parts = st.builds(
    TransactionPart,
    topic=st.builds(TopicLife, names, names),
    counts=st.dictionaries(st.integers(0, 9), st.integers(1, 99), min_size=1, max_size=3),
    files=st.lists(st.builds(StagedFile, names, whole, whole), min_size=1, max_size=3).map(tuple),
    layout=names,
)


@st.composite
def standings(draw: st.DrawFn, seq: int = 9) -> TransactionalIdState:
    why = draw(st.sampled_from(list(Why)))
    attempt = TransactionAttempt(draw(whole), draw(whole), draw(st.integers(1, 99)))
    committed = None
    name = draw(st.none() | st.builds(WriteName, names, whole))
    if why is Why.COMMIT:
        decided = tuple(draw(st.lists(parts, max_size=3)))
        at = draw(st.integers(1, seq))
        committed = CommittedTransaction(
            attempt=attempt, seq=at, parts=decided, groups=tuple(draw(st.lists(names, max_size=2))), name=name
        )
    elif draw(st.booleans()):
        committed = CommittedTransaction(
            attempt=TransactionAttempt(*draw(st.tuples(whole, whole, whole))),
            seq=draw(st.integers(1, seq - 1)),
            name=name,
        )
    return TransactionalIdState(
        producer_id=attempt.producer_id,
        epoch=attempt.epoch,
        number=attempt.number,
        why=why,
        timeout_ms=draw(whole),
        client_id=draw(names),
        changed_ms=5,
        committed=committed,
    )


def row(standing: TransactionalIdState | None, seq: int = 9, name: str = "id") -> GroupRow:
    (made,) = transaction_rows(seq, Entries(transactional_id=name, standing=standing, now_ms=5))
    return made


@given(
    st.lists(st.one_of(st.integers(0, 30).map("{}.x".format), st.sampled_from(["01.x", "-1.x", "²3.x", "1.y", ".x"])))
)
def test_names_of_staged_files_are_kept(files: list[str]) -> None:
    """Most are written as numbers."""
    staged = tuple(StagedFile(name, 1, 2) for name in files)
    part = TransactionPart(topic=TopicLife("a", "x"), counts={0: 1}, files=staged)
    committed = CommittedTransaction(attempt=TransactionAttempt(1, 2, 3), seq=9, parts=(part,))
    standing = replace(DECIDED, committed=committed, client_id="")

    assert GroupsState().applied([row(standing)]).transactions == {"id": standing}
    assert '"1.x"' not in row(standing).value


@given(standings())
def test_a_row_says_what_was_written(standing: TransactionalIdState) -> None:
    assert GroupsState().applied([row(standing)]).transactions == {"id": standing}


def test_a_row_forgets_an_id() -> None:
    known = TransactionalIdState(producer_id=1, epoch=0, why=Why.INIT, timeout_ms=1, changed_ms=5)

    assert GroupsState().applied([row(known, 1), row(None, 2)]).transactions == {}


DECIDED = TransactionalIdState(
    producer_id=1,
    epoch=2,
    number=3,
    why=Why.COMMIT,
    timeout_ms=4,
    changed_ms=5,
    committed=CommittedTransaction(
        attempt=TransactionAttempt(1, 2, 3),
        seq=9,
        parts=(TransactionPart(topic=TopicLife("a", "x"), counts={0: 1}, files=(StagedFile("0", 1, 2),)),),
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


ABORTED = replace(
    DECIDED,
    why=Why.ABORT,
    committed=CommittedTransaction(attempt=TransactionAttempt(1, 2, 1), seq=8, name=WriteName("app", 4)),
)


def test_what_stands_in_a_row_is_short() -> None:
    """The form that later releases have to read."""
    assert row(DECIDED).value == (
        '{"v":1,"why":"commit","producer_id":1,"epoch":2,"number":3,"timeout_ms":4,"parts":[{"topic":"a","id":"x",'
        '"layout":"batches","counts":{"0":1},"files":[["0",1,2]]}],"groups":["g"]}'
    )
    assert row(DECIDED, 11).value.endswith(',"groups":["g"],"seq":9}')
    assert row(ABORTED).value == (
        '{"v":1,"why":"abort","producer_id":1,"epoch":2,"number":3,"timeout_ms":4,"name":["app",4],'
        '"committed":[1,2,1,8]}'
    )
    assert row(None).value == '{"v":1,"why":"dead"}'


@pytest.mark.parametrize(
    ("standing", "place", "value", "why"),
    [
        (ABORTED, ["committed", 3], 9, "'committed' names row 9, which does not come before it"),
        (ABORTED, ["committed", 3], -1, "'committed' is -1, not a whole number from 0"),
        (ABORTED, ["committed"], {}, "'committed' is dict, not a list"),
        (ABORTED, ["name"], "app", "'name' is str, not a list"),
        (ABORTED, ["name", 0], 5, "'name' is 5, not a text"),
        (ABORTED, ["name", 1], -1, "'name' is -1, not a whole number from 0"),
        (ABORTED, ["why"], None, "'why' is None, not a text"),
        (ABORTED, ["timeout_ms"], "4", "'timeout_ms' is '4', not a whole number from 0"),
        (ABORTED, ["epoch"], -1, "'epoch' is -1, not a whole number from 0"),
        (ABORTED, ["producer_id"], True, "'producer_id' is True, not a whole number from 0"),
        (DECIDED, ["number"], 0, "'number' is 0, not a whole number from 1"),
        (DECIDED, ["parts"], {}, "'parts' is dict, not a list"),
        (DECIDED, ["groups"], "g", "'groups' is str, not a list"),
        (DECIDED, ["groups", 0], 1, "'groups' is 1, not a text"),
        (DECIDED, ["seq"], -1, "'seq' is -1, not a whole number from 0"),
        (DECIDED, ["parts", 0, "topic"], 1, "'topic' is 1, not a text"),
        (DECIDED, ["parts", 0, "id"], 1, "'id' is 1, not a text"),
        (DECIDED, ["parts", 0, "layout"], 1, "'layout' is 1, not a text"),
        (DECIDED, ["parts", 0, "counts", "0"], 0, "'counts' is 0, not a whole number from 1"),
        (DECIDED, ["parts", 0, "counts", "-1"], 1, "'counts' is -1, not a whole number from 0"),
        (DECIDED, ["parts", 0, "files"], "0", "'files' is str, not a list"),
        (DECIDED, ["parts", 0, "files", 0], "0", "'files' is str, not a list"),
        (DECIDED, ["parts", 0, "files", 0, 0], -1, "'files' is -1, not a whole number from 0"),
        (DECIDED, ["parts", 0, "files", 0, 0], None, "'files' is None, not a text"),
        (DECIDED, ["parts", 0, "files", 0, 0], "a/b", "'a/b' is not a file of the transaction's folder"),
        (DECIDED, ["parts", 0, "files", 0, 0], "..", "'..' is not a file of the transaction's folder"),
        (DECIDED, ["parts", 0, "files", 0, 1], -1, "'files' is -1, not a whole number from 0"),
        (DECIDED, ["parts", 0, "files", 0, 2], 1.5, "'files' is 1.5, not a whole number from 0"),
    ],
)
def test_each_value_of_a_row_is_checked(
    standing: TransactionalIdState, place: list[str | int], value: object, why: str
) -> None:
    whole_value = json.loads(row(standing).value)
    spot: Any = whole_value
    for step in place[:-1]:
        spot = spot[step]
    spot[place[-1]] = value

    with pytest.raises(LogCorruptError) as raised:
        GroupsState().applied([replace(row(standing), value=json.dumps(whole_value))])

    assert str(raised.value).startswith("row 9 of __consumer_offsets, kind 'transaction', cannot be read: ")
    assert why in str(raised.value)


def test_a_number_stands_for_a_file_of_its_topic() -> None:
    staged = tuple(StagedFile(name, 1, 2) for name in ("0.x", "12.x", "01.x", "1.y", "x"))
    part = TransactionPart(topic=TopicLife("a", "x"), counts={0: 1}, files=staged)
    dotted = part._replace(topic=TopicLife("a", "x.y"), files=(StagedFile("1.x.y", 1, 2), StagedFile("X", 1, 2)))
    decided = CommittedTransaction(attempt=TransactionAttempt(1, 2, 3), seq=9, parts=(part,))
    value = json.loads(row(replace(DECIDED, committed=decided)).value)

    assert [name for name, _, _ in value["parts"][0]["files"]] == [0, 12, "01.x", "1.y", "x"]
    standing = replace(DECIDED, committed=replace(decided, parts=(dotted,)))
    assert [name for name, _, _ in json.loads(row(standing).value)["parts"][0]["files"]] == [1, "X"]
    assert GroupsState().applied([row(standing)]).transactions["id"].unsettled == standing.committed


def test_a_place_of_a_decision_is_never_after_its_row() -> None:
    """Whatever a damaged row says."""
    value = json.loads(row(DECIDED).value) | {"seq": 12}

    known = GroupsState().applied([replace(row(DECIDED), value=json.dumps(value))]).transactions["id"].unsettled

    assert known is not None
    assert known.seq == 9


def test_a_row_of_a_newer_format_stops_the_client() -> None:
    newer = json.loads(row(DECIDED).value) | {"v": 2}

    with pytest.raises(UnsupportedVersionError):
        GroupsState().applied([replace(row(DECIDED), value=json.dumps(newer))])


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 9)), max_size=12),
    st.integers(0, 10),
)
def test_compaction_keeps_the_last_row_of_each_id(said: list[tuple[str, bool, int]], since: int) -> None:
    init = TransactionalIdState(producer_id=1, epoch=0, why=Why.INIT, timeout_ms=1, changed_ms=0)
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
