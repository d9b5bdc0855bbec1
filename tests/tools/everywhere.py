"""A store in memory that passes for an object store: no turns, answers that get lost, puts that land late, others in
between; and a clock that only sleeping moves."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafkalike.delta.layout import TRANSACTIONS
from kafkalike.delta.log_cleaner import Helpers
from kafkalike.model.clock import Deadline
from kafkalike.storage.memory import MemoryScheduler, MemoryStorage
from kafkalike.storage.port import Entry, NotStoredError
from tests.tools.far import EverywhereCoordination


class NoThreads(Helpers):
    """What helpers do is done at once, so that it is part of the schedule."""

    def start(self, work: Callable[[], object]) -> None:
        work()


class SimulatedClock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.seconds = 1_700_000_000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Mood:
    """What befalls the requests of a root; shared by its stores."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.trouble = 0.0
        self.far = rng.random() < 0.5
        self.meant: Callable[[str], bool] = lambda table: not table.startswith("__")
        """Tables whose requests are meant."""
        self.others: list[Callable[[], None]] = []
        """What other writers do between two requests."""
        self.before: list[tuple[str, Callable[[], None]]] = []
        """What happens once before a request whose words begin so, such as `put _delta_log`."""
        self.late: list[Callable[[], object]] = []
        self.calls: list[str] = []
        self.depth = 0

    def between(self, call: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.calls.append(call)
        for found in [b for b in self.before if call.startswith(b[0])]:
            if found in self.before:
                self.before.remove(found)
                found[1]()
        while self.late and self.rng.random() < 0.3:
            self.late.pop(self.rng.randrange(len(self.late)))()
        if self.others and self.depth < 4 and self.rng.random() < 0.25:
            self.depth += 1
            try:
                self.others.pop()()
            finally:
                self.depth -= 1

    def broken(self) -> bool:
        return self.rng.random() < self.trouble

    def settle(self) -> None:
        """Let everything that is under way land, and tell the truth from now on."""
        self.trouble = 0.0
        self.others.clear()
        self.before.clear()
        for land in self.late:
            land()
        self.late.clear()


class MoodyScheduler(MemoryScheduler):
    """Requests that take long, half of the time: plans are made beside looks then."""

    storage: EverywhereStore

    @property
    def is_remote(self) -> bool:
        return self.storage.mood.far

    @property
    def combines(self) -> bool:
        return True


class UnqueuedEverywhere(EverywhereCoordination):
    """Files that every machine is said to see, and no turns."""

    @contextmanager
    def turn(self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None) -> Iterator[None]:
        del name, deadline
        meanwhile()
        yield


class EverywhereStore(MemoryStorage):
    """Files that every machine is said to see, and no turns. Trouble befalls tables' logs, what waits beside them, and
    where it is meant, what is staged for transactions.

    Args:
        clock: its clock.
        mood: what befalls requests.
    """

    def __init__(self, clock: SimulatedClock, mood: Mood) -> None:
        super().__init__()
        self.mood = mood
        self.scheduler = MoodyScheduler(self)
        self.coordination = UnqueuedEverywhere(lambda: clock.now_ms() * 1_000_000)

    def _meant(self, name: str) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return False
        table = self._prefix.rstrip("/")
        return self.mood.meant(table) and (name.startswith(("_delta_log", "_waiting")) or table == TRANSACTIONS)

    def read(self, name: str) -> bytes:
        if self._meant(name):
            self.mood.between(f"read {name}")
            if self.mood.broken():
                raise OSError("no answer to the read")
        return super().read(name)

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        if self._meant(folder):
            self.mood.between(f"list {folder}")
            if self.mood.broken():
                raise OSError("no answer to the list")
        return super().list(folder, deep=deep, after=after)

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        if not self._meant(name):
            return super().put_if_absent(name, content, durable=durable)
        self.mood.between(f"put {name}")
        if not self.mood.broken():
            return super().put_if_absent(name, content)
        kind = self.mood.rng.choice(["refused", "lost", "before", "late", "twice", "late twice"])
        if kind == "refused":
            raise NotStoredError("no room")
        if kind == "before":
            raise OSError("not done")
        if kind.startswith("late"):
            self.mood.late += [lambda: MemoryStorage.put_if_absent(self, name, content)] * (1 + kind.endswith("twice"))
            raise OSError("still under way")
        made = super().put_if_absent(name, content)
        if kind == "lost":
            raise OSError("done, and the answer is lost")
        return made and super().put_if_absent(name, content)

    def replace(self, name: str, content: bytes) -> None:
        if self._meant(name) and (content == b"withdrawn\n" or name.endswith(".commits")):
            self.mood.between(f"replace {name}")
            if self.mood.broken():
                self.mood.late.append(lambda: MemoryStorage.replace(self, name, content))
                raise OSError("still under way")
        super().replace(name, content)

    def remove(self, name: str, *, quietly: bool = False) -> None:
        if quietly and self._meant(name):
            self.mood.between(f"discard {name}")
            if self.mood.broken():
                return
        super().remove(name, quietly=quietly)
