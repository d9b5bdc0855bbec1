"""Opening: the roots that `bootstrap_servers` names in, the cluster that they are part of, or are to be, out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalike.errors import KafkaConfigurationError, LogCorruptError
from kafkalike.log.cluster.replicated.broker_store import Founding, Sign
from kafkalike.log.cluster.replicated.cluster import ReplicatedCluster
from kafkalike.log.cluster.replicated.founding import check_unused, claimed_by, local_root, said_by
from kafkalike.log.store.local import LocalStore

if TYPE_CHECKING:
    from kafkalike.config.server import ServerConfig
    from kafkalike.log.store.port import Store


def open_several(roots: Sequence[str], *, server: ServerConfig | None = None) -> ReplicatedCluster:
    """Open the cluster of several roots; nothing is made before the first write.

    Args:
        roots: paths: some of a cluster that exists, or all of one that is to be.
        server: server defaults; those of a root's own file when None.

    Raises:
        KafkaConfigurationError: they are not of one cluster, or cannot be brokers.
        LogCorruptError: what one says of itself cannot be read.
    """
    named = [local_root(root) for root in roots]
    real = [os.path.realpath(root) for root in named]
    doubled = next((root for root, path in zip(named, real, strict=True) if real.count(path) > 1), None)
    if doubled is not None:
        message = f"the root {doubled} is named twice"
        raise KafkaConfigurationError(message)
    begun = next((sign for root in named if (sign := claimed_by(root)) is not None), None)
    if begun is not None:
        return _cluster(begun, Founding(done=False), server)
    signs = _signs(named)
    if not signs:
        for root in named:
            check_unused(root)
        return _cluster(Sign("", 1, dict(enumerate(named, start=1))), Founding(done=False), server)
    if len({sign.cluster for sign in signs.values()}) > 1:
        message = f"the roots {', '.join(sorted(signs))} are of different clusters"
        raise KafkaConfigurationError(message)
    known = _places(dict(zip(named, real, strict=True)), signs)
    said = next(iter(signs.values()))
    return _cluster(said._replace(roots=known), Founding(done=True, voters=said.voters, cluster=said.cluster), server)


def _signs(named: Sequence[str]) -> dict[str, Sign]:
    """What roots say of themselves; one that is damaged counts as away, as long as another one says where it is."""
    signs: dict[str, Sign] = {}
    damaged: LogCorruptError | None = None
    for root in named:
        try:
            sign = said_by(root)
        except LogCorruptError as cause:
            damaged = cause
        else:
            signs |= {} if sign is None else {root: sign}
    if damaged is not None and not signs:
        raise damaged
    return signs


def _places(named: Mapping[str, str], signs: Mapping[str, Sign]) -> dict[int, str]:
    """Where the brokers' roots are, by id.

    Args:
        named: roots, and what they are without links.
        signs: what they say of themselves.
    """
    known: dict[int, str] = {}
    for sign in signs.values():
        known = {**sign.roots, **known}
    # Links are other names of the same root. One that stands elsewhere is no root: its place counts as away.
    places = {broker: os.path.realpath(root) for broker, root in known.items()}
    for root, path in named.items():
        if path not in places.values() and os.path.exists(root):  # noqa: PTH110
            raise _stranger(root, signs)
    if all(places.get(sign.broker) != named[root] for root, sign in signs.items()):
        raise _stranger(min(signs), signs)
    return known


def _stranger(root: str, signs: Mapping[str, Sign]) -> KafkaConfigurationError:
    """What to say of a root that stands where none of the cluster is."""
    sign = signs.get(root)
    if sign is None:
        message = f"{root} is not a root of the cluster of {min(signs)}: add it with `kafkalike brokers add`"
    else:
        message = (
            f"{root} is that of broker {sign.broker}, whose root is {sign.roots.get(sign.broker)}: put it there again"
        )
    return KafkaConfigurationError(message)


def _cluster(sign: Sign, founding: Founding, server: ServerConfig | None) -> ReplicatedCluster:
    roots = {broker: LocalStore(uri) for broker, uri in sorted(sign.roots.items())}
    return ReplicatedCluster(roots, founding, reopen=reopened, server=server)


def reopened(roots: str) -> Store:
    """The roots of a cluster, opened in another process."""
    return open_several(roots.split(",")).store
