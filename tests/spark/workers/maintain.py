"""Maintain worker: maintains a root's topics in the tasks of a Spark of its own, on the master that it is told."""

import json
import sys

from kafkalike.connect import open_cluster
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.spark import session


def main() -> None:
    asked = json.loads(sys.argv[1])
    spark = session(master=asked["master"], **{"spark.driver.memory": "512m", "spark.executor.memory": "512m"})
    print("ready", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()
    reports = [
        maintain(open_cluster(asked["root"]), clock=SYSTEM_CLOCK, works=works, spark=spark).as_dict()
        for works in asked["runs"]
    ]
    jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    print(json.dumps({"reports": reports, "jobs": jobs}))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main()
