"""Changes of groups by several processes where there are no locks: they write for each other; nothing is lost or torn.

Real clusters and tables, over a store in memory that loses answers and lets others act between any two requests.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafkalike.admin.testing import MemoryCluster
from kafkalike.delta.damage import sealed
from kafkalike.delta.group_commit import control_group_commit as combined_rows
from kafkalike.delta.group_commit import staging_area as appends
from kafkalike.delta.group_commit import staging_area as waiting_files
from kafkalike.delta.group_commit.control_group_commit import PendingChange, SharedChanges
from kafkalike.delta.group_commit.group_commit import GroupCommit
from kafkalike.delta.layout import CONSUMER_OFFSETS
from kafkalike.errors import (
    CommitFailedError,
    IllegalArgumentError,
    KafkaError,
    KafkaStorageError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    UnknownOutcomeError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.log.group.membership import Membership
from kafkalike.model import offset_commit
from kafkalike.model.appends import waiting_appends
from kafkalike.model.appends.taken_appends import Placed, TakenAppends
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.group_rows import OFFSET, GroupRow, roster_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.roster import Member, check_commit
from kafkalike.model.offset_commit import OffsetCommit, Position, load_commit
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from tests.tools.commits import Told, commit_label, decided, judge, member_of, moved, offset_row, offsets_of
from tests.tools.effort import seeds
from tests.tools.everywhere import EverywhereStore, Mood, SimulatedClock

SEEDS = seeds(120, 20)
MUTANT_SEEDS = 400
"""Within so many trials a fault must be found."""

GROUPS = ("g", "h")


class Place:
    """A root, and processes that know nothing of each other."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = SimulatedClock()
        self.mood = Mood(random.Random(seed))
        self.mood.meant = lambda table: table == CONSUMER_OFFSETS
        self.store = EverywhereStore(self.clock, self.mood)
        self.process().groups.transact(lambda state: [offset_row(state.seq + 1, "first", "first")])

    def process(self) -> Cluster:
        return Cluster(self.store, clock=self.clock)

    def busy(self) -> Cluster:
        """One that has met others."""
        found = self.process()
        found.groups.refresh()
        assert found.groups._combined is not None
        found.groups._combined.combined.meet()
        return found

    @property
    def rows(self) -> list[GroupRow]:
        return self.process().groups.rows

    def waiting(self) -> list[str]:
        return [entry.name for entry in self.store.at(CONSUMER_OFFSETS).list("_waiting")]


