"""Format storage: make unused roots the roots of one cluster, and read the signs that name a root's cluster.

Roots are claimed in the order of their names, and the first one is signed last: once it is signed, all roots are. So a
root with a claim and without a sign belongs to a cluster whose creation was interrupted, and the next client finishes
it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkalike.delta.layout import BROKERS, CLAIM, CLUSTER_METADATA, CONTROL_TABLES
from kafkalike.delta.log_files import LogFiles
from kafkalike.errors import KafkaConfigurationError, KafkaConnectionError, KafkaError, LogCorruptError
from kafkalike.log.cluster.topic_folders import check_not_enclosed
from kafkalike.model import faults
from kafkalike.replication.cluster.controller import found_voter
from kafkalike.replication.cluster.root_resolver import RootResolver, exists, real_name
from kafkalike.replication.cluster.root_sign import Sign
from kafkalike.replication.tables.voter_files import QUORUM
from kafkalike.storage.port import Storage


def said_by(places: RootResolver, root: str) -> Sign | None:
    """Return the sign of a root; None if it has none, or does not answer.

    Raises:
        LogCorruptError: the sign is damaged.
    """
    return _said(places, root, BROKERS)


def _said(places: RootResolver, root: str, name: str) -> Sign | None:
    try:
        return places.sign(root, name)
    except OSError:
        return None
    except ValueError as cause:
        raise LogCorruptError(str(cause)) from cause


class FoundCluster(NamedTuple):
    """The cluster that a set of roots belongs to."""

    sign: Sign
    """Its id, and its roots by broker id; the claim, during its creation."""
    done: bool
    """True if the cluster is complete; False if its creation was interrupted, or is in progress."""


def find_cluster(places: RootResolver, named: Sequence[str]) -> FoundCluster | None:
    """Return the cluster that roots belong to; None if no root has a sign or a claim.

    Args:
        places: opens the roots.
        named: roots as users name them.

    Raises:
        KafkaConfigurationError: the roots do not belong to one cluster.
        LogCorruptError: a sign cannot be read, and no other root knows the location of that one.
    """
    signs, silent = _signs(places, named)
    clusters = {sign.cluster for sign in signs.values()}
    real = {real_name(root) for root in silent}
    for claim in (_said(places, root, CLAIM) for root in silent):
        # The root that was claimed first is signed last. A claim beside signs of another cluster came too late.
        if claim is not None and real_name(claim.roots[claim.broker]) in real and clusters <= {claim.cluster}:
            _check_named(named, claim)
            return FoundCluster(claim, done=False)
    if not signs:
        return None
    if len(clusters) > 1:
        raise KafkaConfigurationError(f"the roots {', '.join(sorted(signs))} are of different clusters")
    known = _places({root: real_name(root) for root in named}, signs)
    return FoundCluster(next(iter(signs.values()))._replace(roots=known), done=True)


def _check_named(named: Sequence[str], claim: Sign) -> None:
    real = {real_name(root) for root in claim.roots.values()}
    stranger = next((root for root in named if root not in claim.roots.values() and real_name(root) not in real), None)
    if stranger is not None:
        raise _other_roots(stranger, claim)


def _signs(places: RootResolver, named: Sequence[str]) -> tuple[dict[str, Sign], list[str]]:
    """Return the signs of roots, and the roots that answer without a sign.

    A root with a damaged sign counts as missing, unless no root has an intact sign.
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
    """Return the locations of the brokers' roots, by id.

    Args:
        named: roots, and their paths without links.
        signs: the signs of the roots.
    """
    known: dict[int, str] = {}
    for sign in signs.values():
        known = {**sign.roots, **known}
    # Links are other names of the same root. A root that was moved elsewhere counts as missing.
    places = {broker: real_name(root) for broker, root in known.items()}
    for root, path in named.items():
        if path not in places.values() and root not in known.values() and exists(root):
            raise _stranger(root, signs)
    if all(places.get(sign.broker) != named[root] for root, sign in signs.items()):
        raise _stranger(min(signs), signs)
    return known


def _stranger(root: str, signs: Mapping[str, Sign]) -> KafkaConfigurationError:
    """Return the error for a root outside the cluster's locations."""
    sign = signs.get(root)
    if sign is None:
        message = f"{root} is not a root of the cluster of {min(signs)}: add it with `kafkalike brokers add`"
    else:
        place = sign.roots.get(sign.broker)
        message = f"{root} holds the root of broker {sign.broker}, which belongs at {place}: move it back"
    return KafkaConfigurationError(message)


