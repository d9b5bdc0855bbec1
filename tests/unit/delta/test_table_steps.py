"""A table of a store, step by step: how it is changed beside others, and how it is followed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkalike.delta.actions import Add, TableCommit, log_name
from kafkalike.delta.checkpoint import make_checkpoint
from kafkalike.delta.commit_file import CommitFile, creation
from kafkalike.delta.damage import DamagedFileError
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.delta.table import Table
from kafkalike.delta.table_change import Change, EndsAt, Landed, Plan, Unchanged
from kafkalike.delta.table_state import APPEND_ONLY, FENCE, REPAIR, TableState, end_app, load_table, load_with_base
from kafkalike.errors import (
    KafkaError,
    KafkaStorageError,
    KafkaTimeoutError,
    LogCorruptError,
    PolicyViolationError,
    UnknownOutcomeError,
)
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.segments import Segment
from kafkalike.storage.port import Entry, NotStoredError, Storage
from kafkalike.storage.scheduler import Pace
from tests.tools.scripted_store import ScriptedStore, SleptClock


def segment_of(add: Add, store: Storage) -> Segment:
    assert store.uri == "memory://"
    start, stop = add.stats["run"]
    return Segment(add.partition or 0, start, stop, stop - start, 0, 0, add.size, add.path)


class Rows:
    """A follower that takes what it is told, and cannot read some files."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.damaged: set[str] = set()
        self.backwards = False
        self.foreign: set[str] = set()
        """Files that it cannot read and that the table does not name."""

    def on_load(self, state: TableState) -> None:
        damaged = sorted(state.index.paths & self.damaged, reverse=self.backwards) or sorted(self.foreign)
        if damaged:
            raise DamagedFileError("memory://", damaged[0], "cut off")
        self.told.append(f"load {state.version}")

    def on_commit(self, commit: TableCommit) -> None:
        self.told.append(f"commit {commit.version}")


class World:
    """One store, a table on it, and another writer's table."""

    def __init__(self, **properties: str) -> None:
        self.store = ScriptedStore()
        self.clock = SleptClock()
        self.rows = Rows()
        self.table = self.opened(follower=self.rows)
        self.rival = self.opened()
        schema: dict[str, Any] = {"type": "struct", "fields": []}
        self.creation = creation("id", schema, partition_by=["partition"], properties=properties, time_ms=3)
        assert self.rival.create(self.creation)
        self.store.calls.clear()

    def opened(self, *, durable: bool = False, **others: Any) -> Table:
        return Table(
            self.store, self.clock, to_segment=segment_of, jitter=lambda: 1.0, durable=durable, **others
        )  # fmt: skip

    def deadline(self, ms: float = 60_000) -> Deadline:
        return Deadline(self.clock, ms)

    def change(self, plan: Plan[None], table: Table | None = None, **others: Any) -> Landed:
        """A change that lands."""
        found = (table or self.table).change(plan, self.deadline(), **others)
        assert isinstance(found, Landed)
        return found

    def rival_writes(self, start: int, stop: int) -> None:
        plan = Appends(self.store, f"rival-{start}", stop - start)
        found: Landed | Unchanged[None] = self.rival.change(plan, Deadline(SleptClock(), None))
        assert isinstance(found, Landed)

    def operations(self) -> list[str]:
        return [self.info(v)["operation"] for v in range(load_table(self.store, segment_of).version + 1)]

    def info(self, version: int) -> dict[str, Any]:
        found: dict[str, Any] = self.actions(version)[0]["commitInfo"]
        return found

    def actions(self, version: int) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.store._disk.files[log_name(version)][0].splitlines()]

    def put(self, version: int, content: bytes) -> None:
        self.store.replace(log_name(version), content)

    def drop(self, *versions: int) -> None:
        for version in versions:
            self.store.remove(log_name(version))


class Appends:
    """Plans a run of offsets at the end of partition 0, with a file for each try."""

    def __init__(self, store: Storage, label: str, count: int = 1, *, heeds_end: bool = True) -> None:
        self.store, self.label, self.count, self.heeds_end = store, label, count, heeds_end
        self.tries = 0

    def __call__(self, state: TableState) -> Change:
        self.tries += 1
        end = state.end(0)
        made = file(f"{self.label}.{self.tries}", end, end + self.count)
        self.store.replace(made.path, b"records")
        return Change(
            operation="WRITE",
            time_ms=5,
            adds=[made],
            requires=[EndsAt(0, end)] if self.heeds_end else (),
            txns={end_app(0): end + self.count},
            note={"told": self.label},
        )


def file(path: str, start: int, stop: int, *, data_change: bool = True) -> Add:
    return Add(path=path, partition=0, size=7, modification_ms=1, data_change=data_change, stats={"run": [start, stop]})


@pytest.fixture
def world() -> World:
    return World()


class Meanwhile:
    """A mutex in whose queue another thread comes first, once."""

    def __init__(self, table: Table, act: Callable[[], object]) -> None:
        self.table, self.mutex, self.act = table, table.mutex, act

    def __enter__(self) -> None:
        self.table.mutex = self.mutex
        with self.mutex:
            self.act()
        self.mutex.acquire()

    def __exit__(self, *_: object) -> None:
        self.mutex.release()


