"""A store in memory whose calls go as a test says, and a clock that only sleeping moves."""

from __future__ import annotations

from collections.abc import Callable

from kafkalike.storage.memory import MemoryStorage


class SleptClock:
    """Time that passes by sleeping alone; `slept` tells how long each sleep was, in seconds."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return 1_000 + int(sum(self.slept) * 1000)

    def monotonic(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


Step = Exception | Callable[[], object] | None
"""How one call goes: an error instead of it, something that happens before it, or None: as it should."""


class ScriptedStore(MemoryStorage):
    """Takes the next step of a list for each call; as it should when the list is at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[Step] = []
        self.reads: list[Step] = []
        self.syncs: list[Step] = []
        self.after_puts: list[Callable[[], object]] = []
        """What happens when a put is done, before it is answered."""
        self.calls: list[str] = []
        """`put`, `durable put`, `read`, `sync` and `discard`, with the file's name."""

    def _step(self, steps: list[Step], call: str) -> None:
        self.calls.append(call)
        step = steps.pop(0) if steps else None
        if isinstance(step, Exception):
            raise step
        if step is not None:
            step()

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        self._step(self.puts, f"{'durable put' if durable else 'put'} {name}")
        made = super().put_if_absent(name, content, durable=durable)
        if self.after_puts:
            self.after_puts.pop(0)()
        return made

    def read(self, name: str) -> bytes:
        self._step(self.reads, f"read {name}")
        return super().read(name)

    def sync(self, name: str) -> None:
        self._step(self.syncs, f"sync {name}")

    def remove(self, name: str, *, quietly: bool = False) -> None:
        if quietly:
            self.calls.append(f"discard {name}")
        super().remove(name, quietly=quietly)

    def size(self, name: str) -> int:
        return len(super().read(name))

    def made(self, call: str) -> list[str]:
        """The names of the files that such calls were made of."""
        return [name for found, _, name in (c.rpartition(" ") for c in self.calls) if found == call]
