"""BrokerStore: a broker's root as a store that says when the root is not there, instead of that it is empty."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kafkalike.delta.layout import BROKERS
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.port import NOW, Entry, Pace, Storage

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline


SIGN_SECONDS: Final = 10.0
"""How often what a root says of itself is read: in between it is enough that it says something."""


class Sign(NamedTuple):
    """What that file says."""

    cluster: str
    """Id of the cluster."""
    broker: int
    """Whose root it is."""
    roots: Mapping[int, str]
    """Where the brokers' roots were when it was written, by id."""
    voters: tuple[int, ...] = ()
    """Brokers that were the first voters."""

    def content(self) -> bytes:
        """The file."""
        roots = {str(broker): uri for broker, uri in self.roots.items()}
        return json.dumps(
            {"v": 1, "cluster": self.cluster, "broker": self.broker, "roots": roots, "voters": self.voters}
        ).encode()


def sign_of(store: Storage, name: str = BROKERS) -> Sign | None:
    """What a root says of itself; None where it is the root of no such cluster, or not there.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.
    """
    found = store.look(name)
    if found is None:
        return None
    try:
        said: Any = json.loads(found)
        roots = {int(broker): str(uri) for broker, uri in said["roots"].items()}
        return Sign(str(said["cluster"]), int(said["broker"]), roots, tuple(map(int, said.get("voters", ()))))
    except (KeyError, TypeError, AttributeError, ValueError) as cause:
        raise ValueError(f"{store.uri}/{name} is damaged: {cause!r}") from cause


@dataclass(slots=True)
class Founding:
    """Whether a cluster of several roots was made, as far as this process knows.

    As long as it was not, each look at the metadata asks the roots again: see `ReplicatedCluster`.
    """

    done: bool
    voters: tuple[int, ...] = ()
    """Brokers that are, or shall be, its first voters."""
    cluster: str = ""
    """Its id, once it was made."""
    growing: bool = False
    """Whether it is one of a single root that gets others: nothing but its rows is to be made."""
    checked: dict[str, float] = field(default_factory=dict)
    """When the whole sign of a root was read, by its URI."""


class BrokerRoot(Storage, Protocol):
    """A broker's root, or a folder below it, as a store."""

    def at(self, folder: str) -> BrokerRoot:
        """The store of a folder below."""
        ...

    def check_there(self) -> None:
        """Raise `OSError` unless the root is there and is a broker's."""
        ...

    def is_there(self) -> bool:
        """Whether the root is there and is a broker's."""
        ...

    def silent_seconds(self) -> float:
        """For how long it has been waited for in vain, as far as is known; 0 where it was not."""
        ...

    def ask_again(self) -> None:
        """See whether it answers by now, if it is not asked any more."""
        ...

    def set_lag(self, lag_ms: int) -> None:
        """Set for how long a replica may lag: `replica.lag.time.max.ms`."""
        ...

    def plain(self) -> Storage:
        """The root without these looks."""
        ...


def check_sign(plain: Storage, founding: Founding, seconds: float = SIGN_SECONDS) -> None:
    """Look whether a root says that it is a broker's of a cluster.

    Args:
        plain: the root.
        founding: of the cluster.
        seconds: how long it is enough that it says something; nothing is asked then where a request takes long.

    Raises:
        OSError: it does not, or gives no answer.
    """
    if not founding.done:
        return
    uri, now = plain.uri, SYSTEM_CLOCK.monotonic()
    try:
        if now - founding.checked.get(uri, -math.inf) < seconds:
            if not plain.far:
                plain.size(BROKERS)
            return
        sign = sign_of(plain)
    except FileNotFoundError:
        sign = None
    except ValueError as cause:
        raise OSError(errno.ESTALE, str(cause)) from cause
    if sign is None:
        raise OSError(errno.ESTALE, f"the root {uri} is not there")
    if sign.cluster != founding.cluster:
        raise OSError(errno.ESTALE, f"{uri} has a root of another cluster")
    if sign.roots.get(sign.broker) != uri:
        place = sign.roots.get(sign.broker)
        raise OSError(errno.ESTALE, f"{uri} has the root of broker {sign.broker}: put it to {place} again")
    founding.checked[uri] = now


@contextlib.contextmanager
def opened_root(uri: str) -> Iterator[int]:
    """A root's folder, held open: what is made below it is made there, whatever comes to stand in its place.

    Raises:
        OSError: it is not there, or is no broker's.
    """
    root = os.open(uri, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.stat(BROKERS, dir_fd=root)
        yield root
    finally:
        os.close(root)


class BrokerStore(LocalStorage):
    """A folder of a local disk that is a broker's root, or one below it.

    Args:
        root: the root as a plain store.
        founding: of the cluster: before it, nothing is there, and that is right.
        folder: below it; empty for the root itself.
    """

    def __init__(self, root: LocalStorage, founding: Founding, folder: str = "") -> None:
        below = root.at(folder) if folder else root
        super().__init__(below.uri, below._root)  # noqa: SLF001 - what the stores of a root share
        self._plain = root
        self._founding = founding

    def at(self, folder: str) -> BrokerStore:
        """The store of a folder below."""
        prefix = self.uri.removeprefix(self._plain.uri).strip("/")
        return BrokerStore(self._plain, self._founding, f"{prefix}/{folder}" if prefix else folder)

    def for_tasks(self) -> LocalStorage:
        """Whoever may read the folder needs nothing else."""
        return self

    def check_there(self) -> None:
        """Raise `OSError` unless the root is there and is a broker's."""
        check_sign(self._plain, self._founding)

    def silent_seconds(self) -> float:
        """It says at once that it is not there."""
        return 0.0

    def ask_again(self) -> None:
        """It is asked each time; calls that hang come to an end when it is back."""

    def set_lag(self, lag_ms: int) -> None:
        """It says at once that it is not there."""

    def plain(self) -> LocalStorage:
        """The root without these looks."""
        return self._plain

    def is_there(self) -> bool:
        """Whether the root is there and is a broker's."""
        try:
            self.check_there()
        except OSError:
            return False
        return True

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        """Content of a file that may not be there yet."""
        found = super().look(name, pace)
        if found is None:
            self.check_there()
        return found

    def read(self, name: str) -> bytes:
        """Content of a file."""
        try:
            return super().read(name)
        except FileNotFoundError:
            if not name.endswith(BROKERS):
                self.check_there()
            raise

    def size(self, name: str) -> int:
        """Bytes of a file."""
        try:
            return super().size(name)
        except FileNotFoundError:
            self.check_there()
            raise

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """Files of a folder."""
        found = super().list(folder, deep=deep, after=after)
        if not found:
            self.check_there()
        return found

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create a file."""
        if name != BROKERS:
            self.check_there()
        return super().put_if_absent(name, content, durable=durable)

    def make_folder(self, folder: str) -> None:
        """Make a folder, and those between it and the root; never the root."""
        self.check_there()
        if not self._founding.done:
            super().make_folder(folder)
            return
        path = ""
        with opened_root(self._plain.uri) as root:
            for part in self.path(folder).removeprefix(self._plain.uri).strip("/").split("/"):
                path = f"{path}/{part}".strip("/")
                with contextlib.suppress(FileExistsError):
                    os.mkdir(path, 0o700, dir_fd=root)
                    self._root.synced.discard(f"{self._plain.uri}/{path}")

    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Hold the lock of that name."""
        self.check_there()
        return super().turn(name, deadline, meanwhile)

    def folders(self) -> Sequence[str]:
        """Names of the folders below."""
        found = super().folders()
        if not found:
            self.check_there()
        return found