# --- making one ------------------------------------------------------------------------------------


def test_a_table_is_made_once(world: World) -> None:
    """Whose it is says its id; a table that must be durable is put so."""
    assert world.table.create(world.creation)
    assert not world.table.create(creation("xx", {}, partition_by=[], properties={}, time_ms=3))

    world.drop(0)
    assert world.opened(durable=True).create(world.creation)
    assert world.store.made("durable put") == [log_name(0)]


def test_a_table_whose_folder_cannot_be_made_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage's words are told."""
    asked: list[str] = []

    def refuse(folder: str) -> None:
        asked.append(folder)
        raise OSError("read-only")

    monkeypatch.setattr(world.store, "make_folder", refuse)

    with pytest.raises(KafkaStorageError, match=r"^memory:// cannot be created: read-only$"):
        world.table.create(world.creation)
    assert asked == ["_delta_log"]


# --- changing it -----------------------------------------------------------------------------------


def test_a_change_is_the_next_version_and_is_known_without_being_read(world: World) -> None:
    """With its files, transactions and note. A plan that finds nothing to do makes none."""
    assert not world.table.loaded
    landed = world.change(Appends(world.store, "a", 3))
    done = world.table.change(lambda state: Unchanged(state.version), world.deadline())

    assert (done, isinstance(landed, Landed)) == (Unchanged(1), True)
    assert (world.table.state.version, world.table.state.end(0), world.table.loaded) == (1, 3, True)
    assert log_name(1) in world.store.made("put")
    assert log_name(1) not in world.store.made("read")
    assert world.rows.told == ["load 0", "commit 1"]
    info, txn, add = world.actions(1)
    assert (info["commitInfo"]["operation"], info["commitInfo"]["timestamp"]) == ("WRITE", 5)
    assert json.loads(info["commitInfo"]["userMetadata"])["told"] == "a"
    assert (txn["txn"]["appId"], txn["txn"]["version"]) == (end_app(0), 3)
    assert add["add"]["path"] == "a.1"


@pytest.mark.parametrize(("place", "there"), [("commit.before", False), ("commit.after", True)])
def test_a_trial_may_stop_a_change_before_and_after_its_version_is_put(
    world: World, monkeypatch: pytest.MonkeyPatch, place: str, *, there: bool
) -> None:
    """Kill sweeps stop processes there by these names."""
    monkeypatch.setenv("KAFKALIKE_FAULT", f"{place}:raise")

    with pytest.raises(OSError, match=place):
        world.change(Appends(world.store, "a"))

    assert (log_name(1) in world.store._disk.files) == there


def test_a_change_takes_out_what_it_names(world: World) -> None:
    """And is told of as it landed."""
    world.rival_writes(0, 2)
    old = file("rival-0.1", 0, 2)

    landed = world.change(lambda _: Change(operation="DELETE", time_ms=6, removes=[old]))

    assert (landed.version, landed.change.removes) == (2, [old])
    assert [a["remove"]["path"] for a in world.actions(2) if "remove" in a] == ["rival-0.1"]
    assert (len(world.table.state.index), world.table.state.end(0)) == (0, 2)


@pytest.mark.parametrize(("heeds", "tries", "run"), [(True, 2, [4, 5]), (False, 1, [0, 1])])
def test_a_change_beside_a_faster_writer_is_planned_anew_only_if_need_be(
    world: World,
    heeds: bool,  # noqa: FBT001
    tries: int,
    run: list[int],
) -> None:
    """Files of the plan that broke go; a change that does not mind keeps its own."""
    world.store.puts = [lambda: world.rival_writes(0, 4)]
    plan = Appends(world.store, "a", heeds_end=heeds)

    landed = world.change(plan)

    assert (landed.version, plan.tries, landed.change.adds[0].stats["run"]) == (2, tries, run)
    assert world.store.made("discard") == (["a.1"] if heeds else [])
    assert world.clock.slept == [0.05]
    assert world.operations() == ["CREATE TABLE", "WRITE", "WRITE"]


def test_a_change_that_was_planned_before_a_fence_is_planned_anew(world: World) -> None:
    """Its files may be gone: so say those who made the fence."""
    world.store.puts = [lambda: world.rival.fence(world.deadline())]
    plan, gone = Appends(world.store, "a", heeds_end=False), list[Change]()

    landed = world.change(plan, discard=gone.append)

    assert (landed.version, plan.tries, [c.adds[0].path for c in gone]) == (2, 2, ["a.1"])
    assert world.store.made("discard") == []


def test_who_changes_a_table_may_look_elsewhere_too(world: World) -> None:
    """Before each try."""
    looks: list[int] = []

    def look(pace: Pace) -> None:
        looks.append(len(looks))
        world.table.refresh(pace)

    world.store.puts = [lambda: world.rival_writes(0, 4)]
    world.table.change(Appends(world.store, "a"), world.deadline(), refresh=look)

    assert looks == [0, 1]


