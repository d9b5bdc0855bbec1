"""Spark worker: writes four records under a stable id, twice if the first try is refused, and says what came of it."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kafkalike.errors import KafkaError
from kafkalike.spark import session, write

VALUES = [(0, "new-0"), (1, "new-1"), (0, "new-2"), (1, "new-3")]
SMALL = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
SCHEMA = "partition INT, value STRING"


def deadly(killed: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a task does to its rows: kill the Python worker that it runs in, or the JVM above that."""

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        pid = os.getpid()
        while killed == "jvm" and Path(f"/proc/{pid}/comm").read_text() != "java\n":
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(pid, signal.SIGKILL)

    return rows


def main() -> None:
    asked = json.loads(sys.argv[1])
    spark = session(master="local[2]", **SMALL)
    frame = spark.createDataFrame(VALUES, SCHEMA).coalesce(1)
    if asked["kills"]:
        frame = frame.mapInArrow(deadly(asked["kills"]), SCHEMA)
    print("ready", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()
    outcomes: list[dict[str, Any]] = []
    for _ in range(asked["tries"]):
        try:
            done = write(frame, "t", asked["root"], txn_id="app", txn_version=1)
        except KafkaError as error:
            outcomes.append({"error": type(error).__name__, "message": str(error)})
        else:
            outcomes.append({"done": {str(tp.partition): list(run) for tp, run in done.items()}})
    print(json.dumps(outcomes))  # noqa: T201


if __name__ == "__main__":
    main()
