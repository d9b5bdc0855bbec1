"""Root signs: the file by which a broker's root says whose it is, and what tells a missing root from an empty one."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kafkalike.delta.layout import BROKERS
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.storage.port import Storage

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
            if not plain.scheduler.is_remote:
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
