"""Producer worker: sends batches of unique values to some partitions, and records each of them.

`through` says how: `log` is the append itself, `producer` a KafkaProducer, `write` a DataFrame.
"""

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kafkalike.model.record_batch import RecordBatch, TxnId
from tests.jepsen.history import Recorder, Send
from tests.processes.workers.common import cluster, orders, wait_for_go

NOW_MS = 1_700_000_000_000
SMALL_SPARK = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}

Sender = Callable[[Sequence[Send]], Sequence[int]]


def offsets_of(records: Sequence[Send], ranges: dict[int, range]) -> list[int]:
    """Offsets of records in sending order, from the runs that they were given."""
    following = {p: iter(run) for p, run in ranges.items()}
    return [next(following[p]) for p, _ in records]


def batch_of(records: Sequence[Send]) -> RecordBatch:
    """The records as a batch without keys."""
    batch = RecordBatch()
    for partition, value in records:
        batch.add(partition, None, value.encode(), NOW_MS)
    return batch


def log_sender(asked: dict[str, Any]) -> Sender:
    log = cluster(asked["root"], queue=asked.get("queue", True)).log(asked["topic"])
    versions = iter(range(1_000_000))

    def send(records: Sequence[Send]) -> Sequence[int]:
        txn = TxnId(asked["name"], next(versions)) if asked.get("txn") else None
        return offsets_of(records, dict(log.append(batch_of(records), txn=txn).ranges))

    return send


def write_sender(asked: dict[str, Any]) -> Sender:
    from kafkalike.spark import session, write

    spark = session(master="local[2]", **SMALL_SPARK)
    place = cluster(asked["root"], queue=asked.get("queue", True))

    def send(records: Sequence[Send]) -> Sequence[int]:
        frame = spark.createDataFrame(list(records), "partition INT, value STRING").coalesce(1)
        done = write(frame, asked["topic"], place)
        return offsets_of(records, {tp.partition: run for tp, run in done.items()})

    return send


def producer_sender(asked: dict[str, Any]) -> Sender:
    from kafkalike import KafkaProducer

    place = cluster(asked["root"], queue=asked.get("queue", True))
    producer = KafkaProducer(bootstrap_servers=place, linger_ms=2)

    def send(records: Sequence[Send]) -> Sequence[int]:
        futures = [producer.send(asked["topic"], value.encode(), partition=p) for p, value in records]
        return [future.get().offset for future in futures]

    return send


SENDERS = {"log": log_sender, "write": write_sender, "producer": producer_sender}


def main() -> None:
    asked = orders()
    through = asked.get("through", "log")
    send = SENDERS[through](asked)
    chance = random.Random(asked["name"])
    wait_for_go()
    sent = 0
    with Recorder(asked["history"], asked["name"], asked["topic"]) as recorder:
        for _ in range(asked["batches"]):
            count = chance.randint(1, asked.get("most", 5))
            records = [(chance.choice(asked["partitions"]), f"{asked['name']}-{sent + i}") for i in range(count)]
            sent += count
            recorder.send(records, partial(send, records), atomic=through != "producer")
            time.sleep(asked.get("pause_ms", 0) / 1000)


if __name__ == "__main__":
    main()