def rivals(world: World, times: int) -> list[Callable[[], None]]:
    """So many times another writer is faster; its own put is a step too."""
    steps: list[Any] = []
    for nth in range(times):
        steps += [lambda nth=nth: world.rival_writes(nth, nth + 1), None]
    return steps


def test_who_loses_waits_longer_each_time_up_to_two_seconds(world: World) -> None:
    """So that many writers do not stand in each other's way."""
    world.store.puts = [*rivals(world, 8)]

    landed = world.change(Appends(world.store, "a", heeds_end=False))

    assert landed.version == 9
    assert world.clock.slept == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_change_that_runs_out_of_time_says_what_moved(world: World) -> None:
    """Two appends of another writer: after the first one the offsets had to be counted anew."""
    world.store.puts = [*rivals(world, 8)]

    with pytest.raises(
        KafkaTimeoutError, match=r"2 times \(at last, the log end of partition 0 moved to 1\)\. Try again"
    ):
        world.table.change(Appends(world.store, "a"), world.deadline(150))


@pytest.mark.parametrize(("budget", "lost"), [(50, 1), (150, 2), (151, 3)])
def test_who_loses_until_time_runs_out_has_written_nothing(world: World, budget: float, lost: int) -> None:
    """A wait that would take all that is left is not begun."""
    world.store.puts = [*rivals(world, 8)]

    with pytest.raises(KafkaTimeoutError) as late:
        world.table.change(Appends(world.store, "a", heeds_end=False), world.deadline(budget))

    assert str(late.value) == (
        f"memory://: nothing was written, as other writers made the next version first, {lost} times. Try again, or "
        "raise the timeout of the call: `delivery_timeout_ms` of a producer, `default_api_timeout_ms` of a consumer"
    )
    assert world.store.made("discard") == ["a.1"]


def test_a_plan_that_raises_does_nothing(world: World) -> None:
    """Its error is the caller's."""

    def plan(_: TableState) -> Change:
        raise PolicyViolationError("no")

    with pytest.raises(PolicyViolationError, match=r"^no$"):
        world.table.change(plan, world.deadline())
    assert (world.store.made("put"), world.store.made("discard")) == ([], [])


def test_a_look_that_fails_after_the_plan_takes_its_files_away(world: World) -> None:
    """They are in no version, and none will have them."""
    world.store.puts = [lambda: world.rival_writes(0, 1)]
    looks: list[bool] = []

    def look(pace: Pace) -> None:
        looks.append(world.table.refresh(pace))
        if len(looks) == 2:
            raise KafkaStorageError("gone")

    with pytest.raises(KafkaStorageError, match="gone"):
        world.table.change(Appends(world.store, "a"), world.deadline(), refresh=look)
    assert world.store.made("discard") == ["a.1"]


def test_a_refused_change_takes_its_files_away_and_one_in_doubt_leaves_them(world: World) -> None:
    """The disk may be full; and what may still land must find its files."""
    world.store.puts = [NotStoredError("no room")]
    with pytest.raises(KafkaStorageError):
        world.table.change(Appends(world.store, "a"), world.deadline())
    assert world.store.made("discard") == ["a.1"]

    world.store.puts = [OSError("lost")] * 10
    with pytest.raises(UnknownOutcomeError):
        world.table.change(Appends(world.store, "b"), world.deadline())
    assert world.store.made("discard") == ["a.1"]


@pytest.mark.parametrize("durable", [False, True])
def test_files_are_durable_before_a_version_names_them(world: World, durable: bool) -> None:  # noqa: FBT001
    """Once, however often the version is put."""
    world.store.puts = [*rivals(world, 2)]
    table = world.opened(durable=durable)

    table.change(Appends(world.store, "a", heeds_end=False), world.deadline())

    steps = [call for call in world.store.calls if call.startswith(("sync", "durable put"))]
    assert steps == (["sync a.1", *[f"durable put {log_name(v)}" for v in (1, 2, 3)]] if durable else [])


def test_files_that_cannot_be_flushed_are_in_no_version(world: World) -> None:
    """The change is refused before it is put."""
    world.store.syncs = [OSError("bad disk")]

    with pytest.raises(KafkaStorageError, match=r"^memory://: the storage could not flush the records: bad disk$"):
        world.opened(durable=True).change(Appends(world.store, "a"), world.deadline())

    assert (world.store.made("durable put"), world.store.made("discard")) == ([], ["a.1"])


def test_nothing_is_taken_out_of_a_table_that_is_append_only() -> None:
    """Moving records between files takes nothing out."""
    world = World(**{APPEND_ONLY: "TRUE"})
    world.rival_writes(0, 2)
    moved, gone = file("rival-0.1", 0, 2, data_change=False), file("rival-0.1", 0, 2)

    with pytest.raises(PolicyViolationError, match=rf"^nothing is removed from memory://: .*{APPEND_ONLY}=true"):
        world.table.change(lambda _: Change(operation="DELETE", time_ms=1, removes=[gone]), world.deadline())
    with pytest.raises(PolicyViolationError):
        world.table.check_removable()
    world.change(lambda _: Change(operation="OPTIMIZE", time_ms=1, removes=[moved]))

    World().table.check_removable()


