"""Cluster factory: open the cluster that several roots are part of, or are to become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.replication.cluster.format_storage import check_apart, check_unused, find_cluster
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from kafkalike.replication.cluster.root_resolver import RootResolver, is_folder, real_name
from kafkalike.replication.cluster.root_sign import Founding, Sign

if TYPE_CHECKING:
    from kafkalike.model.config.server_config import ServerProperties
    from kafkalike.model.config.storage_options import StorageOptions
    from kafkalike.storage.port import Storage


def open_several(
    roots: Sequence[str],
    *,
    server: ServerProperties | None = None,
    storage_options: StorageOptions | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> ReplicatedCluster:
    """Open the cluster of several roots; nothing is made before the first write.

    Args:
        roots: paths or URIs: some of a cluster that exists, or all of one that is to be.
        server: server defaults; those of a root's own file when None.
        storage_options: of roots in object stores.
        environ: environment variables, which say what these do not; None takes the process's own.
        clock: time and waiting.

    Raises:
        KafkaConfigurationError: they are not of one cluster, or cannot be brokers.
        LogCorruptError: what one says of itself cannot be read.
    """
    places = RootResolver(storage_options, environ)
    named = [places.named(root) for root in roots]
    real = [real_name(root) for root in named]
    doubled = next((root for root, path in zip(named, real, strict=True) if real.count(path) > 1), None)
    if doubled is not None:
        raise KafkaConfigurationError(f"the root {doubled} is named twice")
    found = find_cluster(places, named)
    uris = (*named, *(() if found is None else found.sign.roots.values()))
    if storage_options and all(map(is_folder, uris)):
        raise KafkaConfigurationError("storage_options are for object stores, and these are folders of this machine")
    if found is None:
        for root in named:
            check_apart(root, named)
            check_unused(places, root)
        return _cluster(places, Sign("", 1, dict(enumerate(named, start=1))), Founding(done=False), server, clock)
    sign = found.sign
    founding = Founding(done=True, voters=sign.voters, cluster=sign.cluster) if found.done else Founding(done=False)
    return _cluster(places, sign, founding, server, clock)


def _cluster(
    places: RootResolver, sign: Sign, founding: Founding, server: ServerProperties | None, clock: Clock
) -> ReplicatedCluster:
    roots = dict(sorted(sign.roots.items()))
    return ReplicatedCluster(roots, founding, places=places, reopen=reopened, server=server, clock=clock)


def reopened(roots: str, options: StorageOptions | None = None) -> Storage:
    """The roots of a cluster, opened in another process: with what was sent along, or with its environment."""
    # What was sent is all: a session token of this machine must not be added to a key of the other one.
    found = open_several(roots.split(","), storage_options=options, environ=None if options is None else {})
    return found.store if options is None else found.store.tasks.sendable(found.store)
