"""Founding: several unused roots in, the roots of one cluster out; and what roots say of themselves.

The first root is claimed first, and signed last: where it is signed, all others are. So one that has a claim and no
sign is of a cluster whose making was cut off, and whoever comes next goes on with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

from kafkalike.errors import KafkaConfigurationError, KafkaConnectionError, KafkaError, LogCorruptError
from kafkalike.log.cluster.replicated.broker_store import Sign
from kafkalike.log.cluster.replicated.places import Places
from kafkalike.log.cluster.replicated.voters import found_voter
from kafkalike.log.store.port import Store
from kafkalike.log.table.layout import BROKERS, CLUSTER_METADATA
from kafkalike.log.table.log_files import LogFiles

CLAIM: Final = f"{BROKERS}.claim"
"""A file of the first root: which cluster is being made."""


def said_by(places: Places, root: str) -> Sign | None:
    """What a root says of itself; None where it says nothing, or gives no answer.

    Raises:
        LogCorruptError: it is damaged.
    """
    return _said(places, root, BROKERS)


def claimed_by(places: Places, root: str) -> Sign | None:
    """The cluster whose making a first root that has no sign says was begun; None otherwise."""
    return _said(places, root, CLAIM)


def _said(places: Places, root: str, name: str) -> Sign | None:
    try:
        return places.sign(root, name)
    except OSError:
        return None
    except ValueError as cause:
        raise LogCorruptError(str(cause)) from cause


def found_cluster(places: Places, roots: Mapping[int, str], voters: tuple[int, ...]) -> str:
    """Make roots those of one cluster. Whoever is first at the first one has it; who was killed is followed.

    Args:
        places: opens them.
        roots: by broker id.
        voters: who decides about the metadata; the others get a copy.

    Returns:
        The cluster's id.

    Raises:
        KafkaConnectionError: a root cannot be made; nothing rests on the others yet.
        KafkaConfigurationError: one is another cluster's.
        UnsafeStorageError: one is in a storage that does not keep several writers apart.
    """
    first = min(roots)
    for root in roots.values():
        check_unused(places, root)
        try:
            # Before one of them says anything: an unsafe one is refused with all others.
            places.open(root).check_writable()
        except KafkaConnectionError as cause:
            raise _cannot(root, cause) from cause
    claim = _claimed(places, roots[first], Sign(uuid.uuid4().hex, first, roots, voters))
    for broker, root in sorted(roots.items(), reverse=True):
        _sign(places, root, claim._replace(broker=broker))
    return claim.cluster


def _claimed(places: Places, root: str, wanted: Sign) -> Sign:
    store = places.open(root)
    try:
        store.make_folder("")
        store.put_if_absent(CLAIM, wanted.content(), durable=True)
    except OSError as cause:
        raise _cannot(root, cause) from cause
    claim = _said(places, root, CLAIM)
    if claim is None or dict(claim.roots) != dict(wanted.roots):
        message = f"the root {root} is of a cluster that has other roots"
        raise KafkaConfigurationError(message)
    return claim


def _sign(places: Places, root: str, sign: Sign) -> None:
    store = places.open(root)
    try:
        store.make_folder("")
        # Before the sign: a root that is a broker's, and knows of no voters, has lost something.
        found_voter(store, sign.broker, sign.roots, sign.voters)
        store.put_if_absent(BROKERS, sign.content(), durable=True)
    except OSError as cause:
        raise _cannot(root, cause) from cause
    said = said_by(places, root)
    if said is None or (said.cluster, said.broker) != (sign.cluster, sign.broker):
        message = f"the root {root} is a broker of another cluster"
        raise KafkaConfigurationError(message)


def _cannot(root: str, cause: OSError | KafkaError) -> KafkaConnectionError:
    return KafkaConnectionError(f"the root {root} cannot be made: {cause}")


def is_cluster(store: Store) -> bool:
    """Whether a root that has no sign has the metadata of a cluster of its own.

    Raises:
        OSError: it gives no answer.
    """
    table = store.at(CLUSTER_METADATA)
    return "_quorum" not in table.folders() and bool(LogFiles.listed(table).commits)


def check_unused(places: Places, root: str) -> None:
    """Refuse a root that is a cluster of its own.

    Raises:
        KafkaConfigurationError: it is.
        KafkaConnectionError: it gives no answer.
    """
    try:
        if said_by(places, root) is not None or not is_cluster(places.open(root)):
            return
    except OSError as cause:
        raise _cannot(root, cause) from cause
    message = (
        f"the root {root} is a cluster of one root: name it alone, and give it others with `kafkalike brokers add`"
    )
    raise KafkaConfigurationError(message)
