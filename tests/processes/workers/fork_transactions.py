"""Worker: forks in the middle of a transaction; copies of its producer attack it, and children make producers of their
own; prints what each call ended with, a line of JSON for each process.

Arguments: root, and `copies` (both go on with the producer that was forked), `exits` (the copy is closed, and its
process ends as a program does), or `taken` (the child takes the id over by a producer of its own).
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from kafkalike import KafkaProducer, TopicPartition
from kafkalike.model.structs import OffsetAndMetadata

HANGS_SECONDS = 60
TIMEOUTS: Any = {"max_block_ms": 20_000, "delivery_timeout_ms": 20_000, "request_timeout_ms": 10_000, "linger_ms": 0}


def said(*calls: Callable[[], Any]) -> list[str]:
    """The class of the error of each call; `-` where there is none."""
    found = []
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the test says which ones are right
            found.append(type(error).__name__)
        else:
            found.append("-")
    return found


def forked(act: Callable[[], list[str]], *, exits: bool) -> list[str]:
    """What a child says of its calls."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(HANGS_SECONDS, exit=True)
        try:
            os.write(into, json.dumps(act()).encode())
            os.close(into)
            if exits:
                sys.exit(0)
        finally:
            if not exits:
                os._exit(0)
    os.close(into)
    with os.fdopen(out) as told:
        text = told.read()
    os.waitpid(child, 0)
    return list(json.loads(text or '["nothing"]'))


def main(root: str, how: str) -> None:
    """Run."""
    warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
    producer = KafkaProducer(bootstrap_servers=root, transactional_id="id", **TIMEOUTS)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"parent", partition=0).get(30)

    def copy() -> list[str]:
        offsets = {TopicPartition("t", 0): OffsetAndMetadata(7)}
        return said(
            lambda: producer.send("t", b"child", partition=0).get(30),
            lambda: producer.send_offsets_to_transaction(offsets, "g"),
            producer.commit_transaction,
            producer.abort_transaction,
            producer.begin_transaction,
        )

    def own() -> list[str]:
        mine = KafkaProducer(bootstrap_servers=root, transactional_id="id", **TIMEOUTS)
        return said(
            mine.init_transactions,
            mine.begin_transaction,
            lambda: mine.send("t", b"child", partition=0).get(30),
            mine.commit_transaction,
            mine.close,
        )

    def close() -> list[str]:
        return said(lambda: producer.close(timeout=10))

    child = forked({"copies": copy, "exits": close, "taken": own}[how], exits=how == "exits")
    parent = said(lambda: producer.send("t", b"last", partition=0).get(30), producer.commit_transaction)
    after = said(lambda: producer.close(timeout=10))
    sys.stdout.write(json.dumps({"child": child, "parent": parent, "close": after}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