class Process:
    """One process with a member in each group, which does something when it is told to."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self.name = name
        self.cluster = place.process()
        self.told = Told()
        self.generations = dict.fromkeys(GROUPS, -1)
        self.count = 0
        self.busy = False

    def act(self) -> None:
        if self.busy:
            return
        self.busy = True
        self.count += 1
        try:
            rng = self.place.mood.rng
            group, timeout = rng.choice(GROUPS), rng.choice([200.0, 60_000.0])
            rng.choice([self.commit, self.commit, self.commit, self.move, self.decide])(group, timeout)
        finally:
            self.busy = False

    def _tell(self, label: str, what: Callable[[], object]) -> bool:
        try:
            what()
        except UnknownOutcomeError:
            self.told.unknown.append(label)
        except (CommitFailedError, RebalanceInProgressError):
            self.told.fenced.append(label)
        except (KafkaError, OSError):
            self.told.refused.append(label)
        else:
            self.told.acked.append(label)
            return True
        return False

    def commit(self, group: str, timeout: float) -> None:
        """In the generation that the member knows."""
        label = commit_label(self.name, group, self.count, self.generations[group])
        own = GroupOffsets(self.cluster.groups, self.place.clock)
        self._tell(label, lambda: own.commit(member_of(label), offsets_of(label), {"t": "id"}, timeout))

    def move(self, group: str, timeout: float) -> None:
        """A new generation: a member comes, goes, or begins anew."""
        label, leaves = f"r:{self.name}:{group}:{self.count}", self.place.mood.rng.random() < 0.4
        generation = -1

        def plan(state: GroupsState) -> Sequence[GroupRow]:
            nonlocal generation
            generation = state.group(group).generation + 1
            return moved(state, group, self.name, label, leaves=leaves)

        if self._tell(label, lambda: self.cluster.groups.transact(plan, timeout)):
            self.generations[group] = -1 if leaves else generation

    def decide(self, _: str, timeout: float) -> None:
        """Several rows at once."""
        label = f"d:{self.name}:x:{self.count}"
        self._tell(label, lambda: self.cluster.groups.transact(lambda state: decided(state, label), timeout))


def played(seed: int, trouble: float) -> tuple[Place, list[Process]]:
    place = Place(seed)
    rng = place.mood.rng
    processes = [Process(place, f"p{n}") for n in range(rng.randint(2, 4))]
    for process in processes:
        if rng.random() < 0.5:
            process.cluster.groups.refresh()
            assert process.cluster.groups._combined is not None
            process.cluster.groups._combined.combined.meet()
    place.mood.trouble = trouble
    for _ in range(rng.randint(6, 14)):
        place.mood.others = [rng.choice(processes).act for _ in range(rng.randint(0, 6))]
        rng.choice(processes).act()
    place.mood.settle()
    return place, processes


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("trouble", [0.0, 0.05, 0.3])
def test_no_schedule_loses_doubles_tears_or_lets_a_fenced_one_commit(trouble: float) -> None:
    happened: Counter[str] = Counter()
    for seed in SEEDS:
        place, processes = played(seed, trouble)
        try:
            judge(place.rows, [process.told for process in processes])
        except (AssertionError, KafkaError) as wrong:
            raise AssertionError(f"seed {seed}, trouble {trouble}: {wrong}") from wrong
        for process in processes:
            for what in ("acked", "refused", "fenced", "unknown"):
                happened[what] += len(getattr(process.told, what))
        happened["files"] += len([call for call in place.mood.calls if call.startswith("put _waiting")])

    # The trial is of what it says: changes wait beside the table, and all endings occur.
    assert happened["acked"] > len(SEEDS)
    assert happened["files"] > len(SEEDS) // 2
    assert happened["refused"] > 0
    # Where so much fails that few members get so far as to be fenced, hardly any is.
    assert happened["fenced"] > 0 or trouble == 0.3
    assert (happened["unknown"] > 0) == (trouble > 0)


def _takes_what_is_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TakenAppends, "may_take", lambda _self, _part: True)


def _makes_it_on_any_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(appends.AtVersion, "broken", lambda _self, _state: "")


def _takes_nothing_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waiting_files.StagingArea, "withdraw", lambda _self, _part: None)


def _asks_no_rule(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offset_commit, "check_commit", lambda *_: None)


def _asks_the_rule_before_and_not_at_the_commit(patch: pytest.MonkeyPatch) -> None:
    """Whoever writes for another one believes that it was asked."""

    def load(found: Any) -> Any:
        unit = load_commit(found)

        def trusting(state: GroupsState) -> Sequence[GroupRow]:
            patch.setattr(offset_commit, "check_commit", lambda *_: None)
            try:
                return unit(state)
            finally:
                patch.setattr(offset_commit, "check_commit", check_commit)

        return trusting

    patch.setattr(offset_commit, "load_commit", load)


def _writes_the_part_that_holds(patch: pytest.MonkeyPatch) -> None:
    """Row by row, so that a set is torn where others come between."""
    honest = waiting_appends.in_turn

    def in_turn(state: GroupsState, parts: Any) -> Any:
        def first(unit: Any) -> Any:
            return lambda now: unit(now)[:1]

        return honest(state, [[first(unit) for unit in each] for each in parts])

    patch.setattr(waiting_appends, "in_turn", in_turn)


def _tells_all_that_they_landed(patch: pytest.MonkeyPatch) -> None:
    honest = combined_rows.ControlGroupCommit._write

    def write(self: Any, changes: Any) -> None:
        honest(self, changes)
        for each in changes:
            if isinstance(each.error, CommitFailedError):
                each.error = None

    patch.setattr(combined_rows.ControlGroupCommit, "_write", write)


def _tells_nobody_that_it_landed(patch: pytest.MonkeyPatch) -> None:
    honest = combined_rows.ControlGroupCommit._write

    def write(self: Any, changes: Any) -> None:
        honest(self, changes)
        for each in changes:
            if isinstance(each.unit, OffsetCommit):
                each.error = each.error or CommitFailedError("fenced")

    patch.setattr(combined_rows.ControlGroupCommit, "_write", write)


WRONG = [
    _takes_what_is_taken,
    _makes_it_on_any_version,
    _takes_nothing_back,
    _asks_no_rule,
    _asks_the_rule_before_and_not_at_the_commit,
    _writes_the_part_that_holds,
    _tells_all_that_they_landed,
    _tells_nobody_that_it_landed,
]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", WRONG, ids=lambda mutant: mutant.__name__)
def test_the_trial_finds_a_log_that_is_wrong(mutant: Callable[[pytest.MonkeyPatch], None]) -> None:
    assert any(_wrong(seed, mutant) for seed in range(MUTANT_SEEDS))


def _wrong(seed: int, mutant: Callable[[pytest.MonkeyPatch], None]) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        place, processes = played(seed, (0.0, 0.05, 0.3)[seed % 3])
    try:
        judge(place.rows, [process.told for process in processes])
    except (AssertionError, KafkaError, AttributeError):
        return True
    return False


# --- one by one ----------------------------------------------------------------------------------


def test_a_change_whose_table_state_is_lost_after_its_commit_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a change that was refused needs the state; an error would say of a written one that it is not there."""
    place = Place()
    append = GroupCommit.append

    def lost(combined: GroupCommit[Any], *given: Any) -> Placed:
        placed = append(combined, *given)
        combined.table.forget()
        monkeypatch.setattr(EverywhereStore, "read", no_answer)
        return placed

    def no_answer(_store: object, name: str) -> bytes:
        raise OSError(f"no answer to the read of {name}")

    monkeypatch.setattr(GroupCommit, "append", lost)

    place.process().groups.transact(commit_of("there"))
    monkeypatch.undo()

    assert [row.metadata for row in place.rows] == ["first", "there"]


