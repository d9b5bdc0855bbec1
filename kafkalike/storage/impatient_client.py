"""Impatient client: requests to a root in a cluster of several roots, with a timeout of some seconds.

The first unanswered request takes some seconds. While the root does not answer, the circuit is open (`CircuitBreaker`):
requests fail at once, and a thread probes the root now and then, so that no caller waits for its return.
"""

from __future__ import annotations

import errno
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import obstore

from kafkalike.model.clock import SYSTEM_CLOCK, Clock, time_left
from kafkalike.model.config.storage_options import StorageOptions
from kafkalike.storage.object_client import PATIENCE, RETRIES, Client, ObjectClient
from kafkalike.storage.object_root import ObjectRoot
from kafkalike.storage.port import NotStoredError

QUICK_SECONDS: Final = 3.0
"""Longest silence of a storage: no part of an answer arrives, or a small object is not accepted."""

SHORT_SECONDS: Final = PATIENCE[-1]
"""Longest silence for callers whose deadline is near."""

SIZES: Final = ((1 << 20, QUICK_SECONDS), (8 << 20, 8.0), (1 << 62, 20.0))
"""Timeouts of a put by size in bytes: the storage does not answer before the object is complete."""

ASKED_FOR: Final = "__brokers"
"""Name of the object that probes whether a root answers; that it does not exist is an answer, too."""


class ImpatientClient(ObjectClient):
    """Makes requests to a root of a cluster that has several.

    Args:
        root: the place.
        options: from `resolve_options`.
        begin: makes a call in another thread; None if no thread can be started.

    Raises:
        KafkaConfigurationError: the options make no client.
    """

    def __init__(
        self, root: ObjectRoot, options: StorageOptions, begin: Callable[[Callable[[], None]], object | None]
    ) -> None:
        super().__init__(root, options)
        self._silence = CircuitBreaker(self.uri, self._ask, begin)

    def silent_seconds(self) -> float:
        """Return how long the storage has not answered; 0 while it answers, as far as is known."""
        return self._silence.seconds()

    def ask_again(self) -> None:
        """Probe a storage that did not answer."""
        self._silence.ask_again()

    @property
    def _again(self) -> Client:
        """The client for requests that can be retried, with a timeout of three seconds, or one near the deadline."""
        seconds = QUICK_SECONDS if time_left() >= 2 * QUICK_SECONDS else SHORT_SECONDS
        # A large answer may take longer, while it is being received.
        return self._client(RETRIES, seconds, seconds)

    def _to_put(self, size: int) -> Client:
        return self._client(RETRIES, _allowed(size))

    def _to_create(self, size: int) -> Client:
        return self._client(0, _allowed(size))

    def _ask(self) -> None:
        """Probe the root, while other requests are refused."""
        began = SYSTEM_CLOCK.monotonic()
        try:
            with super()._asking(ASKED_FOR):
                obstore.head(self._to_create(0), ASKED_FOR)
        except OSError as cause:
            self._note(cause, began)
        else:
            self._silence.heard()

    def _note(self, cause: OSError, began: float) -> None:
        if cause.errno == errno.ETIMEDOUT:
            self._silence.missed(began)
        else:
            self._silence.heard()

    @contextmanager
    def _asking(self, name: str, *, conditional: bool = False) -> Iterator[None]:
        self._silence.check(conditional=conditional)
        began = SYSTEM_CLOCK.monotonic()
        try:
            with super()._asking(name, conditional=conditional):
                yield
        except OSError as cause:
            self._note(cause, began)
            raise
        else:
            self._silence.heard()


def _allowed(size: int) -> float:
    return next(seconds for most, seconds in SIZES if size <= most)


RETRY_SECONDS: Final = 0.5
"""Time until the next probe of a storage that did not answer."""


class CircuitBreaker:
    """Knows whether one storage answers, as far as this process has seen. Thread-safe.

    Args:
        uri: the storage, for errors.
        ask: probes the storage, and calls `heard` or `missed` with the result.
        begin: makes a call in another thread; None if no thread can be started.
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
        """Refuse a request while the storage does not answer, and have it probed.

        Args:
            conditional: the request is a conditional put, which then stored nothing.

        Raises:
            NotStoredError, OSError: the storage does not answer.
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
        """Probe the storage now, in the caller's thread, if it did not answer."""
        if self._silent:
            self._try()

    def _try(self) -> None:
        try:
            self._ask()
        except OSError:
            # `missed` has recorded the failure.
            return
        finally:
            self._ended()

    def _ended(self) -> None:
        with self._mutex:
            self._next = self._clock.monotonic() + RETRY_SECONDS
            self._asking = False

    def heard(self) -> None:
        """Record an answer of any kind."""
        self._heard = self._clock.monotonic()
        self._silent = False

    def missed(self, began: float) -> None:
        """Record an unanswered request.

        Args:
            began: time of the request, by the clock. If the storage has answered a later request, this one proves
                nothing.
        """
        if self._heard < began and not self._silent:
            self._next = self._clock.monotonic() + RETRY_SECONDS
            self._since = began
            self._silent = True

    def seconds(self) -> float:
        """Return how long the storage has not answered; 0 while it answers, as far as is known."""
        return self._clock.monotonic() - self._since if self._silent else 0.0
