"""CircuitBreaker: whether a storage that is far answers; while it does not, nobody waits for it.

The first request that gets no answer takes some seconds. Others are refused at once from then on, and a thread asks the
storage now and then, so that no caller waits for it to be back.
"""

from __future__ import annotations

import errno
import math
import threading
from collections.abc import Callable
from typing import Final

from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.storage.port import NotStoredError

RETRY_SECONDS: Final = 0.5
"""How long nobody asks a storage that gave no answer."""


class CircuitBreaker:
    """Whether one storage answers, as far as this process knows. Thread-safe.

    Args:
        uri: which one, for errors.
        ask: asks it for something, and tells `heard` or `missed` what came of it.
        begin: makes a call in another thread; None where there can be none.
        clock: time.
    """

    def __init__(
        self,
        uri: str,
        ask: Callable[[], object],
        begin: Callable[[Callable[[], None]], object | None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._uri = uri
        self._ask = ask
        self._begin = begin
        self._clock = clock
        self._mutex = threading.Lock()
        self._heard = -math.inf
        self._silent = False
        self._since = -math.inf
        self._asking = False
        self._next = -math.inf

    def check(self, *, conditional: bool = False) -> None:
        """Refuse a request while there is no answer, and have the storage asked.

        Args:
            conditional: it is a conditional put, of which nothing was stored then.

        Raises:
            NotStoredError, OSError: it gives no answer.
        """
        if not self._silent:
            return
        with self._mutex:
            due = not self._asking and self._clock.monotonic() >= self._next
            self._asking |= due
        if due and self._begin(self._try) is None:
            self._ended()
        raise (NotStoredError if conditional else OSError)(errno.ETIMEDOUT, "it gives no answer", self._uri)

    def ask_again(self) -> None:
        """Ask the storage now, in the caller's thread, if it is thought to give no answer."""
        if self._silent:
            self._try()

    def _try(self) -> None:
        try:
            self._ask()
        except OSError:
            # `missed` was told.
            return
        finally:
            self._ended()

    def _ended(self) -> None:
        with self._mutex:
            self._next = self._clock.monotonic() + RETRY_SECONDS
            self._asking = False

    def heard(self) -> None:
        """Note an answer, whatever it says."""
        self._heard = self._clock.monotonic()
        self._silent = False

    def missed(self, began: float) -> None:
        """Note that a request got no answer.

        Args:
            began: when it was sent, by the clock. If others were answered since, it says nothing of the storage.
        """
        if self._heard < began and not self._silent:
            self._next = self._clock.monotonic() + RETRY_SECONDS
            self._since = began
            self._silent = True

    def seconds(self) -> float:
        """For how long it has given no answer; 0 where it answers, as far as is known."""
        return self._clock.monotonic() - self._since if self._silent else 0.0