def commit_of(label: str, *, group: str = "g", generation: int = -1, member: str = "") -> OffsetCommit:
    return OffsetCommit(
        group_id=group,
        generation=generation,
        member_id=member,
        group_instance_id=None,
        client_id="",
        time_ms=1,
        positions=(Position("t", "id", 0, 1, -1, label),),
    )


def with_member(state: GroupsState, group: str, member: str) -> list[GroupRow]:
    """A roster with one member, in a new generation."""
    roster = state.group(group).roster
    generation = roster.generation + 1
    members = {member: Member(member_id=member, since=generation)}
    return [roster_row(state.seq + 1, group, replace(roster, generation=generation, members=members, changed_ms=1))]


def waits(place: Place, process: Cluster, unit: OffsetCommit) -> None:
    """Put a commit beside the table whose process then dies."""

    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    place.mood.before.append(("put _waiting", lambda: place.mood.before.append(("read _delta_log", die))))
    with pytest.raises(Died):
        process.groups.transact(unit)
    assert place.waiting()


def labels(place: Place) -> list[str]:
    return [row.metadata for row in place.rows if row.kind == OFFSET]


def two_busy(place: Place) -> tuple[Cluster, Cluster]:
    """Two processes; the first one made the latest version."""
    leader, other = place.busy(), place.busy()
    leader.groups.transact(commit_of("lead"))
    other.groups.refresh()
    return leader, other


def test_a_lone_process_asks_for_nothing_that_waits() -> None:
    place = Place()
    place.clock.sleep(60)
    process = place.process()
    for number in range(5):
        process.groups.transact(commit_of(str(number)))

    assert [call for call in place.mood.calls if "_waiting" in call] == []
    assert labels(place) == ["first", *"01234"]


def test_one_process_writes_for_another_in_one_version() -> None:
    place = Place()
    leader, other = two_busy(place)
    waits(place, other, commit_of("other", group="h"))

    leader.groups.transact(commit_of("own"))

    assert labels(place) == ["first", "lead", "other", "own"]
    assert len(place.process().groups.live_files()) == 3


def test_a_fenced_commit_that_waits_leaves_no_row_and_its_member_is_told() -> None:
    """By whom its group was changed, whoever writes that; and in the version that decides it, so it never lands."""
    place = Place()
    leader, other = two_busy(place)
    leader.groups.transact(lambda state: with_member(state, "g", "m1"))
    other.groups.refresh()

    def change() -> None:
        leader.groups.transact(lambda state: with_member(state, "g", "m2"))
        place.mood.before.append(("read _delta_log", lead))

    def lead() -> None:
        leader.groups.transact(commit_of("next", group="h"))

    place.mood.before.append(("put _waiting", change))
    with pytest.raises(CommitFailedError, match="'m1' is not a member"):
        other.groups.transact(commit_of("late", generation=1, member="m1"))

    assert labels(place) == ["first", "lead", "next"]


