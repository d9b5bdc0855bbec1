"""Impatient client: requests to a root that is one of several, which time out after some seconds.

The first request that gets no answer takes some seconds. While the root gives no answer the circuit is open
(`CircuitBreaker`): requests fail at once, and a thread asks the root now and then, so that no caller waits for it to be
back.
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
"""How long a storage may be silent: nothing of an answer comes, or a small object is not taken."""

SHORT_SECONDS: Final = PATIENCE[-1]
"""The same for callers who have no more time."""

SIZES: Final = ((1 << 20, QUICK_SECONDS), (8 << 20, 8.0), (1 << 62, 20.0))
"""Up to how many bytes an object may take how many seconds to be put: it says nothing before it is there."""

ASKED_FOR: Final = "__brokers"
"""What is asked for to see whether a root answers; that it is not there is an answer, too."""


class ImpatientClient(ObjectClient):
    """The requests to one of several roots.

    Args:
        root: the place.
        options: from `resolve_options`.
        begin: makes a call in another thread; None where there can be none.

    Raises:
        KafkaConfigurationError: the options make no client.
    """

    def __init__(
        self, root: ObjectRoot, options: StorageOptions, begin: Callable[[Callable[[], None]], object | None]
    ) -> None:
        super().__init__(root, options)
        self._silence = CircuitBreaker(self.uri, self._ask, begin)

    def silent_seconds(self) -> float:
        """For how long the storage has given no answer; 0 where it answers, as far as is known."""
        return self._silence.seconds()

    def ask_again(self) -> None:
        """Ask a storage that gave no answer once more."""
        self._silence.ask_again()

    @property
    def _again(self) -> Client:
        """What makes requests that may be made again: for three seconds, or for one."""
        seconds = QUICK_SECONDS if time_left() >= 2 * QUICK_SECONDS else SHORT_SECONDS
        # A large answer may take longer, as long as something of it comes.
        return self._client(RETRIES, seconds, seconds)

    def _to_put(self, size: int) -> Client:
        return self._client(RETRIES, _allowed(size))

    def _to_create(self, size: int) -> Client:
        return self._client(0, _allowed(size))

    def _ask(self) -> None:
        """See whether it answers, when other requests are refused."""
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