def test_a_fence_is_a_version_without_content(world: World) -> None:
    """With the time, so that people see it in the history."""
    landed = world.table.fence(world.deadline())

    assert (landed.version, world.table.state.fenced) == (1, 1)
    assert (world.info(1)["operation"], world.info(1)["timestamp"], len(world.actions(1))) == (FENCE, 1_000, 1)


def test_a_version_put_where_clean_up_has_made_room_is_taken_back(world: World) -> None:
    """A writer that stood still between its look and its put: the log has gone on above a checkpoint meanwhile."""

    def go_on() -> None:
        for nth in range(4):
            world.rival_writes(nth, nth + 1)
        make_checkpoint(world.store, load_snapshot(world.store), 9)
        world.drop(0, 1, 2, 3)

    world.store.puts = [go_on]

    landed = world.change(Appends(world.store, "a"))

    assert (landed.version, landed.change.adds[0].stats["run"]) == (5, [4, 5])
    assert log_name(1) in world.store.made("discard")
    assert log_name(1) not in world.store._disk.files


@pytest.mark.parametrize("hours", [0, 2])
def test_a_version_put_beside_that_of_another_late_writer_is_not_taken_for_certain(
    world: World, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writers stood still past a clean-up, and one put the version before this one: that it is there says nothing.

    A writer that did not stand still cannot have missed a clean-up, however much the others wrote.
    """
    clock = SleptClock()
    monkeypatch.setattr("kafkalike.delta.table.SYSTEM_CLOCK", clock)
    world.rival_writes(0, 1)
    world.table.refresh()

    def go_on() -> None:
        for nth in range(4):
            world.rival_writes(nth + 1, nth + 2)
        late = world.store._disk.files[log_name(1)][0]
        make_checkpoint(world.store, load_snapshot(world.store), 9)
        world.drop(0, 1, 2, 3, 4)
        world.put(1, late)
        clock.sleep(hours * 3600)

    world.store.puts = [go_on]

    if not hours:
        assert world.change(Appends(world.store, "a")).version == 2
        return
    with pytest.raises(UnknownOutcomeError, match="was stopped for 7200 s while it wrote version 2"):
        world.change(Appends(world.store, "a"))
    assert world.change(Appends(world.store, "b")).version == 6


@pytest.mark.parametrize(("later", "gone"), [(3, [1, 2]), (1, [0, 1, 2])])
def test_a_version_put_into_a_hole_of_the_log_is_taken_back(world: World, later: int, gone: list[int]) -> None:
    """Clean-up is under way, or the checkpoint is of that very version."""
    world.rival_writes(0, 1)
    world.table.refresh()

    def go_on() -> None:
        for nth in range(later):
            world.rival_writes(nth + 1, nth + 2)
        make_checkpoint(world.store, load_snapshot(world.store), 9)
        world.drop(*gone)

    world.store.puts = [go_on]

    landed = world.change(Appends(world.store, "a"))

    assert (landed.version, landed.change.adds[0].stats["run"]) == (later + 2, [later + 1, later + 2])
    assert log_name(2) not in world.store._disk.files


def test_a_fence_is_given_up_when_time_runs_out(world: World) -> None:
    """As any change."""
    world.store.puts = [*rivals(world, 3)]

    with pytest.raises(KafkaTimeoutError):
        world.table.fence(world.deadline(40))


def test_a_version_above_the_last_checkpoint_stays_though_the_one_before_is_gone(world: World) -> None:
    """Clean-up takes what the checkpoint holds, so nobody can have been behind."""
    world.rival_writes(0, 1)
    make_checkpoint(world.store, load_snapshot(world.store), 9)
    world.store.puts = [lambda: world.drop(0, 1)]

    landed = world.change(Appends(world.store, "a"))

    assert (landed.version, world.table.state.version) == (2, 2)
    assert world.store.made("discard") == []


def test_a_version_put_where_the_table_was_removed_is_taken_back(world: World) -> None:
    """Its topic was deleted while the writer stood still: nothing is below it, and nobody will ever read it."""
    world.rival_writes(0, 1)
    world.table.refresh()
    world.store.puts = [lambda: world.drop(0, 1)]

    with pytest.raises(FileNotFoundError):
        world.change(Appends(world.store, "a"))

    assert log_name(2) not in world.store._disk.files


def test_a_version_above_a_hole_is_taken_back_where_no_checkpoint_covers_the_hole(world: World) -> None:
    """A backup was restored meanwhile: nobody could load a table that lacks a version."""
    world.rival_writes(0, 1)
    world.rival_writes(1, 2)
    world.table.refresh()
    world.store.puts = [lambda: world.drop(2)]

    landed = world.change(Appends(world.store, "a"))

    assert landed.version == 2
    assert world.store.made("discard") == [log_name(3), "a.1"]


def test_a_version_above_a_hole_stays_when_the_storage_does_not_say_what_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.rival_writes(0, 1)
    world.rival_writes(1, 2)
    world.table.refresh()

    def no_answer(*_: object, **__: object) -> list[Entry]:
        raise OSError("no answer")

    def stand_still() -> None:
        world.drop(2)
        monkeypatch.setattr(world.store, "list", no_answer)

    world.store.puts = [stand_still]

    landed = world.change(Appends(world.store, "a"))

    assert landed.version == 3
    assert world.store.made("discard") == []


def test_a_version_that_another_thread_has_read_meanwhile_is_taken_in_once(world: World) -> None:
    """Between the put and its answer."""
    world.table.refresh()
    world.store.after_puts = [world.table.refresh]

    world.table.change(Appends(world.store, "a"), world.deadline())

    assert (world.table.state.version, world.rows.told) == (1, ["load 0", "commit 1"])


def test_a_version_made_while_the_table_was_forgotten_is_loaded_later(world: World) -> None:
    """There is nothing to go on from."""
    world.store.after_puts = [world.table.forget]

    world.table.change(Appends(world.store, "a"), world.deadline())

    assert not world.table.loaded
    assert world.table.state.version == 1


# --- following it ----------------------------------------------------------------------------------


def test_a_look_says_whether_there_was_something_new(world: World) -> None:
    """The first one loads."""
    found = [world.table.refresh(), world.table.refresh()]
    world.rival_writes(0, 1)
    world.rival_writes(1, 2)
    found += [world.table.refresh(), world.table.refresh()]
    world.table.forget()

    assert found == [True, False, True, False]
    assert world.rows.told == ["load 0", "commit 1", "commit 2"]
    assert not world.table.loaded
    assert world.table.state.version == 2


def test_a_table_that_another_thread_loads_is_not_loaded_twice(world: World) -> None:
    """Both find none at once; one waits for the other."""
    world.table.mutex = Meanwhile(world.table, world.table.refresh)  # type: ignore[assignment]

    assert world.table.state.version == 0
    assert world.rows.told == ["load 0"]


def test_a_version_that_comes_between_the_look_and_the_listing_is_taken_in(world: World) -> None:
    """After ten quiet seconds the log is listed: it has what the look has just missed."""
    world.table.refresh()
    world.clock.sleep(10.1)
    listed = world.store.list

    def come(folder: str = "", *, deep: bool = False, after: str = "") -> list[Any]:
        world.store.list = listed  # type: ignore[method-assign]
        world.rival_writes(0, 1)
        return listed(folder, deep=deep, after=after)

    world.store.list = come  # type: ignore[method-assign]

    assert world.table.refresh()
    assert world.rows.told == ["load 0", "commit 1"]


def test_a_storage_that_does_not_answer_is_an_error_that_names_the_file(world: World) -> None:
    """The state stays."""
    world.table.refresh()
    world.store.reads = [OSError("no answer")]

    with pytest.raises(KafkaStorageError, match=rf"^memory:///{log_name(1)} cannot be read: no answer$"):
        world.table.refresh()
    assert world.table.loaded


def test_a_table_made_anew_is_seen_when_nothing_new_came_for_ten_seconds(world: World) -> None:
    """Not before: each look costs a listing."""
    world.clock.sleep(20.0)
    world.rival_writes(0, 1)
    world.table.refresh()
    world.drop(1)

    world.clock.sleep(10.0)
    assert (world.table.refresh(), world.table.state.version) == (False, 1)
    world.clock.sleep(0.1)
    assert (world.table.refresh(), world.table.state.version) == (True, 0)
    assert world.rows.told == ["load 1", "load 0"]
    world.clock.sleep(10.1)
    assert [world.table.refresh(), world.table.refresh()] == [False, False]
    assert world.rows.told == ["load 1", "load 0"]


def test_a_log_cleaned_up_past_what_is_known_is_loaded_anew(world: World) -> None:
    """The next version is gone, and there are later ones."""
    world.table.refresh()
    for nth in range(3):
        world.rival_writes(nth, nth + 1)
    make_checkpoint(world.store, load_snapshot(world.store), 9)
    world.drop(0, 1, 2)
    world.clock.sleep(10.1)

    assert world.table.refresh()
    assert (world.table.state.version, world.rows.told) == (3, ["load 0", "load 3"])


def test_a_table_that_was_replaced_is_loaded_anew_on_demand(world: World) -> None:
    """As before something is removed from it."""
    world.rival_writes(0, 1)
    world.table.refresh()
    world.table.check_there()
    assert world.rows.told == ["load 1"]

    world.drop(1)
    world.table.check_there()

    assert (world.rows.told, world.table.state.version) == (["load 1", "load 0"], 0)


def test_what_a_look_will_ask_can_be_asked_before_it(world: World) -> None:
    """Beside something else; the look itself asks no more then. What goes wrong is met again by the look."""
    assert (world.table.questions(), world.table.next_file) == ([], None)
    world.table.refresh()
    since = Pace(since=SYSTEM_CLOCK.monotonic())

    assert world.table.next_file == log_name(1)
    for ask in world.table.questions():
        ask()
    world.store.calls.clear()
    world.table.check_there(since)
    assert world.store.calls == []

    world.drop(0)
    world.store.reads = [OSError("no answer")]
    for ask in world.table.questions():
        ask()
    with pytest.raises(FileNotFoundError):
        world.table.check_there()


def test_a_table_says_how_long_ago_its_log_was_looked_at(world: World) -> None:
    world.table.refresh()

    world.clock.sleep(3.0)

    assert world.table.seen_within(3.0)
    assert not world.table.seen_within(2.9)


def test_a_table_with_damage_is_looked_at_as_a_whole(world: World) -> None:
    """There is no one file that says whether there is more."""
    world.table.refresh()
    world.put(1, b"no JSON")
    world.table.refresh()

    assert world.table.state.damage is not None
    assert (world.table.questions(), world.table.next_file) == ([], None)


def test_a_repair_makes_everybody_load_anew(world: World) -> None:
    """What they know may be what was lost."""
    world.table.refresh()
    world.rival.change(lambda _: Change(operation=REPAIR, time_ms=1), world.deadline())

    assert world.table.refresh()
    assert world.rows.told == ["load 0", "load 1"]


def test_what_the_checkpoint_does_not_tell_is_asked_for_once_per_load(world: World) -> None:
    """With the version of the checkpoint that was loaded; -1 for none."""
    asked: list[tuple[int, int]] = []

    def look_back(state: TableState, base: int, store: Storage) -> None:
        assert store is world.store
        asked.append((state.version, base))

    table = world.opened(look_back=look_back)
    table.refresh()
    world.rival_writes(0, 1)
    make_checkpoint(world.store, load_snapshot(world.store), 9)
    world.rival_writes(1, 2)
    table.refresh()
    table.forget()
    table.refresh()

    assert asked == [(0, -1), (2, 1)]
    assert load_with_base(world.store, segment_of)[1].version == 1
    state = load_table(world.store, segment_of, 1)
    assert (state.version, state.end(0), state.table_id, state.txns) == (1, 1, "id", {end_app(0): 1})
    assert (state.fenced, json.loads(state.schema)) == (1, {"type": "struct", "fields": []})


# --- damage ----------------------------------------------------------------------------------------


def spoil(world: World, *versions: int) -> None:
    for version in versions:
        world.put(version, b"{broken\n")


@pytest.mark.parametrize("damaged", [[2], [2, 3]])
def test_a_table_whose_last_commits_are_damaged_is_read_at_the_one_before(world: World, damaged: Sequence[int]) -> None:
    """Nothing may be written to it then; once a commit after them is there, it is loaded anew."""
    world.rival_writes(0, 1)
    world.table.refresh()
    spoil(world, *damaged)

    assert not world.table.refresh()
    damage = world.table.state.damage

    assert damage is not None
    assert (damage.commit, damage.good, damage.newest, damage.file) == (2, 1, damaged[-1], log_name(2))
    assert damage.where == "memory://"
    assert "Expecting property name" in damage.why
    with pytest.raises(LogCorruptError, match="nothing was written"):
        world.table.check_sound()
    assert not world.table.refresh()
    assert world.rows.told == ["load 1"]


def test_a_damaged_commit_below_a_sound_one_is_an_error(world: World) -> None:
    """What it said is missing in between."""
    world.table.refresh()
    world.rival_writes(0, 1)
    world.rival_writes(1, 2)
    spoil(world, 1)

    with pytest.raises(LogCorruptError, match=r"^memory://"):
        world.table.refresh()


def test_a_damaged_commit_that_is_mended_is_read(world: World) -> None:
    """Its file is looked at again each time."""
    world.table.refresh()
    spoil(world, 1)
    assert not world.table.refresh()

    world.put(1, CommitFile(version=1, time_ms=5, operation="WRITE", append_id="x", adds=[file("f", 0, 1)]).content())

    assert world.table.refresh()
    assert (world.table.state.version, world.table.state.damage, world.table.state.end(0)) == (1, None, 1)


def test_a_sound_version_above_the_damage_shows_that_one_is_missing(world: World) -> None:
    """A repair would have put another one in its place."""
    world.table.refresh()
    spoil(world, 1)
    world.table.refresh()

    world.put(2, CommitFile(version=2, time_ms=5, operation="WRITE", append_id="y").content())

    with pytest.raises(LogCorruptError):
        world.table.refresh()


def test_a_storage_that_does_not_say_whether_there_is_more_makes_a_reader_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a repair."""
    world.table.refresh()
    spoil(world, 1)
    world.table.refresh()

    def silent(name: str) -> int:
        raise OSError(name)

    monkeypatch.setattr(world.store, "size", silent)

    assert world.table.refresh()
    assert world.rows.told == ["load 0", "load 0"]


def test_a_version_above_the_damage_makes_a_reader_look_again(world: World) -> None:
    """Such as one of a repair."""
    world.table.refresh()
    spoil(world, 1)
    world.table.refresh()

    world.put(1, CommitFile(version=1, time_ms=5, operation=REPAIR, append_id="x").content())
    world.put(2, CommitFile(version=2, time_ms=5, operation=REPAIR, append_id="y").content())

    assert world.table.refresh()
    assert (world.table.state.version, world.table.state.damage) == (2, None)


def test_a_damaged_data_file_leaves_the_version_before_it(world: World) -> None:
    """With what is wrong; the file is looked at again when its size changes, or after ten seconds."""
    world.clock.sleep(20.0)
    for nth in range(3):
        world.rival_writes(nth, nth + 1)
    world.rows.damaged = {"rival-1.1", "rival-2.1"}
    world.table.refresh()
    damage = world.table.state.damage

    assert damage is not None
    assert (world.table.state.version, damage.good, damage.newest, damage.commit) == (1, 1, 3, None)
    assert (damage.where, damage.file, damage.why, damage.size) == ("memory://", "rival-1.1", "cut off", 7)
    assert not world.table.refresh()
    world.clock.sleep(10.0)
    assert not world.table.refresh()

    world.store.replace("rival-1.1", b"more records")
    assert world.table.refresh()
    world.rows.damaged = set()
    world.clock.sleep(10.1)
    assert world.table.refresh()

    assert (world.table.state.version, world.table.state.damage) == (3, None)
    assert world.rows.told == ["load 1", "load 1", "load 3"]


def test_versions_are_gone_back_until_none_names_a_damaged_file(world: World) -> None:
    """What is told is the file that was found first; it is missing here."""
    for nth in range(3):
        world.rival_writes(nth, nth + 1)
    world.rows.damaged, world.rows.backwards = {"rival-1.1", "rival-2.1"}, True
    world.store.remove("rival-2.1")

    world.table.refresh()
    damage = world.table.state.damage

    assert damage is not None
    assert (world.table.state.version, damage.good, damage.newest) == (1, 1, 3)
    assert (damage.file, damage.size) == ("rival-2.1", -1)


def test_a_damaged_data_file_that_no_version_added_is_an_error(world: World) -> None:
    """There is no version before it."""
    world.rival_writes(0, 1)
    world.rows.foreign = {"elsewhere"}

    with pytest.raises(DamagedFileError, match="elsewhere"):
        world.table.refresh()


def test_a_version_that_cannot_be_loaded_any_more_is_no_way_out(world: World) -> None:
    """The commit that added the damaged file is there, and nothing before it."""
    world.rival_writes(0, 1)
    world.rival_writes(1, 2)
    make_checkpoint(world.store, load_snapshot(world.store), 9)
    world.drop(0, 1)
    world.rows.damaged = {"rival-1.1"}

    with pytest.raises(DamagedFileError, match=r"rival-1\.1 cannot be read") as refused:
        world.table.refresh()
    assert refused.value.__suppress_context__


def test_damage_of_the_log_is_told_before_that_of_a_data_file(world: World) -> None:
    """The repair of the log comes first."""
    world.rival_writes(0, 1)
    world.rival_writes(1, 2)
    spoil(world, 3)
    world.rows.damaged = {"rival-1.1"}

    world.table.refresh()
    damage = world.table.state.damage

    assert damage is not None
    assert (world.table.state.version, damage.commit, damage.file) == (1, 3, log_name(3))


def rewrite_checkpoint(world: World, kind: str, key: str, value: object) -> None:
    """Give all actions of a kind another value."""
    files = world.store._disk.files
    name = next(name for name in files if name.endswith(".parquet"))
    read = pq.read_table(pa.BufferReader(files[name][0]))
    rows = read.to_pylist()
    for row in rows:
        if row[kind] is not None:
            row[kind][key] = value
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=read.schema), out)
    world.store.replace(name, out.getvalue().to_pybytes())


