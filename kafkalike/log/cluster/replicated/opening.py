"""Opening: the roots that `bootstrap_servers` names in, the cluster that they are part of, or are to be, out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalike.clock import SYSTEM_CLOCK, Clock
from kafkalike.errors import KafkaConfigurationError, LogCorruptError
from kafkalike.log.cluster.replicated.broker_store import Founding, Sign
from kafkalike.log.cluster.replicated.cluster import ReplicatedCluster
from kafkalike.log.cluster.replicated.founding import check_unused, claimed_by
from kafkalike.log.cluster.replicated.places import Places, exists, is_folder, real_name
from kafkalike.log.table.layout import BROKERS

if TYPE_CHECKING:
    from kafkalike.config.server import ServerConfig
    from kafkalike.config.storage import StorageOptions
    from kafkalike.log.store.port import Store


def open_several(
    roots: Sequence[str],
    *,
    server: ServerConfig | None = None,
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
    places = Places(storage_options, environ)
    named = [places.named(root) for root in roots]
    real = [real_name(root) for root in named]
    doubled = next((root for root, path in zip(named, real, strict=True) if real.count(path) > 1), None)
    if doubled is not None:
        message = f"the root {doubled} is named twice"
        raise KafkaConfigurationError(message)
    signs, silent = _signs(places, named)
    if storage_options and all(
        is_folder(uri) for uri in (*named, *(u for s in signs.values() for u in s.roots.values()))
    ):
        raise KafkaConfigurationError("storage_options are for object stores, and these are folders of this machine")
    begun = next((sign for root in silent if (sign := claimed_by(places, root)) is not None), None)
    if begun is not None:
        return _cluster(places, begun, Founding(done=False), server, clock)
    if not signs:
        for root in named:
            check_unused(places, root)
        return _cluster(places, Sign("", 1, dict(enumerate(named, start=1))), Founding(done=False), server, clock)
    if len({sign.cluster for sign in signs.values()}) > 1:
        message = f"the roots {', '.join(sorted(signs))} are of different clusters"
        raise KafkaConfigurationError(message)
    known = _places(dict(zip(named, real, strict=True)), signs)
    said = next(iter(signs.values()))
    founding = Founding(done=True, voters=said.voters, cluster=said.cluster)
    return _cluster(places, said._replace(roots=known), founding, server, clock)


def _signs(places: Places, named: Sequence[str]) -> tuple[dict[str, Sign], list[str]]:
    """What roots say of themselves, and those that answer and say nothing.

    One that is damaged counts as away, as long as another one says where it is.
    """
    signs: dict[str, Sign] = {}
    silent: list[str] = []
    damaged: ValueError | None = None
    for root in named:
        try:
            sign = places.sign(root, BROKERS)
        except ValueError as cause:
            damaged = cause
        except OSError:
            continue
        else:
            if sign is None:
                silent.append(root)
            else:
                signs[root] = sign
    if damaged is not None and not signs:
        raise LogCorruptError(str(damaged)) from damaged
    return signs, silent


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
    places = {broker: real_name(root) for broker, root in known.items()}
    for root, path in named.items():
        if path not in places.values() and root not in known.values() and exists(root):
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


def _cluster(
    places: Places, sign: Sign, founding: Founding, server: ServerConfig | None, clock: Clock
) -> ReplicatedCluster:
    roots = dict(sorted(sign.roots.items()))
    return ReplicatedCluster(roots, founding, places=places, reopen=reopened, server=server, clock=clock)


def reopened(roots: str, options: StorageOptions | None = None) -> Store:
    """The roots of a cluster, opened in another process: with what was sent along, or with its environment."""
    # What was sent is all: a session token of this machine must not be added to a key of the other one.
    found = open_several(roots.split(","), storage_options=options, environ=None if options is None else {})
    return found.store if options is None else found.store.for_tasks()
