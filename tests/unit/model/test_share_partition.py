"""Share partitions: the case list of Kafka's SharePartitionTest, as far as a broker is not part of the case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from kafkalike.errors import InvalidRecordStateError, LogCorruptError
from kafkalike.model.group_rows import GroupRow, share_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.maintenance.control_rows import kept_group_rows
from kafkalike.model.shares import share_partition as share
from kafkalike.model.shares.share_partition import Acknowledgement, RecordState, RecordVerdict, ShareLimits
from kafkalike.model.shares.share_runs import dump_share
from kafkalike.model.structs import ShareGroupMetadata, TopicPartition
from kafkalike.model.transactions.group_claims import acknowledged_shares
from kafkalike.model.transactions.transactional_id import ShareChange

ACCEPT, RELEASE, REJECT, RENEW = RecordVerdict.ACCEPT, RecordVerdict.RELEASE, RecordVerdict.REJECT, RecordVerdict.RENEW
NAMES = {state: state.name.lower() for state in RecordState}


@dataclass
class Case:
    """A share partition and what its members do; times in seconds, locks of 30 s."""

    state: share.SharePartition = field(default_factory=lambda: share.SharePartition("id"))
    log_end: int = 0
    log_start: int = 0
    now: int = 0
    limits: ShareLimits = field(default_factory=lambda: ShareLimits(deliveries=2))
    told: list[str] = field(default_factory=list)

    def at(self, seconds: int) -> Case:
        self.now = seconds * 1000
        return self

    def log(self, end: int, start: int = 0) -> Case:
        self.log_end, self.log_start = end, start
        return self

    def at_most(self, locks: int) -> Case:
        self.limits = replace(self.limits, locks=locks)
        return self

    def with_letters(self) -> Case:
        self.limits = replace(self.limits, archives=False)
        return self

    def take(self, member: str, most: int = 100) -> Case:
        done = share.acquire(
            self.state,
            member,
            most=most,
            now_ms=self.now,
            log_start=self.log_start,
            log_end=self.log_end,
            limits=self.limits,
        )
        self.state = done.after
        self.told.append(
            f"{member} got " + (", ".join(f"{r.first}-{r.last}x{r.deliveries}" for r in done.taken) or "nothing")
        )
        return self

    def ack(self, member: str, first: int, last: int, verdict: RecordVerdict, deliveries: int | None = None) -> Case:
        return self.acks(member, Acknowledgement(first, last, verdict, deliveries))

    def acks(self, member: str, *acks: Acknowledgement) -> Case:
        self.state, refused = share.acknowledge(self.state, member, acks, now_ms=self.now, limits=self.limits)
        self.told += [f"{member} refused {ack.first}-{ack.last}" for ack in refused]
        return self

    def leave(self, member: str) -> Case:
        self.state = share.release_member(self.state, member, self.limits)
        return self

    def move(self, log_start: int) -> Case:
        self.log_start = log_start
        self.state = share.advance(self.state, log_start)
        return self

    @property
    def shown(self) -> str:
        runs = [
            f"{r.first}-{r.last} {NAMES[r.state]}"
            + (f" {r.member_id}" if r.member_id else "")
            + (f" x{r.deliveries}" if r.deliveries else "")
            for r in self.state.runs
        ]
        return "; ".join([*self.told, f"start {self.state.start}", *runs])


def case() -> Case:
    return Case()


CASES: dict[str, tuple[Callable[[], Case], str]] = {
    # acquire
    "single record": (lambda: case().log(1).take("a"), "a got 0-0x1; start 0; 0-0 acquired a x1"),
    "many records": (lambda: case().log(9).take("a"), "a got 0-8x1; start 0; 0-8 acquired a x1"),
    "at most the asked number": (lambda: case().log(9).take("a", 4), "a got 0-3x1; start 0; 0-3 acquired a x1"),
    "empty log": (lambda: case().take("a"), "a got nothing; start 0"),
    "acquired records are not acquired again": (
        lambda: case().log(5).take("a").take("b"),
        "a got 0-4x1; b got nothing; start 0; 0-4 acquired a x1",
    ),
    "overlap and a new batch": (
        lambda: case().log(5).take("a").log(8).take("b"),
        "a got 0-4x1; b got 5-7x1; start 0; 0-4 acquired a x1; 5-7 acquired b x1",
    ),
    "log that starts later": (lambda: case().log(9, 4).take("a"), "a got 4-8x1; start 4; 4-8 acquired a x1"),
    "limit of locks": (
        lambda: case().at_most(3).log(9).take("a").take("b"),
        "a got 0-2x1; b got nothing; start 0; 0-2 acquired a x1",
    ),
    "limit of locks after an acknowledgement": (
        lambda: case().at_most(3).log(9).take("a").ack("a", 0, 0, ACCEPT).take("b"),
        "a got 0-2x1; b got 3-3x1; start 1; 1-2 acquired a x1; 3-3 acquired b x1",
    ),
    "limit of locks after a release": (
        lambda: case().at_most(3).log(9).take("a").ack("a", 0, 2, RELEASE).take("b"),
        "a got 0-2x1; b got 0-2x2; start 0; 0-2 acquired b x2",
    ),
    "limit of locks after a rejection": (
        lambda: case().at_most(3).log(9).take("a").ack("a", 0, 2, REJECT).take("b"),
        "a got 0-2x1; b got 3-5x1; start 3; 3-5 acquired b x1",
    ),
    "released records": (
        lambda: case().log(5).take("a").ack("a", 1, 2, RELEASE).take("b"),
        "a got 0-4x1; b got 1-2x2; start 0; 0-0 acquired a x1; 1-2 acquired b x2; 3-4 acquired a x1",
    ),
    "released records of several batches, then new ones": (
        lambda: case().log(9).take("a", 6).ack("a", 0, 0, RELEASE).ack("a", 4, 5, RELEASE).take("b", 4),
        (
            "a got 0-5x1; b got 0-0x2, 4-5x2, 6-6x1; "
            "start 0; 0-0 acquired b x2; 1-3 acquired a x1; 4-5 acquired b x2; 6-6 acquired b x1"
        ),
    ),
    "part of a released run": (
        lambda: case().log(5).take("a").ack("a", 0, 4, RELEASE).take("b", 2),
        "a got 0-4x1; b got 0-1x2; start 0; 0-1 acquired b x2; 2-4 available x1",
    ),
    # acknowledge
    "one record is accepted": (
        lambda: case().log(1).take("a").ack("a", 0, 0, ACCEPT),
        "a got 0-0x1; start 1",
    ),
    "a batch is accepted": (lambda: case().log(9).take("a").ack("a", 0, 8, ACCEPT), "a got 0-8x1; start 9"),
    "the beginning of a batch": (
        lambda: case().log(9).take("a").ack("a", 0, 2, ACCEPT),
        "a got 0-8x1; start 3; 3-8 acquired a x1",
    ),
    "the middle of a batch": (
        lambda: case().log(9).take("a").ack("a", 3, 4, ACCEPT),
        "a got 0-8x1; start 0; 0-2 acquired a x1; 3-4 acknowledged; 5-8 acquired a x1",
    ),
    "the rest, after the middle": (
        lambda: case().log(9).take("a").ack("a", 3, 4, ACCEPT).ack("a", 0, 2, ACCEPT),
        "a got 0-8x1; start 5; 5-8 acquired a x1",
    ),
    "all three verdicts at once": (
        lambda: (
            case()
            .log(6)
            .take("a")
            .acks("a", Acknowledgement(0, 1, RELEASE), Acknowledgement(2, 3, ACCEPT), Acknowledgement(4, 5, REJECT))
        ),
        "a got 0-5x1; start 0; 0-1 available x1; 2-3 acknowledged; 4-5 archived",
    ),
    "gaps of compaction are archived": (
        lambda: case().log(6).take("a").acks("a", Acknowledgement(0, 2, REJECT), Acknowledgement(3, 5, ACCEPT)),
        "a got 0-5x1; start 6",
    ),
    "beyond the end": (
        lambda: case().log(3).take("a").ack("a", 2, 5, ACCEPT),
        "a got 0-2x1; a refused 3-5; start 0; 0-1 acquired a x1; 2-2 acknowledged",
    ),
    "below the start": (
        lambda: case().log(9, 4).take("a").ack("a", 1, 5, ACCEPT),
        "a got 4-8x1; a refused 1-3; start 6; 6-8 acquired a x1",
    ),
    "nothing was delivered": (lambda: case().ack("a", 0, 1, ACCEPT), "a refused 0-1; start 0"),
    "another member": (
        lambda: case().log(3).take("a").ack("b", 0, 2, ACCEPT),
        "a got 0-2x1; b refused 0-2; start 0; 0-2 acquired a x1",
    ),
    "another member's part of a batch": (
        lambda: case().log(6).take("a", 3).take("b").ack("a", 0, 5, ACCEPT),
        "a got 0-2x1; b got 3-5x1; a refused 3-5; start 3; 3-5 acquired b x1",
    ),
    "released record": (
        lambda: case().log(2).take("a").ack("a", 0, 1, RELEASE).ack("a", 0, 1, ACCEPT),
        "a got 0-1x1; a refused 0-1; start 0; 0-1 available x1",
    ),
    "accepted record": (
        lambda: case().log(3).take("a").ack("a", 1, 1, ACCEPT).ack("a", 1, 1, REJECT),
        "a got 0-2x1; a refused 1-1; start 0; 0-0 acquired a x1; 1-1 acknowledged; 2-2 acquired a x1",
    ),
    "earlier delivery to the same member": (
        lambda: case().log(2).take("a").ack("a", 0, 1, RELEASE, 1).take("a").ack("a", 0, 1, ACCEPT, 1),
        "a got 0-1x1; a got 0-1x2; a refused 0-1; start 0; 0-1 acquired a x2",
    ),
    "the same range twice": (
        lambda: case().log(2).take("a").acks("a", Acknowledgement(0, 1, ACCEPT), Acknowledgement(1, 1, RELEASE)),
        "a got 0-1x1; a refused 1-1; start 2",
    ),
    "no acknowledgements": (lambda: case().log(2).take("a").acks("a"), "a got 0-1x1; start 0; 0-1 acquired a x1"),
    # locks
    "lock ends": (
        lambda: case().log(2).take("a").at(30).take("b"),
        "a got 0-1x1; b got 0-1x2; start 0; 0-1 acquired b x2",
    ),
    "lock has not ended": (
        lambda: case().log(2).take("a").at(29).take("b"),
        "a got 0-1x1; b got nothing; start 0; 0-1 acquired a x1",
    ),
    "late acknowledgement of a record that nobody has taken": (
        lambda: case().log(2).take("a").at(99).ack("a", 0, 1, ACCEPT),
        "a got 0-1x1; start 2",
    ),
    "late acknowledgement of a record that another member has": (
        lambda: case().log(2).take("a").at(30).take("b").ack("a", 0, 1, ACCEPT),
        "a got 0-1x1; b got 0-1x2; a refused 0-1; start 0; 0-1 acquired b x2",
    ),
    "renewal": (
        lambda: case().log(2).take("a").at(20).ack("a", 0, 0, RENEW).at(40).take("b"),
        "a got 0-1x1; b got 1-1x2; start 0; 0-0 acquired a x1; 1-1 acquired b x2",
    ),
    "renewal by another member": (
        lambda: case().log(1).take("a").at(20).ack("b", 0, 0, RENEW).at(40).take("b"),
        "a got 0-0x1; b refused 0-0; b got 0-0x2; start 0; 0-0 acquired b x2",
    ),
    "lock after different verdicts": (
        lambda: case().log(6).take("a").ack("a", 1, 1, ACCEPT).ack("a", 4, 4, REJECT).at(30).take("b"),
        (
            "a got 0-5x1; b got 0-0x2, 2-3x2, 5-5x2; start 0; 0-0 acquired b x2; 1-1 acknowledged; "
            "2-3 acquired b x2; 4-4 archived; 5-5 acquired b x2"
        ),
    ),
    "lock ends in the last delivery": (
        lambda: case().log(4).take("a", 2).at(30).take("a", 2).at(60).take("b", 2),
        "a got 0-1x1; a got 0-1x2; b got 2-3x1; start 2; 2-3 acquired b x1",
    ),
    # limit of deliveries
    "last delivery is released": (
        lambda: case().log(2).take("a").ack("a", 0, 1, RELEASE).take("a").ack("a", 0, 1, RELEASE),
        "a got 0-1x1; a got 0-1x2; start 2",
    ),
    "last delivery of a part": (
        lambda: case().log(3).take("a").ack("a", 0, 1, RELEASE).take("b").ack("b", 1, 1, RELEASE),
        "a got 0-2x1; b got 0-1x2; start 0; 0-0 acquired b x2; 1-1 archived; 2-2 acquired a x1",
    ),
    "last delivery is accepted": (
        lambda: case().log(2).take("a").ack("a", 0, 1, RELEASE).take("a").ack("a", 0, 1, ACCEPT, 2),
        "a got 0-1x1; a got 0-1x2; start 2",
    ),
    "last delivery of a group with dead letters": (
        lambda: case().with_letters().log(1).take("a").ack("a", 0, 0, RELEASE).take("a").ack("a", 0, 0, RELEASE),
        "a got 0-0x1; a got 0-0x2; start 0; 0-0 available x2",
    ),
    "delivery for the dead letter": (
        lambda: case().with_letters().log(1).take("a").at(30).take("a").at(60).take("b").ack("b", 0, 0, REJECT),
        "a got 0-0x1; a got 0-0x2; b got 0-0x3; start 1",
    ),
    # members that leave
    "member leaves": (
        lambda: case().log(4).take("a", 2).take("b").leave("a"),
        "a got 0-1x1; b got 2-3x1; start 0; 0-1 available x1; 2-3 acquired b x1",
    ),
    "member leaves after different verdicts": (
        lambda: case().log(4).take("a").ack("a", 1, 1, ACCEPT).ack("a", 2, 2, RELEASE).leave("a"),
        "a got 0-3x1; start 0; 0-0 available x1; 1-1 acknowledged; 2-3 available x1",
    ),
    "member leaves in the last delivery": (
        lambda: case().log(2).take("a").leave("a").take("a").leave("a"),
        "a got 0-1x1; a got 0-1x2; start 2",
    ),
    "member without records leaves": (lambda: case().leave("a"), "start 0"),
    "record that never reached the application": (
        lambda: case().log(1).take("a").ack("a", 0, 0, RecordVerdict.RETURN).take("a"),
        "a got 0-0x1; a got 0-0x1; start 0; 0-0 acquired a x1",
    ),
    # retention
    "log start passes whole batches": (
        lambda: case().log(9).take("a", 3).take("b", 3).move(3),
        "a got 0-2x1; b got 3-5x1; start 3; 3-5 acquired b x1",
    ),
    "log start in a batch": (
        lambda: case().log(9).take("a").move(4),
        "a got 0-8x1; start 4; 4-8 acquired a x1",
    ),
    "log start before finished records": (
        lambda: case().log(9).take("a").ack("a", 4, 6, ACCEPT).move(4),
        "a got 0-8x1; start 7; 7-8 acquired a x1",
    ),
    "log start at the end": (lambda: case().log(9).take("a").move(9), "a got 0-8x1; start 9"),
    "log start beyond the end": (
        lambda: case().log(9).take("a", 3).log(20).move(12).take("b", 2),
        "a got 0-2x1; b got 12-13x1; start 12; 12-13 acquired b x1",
    ),
    "acknowledgement after the log start moved": (
        lambda: case().log(9).take("a").move(4).ack("a", 0, 5, ACCEPT),
        "a got 0-8x1; a refused 0-3; start 6; 6-8 acquired a x1",
    ),
    "lock ends after the log start moved": (
        lambda: case().log(5).take("a").move(2).at(30).take("b"),
        "a got 0-4x1; b got 2-4x2; start 2; 2-4 acquired b x2",
    ),
    "member leaves after the log start moved": (
        lambda: case().log(5).take("a").move(2).leave("a"),
        "a got 0-4x1; start 2; 2-4 available x1",
    ),
    "log start does not move back": (lambda: case().move(5).move(3), "start 5"),
    "log end moved back": (
        lambda: case().log(9).take("a").log(4).take("b"),
        "a got 0-8x1; b got nothing; start 0; 0-8 acquired a x1",
    ),
    # scheduled records
    "scheduled record is not due": (
        lambda: (
            case().log(3).take("a").acks("a", Acknowledgement(1, 1, RecordVerdict.RETURN, 1, 50_000)).at(49).take("b")
        ),
        "a got 0-2x1; b got 0-0x2, 2-2x2; start 0; 0-0 acquired b x2; 1-1 available; 2-2 acquired b x2",
    ),
    "scheduled record is due": (
        lambda: (
            case().log(1).take("a").acks("a", Acknowledgement(0, 0, RecordVerdict.RETURN, 1, 50_000)).at(50).take("b")
        ),
        "a got 0-0x1; b got 0-0x1; start 0; 0-0 acquired b x1",
    ),
    "release with a delay": (
        lambda: case().log(1).take("a").acks("a", Acknowledgement(0, 0, RELEASE, 1, 5_000)).take("b").at(5).take("b"),
        "a got 0-0x1; b got nothing; b got 0-0x2; start 0; 0-0 acquired b x2",
    ),
}


@pytest.mark.parametrize(("history", "shown"), CASES.values(), ids=CASES)
def test_history_has_its_state(history: Callable[[], Case], shown: str) -> None:
    assert history().shown == shown


def test_million_locked_records_are_one_run() -> None:
    limits = ShareLimits(locks=2_000_000)
    done = share.acquire(
        share.SharePartition("id"), "a", most=10**6, now_ms=5, log_start=0, log_end=10**7, limits=limits
    )
    text = dump_share(done.after)
    assert text == '{"v":1,"start":0,"members":["a"],"runs":[[1000000,1,1,0,5,30005]]}'


def test_fragmented_partition_stops_taking_new_records() -> None:
    runs = tuple(share.RecordRun(n, n, RecordState.AVAILABLE, n % 2, until_ms=10**9) for n in range(share.MAX_RUNS))
    state = share.SharePartition("id", 0, runs)
    assert not share.has_ready(state, now_ms=0, log_end=10**6, limits=ShareLimits())
    done = share.acquire(state, "a", most=1, now_ms=0, log_start=0, log_end=10**6, limits=ShareLimits())
    assert done.after is state


DAMAGED = {
    "no start": '{"v":1,"members":[],"runs":[]}',
    "empty run": '{"v":1,"start":0,"members":[],"runs":[[0,0,1]]}',
    "unknown state": '{"v":1,"start":0,"members":[],"runs":[[1,3]]}',
    "unknown member": '{"v":1,"start":0,"members":[],"runs":[[1,1,1,0,5,9]]}',
    "negative time": '{"v":1,"start":0,"members":["a"],"runs":[[1,1,1,0,-5,9]]}',
    "finished first": '{"v":1,"start":0,"members":[],"runs":[[1,2]]}',
    "runs that should be one": '{"v":1,"start":0,"members":[],"runs":[[1,0,1],[1,0,1]]}',
    "beyond all offsets": '{"v":1,"start":9223372036854775807,"members":[],"runs":[[9,0,1]]}',
    "no list": '{"v":1,"start":0,"members":{},"runs":[]}',
}


@pytest.mark.parametrize("value", DAMAGED.values(), ids=DAMAGED)
def test_damaged_row_is_refused(value: str) -> None:
    row = GroupRow(
        seq=1, kind="share", group_id="g", topic="t", topic_id="i", partition=0, offset=0, value=value, time_ms=0
    )
    with pytest.raises(LogCorruptError, match="row 1 of __consumer_offsets, kind 'share'"):
        GroupsState().applied([row])


def test_rows_of_a_share_group_make_its_state() -> None:
    one, other = TopicPartition("t", 0), TopicPartition("t", 1)
    state = case().log(9).take("a", 4).ack("a", 1, 2, ACCEPT).state
    rows = [
        share_row(1, "g", one, share.SharePartition("id", 7), now_ms=5),
        share_row(2, "g", other, share.SharePartition("id", 8), now_ms=5),
        share_row(3, "g", one, state, now_ms=6),
        share_row(4, "g", other, None, now_ms=7),
        share_row(5, "h", one, share.SharePartition("id", 3), now_ms=7),
        share_row(6, "h", one, None, now_ms=8),
    ]
    known = GroupsState().applied(rows)
    assert {group: dict(shares) for group, shares in known.shares.items()} == {"g": {one: state}}
    assert known.share_groups == ["g"]
    assert not known.consumer_groups
    assert (rows[2].offset, rows[2].topic_id) == (0, "id")
    kept = kept_group_rows(rows, since_ms=100)
    assert [row.seq for row in kept] == [3, 6]
    assert GroupsState().applied(kept) == known


def test_a_member_that_leaves_gives_back_its_own_locks_alone() -> None:
    limits = share.ShareLimits()
    state = share.SharePartition("id")
    for member in "ab":
        state = share.acquire(state, member, most=2, now_ms=0, log_start=0, log_end=9, limits=limits).after

    left = share.release_member(state, "a", limits)

    assert [(r.first, r.last, r.state, r.deliveries) for r in left.runs] == [
        (0, 1, RecordState.AVAILABLE, 1),
        (2, 3, RecordState.ACQUIRED, 1),
    ]
    assert [(r.first, r.last) for r in share.owned(left, "b")] == [(2, 3)]
    assert share.owned(left, "a") == []


def test_verdicts_are_applied_by_partition_and_refused_ones_come_back() -> None:
    limits, here, away = share.ShareLimits(), TopicPartition("t", 0), TopicPartition("t", 1)
    state = share.acquire(
        share.SharePartition("id"), "a", most=2, now_ms=0, log_start=0, log_end=9, limits=limits
    ).after
    good, bad = Acknowledgement(0, 1, ACCEPT), Acknowledgement(7, 7, ACCEPT)

    done = share.acknowledge_all({here: state}, "a", {away: [good], here: [good, bad]}, now_ms=5, limits=limits)

    assert done == ({here: share.SharePartition("id", 2)}, {away: [good], here: (bad,)})
    assert share.acknowledge_all({here: state}, "a", {here: [bad]}, now_ms=5, limits=limits) == ({}, {here: (bad,)})


def test_members_that_acknowledge_in_one_transaction_change_a_partition_once() -> None:
    """Each verdict counts; one about a record that its member has lost refuses the transaction."""
    limits, tp = share.ShareLimits(), TopicPartition("t", 0)
    state = share.SharePartition("id")
    for member in "ab":
        state = share.acquire(state, member, most=2, now_ms=0, log_start=0, log_end=9, limits=limits).after
    groups = GroupsState().applied([share_row(1, "g", tp, state, now_ms=0)])
    first, second = ShareGroupMetadata("g", "a"), ShareGroupMetadata("g", "b")

    both = {first: {tp: [Acknowledgement(0, 1, ACCEPT)]}, second: {tp: [Acknowledgement(2, 3, ACCEPT)]}}
    assert acknowledged_shares(groups, both, 5) == (ShareChange("g", tp, share.SharePartition("id", 4), "b"),)

    lost = {second: {tp: [Acknowledgement(0, 1, ACCEPT)]}}
    with pytest.raises(InvalidRecordStateError, match="'g': t-0 @ 0-1: the lock of 'b' has ended"):
        acknowledged_shares(groups, lost, 5)


# --- scheduled records ------------------------------------------------------------------------------


def test_ranges_that_are_not_due_are_passed_over_without_locks() -> None:
    later = ((2, 4, 500), (5, 6, 900), (8, 9, 10))
    limits = share.ShareLimits()
    before = share.SharePartition("id")
    found = share.acquire(before, "a", most=4, now_ms=100, log_start=0, log_end=20, limits=limits, later=later)
    assert [(r.first, r.last) for r in found.taken] == [(0, 1), (7, 7), (8, 8)]
    scheduled = [(r.first, r.last, r.until_ms) for r in found.after.runs if share.is_deferred(r)]
    assert scheduled == [(2, 4, 500), (5, 6, 900)]
    assert found.after.in_flight == 4
    assert share.next_change_ms(found.after, 100) == 500


def test_thousands_of_scheduled_times_need_few_runs_and_none_is_missed() -> None:
    limits = share.ShareLimits()
    state = share.SharePartition("id")
    due = [1_000 + (n * 7919) % 100_003 for n in range(5_000)]
    for first in range(0, 5_000, 500):
        state = share.acquire(state, "a", most=500, now_ms=0, log_start=0, log_end=5_000, limits=limits).after
        acks = [share.Acknowledgement(n, n, share.RecordVerdict.RETURN, 1, due[n]) for n in range(first, first + 500)]
        state, refused = share.acknowledge(state, "a", acks, now_ms=0, limits=limits)
        assert refused == ()
        assert len(state.runs) <= share.MAX_SCHEDULED_RUNS
    assert [state.start, state.end] == [0, 5_000]
    for run in state.runs:
        times = due[run.first : run.last + 1]
        assert run.until_ms == min(times)
        assert run.deliveries == 0


def scheduled(due: list[int], others: int = 0) -> share.SharePartition:
    """A partition whose first records are scheduled for these times, and others, far apart, that were delivered."""
    limits, count = share.ShareLimits(), len(due) + 2 * others
    state = share.acquire(
        share.SharePartition("id"), "a", most=count, now_ms=0, log_start=0, log_end=count, limits=limits
    ).after
    returned = [Acknowledgement(n, n, RecordVerdict.RETURN, 1, at) for n, at in enumerate(due)]
    released = [Acknowledgement(n, n, RELEASE, 1, 7 + n) for n in range(len(due), count, 2)]
    state, refused = share.acknowledge(state, "a", [*returned, *released], now_ms=0, limits=limits)
    assert refused == ()
    return state


def test_more_than_a_thousand_scheduled_times_are_merged_to_half_as_many() -> None:
    """Of three each, as 500 runs may be left; beside 200 other runs, which stay as they are, of four."""
    alone = scheduled([1_000 + n for n in range(1_001)])
    assert [(r.first, r.last, r.until_ms) for r in alone.runs] == [
        (n, min(n + 2, 1_000), 1_000 + n) for n in range(0, 1_001, 3)
    ]
    assert len(scheduled([1_000 + n for n in range(1_000)]).runs) == 1_000

    beside = scheduled([1_000 + n for n in range(901)], others=100)
    assert [(r.first, r.last) for r in beside.runs[:226]] == [(n, min(n + 3, 900)) for n in range(0, 901, 4)]
    assert len(beside.runs) == 226 + 200


def test_scheduled_runs_that_are_equal_once_they_are_merged_are_one_run_and_can_be_read_again() -> None:
    """A row with equal neighbors would count as damaged, and the group could not be opened any more."""
    state = scheduled([5 + n % 3 for n in range(1_001)])
    assert [(r.first, r.last, r.until_ms) for r in state.runs] == [(0, 1_000, 5)]
    place = TopicPartition("jobs", 0)

    for one in (state, scheduled([50 + n * 7919 % 13 for n in range(3_000)])):
        row = share_row(1, "work", place, one, now_ms=0)
        assert GroupsState().applied([row]).shares["work"][place] == one


def test_released_records_keep_their_own_times_beside_many_runs() -> None:
    limits = share.ShareLimits()
    state = share.acquire(
        share.SharePartition("id"), "a", most=3_000, now_ms=0, log_start=0, log_end=3_000, limits=limits
    ).after
    acks = [share.Acknowledgement(n, n, share.RecordVerdict.RELEASE, 1, 1_000 + n) for n in range(3_000)]
    state, _ = share.acknowledge(state, "a", acks, now_ms=0, limits=limits)
    assert [(r.first, r.until_ms) for r in state.runs] == [(n, 1_000 + n) for n in range(3_000)]


def test_only_the_newest_row_of_a_partition_is_parsed() -> None:
    """A new client reads the rows of a whole day."""
    place = TopicPartition("jobs", 0)
    older = [replace(share_row(n, "work", place, None, now_ms=0), offset=0, value="old") for n in range(1, 1000)]
    newest = share_row(1000, "work", place, share.SharePartition("id", 7), now_ms=0)

    assert GroupsState().applied([*older, newest]).shares["work"][place] == share.SharePartition("id", 7)
    with pytest.raises(LogCorruptError):
        GroupsState().applied(older)
