"""Sweep worker for maintenance: the same as `sweep`, for a run over all topics of a root."""

from typing import Any

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from tests.processes.workers import sweep


def run(cluster: Cluster) -> sweep.Doing:
    """One maintenance run; says which topics failed, as a run itself never raises for one of them."""

    def do() -> dict[str, Any]:
        report = maintain(cluster, clock=SYSTEM_CLOCK)
        return {"failed": [t.topic for t in report.topics if t.status == "failed"], "problems": report.problems}

    return do


if __name__ == "__main__":
    sweep.OPERATIONS["maintain"] = run
    sweep.main()
