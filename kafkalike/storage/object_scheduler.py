"""Object scheduler: the requests to a folder of an object store, and the coordination of the processes that use it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kafkalike.errors import KafkaError, TopicAuthorizationFailedError
from kafkalike.model.groups.sessions import Leases
from kafkalike.storage.port import Coordination, Reach
from kafkalike.storage.scheduler import NOW, Pace, Scheduler
from kafkalike.storage.shared_root import SharedRoot

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline

T = TypeVar("T")
R = TypeVar("R")


class ObjectScheduler(Scheduler):
    """Makes the requests of one folder of an object store.

    Args:
        root: the shared state of the root.
        root_uri: the root.
        prefix: prefix of the folder's names.
    """

    def __init__(self, root: SharedRoot, root_uri: str, prefix: str) -> None:
        self._root = root
        self._root_uri = root_uri
        self._prefix = prefix

    @property
    def is_remote(self) -> bool:
        """True, because requests take long."""
        return True

    @property
    def combines(self) -> bool:
        """True unless a version is made at several roots."""
        return not self._root.impatient

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests of this process to this root, by kind."""
        return self._root.client.counts

    def shared(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return an object that the storages of this root share."""
        return self._root.shared((self._root_uri, name), make)

    def beside(self, calls: Sequence[Callable[[], R]]) -> list[R]:
        """Make calls in parallel."""
        others = [(call, self._root.started(call)) for call in calls[1:]]
        try:
            results = [call() for call in calls[:1]]
        finally:
            wait(future for _, future in others if future is not None)
        return results + [call() if future is None else future.result() for call, future in others]

    def look(self, name: str, pace: Pace) -> bytes | None:
        """Look for an object; see `Storage.look`."""

        def ask() -> bytes | None:
            try:
                return self.read(name)
            except FileNotFoundError:
                return None

        return self._root.looks.look(self._prefix + name, pace, ask)

    def look_ahead(self, names: Sequence[str], pace: Pace = NOW) -> None:
        """Look for several objects in parallel."""

        def look(name: str) -> None:
            with contextlib.suppress(OSError, KafkaError):
                self.look(name, pace)

        looks = self._root.looks
        self.beside([partial(look, name) for name in names if not looks.has_answer(self._prefix + name, pace)])

    def read(self, name: str) -> bytes:
        """Return the content of an object, which may have been prefetched."""
        fetched = self._root.fetched.pop(self._prefix + name)
        return self._root.client.get(self._prefix + name) if fetched is None else fetched

    def fetch(self, names: Sequence[str]) -> None:
        """Prefetch objects in parallel."""

        def get(name: str) -> None:
            with contextlib.suppress(OSError):
                self._root.fetched.put(name, self._root.client.get(name))

        self.beside([partial(get, self._prefix + name) for name in names])

    def note_missing(self, name: str, since: float, quiet_seconds: float) -> None:
        """Answer later looks for the file without a request."""
        self._root.looks.missed(self._prefix + name, since, quiet_seconds)

    def tag(self, name: str) -> str:
        """Return the ETag of the last put."""
        return self._root.tags.get(self._prefix + name)


class ObjectCoordination(Coordination):
    """Coordinates the processes that use a root in an object store: threads of one process queue, processes race.

    Args:
        root: the shared state of the root.
        root_uri: the root.
    """

    def __init__(self, root: SharedRoot, root_uri: str) -> None:
        self._root = root
        self._root_uri = root_uri

    @property
    def reach(self) -> Reach:
        """The processes of all machines."""
        return "everywhere"

    def check_writable(self, *, required: bool = True) -> None:
        """Probe the storage with a conditional create of an existing key."""
        try:
            self._root.prove()
        except PermissionError as cause:
            if required:
                raise TopicAuthorizationFailedError(
                    f"{self._root_uri} may not be written to: {cause.strerror}"
                ) from None

    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Queue behind other threads of this process, but not behind other processes."""
        return self._root.queues.turn(name, deadline, meanwhile)

    def leases(self) -> Leases:
        """Return heartbeats in the form of small objects."""
        return self._root.leases

    def now_ns(self) -> int:
        """Return the time by the storage's clock, to about a second."""
        return self._root.now_ns()