def test_a_checkpoint_that_says_nonsense_is_named(world: World) -> None:
    """Its Parquet can be read; what stands in it is not what Delta writes."""
    world.rival_writes(0, 1)
    make_checkpoint(world.store, load_snapshot(world.store), 9)
    rewrite_checkpoint(world, "txn", "version", None)

    with pytest.raises(LogCorruptError, match=r"^the checkpoint 1 of memory:// is damaged: KeyError: 'version'$"):
        load_table(world.store, segment_of)


def test_a_checkpoint_whose_files_are_nonsense_is_named(world: World) -> None:
    world.rival_writes(0, 1)
    make_checkpoint(world.store, load_snapshot(world.store), 9)
    rewrite_checkpoint(world, "add", "path", None)

    with pytest.raises(LogCorruptError, match=r"^the checkpoint 1 of memory:// is damaged: "):
        load_table(world.store, segment_of)


def test_a_checkpoint_of_a_newer_protocol_is_refused(world: World) -> None:
    """As a commit of one is."""
    world.rival_writes(0, 1)
    make_checkpoint(world.store, load_snapshot(world.store), 9)
    rewrite_checkpoint(world, "protocol", "minReaderVersion", 99)

    with pytest.raises(KafkaError, match="memory://"):
        load_table(world.store, segment_of)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda read: read.rename_columns(["uxn" if name == "txn" else name for name in read.column_names]), "uxn"),
        (lambda read: read.drop_columns(["txn"]), "rows without an action"),
        (lambda read: changed_metadata(read, id=None), "metadata"),
        (lambda read: changed_metadata(read, schemaString=""), "metadata"),
        (lambda read: changed_metadata(read, configuration=b"a"), "metadata"),
        (lambda read: changed_metadata(read, configuration=...), "metadata"),
    ],
    ids=["a kind", "no kind", "an id", "a schema", "kinds of values", "a field"],
)
def test_a_checkpoint_that_has_lost_a_name_is_damaged(
    world: World, change: Callable[[pa.Table], pa.Table], said: str
) -> None:
    """No checksum of its pages says that; what has lost its name would be overlooked."""
    world.rival_writes(0, 1)
    make_checkpoint(world.store, load_snapshot(world.store), 9)
    name = "_delta_log/00000000000000000001.checkpoint.parquet"
    out = pa.BufferOutputStream()
    pq.write_table(change(pq.read_table(pa.BufferReader(world.store.read(name)))), out)
    world.store.replace(name, out.getvalue().to_pybytes())
    world.drop(0)

    with pytest.raises(LogCorruptError, match=said):
        load_table(world.store, segment_of)


