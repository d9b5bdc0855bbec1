"""Format storage: make unused roots the roots of one cluster, and read the signs by which roots tell their cluster.

The roots are claimed in the order of their names. The first one is signed last: where it is signed, all others are. So
one that has a claim and no sign is of a cluster whose making was cut off, and whoever comes next goes on with it.
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
    """What a root says of itself; None where it says nothing, or gives no answer.

    Raises:
        LogCorruptError: it is damaged.
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
    """A cluster that roots say they belong to."""

    sign: Sign
    """Its id, and its roots by broker id. Of one that is being made: the claim."""
    done: bool
    """Whether it was made; False where its making was cut off, or is under way."""


def find_cluster(places: RootResolver, named: Sequence[str]) -> FoundCluster | None:
    """Look which cluster roots belong to; None where none of them says anything.

    Args:
        places: opens them.
        named: roots as users name them.

    Raises:
        KafkaConfigurationError: they are not of one cluster.
        LogCorruptError: what one says of itself cannot be read, and no other one says where it is.
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


def found_cluster(places: RootResolver, roots: Mapping[int, str], voters: tuple[int, ...]) -> Sign:
    """Make roots those of one cluster. Whoever is first has it, with its broker ids; who was killed is followed.

    Whatever the roots said when they were opened, they are asked again: others may have made the cluster since.

    Args:
        places: opens them.
        roots: by broker id.
        voters: who decides about the metadata; the others get a copy.

    Returns:
        The cluster's id, and its roots by broker id, which may be other ids.

    Raises:
        KafkaConnectionError: a root cannot be made; nothing rests on the others yet.
        KafkaConfigurationError: one is another cluster's.
        UnsafeStorageError: one is in a storage that does not keep several writers apart.
    """
    for root in roots.values():
        check_unused(places, root)
        try:
            # Before one of them says anything: an unsafe one is refused with all others.
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
    """The claim at the first root, whoever has put it there.

    Its place does not depend on the order in which somebody names the roots: two who make the cluster at once meet.
    """
    first = min(roots, key=lambda broker: real_name(roots[broker]))
    return _claim(places, roots[first], Sign(uuid.uuid4().hex, first, roots, voters))


def _claim_all(places: RootResolver, claim: Sign) -> None:
    """Claim the other roots, each in the order of its name: of two who want some of the same roots one gets all.

    Raises:
        KafkaConfigurationError: one is claimed for another cluster, or is a cluster of one root.
    """
    for root in sorted(claim.roots.values(), key=real_name):
        if _claim(places, root, claim).cluster != claim.cluster:
            raise _other_roots(root, claim)
        # After the claim: who makes a cluster of this root alone looks for a claim after making it.
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
        # Before the sign: a root that is a broker's, and knows of no voters, has lost something.
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
    """Whether a root that has no sign has control tables of a cluster of its own.

    Raises:
        OSError: it gives no answer.
    """
    return any(
        LogFiles.listed(store.at(table)).commits
        for table in CONTROL_TABLES
        if table != CLUSTER_METADATA or QUORUM not in store.at(table).folders()
    )


def check_apart(root: str, others: Iterable[str]) -> None:
    """Refuse a root that lies in another one of the same cluster, or around it.

    Raises:
        KafkaConfigurationError: it does.
    """
    for other in others:
        for inner, outer in ((root, other), (other, root)):
            if real_name(inner).startswith(f"{real_name(outer).rstrip('/')}/"):
                raise KafkaConfigurationError(
                    f"the root {inner} lies in the root {outer}: who loses that one loses both; name folders apart"
                )


def check_unused(places: RootResolver, root: str) -> None:
    """Refuse a root that is a cluster of its own, or lies in a Delta table or another cluster's root.

    Raises:
        KafkaConfigurationError: it is.
        KafkaConnectionError: it gives no answer.
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
