"""A store in memory whose files take a request each, which are counted, and whose clock goes on with each file."""

from __future__ import annotations

import zlib
from typing import Literal

from kafkalike.storage.memory import MemoryCoordination, MemoryScheduler, MemoryStorage
from kafkalike.storage.port import Entry


def tag_of(content: bytes) -> str:
    """What a store in memory calls a content, as an ETag does."""
    return f"{zlib.crc32(content):08x}"


class RemoteScheduler(MemoryScheduler):
    """Requests that take long and cost money."""

    @property
    def is_remote(self) -> bool:
        return True

    @property
    def combines(self) -> bool:
        return True


class EverywhereCoordination(MemoryCoordination):
    """Files that every machine is said to see."""

    @property
    def reach(self) -> Literal["everywhere"]:
        return "everywhere"


class FarStore(MemoryStorage):
    """Files that every machine is said to see."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        """What was read, written and listed, in order; stores of folders share it."""
        self._ticks = [1_700_000_000_000]
        super().__init__()
        self.scheduler = RemoteScheduler(self)
        self.coordination = EverywhereCoordination(lambda: self._ticks[0] * 1_000_000)

    def read(self, name: str) -> bytes:
        self.asked.append(f"get {self._prefix}{name}")
        return super().read(name)

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        self.asked.append(f"list {self._prefix}{folder}")
        return super().list(folder, deep=deep, after=after)

    def replace(self, name: str, content: bytes) -> None:
        self.asked.append(f"put {self._prefix}{name}")
        super().replace(name, content)
        self._ticks[0] += 1
