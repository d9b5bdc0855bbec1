"""Spark worker: writes four records under a stable id, twice if the first try is refused, and says what came of it."""

import json
import sys
from typing import Any

from kafkalike.errors import KafkaError
from kafkalike.log.cluster.delta_cluster import DeltaCluster
from kafkalike.spark import session, write

VALUES = [(0, "new-0"), (1, "new-1"), (0, "new-2"), (1, "new-3")]
SMALL = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}


def main() -> None:
    asked = json.loads(sys.argv[1])
    spark = session(master="local[2]", **SMALL)
    cluster = DeltaCluster(asked["root"], local=True, locking=asked["locking"])
    frame = spark.createDataFrame(VALUES, "partition INT, value STRING").coalesce(1)
    print("ready", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()
    outcomes: list[dict[str, Any]] = []
    for _ in range(asked["tries"]):
        try:
            done = write(frame, "t", cluster, txn_id="app", txn_version=1)
        except KafkaError as error:
            outcomes.append({"error": type(error).__name__, "message": str(error)})
        else:
            outcomes.append({"done": {str(tp.partition): list(run) for tp, run in done.items()}})
    print(json.dumps(outcomes))  # noqa: T201


if __name__ == "__main__":
    main()
