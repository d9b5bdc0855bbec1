"""Opening: the roots that `bootstrap_servers` names in, the cluster that they are part of, or are to be, out."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalike.errors import KafkaConfigurationError, KafkaConnectionError, LogCorruptError
from kafkalike.log.cluster.replicated.broker_store import Founding, Sign, sign_of
from kafkalike.log.cluster.replicated.voters import found_voter
from kafkalike.log.store.local import LocalStore
from kafkalike.log.store.roots import normalise_root
from kafkalike.log.table.layout import BROKERS, CLUSTER_METADATA

if TYPE_CHECKING:
    from kafkalike.config.server import ServerConfig
    from kafkalike.log.cluster.replicated.cluster import ReplicatedCluster
    from kafkalike.log.cluster.replicated.roots import SeveralRoots


def is_broker(root: str) -> bool:
    """Whether a local root is one of a cluster that has several."""
    return os.path.exists(f"{root}/{BROKERS}")  # noqa: PTH110 - each client of a single root does this


def local_root(root: str) -> str:
    """A root that can be a broker's, normalised.

    Raises:
        KafkaConfigurationError: replicas are not possible there yet.
    """
    normalised, local = normalise_root(root)
    if not local:
        message = f"several roots must be folders of this machine so far, and {root} is none"
        raise KafkaConfigurationError(message)
    return normalised


def open_several(roots: Sequence[str], *, server: ServerConfig | None = None) -> ReplicatedCluster:
    """Open the cluster of several roots; nothing is made before the first write.

    Args:
        roots: paths: some of a cluster that exists, or all of one that is to be, the first one with its metadata.
        server: server defaults; those of a root's own file when None.

    Raises:
        KafkaConfigurationError: they are not of one cluster, or cannot be brokers.
        LogCorruptError: what one says of itself cannot be read.
    """
    from kafkalike.log.cluster.replicated.cluster import ReplicatedCluster

    named = [local_root(root) for root in roots]
    doubled = next((root for root in named if named.count(root) > 1), None)
    if doubled is not None:
        message = f"the root {doubled} is named twice"
        raise KafkaConfigurationError(message)
    signs = {root: sign for root in named if (sign := _sign_of(root)) is not None}
    if not signs:
        for root in named:
            _check_unused(root)
        stores = {broker: LocalStore(root) for broker, root in enumerate(named, start=1)}
        return ReplicatedCluster(stores, Founding(done=False), server=server)
    clusters = {sign.cluster for sign in signs.values()}
    if len(clusters) > 1:
        message = f"the roots {', '.join(sorted(signs))} are of different clusters"
        raise KafkaConfigurationError(message)
    known: dict[int, str] = {}
    for root, sign in signs.items():
        known = {**sign.roots, **known, sign.broker: root}
    strangers = [root for root in named if root not in signs and root not in known.values() and os.path.exists(root)]  # noqa: PTH110
    if strangers:
        message = f"{strangers[0]} is not a root of the cluster of {min(signs)}: add it with `kafkalike brokers add`"
        raise KafkaConfigurationError(message)
    voters = next(iter(signs.values())).voters
    return ReplicatedCluster(
        {broker: LocalStore(uri) for broker, uri in sorted(known.items())},
        Founding(done=True, voters=voters),
        server=server,
    )


def reopened(roots: str) -> SeveralRoots:
    """The roots of a cluster, opened in another process."""
    from kafkalike.log.cluster.replicated.roots import SeveralRoots

    found = open_several(roots.split(",")).store
    assert isinstance(found, SeveralRoots)
    return found


def found_cluster(roots: Mapping[int, LocalStore], voters: tuple[int, ...]) -> None:
    """Make roots those of one cluster: each says so, and where the others are. Whoever is first at the first one has it.

    Args:
        roots: by broker id.
        voters: who decides about the metadata; the others get a copy.

    Raises:
        KafkaConnectionError: a root cannot be made; nothing rests on the others yet.
        KafkaConfigurationError: one is another cluster's.
    """
    where = {broker: root.uri for broker, root in roots.items()}
    cluster = uuid.uuid4().hex
    for broker, root in sorted(roots.items()):
        _check_unused(root.uri)
        try:
            root.make_folder("")
            # Before the sign: a root that is a broker's, and knows of no voters, has lost something.
            found_voter(root, broker, where, voters)
            root.put_if_absent(BROKERS, Sign(cluster, broker, where, voters).content(), durable=True)
            said = _sign_of(root.uri)
        except OSError as cause:
            message = f"the root {root.uri} cannot be made: {cause}"
            raise KafkaConnectionError(message) from cause
        assert said is not None
        if broker == min(roots):
            cluster = said.cluster
        if (said.cluster, said.broker) != (cluster, broker):
            message = f"the root {root.uri} is broker {said.broker} of another cluster"
            raise KafkaConfigurationError(message)


def _sign_of(root: str) -> Sign | None:
    try:
        return sign_of(LocalStore(root))
    except OSError:
        return None
    except ValueError as cause:
        raise LogCorruptError(str(cause)) from cause


def _check_unused(root: str) -> None:
    """Refuse a root that is a cluster of its own."""
    if os.path.exists(f"{root}/{CLUSTER_METADATA}") and not is_broker(root):  # noqa: PTH110
        message = (
            f"the root {root} is a cluster of one root; name it alone. Copy its topics into a cluster of several roots "
            "with `kafkalike mirror`"
        )
        raise KafkaConfigurationError(message)