def found_cluster(places: RootResolver, roots: Mapping[int, str], voters: tuple[int, ...]) -> Sign:
    """Make roots the roots of one cluster. The first client wins with its broker ids; others finish its work.

    The roots are read again, because another client may have made the cluster after they were opened.

    Args:
        places: opens the roots.
        roots: the roots, by broker id.
        voters: broker ids of the metadata's voters; the others are observers.

    Returns:
        The cluster's id, and its roots by broker id; the ids may differ from those in `roots`.

    Raises:
        KafkaConnectionError: a root cannot be made; no root has been signed.
        KafkaConfigurationError: a root belongs to another cluster.
        UnsafeStorageError: a root's storage does not isolate concurrent writers.
    """
    for root in roots.values():
        check_unused(places, root)
        try:
            # Before the first claim, so that one unsafe root leaves all others untouched.
            places.open(root).coordination.check_writable()
        except KafkaConnectionError as cause:
            raise _cannot(root, cause) from cause
    found = find_cluster(places, list(roots.values()))
    if found is not None and found.done:
        return found.sign
    claim = _claimed(places, roots, voters) if found is None else found.sign
    faults.point("founding.after_claim")
    _claim_all(places, claim)
    faults.point("founding.after_claims")
    if said_by(places, claim.roots[claim.broker]) is None:
        for broker, root in sorted(claim.roots.items(), key=lambda each: each[0] == claim.broker):
            _sign(places, root, claim._replace(broker=broker))
            faults.point("founding.after_sign")
    return claim


def _claimed(places: RootResolver, roots: Mapping[int, str], voters: tuple[int, ...]) -> Sign:
    """Return the claim at the first root, whichever client has put it.

    The first root does not depend on the order of names, so two clients that make the cluster at once meet there.
    """
    first = min(roots, key=lambda broker: real_name(roots[broker]))
    return _claim(places, roots[first], Sign(uuid.uuid4().hex, first, roots, voters))


def _claim_all(places: RootResolver, claim: Sign) -> None:
    """Claim the other roots in the order of their names: of two clients with overlapping roots, one gets all of them.

    Raises:
        KafkaConfigurationError: a root is claimed for another cluster, or is a cluster of one root.
    """
    for root in sorted(claim.roots.values(), key=real_name):
        if _claim(places, root, claim).cluster != claim.cluster:
            raise _other_roots(root, claim)
        # After the claim: a client that makes a cluster of this root alone looks for a claim after making it.
        check_unused(places, root)


def _claim(places: RootResolver, root: str, wanted: Sign) -> Sign:
    store = places.open(root)
    try:
        store.make_folder("")
        store.put_if_absent(CLAIM, wanted.content(), durable=True)
    except OSError as cause:
        raise _cannot(root, cause) from cause
    claim = _said(places, root, CLAIM)
    if claim is None:
        raise KafkaConnectionError(f"the root {root} cannot be made: it does not keep {CLAIM}")
    if {real_name(each) for each in claim.roots.values()} != {real_name(each) for each in wanted.roots.values()}:
        raise _other_roots(root, claim)
    return claim


def _other_roots(root: str, claim: Sign) -> KafkaConfigurationError:
    names = ", ".join(each for _, each in sorted(claim.roots.items()))
    return KafkaConfigurationError(
        f"a cluster of the roots {names} was begun, and it does not go together with the root {root}: name exactly "
        f"these roots to finish it; if it is not wanted, and no records are in it, remove the files {CLAIM} from them"
    )


def _sign(places: RootResolver, root: str, sign: Sign) -> None:
    store = places.open(root)
    try:
        store.make_folder("")
        # Before the sign: a broker's root without a set of voters counts as damaged.
        found_voter(store, sign.broker, sign.roots, sign.voters)
        store.put_if_absent(BROKERS, sign.content(), durable=True)
    except OSError as cause:
        raise _cannot(root, cause) from cause
    said = said_by(places, root)
    if said is None or (said.cluster, said.broker) != (sign.cluster, sign.broker):
        raise KafkaConfigurationError(f"the root {root} is a broker of another cluster")


def _cannot(root: str, cause: OSError | KafkaError) -> KafkaConnectionError:
    return KafkaConnectionError(f"the root {root} cannot be made: {cause}")


def is_cluster(store: Storage) -> bool:
    """Return whether a root without a sign has control tables of its own.

    Raises:
        OSError: the root does not answer.
    """
    return any(
        LogFiles.listed(store.at(table)).commits
        for table in CONTROL_TABLES
        if table != CLUSTER_METADATA or QUORUM not in store.at(table).folders()
    )


def check_apart(root: str, others: Iterable[str]) -> None:
    """Raise if a root lies in another root of the same cluster, or around it.

    Raises:
        KafkaConfigurationError: it does.
    """
    for other in others:
        for inner, outer in ((root, other), (other, root)):
            if real_name(inner).startswith(f"{real_name(outer).rstrip('/')}/"):
                raise KafkaConfigurationError(
                    f"the root {inner} lies in the root {outer}: losing the outer one would lose both; "
                    "name separate folders"
                )


def check_unused(places: RootResolver, root: str) -> None:
    """Raise if a root is a cluster of its own, or lies in a Delta table or in another cluster's root.

    Raises:
        KafkaConfigurationError: the root is in use.
        KafkaConnectionError: the root does not answer.
    """
    try:
        if said_by(places, root) is not None:
            return
        if not is_cluster(places.open(root)):
            check_not_enclosed(places.open(root))
            return
    except OSError as cause:
        raise _cannot(root, cause) from cause
    raise KafkaConfigurationError(
        f"the root {root} is a cluster of one root: name it alone, and give it others with `kafkalike brokers add`"
    )
