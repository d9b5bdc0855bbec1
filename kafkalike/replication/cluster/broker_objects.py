"""BrokerObjects: a broker's root in an object store as a store that says when the root is not there.

A place in an object store has no mount that may be missing, so what it says of itself is asked every now and then, and
after each failure, and not with each look. Its requests are given up after some seconds: there are other replicas.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import pyarrow as pa

from kafkalike.delta.layout import BROKERS
from kafkalike.errors import KafkaConnectionError, KafkaError
from kafkalike.replication.cluster.broker_store import SIGN_SECONDS, Founding, check_sign
from kafkalike.storage.impatient.client import ImpatientClient
from kafkalike.storage.objects import ObjectStorage
from kafkalike.storage.port import NOW, Entry, Pace

T = TypeVar("T")

ALIVE_SECONDS: Final = 2.0
"""How long a root that has answered is taken to be there."""


class BrokerObjects(ObjectStorage):
    """A place in an object store that is a broker's root, or one below it.

    Args:
        root: the root as a plain store, whose requests are given up after some seconds.
        founding: of the cluster: before it, nothing is there, and that is right.
        folder: below it; empty for the root itself.
    """

    def __init__(self, root: ObjectStorage, founding: Founding, folder: str = "") -> None:
        super().__init__(root._root, root.uri, folder)  # noqa: SLF001 - what the stores of a root share
        client = self._root.client
        assert isinstance(client, ImpatientClient)
        self._client = client
        self._plain = root
        self._founding = founding

    def at(self, folder: str) -> BrokerObjects:
        """The store of a folder below."""
        return BrokerObjects(self._plain, self._founding, self._prefix + folder)

    def plain(self) -> ObjectStorage:
        """The root without these looks."""
        return self._plain

    def silent_seconds(self) -> float:
        """For how long a request has had no answer."""
        return self._client.silent_seconds()

    def ask_again(self) -> None:
        """Nobody asks a bucket that gave no answer, for half a second."""
        self._client.ask_again()

    def set_lag(self, lag_ms: int) -> None:
        """Its requests have timeouts of their own."""

    @property
    def combines(self) -> bool:
        """What is made here is made elsewhere, too."""
        return False

    def check_there(self) -> None:
        """Raise `OSError` unless the root is there and is a broker's."""
        self._check(SIGN_SECONDS)

    def is_there(self) -> bool:
        """Whether the root is there and is a broker's."""
        try:
            self._check(ALIVE_SECONDS)
        except OSError:
            return False
        return True

    def _check(self, seconds: float) -> None:
        check_sign(self._plain, self._founding, seconds)

    def _asked(self, name: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except FileNotFoundError:
            if name != BROKERS:
                self.check_there()
            raise
        except OSError:
            # Whoever asks next whether it is there is not told what was so before.
            self._founding.checked.pop(self._plain.uri, None)
            raise

    def try_out(self) -> None:
        """See `ObjectStorage`; one that gives no answer is tried out before the first write to it."""
        with contextlib.suppress(KafkaConnectionError):
            super().try_out()

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        """Content of an object that may not be there yet."""
        found = self._asked(name, lambda: super(BrokerObjects, self).look(name, pace))
        if found is None:
            self.check_there()
        return found

    def read(self, name: str) -> bytes:
        """Content of an object."""
        return self._asked(name, lambda: super(BrokerObjects, self).read(name))

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open an object for reading."""
        return self._asked(name, lambda: super(BrokerObjects, self).open_input(name, buffer_size))

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Bytes of an object."""
        return self._asked(name, lambda: super(BrokerObjects, self).read_range(name, start, stop))

    def size(self, name: str) -> int:
        """Bytes of an object."""
        return self._asked(name, lambda: super(BrokerObjects, self).size(name))

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """Objects of a folder."""
        found = self._asked(folder, lambda: super(BrokerObjects, self).list(folder, deep=deep, after=after))
        if not found:
            self.check_there()
        return found

    def folders(self) -> Sequence[str]:
        """Names of the folders below."""
        found = self._asked("", super().folders)
        if not found:
            self.check_there()
        return found

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create an object."""
        if name != BROKERS:
            self.check_there()
        return self._asked(name, lambda: super(BrokerObjects, self).put_if_absent(name, content, durable=durable))

    def replace(self, name: str, content: bytes) -> None:
        """Write an object; the storage is tried out before the first one."""
        if name != BROKERS:
            self.check_there()
        self._asked(name, lambda: self._replaced(name, content))

    def _replaced(self, name: str, content: bytes) -> None:
        try:
            self._root.prove()
        except KafkaError as cause:
            raise OSError(str(cause)) from cause
        super().replace(name, content)
