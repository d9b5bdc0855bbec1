"""The change loop beside concurrent writers, on a storage that lies: nothing lost, nothing doubled, no hole."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kafkalike.delta.actions import Add, log_name
from kafkalike.delta.commit_file import CommitPuts, creation
from kafkalike.delta.table import Questions, Refresh, T, Table
from kafkalike.delta.table_change import Change, EndsAt, Landed, Plan, Unchanged
from kafkalike.delta.table_state import TableState, end_app
from kafkalike.errors import KafkaError, KafkaStorageError, UnknownOutcomeError
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.segments import Segment, gaps_and_overlaps
from kafkalike.storage.memory import MemoryStorage
from kafkalike.storage.port import NotStoredError, Storage
from tests.tools.effort import examples, seeds
from tests.tools.everywhere import SimulatedClock

SCHEDULES = int(os.environ.get("KAFKALIKE_SCHEDULES", examples(1500, 300)))
"""In all, a third of them with each amount of trouble; KAFKALIKE_SEEDS names others."""


class LyingStore(MemoryStorage):
    """Loses answers, lets puts land late, says "exists" to whoever was first, and lets others act between its calls."""

    def __init__(self, rng: random.Random, trouble: float) -> None:
        super().__init__()
        self.rng = rng
        self.trouble = trouble
        self.late: list[tuple[str, bytes]] = []
        self.others: list[Callable[[], None]] = []
        self.depth = 0

    def _between(self) -> None:
        while self.late and self.rng.random() < 0.3:
            name, content = self.late.pop(self.rng.randrange(len(self.late)))
            super().put_if_absent(name, content)
        if self.others and self.depth < 4 and self.rng.random() < 0.35:
            self.depth += 1
            try:
                self.others.pop()()
            finally:
                self.depth -= 1

    def _trouble(self) -> bool:
        return self.rng.random() < self.trouble

    def read(self, name: str) -> bytes:
        self._between()
        if not name.startswith("_delta_log"):
            return super().read(name)
        if self._trouble():
            raise OSError("no answer to the read")
        content = super().read(name)
        if self._trouble():
            return content[: len(content) // 2]
        return content

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        del durable
        self._between()
        if self._trouble():
            kind = self.rng.choice(["refused", "lost", "before", "late", "twice", "late twice"])
            if kind == "refused":
                raise NotStoredError("no room")
            if kind == "lost":
                super().put_if_absent(name, content)
                raise OSError("done, and the answer is lost")
            if kind == "before":
                raise OSError("not done")
            if kind == "late":
                self.late.append((name, content))
                raise OSError("still under way")
            if kind == "late twice":
                self.late += [(name, content), (name, content)]
                raise OSError("still under way")
            super().put_if_absent(name, content)
            return super().put_if_absent(name, content)
        return super().put_if_absent(name, content)

    def settle(self) -> None:
        """Let everything that is under way land, and tell the truth from now on."""
        self.trouble = 0.0
        self.others.clear()
        for name, content in self.late:
            super().put_if_absent(name, content)
        self.late.clear()


def segment_of(add: Add, _: Storage) -> Segment:
    start, stop = add.stats["run"]
    return Segment(add.partition or 0, start, stop, stop - start, 0, 0, add.size, add.path)


@dataclass
class Ledger:
    """What writers were told."""

    acknowledged: list[tuple[str, int, int]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


class Writer:
    """Appends runs of offsets to one table."""

    def __init__(self, name: str, store: LyingStore, ledger: Ledger, kind: type[Table]) -> None:
        self.name = name
        self.store = store
        self.ledger = ledger
        self.count = 0
        self.busy = False
        self.table = open_table(store, SimulatedClock(), store.rng, kind)

    def append(self) -> None:
        if self.busy:
            return
        self.busy = True
        self.count += 1
        label = f"{self.name}.{self.count}"
        records, partition = self.store.rng.randint(1, 3), self.store.rng.randint(0, 1)
        tries = 0

        def plan(state: TableState) -> Change:
            nonlocal tries
            tries += 1
            end = state.end(partition)
            path = f"{label}-{tries}"
            self.store.replace(path, b"records")
            add = Add(
                path=path,
                partition=partition,
                size=7,
                modification_ms=0,
                data_change=True,
                stats={"run": [end, end + records], "label": label},
            )
            return Change(
                operation="WRITE",
                time_ms=0,
                adds=[add],
                requires=[EndsAt(partition, end)],
                txns={end_app(partition): end + records},
            )

        try:
            landed: Landed | Unchanged[None] = self.table.change(plan, Deadline(SimulatedClock(), 60_000))
        except UnknownOutcomeError:
            self.ledger.unknown.append(label)
        except (KafkaError, OSError):
            self.ledger.refused.append(label)
        else:
            assert isinstance(landed, Landed)
            start, stop = landed.change.adds[0].stats["run"]
            self.ledger.acknowledged.append((label, start, stop))
        finally:
            self.busy = False


def open_table(store: Storage, clock: SimulatedClock, rng: random.Random, kind: type[Table] = Table) -> Table:
    return kind(store, clock, to_segment=segment_of, jitter=rng.random)


def made(store: MemoryStorage) -> None:
    table = open_table(store, SimulatedClock(), random.Random(0))
    assert table.create(
        creation("id", {"type": "struct", "fields": []}, partition_by=["partition"], properties={}, time_ms=0)
    )


def run(seed: int, trouble: float, kind: type[Table] = Table) -> tuple[LyingStore, Ledger]:
    rng = random.Random(seed)
    store, ledger = LyingStore(rng, 0.0), Ledger()
    made(store)
    store.trouble = trouble
    writers = [Writer(f"w{n}", store, ledger, kind) for n in range(rng.randint(2, 4))]
    for _ in range(rng.randint(2, 6)):
        store.others = [rng.choice(writers).append for _ in range(rng.randint(0, 5))]
        rng.choice(writers).append()
    store.settle()
    return store, ledger


def judge(store: LyingStore, ledger: Ledger) -> None:
    """Compare what a fresh reader finds with what writers were told."""
    fresh = open_table(store, SimulatedClock(), random.Random(0))
    found: dict[str, list[tuple[int, int]]] = {}
    for segment in fresh.state.index:
        found.setdefault(segment.path.rpartition("-")[0], []).append((segment.start, segment.stop))
        store.read(segment.path)  # Every file that the log names is there.
    for label, start, stop in ledger.acknowledged:
        assert found.get(label) == [(start, stop)], f"{label} was acknowledged at [{start}, {stop})"
    for label in ledger.refused:
        assert label not in found, f"{label} was refused, and is there"
    for label in ledger.unknown:
        assert len(found.get(label, [])) <= 1, f"{label} is there twice"
    for partition in range(2):
        runs = [segment.offsets for segment in fresh.state.index.segments(partition)]
        assert gaps_and_overlaps(partition, runs, 0) == []
        assert fresh.state.end(partition) == max((r.stop for r in runs), default=0)


@pytest.mark.slow
@pytest.mark.parametrize("trouble", [0.0, 0.1, 0.6])
def test_no_schedule_loses_or_doubles_an_append(trouble: float) -> None:
    """Two to four writers, every call of the storage a place where others act and where it may fail or lie."""
    told = Ledger()
    for seed in seeds(SCHEDULES // 3, SCHEDULES // 3):
        store, ledger = run(seed, trouble)
        try:
            judge(store, ledger)
        except AssertionError as wrong:
            raise AssertionError(f"seed {seed}, trouble {trouble}: {wrong}") from wrong
        told.acknowledged += ledger.acknowledged
        told.refused += ledger.refused
        told.unknown += ledger.unknown
    assert told.acknowledged
    # The trial is of what it says: all three endings occur.
    assert bool(told.refused) == (trouble > 0)
    assert bool(told.unknown) == (trouble > 0.5)


class PutsAsSaid(Table):
    """Puts its versions in another way."""

    puts: type[CommitPuts]

    def __init__(self, store: Storage, clock: Clock, **others: Any) -> None:
        super().__init__(store, clock, **others)
        self._puts = self.puts(store, clock, self._jitter)


class ExistsMeansAnothersPuts(CommitPuts):
    def _maker(self, name: str) -> str | None:
        return super()._maker(name) and ""


class ExistsMeansAnothers(PutsAsSaid):
    """Takes "exists" for "a concurrent writer's"."""

    puts = ExistsMeansAnothersPuts


class FailedMeansNothingTherePuts(CommitPuts):
    def put(self, version: int, content: bytes, append_id: str, *, durable: bool) -> bool:
        del append_id, durable
        try:
            return self.store.put_if_absent(log_name(version), content)
        except OSError as cause:
            raise KafkaStorageError(str(cause)) from cause


class FailedMeansNothingThere(PutsAsSaid):
    """Takes a put without an answer for one that did nothing."""

    puts = FailedMeansNothingTherePuts


class NotThereMeansNeverTherePuts(CommitPuts):
    def _fenced(self, version: int, append_id: str, cause: OSError, *, durable: bool) -> bool:
        del version, append_id, durable
        raise KafkaStorageError(str(cause)) from cause


class NotThereMeansNeverThere(PutsAsSaid):
    """Looks once what became of a put, and gives no fence."""

    puts = NotThereMeansNeverTherePuts


class NeverPlansAnew(Table):
    """Puts a change at the next version whatever came in between."""

    def change(
        self,
        plan: Plan[T],
        deadline: Deadline,
        refresh: Refresh | None = None,
        discard: Callable[[Change], None] | None = None,
        questions: Questions | None = None,
    ) -> Landed | Unchanged[T]:
        def careless(state: TableState) -> Change | Unchanged[T]:
            found = plan(state)
            return found if isinstance(found, Unchanged) else replace(found, requires=())

        return super().change(careless, deadline, refresh, discard, questions)


class RemovesInDoubtPuts(CommitPuts):
    def put(self, version: int, content: bytes, append_id: str, *, durable: bool) -> bool:
        try:
            return super().put(version, content, append_id, durable=durable)
        except UnknownOutcomeError as error:
            raise KafkaStorageError(str(error)) from error


class RemovesInDoubt(PutsAsSaid):
    """Removes the files of a change whose outcome it does not know."""

    puts = RemovesInDoubtPuts


@pytest.mark.parametrize(
    "mutant",
    [ExistsMeansAnothers, FailedMeansNothingThere, NotThereMeansNeverThere, NeverPlansAnew, RemovesInDoubt],
)
def test_the_trial_finds_a_loop_that_is_wrong(mutant: type[Table]) -> None:
    """Each of these was, or could have been, how the loop went wrong."""
    for seed in range(3000):
        store, ledger = run(seed, (0.0, 0.1, 0.6)[seed % 3], mutant)
        try:
            judge(store, ledger)
        except (AssertionError, FileNotFoundError):
            return
    pytest.fail(f"{mutant.__name__} was not found out")
