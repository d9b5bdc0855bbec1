"""Byte budget: memory that the requests of all clients share."""

from __future__ import annotations

import asyncio
import collections
from dataclasses import dataclass
from typing import Final

BUDGET_BYTES: Final = 256 * 1024 * 1024
"""Bytes of all larger requests that one gateway holds in memory."""

LOG_SECONDS: Final = 1.0
"""Time between two log lines about malformed requests of one address."""

MAX_LOGGED: Final = 16
"""Addresses whose last log line is remembered."""


class ByteBudget:
    """Bytes that the requests of all connections may hold together, and the log lines about them.

    Args:
        size: bytes in all.
    """

    def __init__(self, size: int) -> None:
        self._size = self._left = size
        self._waiting: collections.deque[tuple[asyncio.Future[None], int]] = collections.deque()
        self._logged: dict[str, float] = {}

    @property
    def left(self) -> int:
        """Bytes that are free; negative if a request took more."""
        return self._left

    @property
    def used(self) -> int:
        """Bytes that are reserved."""
        return self._size - self._left

    async def reserve(self, size: int) -> None:
        """Wait until bytes are free, and reserve them. One request may take more than are left."""
        if not size or self._left > 0:
            self._left -= size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, size))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.release(size)
            raise

    def release(self, size: int) -> None:
        """Return bytes that `reserve` has reserved, and reserve them for waiting callers, in their order."""
        self._left += size
        while self._left > 0 and self._waiting:
            turn, wanted = self._waiting.popleft()
            if not turn.done():
                self._left -= wanted
                turn.set_result(None)

    def may_log(self, host: str, now: float) -> bool:
        """Return whether a malformed request of an address gets a log line; one a second does."""
        if now - self._logged.get(host, -LOG_SECONDS) < LOG_SECONDS:
            return False
        if len(self._logged) > MAX_LOGGED:
            self._logged.clear()
        self._logged[host] = now
        return True


@dataclass(slots=True)
class RequestMemory:
    """The memory of the records of one request: inflated ones to append, or ones on their way to the client."""

    budget: ByteBudget | None = None
    """Memory of all requests; None does not limit it."""
    held: int = 0
    """Bytes taken from the budget."""

    async def reserve(self, size: int) -> None:
        """Wait until the budget has bytes, and take them. Only a request that holds none may wait."""
        if self.budget is not None:
            await self.budget.reserve(size)
            self.held += size

    @property
    def scarce(self) -> bool:
        """True if the budget has no bytes left."""
        return self.budget is not None and self.budget.left <= 0

    def keep(self, size: int) -> None:
        """Hold this number of bytes from now on."""
        if self.budget is not None:
            self.budget.release(self.held - size)
            self.held = size
