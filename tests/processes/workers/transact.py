"""Transaction worker: does one thing with a transactional id, and may be killed at any point of it.

`do`: `commit` a transaction of two topics and an offset, `abort` one, `begin` over one that is open, `fence` it, or
`maintain`. What it was told is printed.
"""

import json
from typing import Any

from kafkalike.errors import KafkaStorageError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.transactions.session import TransactionSession
from kafkalike.model.clock import Deadline
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions.group_claims import GroupClaim
from tests.processes.workers.common import cluster, orders, wait_for_go
from tests.tools.records import batch

TOPICS = ("a", "b")


def soon(opened: Cluster) -> Deadline:
    return Deadline(opened.clock, 60_000)


def begun(opened: Cluster, name: str, timeout_ms: int = 60_000) -> TransactionSession:
    return opened.transactions.begin_session(name, timeout_ms, "worker", soon(opened))


def staged(opened: Cluster, mine: TransactionSession, number: int, value: str) -> None:
    for topic in TOPICS:
        log = opened.log(topic)
        for part in range(2):
            mine.stage(number, log, batch(f"{value}.{part}"))


def work(asked: dict[str, Any], opened: Cluster) -> str:
    name, value, number = asked["id"], asked["value"], 1
    if asked["do"] == "maintain":
        return json.dumps(opened.transactions.maintain(soon(opened)))
    if asked["do"] == "fence":
        opened.transactions.fence(name, soon(opened))
        return "fenced"
    mine = begun(opened, name, asked.get("timeout_ms", 60_000))
    if asked["do"] == "begin":
        return "begun"
    staged(opened, mine, number, value)
    if asked["do"] == "stage":
        return "staged"
    if asked["do"] == "abort":
        mine.abort(number, soon(opened))
        return "aborted"
    offsets = {GroupClaim(group_id="g"): {TopicPartition("a", 0): OffsetAndMetadata(asked["offset"])}}
    mine.commit(number, offsets, soon(opened))
    return "committed"


def main() -> None:
    asked = orders()
    opened = cluster(asked["root"])
    wait_for_go()
    try:
        told = work(asked, opened)
    except KafkaStorageError as error:
        told = repr(error)
    print(told)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
