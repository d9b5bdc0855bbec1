"""Sweep worker for what takes single records out of topics, and for forks."""

from typing import Any

from kafkalike import ForgetOptions
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.forget import forget
from kafkalike.maintenance.fork import fork
from kafkalike.maintenance.repartition import repartition
from kafkalike.maintenance.undo import undo
from kafkalike.maintenance.verify.certificate_file import check_certificate
from kafkalike.maintenance.verify.topic_history import topic_history
from tests.processes.workers import sweep

KEYS = [b"forget-me-0123456789", b"forget-me-too-012345"]


def forgetting(cluster: Cluster) -> sweep.Doing:
    """Two keys of two partitions, with a certificate beside the root; the files go at once."""

    def do() -> dict[str, Any]:
        paper = f"{cluster.root}.json"
        report = forget(
            "t",
            cluster,
            keys=KEYS,
            dry_run=False,
            options=ForgetOptions(now=True, certificate=paper),
        )
        cluster.settle()
        assert report.certificate is not None
        found = check_certificate(cluster, report.certificate, KEYS).findings
        return {"records": report.certificate.topics[0].records, "wrong": [str(one) for one in found]}

    return do


def undoing(cluster: Cluster) -> sweep.Doing:
    """The second append, of both partitions."""
    append = [one for event in topic_history(cluster, "t") for one in event.appends][1]

    def do() -> int:
        return undo("t", append, cluster, dry_run=False).missing

    return do


def forking(cluster: Cluster) -> sweep.Doing:
    """A new topic; a killed run may have left one under the name, which is deleted first, as a person would."""

    def do() -> int:
        if "u" in cluster.topics():
            cluster.delete_topic("u")
        return fork("t", "u", cluster).files

    return do


def repartitioning(cluster: Cluster) -> sweep.Doing:
    """Twice as many partitions."""
    return lambda: repartition("t", 4, cluster).partitions


if __name__ == "__main__":
    sweep.OPERATIONS |= {"forget": forgetting, "undo": undoing, "fork": forking, "repartition": repartitioning}
    sweep.main()