def test_a_fenced_commit_that_nobody_else_decides_is_decided_by_its_own_process() -> None:
    """By a version without rows: nobody takes it later."""
    place = Place()
    leader, other = two_busy(place)
    leader.groups.transact(lambda state: with_member(state, "g", "m1"))
    other.groups.refresh()

    def change() -> None:
        leader.groups.transact(lambda state: with_member(state, "g", "m2"))

    place.mood.before.append(("put _waiting", change))
    with pytest.raises(CommitFailedError, match="'m1' is not a member"):
        other.groups.transact(commit_of("late", generation=1, member="m1"))
    leader.groups.transact(lambda state: with_member(state, "g", "m1"))
    leader.groups.transact(commit_of("next", group="h"))

    assert labels(place) == ["first", "lead", "next"]


def test_a_change_that_cannot_wait_takes_along_what_does() -> None:
    """A roster; and what waits is asked on the state before it."""
    place = Place()
    leader, other = two_busy(place)
    waits(place, other, commit_of("other"))

    leader.groups.transact(lambda state: with_member(state, "g", "m"))

    assert [(row.kind, row.metadata) for row in place.rows][2:] == [("offset", "other"), ("member", "")]
    assert place.process().groups.refresh().group("g").generation == 1


def test_a_set_of_rows_is_one_unit() -> None:
    """As a transaction's decision with offsets and fences will be: in one version, with nothing in between."""
    place = Place()
    leader, other = two_busy(place)
    waits(place, other, commit_of("other"))
    versions = leader.groups.version

    def decision(state: GroupsState) -> list[GroupRow]:
        return [offset_row(state.seq + n, f"x{n}", "decision") for n in range(1, 6)]

    leader.groups.transact(decision)

    assert labels(place)[2:] == ["other", *["decision"] * 5]
    assert leader.groups.version == versions + 1


@pytest.mark.parametrize("failing", [0, 1, 4])
def test_a_set_that_is_refused_leaves_nothing(failing: int) -> None:
    place = Place()
    leader, other = two_busy(place)
    waits(place, other, commit_of("other"))

    def decision(state: GroupsState) -> list[GroupRow]:
        rows = []
        for n in range(5):
            if n == failing:
                raise CommitFailedError("fenced")
            rows.append(offset_row(state.seq + n + 1, f"x{n}", "decision"))
        return rows

    with pytest.raises(CommitFailedError, match="fenced"):
        leader.groups.transact(decision)
    leader.groups.transact(commit_of("next"))

    assert "decision" not in labels(place)
    assert labels(place)[-1] == "next"


def test_a_commit_in_doubt_is_settled_before_the_next_one_of_the_process() -> None:
    """Whichever thread brings it: it never lands after it."""
    place = Place()
    leader, other = two_busy(place)
    waits(place, other, commit_of("doubt"))

    done = threading.Thread(target=other.groups.transact, args=(commit_of("next"),))
    done.start()
    done.join()
    leader.groups.transact(commit_of("last"))

    assert labels(place) == ["first", "lead", "next", "last"]


def test_nothing_is_written_while_an_earlier_commit_is_in_doubt() -> None:
    place = Place()
    _, other = two_busy(place)
    waits(place, other, commit_of("doubt"))
    place.mood.trouble = 1.0

    with pytest.raises(KafkaStorageError):
        other.groups.transact(commit_of("next"))

    place.mood.settle()
    other.groups.transact(commit_of("after"))
    assert labels(place) == ["first", "lead", "after"]


HEAD = commit_of("other").dumped()
FORGED: list[dict[str, object]] = [
    {"kind": "offset"},
    {"group": 7},
    {"group": "\ud800"},
    {"generation": True},
    {"generation": 2**31},
    {"member": None},
    {"instance": 5},
    {"client": []},
    {"time": -1},
    {"offsets": {}},
    {"offsets": [["t", "id", 0, 1, -1]]},
    {"offsets": [["t", "id", -1, 1, -1, ""]]},
    {"offsets": [["t", "id", 0, -1, -1, ""]]},
    {"offsets": [["t", "id", 0, 2**63, -1, ""]]},
    {"offsets": [["t", "id", 0, 1, 2**40, ""]]},
    {"offsets": [["t", None, 0, 1, -1, ""]]},
]


