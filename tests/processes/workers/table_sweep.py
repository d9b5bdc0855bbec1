"""Sweep worker for tables of `send_arrow` that wait behind each other and go into one append."""

import threading

import pyarrow as pa

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.producer import KafkaProducer
from tests.processes.workers import sweep

TABLES = [[(0, "a-0"), (1, "a-1")], [(1, "b-1")], [(0, "c-0"), (1, "c-1"), (0, "c-2")]]
"""Partitions and values of the tables, in the order of the calls."""

BEFORE = "before"
"""Another topic, whose record holds the sender until all tables wait."""


def table(rows: list[tuple[int, str]]) -> pa.Table:
    """A table of one call."""
    partitions, values = zip(*rows, strict=True)
    return pa.table({"value": list(values), "partition": pa.array(partitions, pa.int32())})


def sending(cluster: Cluster) -> sweep.Doing:
    """Three calls while the sender is busy; their offsets by partition. Nothing is tried again."""

    def do() -> list[dict[str, list[int]]]:
        inside, go_on = threading.Event(), threading.Event()

        def hold(_: object) -> None:
            inside.set()
            go_on.wait(60)

        with KafkaProducer(bootstrap_servers=cluster, retries=0) as producer:
            producer.send(BEFORE, b"x").add_callback(hold)
            assert inside.wait(60)
            sent = [producer.send_arrow("t", table(rows)) for rows in TABLES]
            go_on.set()
            found = [future.get(60).offsets for future in sent]
        cluster.settle()
        return [{str(p): list(run) for p, run in sorted(offsets.items())} for offsets in found]

    return do


if __name__ == "__main__":
    sweep.OPERATIONS["tables"] = sending
    sweep.main()