def changed_metadata(read: pa.Table, **changes: Any) -> pa.Table:
    """The same checkpoint with other values in its `metaData`; `...` takes a field out."""
    rows = [row and {**row, **changes} for row in read.column("metaData").to_pylist()]
    gone = {name for name, value in changes.items() if value is ...}
    kinds = [
        pa.field(field.name, pa.binary() if isinstance(changes.get(field.name), bytes) else field.type)
        for field in read.schema.field("metaData").type
        if field.name not in gone
    ]
    kept = [row and {name: value for name, value in row.items() if name not in gone} for row in rows]
    at = read.column_names.index("metaData")
    return read.set_column(at, "metaData", pa.array(kept, pa.struct(kinds)))


def test_a_table_whose_log_says_nothing_of_it_has_no_id_and_no_schema() -> None:
    """A foreign table below a folder that a topic may have: its id is no topic's."""
    store = ScriptedStore()
    store.replace(log_name(0), b'{"commitInfo": {"operation": "WRITE"}}')

    state = load_table(store, segment_of)

    assert (state.table_id, state.schema, state.properties) == ("", "", {})


def test_a_checkpoint_tells_the_properties_of_the_table() -> None:
    """The commit that set them is gone."""
    world = World(**{APPEND_ONLY: "true"})
    world.rival_writes(0, 1)
    make_checkpoint(world.store, load_snapshot(world.store), 9)
    world.drop(0)

    assert load_table(world.store, segment_of).properties == {APPEND_ONLY: "true"}


