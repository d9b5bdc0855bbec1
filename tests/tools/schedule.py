"""Schedule: actors and a seed in, one order of everything they do to a store out; the same order each time.

Each actor is a thread with clients of its own. One of them runs at a time; at each call of the store another one may go
on, and nobody takes turns (`UnqueuedStore`): so what holds rests on compare-and-set alone.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.port import Entry, Storage
from tests.tools.clusters import UnqueuedCoordination

STEP_SECONDS: Final = 0.0001
"""What one step takes by the schedule's clock."""


class Schedule:
    """Who goes on.

    Args:
        seed: of all choices.
    """

    def __init__(self, seed: int) -> None:
        self.ahead_ms = 0
        """How far the time is ahead of the machine's."""
        self._chance = random.Random(seed)
        self._change = self._chance.choice([0.05, 0.2, 0.5, 1.0])
        self._waiting: dict[int, threading.Semaphore] = {}
        self._steps = 0
        self._over = threading.Event()

    def run(self, actors: Mapping[str, Callable[[], None]]) -> dict[str, BaseException]:
        """Let actors act to their ends; returns what came out of them."""
        raised: dict[str, BaseException] = {}
        begun = threading.Barrier(len(actors) + 1)

        def act(name: str, actor: Callable[[], None]) -> None:
            mine = self._waiting[threading.get_ident()] = threading.Semaphore(0)
            begun.wait()
            mine.acquire()
            try:
                actor()
            except BaseException as error:  # noqa: BLE001 - shown by the test
                raised[name] = error
            del self._waiting[threading.get_ident()]
            self._wake_one()

        threads = [threading.Thread(target=act, args=entry, name=entry[0]) for entry in actors.items()]
        for thread in threads:
            thread.start()
        begun.wait()
        self._order = [thread.ident for thread in threads]
        self._wake_one()
        self._over.wait()
        for thread in threads:
            thread.join()
        return raised

    def _wake_one(self) -> None:
        alive = [ident for ident in self._order if ident in self._waiting]
        if alive:
            self._waiting[self._chance.choice(alive)].release()
        else:
            self._over.set()

    def step(self) -> None:
        """A place where another actor may go on; for threads that are no actors, nothing."""
        mine = self._waiting.get(threading.get_ident())
        if mine is None:
            return
        self._steps += 1
        if self._chance.random() < self._change:
            self._wake_one()
            mine.acquire()

    # --- the clock -----------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The time, ms."""
        return SYSTEM_CLOCK.now_ms() + self.ahead_ms

    def monotonic(self) -> float:
        """Seconds of acting; time that passes in between wakes nobody's impatience."""
        return self._steps * STEP_SECONDS

    def sleep(self, seconds: float) -> None:
        """Let others act."""
        del seconds
        self._steps += 1
        self.step()

    def cluster(self, root: str) -> Cluster:
        """A client of its own for an actor."""
        return Cluster(ScheduledStore(root, self), clock=self)


class ScheduledStore(LocalStorage):
    """A folder whose calls are steps of a schedule, and whose writers take no turns."""

    def __init__(self, uri: str, schedule: Schedule, root: Any = None) -> None:
        super().__init__(uri, root or UnqueuedCoordination(uri))
        self._schedule = schedule

    def at(self, folder: str) -> ScheduledStore:
        return ScheduledStore(f"{self.uri}/{folder}", self._schedule, self.coordination)

    def read(self, name: str) -> bytes:
        self._schedule.step()
        return super().read(name)

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        del durable
        self._schedule.step()
        return super().put_if_absent(name, content)

    def replace(self, name: str, content: bytes) -> None:
        self._schedule.step()
        super().replace(name, content)

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        self._schedule.step()
        return super().open_input(name, buffer_size)

    def open_output(self, name: str) -> pa.NativeFile:
        self._schedule.step()
        return super().open_output(name)

    def size(self, name: str) -> int:
        self._schedule.step()
        return super().size(name)

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        self._schedule.step()
        return super().list(folder, deep=deep, after=after)

    def make_folder(self, folder: str) -> None:
        self._schedule.step()
        super().make_folder(folder)

    def copy(self, source: str, target: Storage, name: str) -> bool:
        self._schedule.step()
        return super().copy(source, target, name)

    def remove(self, name: str, *, quietly: bool = False) -> None:
        self._schedule.step()
        super().remove(name, quietly=quietly)

    def sync(self, name: str) -> None:
        """Nothing here is about power failures."""
