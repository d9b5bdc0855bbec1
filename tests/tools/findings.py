"""Findings: a cluster's root in, what `kafkalike verify` calls errors out."""

from kafkalike.connect import connect
from kafkalike.maintenance.verify.verify import verify


def errors_of(root: str) -> list[str]:
    """The errors of all topics and of the offsets table, one line each; none for a sound cluster."""
    cluster = connect(root)
    return [str(found) for found in verify(cluster, cluster.topics()).findings if not found.warning]


def kinds_of(root: str) -> set[str]:
    """The kinds of everything found, warnings included."""
    cluster = connect(root)
    return {found.kind for found in verify(cluster, cluster.topics()).findings}
