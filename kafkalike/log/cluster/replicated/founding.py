"""Founding: several unused roots in, the roots of one cluster out; and what roots say of themselves.

The first root is claimed first, and signed last: where it is signed, all others are. So one that has a claim and no
sign is of a cluster whose making was cut off, and whoever comes next goes on with it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from typing import Final

from kafkalike.config.server import ServerConfig
from kafkalike.errors import KafkaConfigurationError, KafkaConnectionError, LogCorruptError
from kafkalike.log.cluster.replicated.broker_store import Sign, sign_of
from kafkalike.log.cluster.replicated.voters import found_voter
from kafkalike.log.store.local import LocalStore
from kafkalike.log.store.roots import normalise_root
from kafkalike.log.table.layout import BROKERS, CLUSTER_METADATA
from kafkalike.log.table.log_files import LogFiles

CLAIM: Final = f"{BROKERS}.claim"
"""A file of the first root: which cluster is being made."""


def is_broker(root: str) -> bool:
    """Whether a local root is one of a cluster that has several, or of one that is being made."""
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


def rack_of(root: LocalStore) -> str | None:
    """The rack that the root's `server.properties` names; None where it names none.

    Raises:
        InvalidConfigurationError: the file holds a bad setting.
    """
    return ServerConfig.load(root.uri).get("broker.rack").strip() or None


def said_by(root: str) -> Sign | None:
    """What a root says of itself; None where it says nothing, or gives no answer.

    Raises:
        LogCorruptError: it is damaged.
    """
    return _said(root, BROKERS)


def claimed_by(root: str) -> Sign | None:
    """The cluster whose making a first root says was begun, and not ended; None otherwise."""
    return None if is_broker(root) else _said(root, CLAIM)


def _said(root: str, name: str) -> Sign | None:
    try:
        return sign_of(LocalStore(root), name)
    except OSError:
        return None
    except ValueError as cause:
        raise LogCorruptError(str(cause)) from cause


def found_cluster(roots: Mapping[int, LocalStore], voters: tuple[int, ...]) -> str:
    """Make roots those of one cluster. Whoever is first at the first one has it; who was killed is followed.

    Args:
        roots: by broker id.
        voters: who decides about the metadata; the others get a copy.

    Returns:
        The cluster's id.

    Raises:
        KafkaConnectionError: a root cannot be made; nothing rests on the others yet.
        KafkaConfigurationError: one is another cluster's.
    """
    where = {broker: root.uri for broker, root in roots.items()}
    first = min(roots)
    for root in roots.values():
        check_unused(root.uri)
    claim = _claimed(roots[first], Sign(uuid.uuid4().hex, first, where, voters))
    for broker, root in sorted(roots.items(), reverse=True):
        _sign(root, claim._replace(broker=broker))
    return claim.cluster


def _claimed(root: LocalStore, wanted: Sign) -> Sign:
    try:
        root.make_folder("")
        root.put_if_absent(CLAIM, wanted.content(), durable=True)
    except OSError as cause:
        raise _cannot(root, cause) from cause
    claim = _said(root.uri, CLAIM)
    if claim is None or dict(claim.roots) != dict(wanted.roots):
        message = f"the root {root.uri} is of a cluster that has other roots"
        raise KafkaConfigurationError(message)
    return claim


def _sign(root: LocalStore, sign: Sign) -> None:
    try:
        root.make_folder("")
        # Before the sign: a root that is a broker's, and knows of no voters, has lost something.
        found_voter(root, sign.broker, sign.roots, sign.voters)
        root.put_if_absent(BROKERS, sign.content(), durable=True)
    except OSError as cause:
        raise _cannot(root, cause) from cause
    said = said_by(root.uri)
    if said is None or (said.cluster, said.broker) != (sign.cluster, sign.broker):
        message = f"the root {root.uri} is a broker of another cluster"
        raise KafkaConfigurationError(message)


def _cannot(root: LocalStore, cause: OSError) -> KafkaConnectionError:
    return KafkaConnectionError(f"the root {root.uri} cannot be made: {cause}")


def check_unused(root: str) -> None:
    """Refuse a root that is a cluster of its own.

    Raises:
        KafkaConfigurationError: it is.
    """
    table = LocalStore(root).at(CLUSTER_METADATA)
    if is_broker(root) or "_quorum" in table.folders() or not LogFiles.listed(table).commits:
        return
    message = (
        f"the root {root} is a cluster of one root, and cannot become part of one of several roots so far: name it "
        "alone, or write its records into a new cluster"
    )
    raise KafkaConfigurationError(message)
