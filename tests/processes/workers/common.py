"""Common: the command line of a worker in, its orders and a cluster out."""

import json
import sys
import threading
from typing import Any

from kafkalike.log.cluster.cluster import Cluster
from tests.tools.clusters import on_disk


def orders() -> dict[str, Any]:
    """What the test wants of this worker."""
    found: dict[str, Any] = json.loads(sys.argv[1])
    return found


def cluster(root: str, *, queue: bool = True) -> Cluster:
    """The cluster, whose writers queue or do not."""
    return on_disk(root, queue=queue)


def wait_for_go() -> None:
    """Say that this worker is ready, and wait for the others to be."""
    print("ready", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()


def told_to_stop() -> threading.Event:
    """Set once the test has said that nobody sends any more."""
    stop = threading.Event()

    def wait() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    return stop
