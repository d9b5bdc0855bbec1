"""Share exchanges as values: what they write, what a member reads off the state, and how they wait in a file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkalike.errors import InvalidRecordStateError
from kafkalike.log.share_exchange import ShareExchange, ShareSource, load_exchange
from kafkalike.model.group_state import GroupsState
from kafkalike.model.shares.share_partition import Acknowledgement, RecordVerdict, ShareLimits
from kafkalike.model.structs import TopicPartition

T0 = TopicPartition("jobs", 0)
SOURCE = ShareSource(T0, "id", 0, 100, 0)


def exchange(member: str, now_ms: int, *acks: Acknowledgement, **changes: Any) -> ShareExchange:
    usual: dict[str, Any] = {"sources": (SOURCE,), "most": 10, "limits": ShareLimits(lock_ms=100, deliveries=2)}
    return ShareExchange(
        group_id="work",
        member_id=member,
        acknowledgements={T0: acks} if acks else {},
        now_ms=now_ms,
        **{**usual, **changes},
    )


def done(state: GroupsState, wanted: ShareExchange) -> tuple[GroupsState, list[tuple[int, int, int]]]:
    after = state.applied(wanted(state))
    return after, [(run.first, run.last, run.deliveries) for run in wanted.taken(state, after).get(T0, ())]


def test_members_read_their_records_off_the_state_after_the_exchanges_of_others() -> None:
    one, two = exchange("a", 5), exchange("b", 5)
    before = GroupsState()
    middle = before.applied(one(before))
    after = middle.applied(two(middle))
    assert [(r.first, r.last) for r in one.taken(before, after)[T0]] == [(0, 9)]
    assert [(r.first, r.last) for r in two.taken(before, after)[T0]] == [(10, 19)]


def test_records_of_an_earlier_exchange_in_the_same_millisecond_are_not_taken_again() -> None:
    state, first = done(GroupsState(), exchange("a", 5))
    accepted = Acknowledgement(0, 4, RecordVerdict.ACCEPT, 1)
    state, second = done(state, exchange("a", 5, accepted))
    assert (first, second) == ([(0, 9, 1)], [(10, 19, 1)])


def test_returned_records_are_taken_again_with_the_same_deliveries() -> None:
    state, _ = done(GroupsState(), exchange("a", 5))
    back = Acknowledgement(6, 9, RecordVerdict.RETURN, 1)
    state, taken = done(state, exchange("a", 5, Acknowledgement(0, 5, RecordVerdict.ACCEPT, 1), back))
    assert taken == [(6, 15, 1)]
    assert state.shares["work"][T0].start == 6


def test_refused_acknowledgement_leaves_the_exchange_to_its_member() -> None:
    state, _ = done(GroupsState(), exchange("a", 5))
    wanted = exchange("b", 6, Acknowledgement(0, 4, RecordVerdict.ACCEPT))
    with pytest.raises(InvalidRecordStateError, match="not all records are as the member knew them"):
        wanted(state)
    result, rows = wanted.applied(state)
    assert (result.refused, len(rows)) == ({T0: (Acknowledgement(0, 4, RecordVerdict.ACCEPT),)}, 1)


def test_archived_records_leave_the_exchange_to_its_member() -> None:
    state = GroupsState()
    for now_ms in (0, 100):
        state, _ = done(state, exchange("a", now_ms))
    with pytest.raises(InvalidRecordStateError):
        exchange("a", 200)(state)


def test_exchange_survives_a_file() -> None:
    acks = (Acknowledgement(0, 4, RecordVerdict.RELEASE, 1, 77), Acknowledgement(5, 5, RecordVerdict.REJECT))
    wanted = exchange("a", 5, *acks, whole=True, sources=(SOURCE._replace(later=((3, 9, 50),)),))
    again = load_exchange(json.loads(json.dumps(wanted.dumped())))
    assert again == ShareExchange(**{**_fields(wanted), "acknowledgements": {T0: list(acks)}})


def _fields(wanted: ShareExchange) -> dict[str, Any]:
    return {name: getattr(wanted, name) for name in ShareExchange.__dataclass_fields__}


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        pytest.param(["acks", 0, 2, 0, 0], 9, id="range that ends before it begins"),
        pytest.param(["acks", 0, 2, 0, 2], "lose", id="unknown verdict"),
        pytest.param(["acks", 0, 1], -1, id="negative partition"),
        pytest.param(["limits"], [1, 2], id="missing limits"),
        pytest.param(["sources", 0, 3], 2**63, id="offset beyond 64 bits"),
        pytest.param(["most"], True, id="flag for a number"),
        pytest.param(["member"], None, id="no member"),
    ],
)
def test_damaged_file_is_rejected(place: list[Any], wrong: Any) -> None:
    found = json.loads(json.dumps(exchange("a", 5, Acknowledgement(0, 4, RecordVerdict.ACCEPT, 1)).dumped()))
    at = found
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = wrong
    with pytest.raises((ValueError, TypeError, LookupError)):
        load_exchange(found)