def test_a_damaged_data_file_of_the_first_rows_is_an_error(world: World) -> None:
    """An empty table would look like one that was never written to."""
    world.rival_writes(0, 1)
    world.rival_writes(1, 2)
    world.rows.damaged = {"rival-0.1"}

    with pytest.raises(DamagedFileError, match=r"rival-0\.1 cannot be read: cut off"):
        world.table.refresh()
    assert not world.table.loaded


def test_a_damaged_data_file_that_was_there_before_the_log_reaches_back_is_an_error(world: World) -> None:
    """Clean-up has taken the commit that added it."""
    world.rival_writes(0, 1)
    world.rival_writes(1, 2)
    make_checkpoint(world.store, load_snapshot(world.store), 9)
    world.drop(0, 1, 2)
    world.rows.damaged = {"rival-0.1"}

    with pytest.raises(DamagedFileError):
        world.table.refresh()


def test_a_data_file_that_is_found_damaged_while_following_loads_anew(world: World) -> None:
    """At the version before it."""
    world.rival_writes(0, 1)

    class Careful(Rows):
        def on_commit(self, commit: TableCommit) -> None:
            if any(add.path in self.damaged for add in commit.adds):
                raise DamagedFileError("memory://", commit.adds[0].path, "cut off")
            super().on_commit(commit)

    rows = Careful()
    table = world.opened(follower=rows)
    table.refresh()
    rows.damaged = {"rival-1.1"}
    world.rival_writes(1, 2)

    assert table.refresh()
    assert (table.state.version, rows.told) == (1, ["load 1", "load 1"])
    assert table.state.damage is not None


# --- a version that was seen and is gone -----------------------------------------------------------


def reloaded(table: Table) -> tuple[int, int] | None:
    table.forget()
    table.refresh()
    return table.taken_back


def test_version_that_disappears_is_reported_with_the_newest_one_there(world: World) -> None:
    """As after a restored backup: plans of this client may rest on records that are gone."""
    world.rival_writes(0, 1)
    world.rival_writes(1, 2)
    world.table.refresh()
    world.drop(2)

    assert reloaded(world.table) == (2, 1)


def test_newest_version_that_is_still_there_is_not_reported(world: World) -> None:
    world.rival_writes(0, 1)
    world.table.refresh()

    assert reloaded(world.table) is None


def test_new_table_with_fewer_versions_is_not_reported_and_its_own_versions_are(world: World) -> None:
    world.rival_writes(0, 1)
    world.rival_writes(1, 2)
    world.table.refresh()
    world.drop(0, 1, 2)
    world.put(0, creation("other", {}, partition_by=["partition"], properties={}, time_ms=3))
    assert reloaded(world.table) is None

    rival = world.opened()
    rival.change(Appends(world.store, "first"), world.deadline())
    world.table.refresh()
    world.drop(1)

    assert reloaded(world.table) == (1, 0)
