"""Root sign: the file that names the cluster and broker of a root, and tells a missing root from an empty one."""

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
"""How often a root's sign is read in full; in between, only its existence is checked."""


class Sign(NamedTuple):
    """The content of the sign."""

    cluster: str
    """Id of the cluster."""
    broker: int
    """Id of the root's broker."""
    roots: Mapping[int, str]
    """Locations of the brokers' roots when the sign was written, by id."""
    voters: tuple[int, ...] = ()
    """Ids of the first voters."""

    def content(self) -> bytes:
        """Return the content of the file."""
        roots = {str(broker): uri for broker, uri in self.roots.items()}
        return json.dumps(
            {"v": 1, "cluster": self.cluster, "broker": self.broker, "roots": roots, "voters": self.voters}
        ).encode()


def sign_of(store: Storage, name: str = BROKERS) -> Sign | None:
    """Read the sign of a root; None if it has none, or is missing.

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
    """Tracks whether a cluster of several roots exists, as far as this process knows.

    Until it does, each look at the metadata reads the roots again: see `ReplicatedCluster`.
    """

    done: bool
    voters: tuple[int, ...] = ()
    """Ids of the first voters of the cluster, or of the planned one."""
    cluster: str = ""
    """The cluster's id, once it exists."""
    growing: bool = False
    """True while a cluster of one root is growing, so that only rows of the metadata are made."""
    checked: dict[str, float] = field(default_factory=dict)
    """When the sign of a root was last read in full, by URI."""


def check_sign(plain: Storage, founding: Founding, seconds: float = SIGN_SECONDS) -> None:
    """Check that a root has the sign of a broker of the cluster.

    Args:
        plain: the root.
        founding: the state of the cluster.
        seconds: the maximum age of the last full read; a younger one needs no request to an object store.

    Raises:
        OSError: it has not, or does not answer.
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
        raise OSError(errno.ESTALE, f"{uri} holds the root of broker {sign.broker}: move it back to {place}")
    founding.checked[uri] = now


@contextlib.contextmanager
def opened_root(uri: str) -> Iterator[int]:
    """Hold a root's folder open, so that files are made in it even if another folder is mounted in its place.

    Raises:
        OSError: the folder is missing, or is not a broker's root.
    """
    root = os.open(uri, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.stat(BROKERS, dir_fd=root)
        yield root
    finally:
        os.close(root)