@pytest.mark.parametrize("wrong", FORGED, ids=str)
def test_a_forged_commit_is_left_out_and_hurts_nobody(wrong: dict[str, object]) -> None:
    place = Place()
    leader, _ = two_busy(place)
    files = place.store.at(CONSUMER_OFFSETS)
    content = sealed(json.dumps([{**HEAD, **wrong}]).encode())
    files.put_if_absent(f"_waiting/{leader.groups.version:020d}-aa-1", content)

    leader.groups.transact(commit_of("next"))

    assert labels(place) == ["first", "lead", "next"]


@pytest.mark.parametrize(
    "content", [b"", b"[]", sealed(b"{}"), sealed(b"[1]"), sealed(b"[" * 100_000), sealed(b"[[]]")]
)
def test_what_is_no_commit_hurts_nobody(content: bytes) -> None:
    place = Place()
    leader, _ = two_busy(place)
    files = place.store.at(CONSUMER_OFFSETS)
    files.put_if_absent(f"_waiting/{leader.groups.version:020d}-aa-1", content)

    leader.groups.transact(commit_of("next"))

    assert labels(place) == ["first", "lead", "next"]


def test_a_right_file_is_taken_as_those_forged_ones_would_be() -> None:
    place = Place()
    leader, _ = two_busy(place)
    files = place.store.at(CONSUMER_OFFSETS)
    files.put_if_absent(f"_waiting/{leader.groups.version:020d}-aa-1", sealed(json.dumps([HEAD]).encode()))

    leader.groups.transact(commit_of("next"))

    assert labels(place) == ["first", "lead", "other", "next"]


# --- the threads of one process ------------------------------------------------------------------


def run_behind_the_first(threads: Sequence[threading.Thread], begun: threading.Event) -> None:
    """Run threads to their end; the others start when the first one is at work."""
    threads[0].start()
    assert begun.wait(20)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


def together(count: int, write: Callable[[Sequence[PendingChange[int]]], None]) -> list[BaseException | None]:
    """So many threads bring a number each, while the first one writes and waits for them."""
    begun, found = threading.Event(), list[BaseException | None]([None] * count)

    def wrote(changes: Sequence[PendingChange[int]]) -> None:
        if not begun.is_set():
            begun.set()
            while len(shared._waiting) < count - 1:
                SYSTEM_CLOCK.sleep(0.001)
        write(changes)

    shared: SharedChanges[int] = SharedChanges(wrote, len)

    def bring(number: int) -> None:
        try:
            shared.bring(number, Deadline(SYSTEM_CLOCK, 20_000))
        except BaseException as cause:  # noqa: BLE001 - an interrupt, too
            found[number] = cause

    threads = [threading.Thread(target=bring, args=(number,)) for number in range(count)]
    run_behind_the_first(threads, begun)
    assert (shared._at_work.locked(), shared._in_hand, shared._waiting) == (False, [], [])
    return found


def test_threads_that_come_while_one_is_at_work_go_together() -> None:
    seen: list[list[int]] = []

    def write(changes: Sequence[PendingChange[int]]) -> None:
        seen.append(sorted(each.unit for each in changes))
        for each in changes:
            each.settle()

    assert together(20, write) == [None] * 20
    assert seen == [[0], list(range(1, 20))]


def test_each_thread_is_told_its_own_outcome() -> None:
    """What is refused fails nobody else; what is left is written again."""
    tries: Counter[int] = Counter()

    def write(changes: Sequence[PendingChange[int]]) -> None:
        for each in changes:
            tries[each.unit] += 1
            if each.unit % 3 == 0:
                each.settle(CommitFailedError(str(each.unit)))
            elif each.unit % 3 == 1 or tries[each.unit] == 3:
                each.settle()

    found = together(12, write)

    assert [None if cause is None else str(cause) for cause in found] == [
        str(n) if n % 3 == 0 else None for n in range(12)
    ]
    assert [tries[n] for n in range(12)] == [1, 1, 3] * 4


