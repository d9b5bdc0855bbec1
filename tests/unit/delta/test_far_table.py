"""A table in a storage whose requests take long: what is asked, when, and that no plan rests on what is out of date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafkalike.delta.actions import log_name
from kafkalike.delta.checkpoint import make_checkpoint
from kafkalike.delta.log_files import LAST_CHECKPOINT
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.delta.table import Table
from kafkalike.delta.table_change import Change, Landed, Plan, Unchanged
from kafkalike.delta.table_state import TableState, load_table
from kafkalike.delta.tailed_table import FAR_RECHECK_SECONDS
from kafkalike.errors import KafkaError, KafkaStorageError
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.storage.port import Storage
from kafkalike.storage.scheduler import NOW, Pace
from kafkalike.storage.shared_root import Looks
from tests.tools.far import RemoteScheduler
from tests.tools.scripted_store import ScriptedStore, SleptClock
from tests.unit.delta.test_table_steps import Appends, World, segment_of

WAITING = Pace(longest=60.0)


class FarScheduler(RemoteScheduler):
    """Tells its store what is missing."""

    storage: FarStore

    def note_missing(self, name: str, since: float, quiet_seconds: float) -> None:
        self.storage.missing.append((name, since, quiet_seconds))


class FarStore(ScriptedStore):
    """A scripted store that wants to be spared."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = FarScheduler(self)
        self.looks = Looks()
        self.missing: list[tuple[str, float, float]] = []
        """What it was told is not there: file, since when, and for how many seconds nothing has come."""

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        return self.looks.look(name, pace, lambda: Storage.look(self, name))

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        made = super().put_if_absent(name, content, durable=durable)
        if made:
            self.looks.made(name, content)
        return made

    def size(self, name: str) -> int:
        self.calls.append(f"size {name}")
        return super().size(name)

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Any]:
        self.calls.append(f"list {after or folder}")
        return super().list(folder, deep=deep, after=after)


class Far(World):
    """A table there. The rival is another process: it shares no looks."""

    store: FarStore

    def __init__(self, **properties: str) -> None:
        super().__init__(**properties)
        near = self.store
        self.store = FarStore()
        self.store._disk = near._disk
        self.table, self.rival = self.opened(follower=self.rows), Table(near, SleptClock(), to_segment=segment_of)
        self.store.calls.clear()

    def append(self, plan: Plan[None], table: Table | None = None) -> Landed | Unchanged[None]:
        """As a topic's log does it."""
        table = table or self.table

        def refresh(pace: Pace) -> None:
            table.refresh(pace)
            table.check_there(pace)

        return table.change(plan, self.deadline(), refresh, questions=table.questions)

    def calls(self) -> list[str]:
        """What the storage was asked, with versions in place of the log's names."""
        found, self.store.calls = self.store.calls, []
        return [c.replace("_delta_log/", "").replace(".json", "").replace("0" * 19, "") for c in found]


@pytest.fixture
def far() -> Far:
    """A table of one version that was looked at."""
    far = Far()
    far.table.refresh()
    far.calls()
    return far


def test_an_append_asks_beside_its_plan_and_nothing_after_its_put(far: Far) -> None:
    for version in (1, 2):
        found = far.append(Appends(far.store, "a"))

        assert isinstance(found, Landed)
        assert far.calls() == [f"read {version}", f"size {version - 1}", f"put {version}"]


def test_a_plan_that_others_have_overtaken_is_made_anew_and_its_file_goes(far: Far) -> None:
    far.rival_writes(0, 2)

    found = far.append(plan := Appends(far.store, "a"))

    assert isinstance(found, Landed)
    assert plan.tries == 2
    assert found.change.adds[0].stats["run"] == [2, 3]
    assert "discard a.1" in far.calls()
    assert load_table(far.store, segment_of).end(0) == 3


def test_a_plan_that_still_holds_is_kept(far: Far) -> None:
    """What others did is no concern of it."""
    far.rival_writes(0, 2)

    found = far.append(plan := Appends(far.store, "a", heeds_end=False))

    assert isinstance(found, Landed)
    assert (found.version, plan.tries) == (2, 1)


def test_a_lost_race_is_followed_by_questions_side_by_side(far: Far) -> None:
    far.store.puts = [lambda: far.rival_writes(0, 1)]

    found = far.append(Appends(far.store, "a"))

    assert isinstance(found, Landed)
    calls = far.calls()
    assert calls[-5:] == ["read 1", "size 0", "read 2", "discard a.1", "put 2"]


class Refusing:
    """Refuses the first plan, or has nothing to do there."""

    def __init__(self, then: Plan[None], first: Exception | Unchanged[None]) -> None:
        self.then, self.first, self.tries = then, first, 0

    def __call__(self, state: TableState) -> Change | Unchanged[None]:
        self.tries += 1
        if self.tries > 1:
            return self.then(state)
        if isinstance(self.first, Exception):
            raise self.first
        return self.first


