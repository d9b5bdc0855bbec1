"""Worker of a cluster of several roots: writes, helps, or changes the metadata, whatever the roots do."""

import contextlib
import json
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

from kafkalike.connect import connect
from kafkalike.errors import KafkaError, KafkaStorageError
from kafkalike.log.topic.topic_log import TopicLog
from tests.jepsen.history import Recorder
from tests.processes.workers.common import orders, wait_for_go
from tests.processes.workers.produce import batch_of, offsets_of


def opened(asked: dict[str, Any]) -> TopicLog | None:
    """The topic's log, also while a root is away; None where that was the only replica in sync: then the topic waits.

    Raises:
        KafkaStorageError: others are in sync.
    """
    cluster = connect(asked["roots"], asked["options"])
    try:
        return cluster.log(asked["topic"])
    except KafkaStorageError:
        if len(cluster.replication.replicas(asked["topic"]).isr) > 1:
            raise
    return None


def write(asked: dict[str, Any]) -> None:
    """Append unique values, and record each append."""
    log = opened(asked)
    chance = random.Random(asked["name"])
    wait_for_go()
    while log is None:
        time.sleep(0.2)
        log = opened(asked)
    sent = 0
    with Recorder(asked["history"], asked["name"], asked["topic"]) as recorder:
        while True:
            records = [
                (chance.choice(asked["partitions"]), f"{asked['name']}-{sent + n}") for n in range(chance.randint(1, 4))
            ]
            sent += len(records)
            done = recorder.send(
                records, partial(lambda some: offsets_of(some, dict(log.append(batch_of(some)).ranges)), records)
            )
            time.sleep(asked["pause_ms"] / 1000 if done else 0.2)


def replicate(asked: dict[str, Any]) -> None:
    """Bring replicas back, again and again."""
    cluster = connect(asked["roots"], asked["options"])
    wait_for_go()
    while True:
        with contextlib.suppress(KafkaError):
            cluster.replication.replicate()
        time.sleep(0.2)


def control(asked: dict[str, Any]) -> None:
    """Create topics, and note those that are there for sure."""
    cluster = connect(asked["roots"], asked["options"])
    wait_for_go()
    number = 0
    with Path(asked["history"]).open("a", buffering=1, encoding="utf-8") as told:
        while True:
            number += 1
            name = f"{asked['name']}.{number}"
            with contextlib.suppress(KafkaError):
                cluster.create_topic(name, 1, {}, replication_factor=1)
                told.write(json.dumps(name) + "\n")
            time.sleep(0.2 + asked["pause_ms"] / 100)


def elect(asked: dict[str, Any]) -> None:
    """Have the topic's leader moved, again and again."""
    cluster = connect(asked["roots"], asked["options"])
    chance = random.Random(asked["name"])
    wait_for_go()
    while True:
        order = [1, 2, 3]
        chance.shuffle(order)
        with contextlib.suppress(KafkaError):
            cluster.replication.reassign(asked["topic"], order)
            cluster.replication.elect_leader(asked["topic"])
        time.sleep(0.3 + asked["pause_ms"] / 20)


def move(asked: dict[str, Any]) -> None:
    """Take a replica away from a broker, remove what it has left there, and have it there again, again and again."""
    cluster = connect(asked["roots"], asked["options"])
    chance = random.Random(asked["name"])
    wait_for_go()
    while True:
        left = chance.sample([1, 2, 3], 2)
        with contextlib.suppress(KafkaError, OSError):
            cluster.replication.reassign(asked["topic"], left)
            cluster.replication.replicate([asked["topic"]])
            cluster.replication.clear_former()
        with contextlib.suppress(KafkaError):
            cluster.replication.reassign(asked["topic"], [1, 2, 3])
        time.sleep(0.5 + asked["pause_ms"] / 10)


ROLES = {"write": write, "replicate": replicate, "control": control, "elect": elect, "move": move}

if __name__ == "__main__":
    given = orders()
    ROLES[given["role"]](given)