def test_what_goes_wrong_for_all_is_told_to_all() -> None:
    def write(changes: Sequence[PendingChange[int]]) -> None:
        raise KafkaStorageError(f"{len(changes)}")

    assert [str(cause) for cause in together(5, write)] == ["1", *["4"] * 4]


def test_an_interrupted_thread_leaves_the_others_no_riddle() -> None:
    """They are told that they do not know, and the next ones go on."""
    rounds = 0

    def write(changes: Sequence[PendingChange[int]]) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            raise KeyboardInterrupt
        for each in changes:
            each.settle()

    found = together(6, write)

    kinds = Counter(type(cause) for cause in found)
    assert kinds == {type(None): 1, KeyboardInterrupt: 1, UnknownOutcomeError: 4}


def test_whose_time_is_over_while_it_waits_has_written_nothing() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def write(changes: Sequence[PendingChange[int]]) -> None:
        begun.set()
        assert go_on.wait(20)
        for each in changes:
            each.settle()

    shared: SharedChanges[int] = SharedChanges(write, len)
    first = threading.Thread(target=shared.bring, args=(0, Deadline(SYSTEM_CLOCK, None)))
    first.start()
    assert begun.wait(20)
    with pytest.raises(KafkaTimeoutError, match="nothing was written"):
        shared.bring(1, Deadline(SYSTEM_CLOCK, 1))
    go_on.set()
    first.join(20)

    assert shared._waiting == []


def test_plans_of_waiting_threads_go_into_one_commit_and_fail_alone() -> None:
    """On a folder too, where share consumers write by `transact_together`."""
    groups = MemoryCluster().groups
    groups.transact(lambda state: [offset_row(state.seq + 1, "first", "first")])
    before, begun = groups.version, threading.Event()
    found: dict[str, BaseException | None] = {}

    def plan_of(name: str) -> Callable[[GroupsState], list[GroupRow]]:
        def plan(state: GroupsState) -> list[GroupRow]:
            if name == "slow":
                begun.set()
                while len(groups._shared._waiting) < 3:
                    SYSTEM_CLOCK.sleep(0.001)
            if name == "refused":
                raise CommitFailedError(name)
            return [offset_row(state.seq + nth, name, f"{name}{nth}") for nth in (1, 2)]

        return plan

    def write(name: str) -> None:
        found[name] = None
        try:
            groups.transact_together(plan_of(name))
        except CommitFailedError as cause:
            found[name] = cause

    threads = [threading.Thread(target=write, args=(name,)) for name in ("slow", "one", "refused", "two")]
    run_behind_the_first(threads, begun)

    rows = groups.rows
    assert {name: str(cause) for name, cause in found.items() if cause is not None} == {"refused": "refused"}
    assert groups.version == before + 2
    assert [row.seq for row in rows] == [*range(1, 8)]
    assert [row.metadata for row in rows[1:3]] == ["slow1", "slow2"]
    assert sorted(row.metadata for row in rows[3:]) == ["one1", "one2", "two1", "two2"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [30])
def test_consumers_of_one_process_commit_at_once(open_control: Callable[[], Any], count: int) -> None:
    """Each is told that its commit is there, and it is; on every kind of root."""
    cluster = open_control()
    cluster.groups.transact(lambda state: [offset_row(state.seq + 1, "first", "first")])
    at_once = threading.Barrier(count)

    def commit(number: int) -> None:
        at_once.wait()
        for n in range(3):
            cluster.groups.transact(commit_of(f"{number}.{n}", group=f"g{number}"))

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    rows = open_control().groups.rows
    assert [row.seq for row in rows] == list(range(1, 3 * count + 2))
    for number in range(count):
        assert [r.metadata for r in rows if r.group_id == f"g{number}"] == [f"{number}.{n}" for n in range(3)]


@pytest.mark.parametrize("epoch", [2**31, -(2**31) - 1, 2**70])
def test_a_leader_epoch_that_no_row_can_hold_is_refused_by_name(open_control: Callable[[], Any], epoch: int) -> None:
    """Before it goes together with commits of others, which it would fail."""
    groups = GroupOffsets(open_control().groups, SYSTEM_CLOCK)
    wrong = {TopicPartition("t", 0): OffsetAndMetadata(1, "", epoch)}

    with pytest.raises(IllegalArgumentError, match="leader_epoch"):
        groups.commit(Membership(group_id="g"), wrong, {"t": "id"})