@pytest.mark.parametrize("first", [KafkaError("too large, by old settings"), Unchanged(None)])
def test_what_is_known_neither_refuses_nor_finishes_an_append(far: Far, first: Exception | Unchanged[None]) -> None:
    """Only what was looked at does."""
    found = far.append(Refusing(Appends(far.store, "a"), first))

    assert isinstance(found, Landed)


def test_a_storage_that_refuses_the_files_is_not_asked_twice(far: Far) -> None:
    plan = Refusing(Appends(far.store, "a"), KafkaStorageError("full"))

    with pytest.raises(KafkaStorageError, match="full"):
        far.append(plan)
    assert plan.tries == 1


def test_a_plan_made_beside_a_look_that_fails_leaves_no_file(far: Far) -> None:
    far.store.reads = [OSError("away"), OSError("away")]

    with pytest.raises(KafkaStorageError, match="away"):
        far.append(Appends(far.store, "a"))
    assert far.calls() == ["read 1", "size 0", "read 1", "discard a.1"]


def test_a_table_that_is_not_loaded_is_looked_at_before_the_plan() -> None:
    far = Far()
    far.rival_writes(0, 2)

    found = far.append(plan := Appends(far.store, "a"))

    assert isinstance(found, Landed)
    assert plan.tries == 1
    assert found.change.adds[0].stats["run"] == [2, 3]


@pytest.mark.parametrize("looks", [True, False])
def test_without_a_look_at_the_version_before_the_place_is_looked_at_after_the_put(far: Far, *, looks: bool) -> None:
    """It may have been emptied by a clean-up since the table was loaded."""
    found = far.append(Appends(far.store, "a")) if looks else far.change(Appends(far.store, "a"))

    assert isinstance(found, Landed)
    assert far.calls()[-1] == ("put 1" if looks else "size 0")


def test_a_look_at_the_version_before_that_is_older_than_the_plan_says_nothing(far: Far) -> None:
    """A clean-up may have come since."""
    far.append(Appends(far.store, "a"))
    far.table.check_there(NOW)
    far.calls()

    found = far.change(Appends(far.store, "b"))

    assert isinstance(found, Landed)
    assert far.calls()[-2:] == ["put 2", "size 1"]


class AloneScheduler(FarScheduler):
    """Writers do not commit for each other."""

    @property
    def combines(self) -> bool:
        return False


class AloneStore(FarStore):
    """A storage that wants to be spared, and whose writers do not commit for each other."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = AloneScheduler(self)


def test_where_nobody_commits_for_others_a_plan_waits_for_its_look(far: Far) -> None:
    """And the place is looked at after the put."""
    near, far.store = far.store, AloneStore()
    far.store._disk = near._disk
    far.table = far.opened(follower=far.rows)
    far.table.refresh()
    far.calls()

    far.append(Appends(far.store, "a"))

    assert far.calls() == ["read 1", "size 0", "put 1", "size 0"]


def test_where_commits_do_not_stay_for_an_hour_the_place_is_looked_at_after_the_put() -> None:
    far = Far(**{"delta.logRetentionDuration": "interval 5 seconds"})
    far.table.refresh()

    far.append(Appends(far.store, "a"))

    assert far.calls()[-1] == "size 0"


def test_a_fence_since_the_plan_makes_it_anew(far: Far) -> None:
    far.rival.fence(far.deadline())

    far.append(plan := Appends(far.store, "a", heeds_end=False))

    assert plan.tries == 2


def test_who_waits_hears_of_a_new_commit_before_the_next_one_is_looked_for(far: Far) -> None:
    """And looks on at once where it is an old one."""
    far.rival_writes(0, 1)
    far.rival_writes(1, 2)

    assert far.table.refresh(WAITING)
    assert far.table.state.version == 1
    assert far.table.refresh(WAITING)
    assert far.calls() == ["read 1", "read 2"]
    far.clock.sleep(60)
    far.rival_writes(2, 3)
    far.rival_writes(3, 4)
    far.table.refresh(WAITING)
    assert far.table.state.version == 4


def test_a_quiet_log_is_listed_from_the_known_version_on_and_rarely(far: Far) -> None:
    far.clock.sleep(60)
    far.table.refresh(WAITING)
    assert far.calls() == ["read 1"]

    far.clock.sleep(FAR_RECHECK_SECONDS)
    assert not far.table.refresh(WAITING)
    assert sum(call.startswith("list") for call in far.calls()) == 1


# --- opening by the checkpoint that the log names ------------------------------------------------


def checkpointed(versions: int, at: int = 3) -> Far:
    """A log with a checkpoint of its third version, or of another one."""
    far = Far()
    for number in range(versions):
        far.rival_writes(number, number + 1)
        if number == at - 1:
            make_checkpoint(far.store, load_snapshot(far.store), 0)
    far.calls()
    return far


def opened(far: Far) -> tuple[TableState, Sequence[str]]:
    state = load_table(far.store, segment_of)
    return state, far.calls()


def test_a_log_is_opened_without_a_list_of_what_its_checkpoint_has() -> None:
    """But for the commits of the checkpoint's block, whose name a file of joined commits has."""
    state, calls = opened(checkpointed(105, 103))

    assert (state.version, state.end(0)) == (105, 105)
    assert calls[0] == f"read {LAST_CHECKPOINT.removeprefix('_delta_log/')}"
    assert [call for call in calls if call.startswith("list")] == [f"list {100:020d}"]
    assert calls[-2:] == [f"read {104:020d}", f"read {105:020d}"]


@pytest.mark.parametrize("harm", ["gone", "cut off", "hint gone", "hint cut off"])
def test_a_named_checkpoint_that_does_not_do_is_passed_over(harm: str) -> None:
    far = checkpointed(5)
    checkpoint = f"_delta_log/{3:020d}.checkpoint.parquet"
    match harm:
        case "gone":
            far.store.remove(checkpoint)
        case "cut off":
            far.store.replace(checkpoint, b"PAR1")
        case "hint gone":
            far.store.remove(LAST_CHECKPOINT)
        case "hint cut off":
            far.store.replace(LAST_CHECKPOINT, b"{")

    state, _ = opened(far)

    assert state.version == 5


def test_a_damaged_end_is_told_as_where_the_whole_log_is_listed() -> None:
    far = checkpointed(5)
    far.put(5, b"{")

    state, _ = opened(far)

    assert state.version == 4
    assert state.damage is not None


def test_a_table_that_is_not_there_is_asked_for_by_its_first_version() -> None:
    """For a while; then the log is listed again, as one may begin later."""
    far = Far()
    first, far.store._disk.files = dict(far.store._disk.files), {}
    asked = []
    for seconds in (0.0, 1.0, FAR_RECHECK_SECONDS):
        far.clock.sleep(seconds)
        with pytest.raises(FileNotFoundError):
            far.table.refresh()
        asked.append(sorted({call.split()[0] for call in far.calls()}))
    far.store._disk.files.update(first)

    assert far.table.refresh()
    assert far.table.state.version == 0
    assert asked[1] == ["read"]
    assert asked[0] == asked[2] == ["list", "read"]


def test_a_table_whose_log_begins_again_is_asked_for_by_one_file_for_a_while() -> None:
    """Counted from when its log was listed, not from when the process began."""
    far = Far()
    far.store._disk.files = {}
    far.clock.sleep(FAR_RECHECK_SECONDS)
    asked = []
    for seconds in (0.0, 1.0):
        far.clock.sleep(seconds)
        with pytest.raises(FileNotFoundError):
            far.table.refresh()
        asked.append(sorted({call.split()[0] for call in far.calls()}))

    assert asked == [["list", "read"], ["read"]]
    assert not far.table.seen_within(FAR_RECHECK_SECONDS)


def test_who_opens_a_table_notes_that_the_next_version_was_not_there() -> None:
    """Since before it asked, and for as long as the table is quiet: the first look then asks nothing."""
    far = Far()
    far.rival_writes(0, 1)
    table = far.opened()
    far.clock.sleep(30.0)
    before = SYSTEM_CLOCK.monotonic()

    table.refresh()

    (name, since, quiet_seconds), last = far.store.missing[0], table.state.last_commit_ms
    assert len(far.store.missing) == 1
    assert name == log_name(2)
    assert before <= since <= SYSTEM_CLOCK.monotonic()
    assert quiet_seconds == (far.clock.now_ms() - last) / 1000


def test_nothing_is_noted_of_a_table_with_damage() -> None:
    """It is not seen at its newest version."""
    far = Far()
    far.put(1, b"no JSON")

    far.table.refresh()

    assert far.table.state.damage is not None
    assert far.store.missing == []


class Unanswered(FarStore):
    """A storage that gives no answer to calls of some kinds."""

    kinds: frozenset[str] = frozenset()

    def _answer(self, kind: str) -> None:
        if kind in self.kinds:
            raise OSError("no answer")

    def size(self, name: str) -> int:
        self._answer("size")
        return super().size(name)

    def read(self, name: str) -> bytes:
        self._answer("read")
        return super().read(name)

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Any]:
        self._answer("list")
        return super().list(folder, deep=deep, after=after)


@pytest.mark.parametrize(
    ("act", "kind"), [("load", "list"), ("look again", "list"), ("there", "size"), ("still none", "read")]
)
def test_a_look_without_an_answer_names_the_table(act: str, kind: str) -> None:
    far = Far()
    near, silent = far.store, Unanswered()
    far.store, silent._disk = silent, near._disk
    table = far.opened(follower=far.rows)
    if act == "still none":
        there, silent._disk.files = silent._disk.files, {}
        with pytest.raises(FileNotFoundError):
            table.refresh()
        silent._disk.files = there
    elif act != "load":
        table.refresh()
    silent.kinds = frozenset({kind})
    far.clock.sleep(FAR_RECHECK_SECONDS + 1 if act == "look again" else 1.0)

    with pytest.raises(KafkaStorageError, match=r"memory://.*no answer"):
        table.check_there() if act == "there" else table.refresh()
