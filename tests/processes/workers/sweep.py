"""Sweep worker: one operation and a list of faults in, what each of them left behind out, as one line of JSON.

Runs with the fault injector preloaded. Imports everything once and forks for each fault, so that hundreds of crashes
take seconds: nothing here may use deltalake or pyarrow before the fork, as their threads would not survive it.
"""

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from kafkalike.errors import KafkaError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets, Membership
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import TxnId
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from tests.tools import warm
from tests.tools.clusters import on_disk
from tests.tools.findings import errors_of
from tests.tools.records import batch, everything

MOST_CALLS = 200
"""No operation here makes so many: a sweep that gets this far does not end by itself."""

READY_BEFORE_FORK = pd
"""pyarrow imports it at its first array: once here instead of once in each child, where it takes a second."""
warm.load()  # else half of each child's time were the modules of transactions, which `verify` imports

Doing = Callable[[], Any]


NEW = batch((0, "new-0"), (1, "new-1"), (0, "new-2"), (1, "new-3"))


def append(cluster: Cluster) -> Doing:
    """One append to two partitions under a stable id."""
    log = cluster.log("t")

    def do() -> dict[str, list[int]]:
        done = log.append(NEW, txn=TxnId("app", 1))
        # A checkpoint is part of what may be cut off.
        cluster.settle()
        return {str(p): list(run) for p, run in done.ranges.items()}

    return do


def create(cluster: Cluster) -> Doing:
    """One topic creation."""
    return lambda: cluster.create_topic("new", 2, {}).num_partitions


def delete(cluster: Cluster) -> Doing:
    """One topic deletion."""
    return lambda: cluster.delete_topic("t")


def commit(cluster: Cluster) -> Doing:
    """One commit of offsets outside a membership."""
    offsets = GroupOffsets.of(cluster, SYSTEM_CLOCK)
    wanted = {TopicPartition("t", 1): OffsetAndMetadata(2, "")}
    ids = {"t": str(cluster.topic("t").topic_id)}
    return lambda: offsets.commit(Membership(group_id="g"), wanted, ids)


OPERATIONS: dict[str, Callable[[Cluster], Doing]] = {
    "append": append,
    "create": create,
    "delete": delete,
    "commit": commit,
}


def state(root: str) -> dict[str, Any]:
    """What a reader that comes new sees: records by topic and partition, and the group's offset."""
    cluster = on_disk(root)
    topics = {name: everything(cluster.log(name)) for name in sorted(cluster.topics())}
    where = TopicPartition("t", 1)
    ids = {name: str(info.topic_id) for name, info in cluster.topics().items()}
    committed = GroupOffsets.of(cluster, SYSTEM_CLOCK).committed("g", [where], ids)
    return {"topics": topics, "committed": committed[where].offset if where in committed else None}


def outcome(do: Doing) -> dict[str, Any]:
    """What an operation returned, or the class of its error."""
    try:
        return {"done": do()}
    except KafkaError as error:
        return {"error": type(error).__name__, "message": str(error)}


def in_child(work: Callable[[], Any]) -> Any:
    """Run in a forked process; its result, or None when it was killed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with os.fdopen(writing, "w") as stream:
            try:
                stream.write(json.dumps(work()))
            except Exception:  # noqa: BLE001 - whatever it is, the test must see it
                stream.write(json.dumps({"crash": traceback.format_exc()}))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        content = stream.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return None
    assert status == 0, f"a child ended with status {status}"
    return json.loads(content)


def attempt(operation: str, root: str, env: dict[str, str]) -> Any:
    """Do it with the fault, and again without it in the same process; then look at it as one that comes new."""
    do = OPERATIONS[operation](on_disk(root))
    os.environ.update(env)
    first = outcome(do)
    for name in env:
        del os.environ[name]
    middle = state(root)
    return {"first": first, "again": outcome(do), **recover(operation, root), "before": middle}


def recover(operation: str, root: str) -> Any:
    """In a new process: what is to be seen, the operation once more, and what is to be seen then."""
    before = state(root)
    again = outcome(OPERATIONS[operation](on_disk(root)))
    return {"before": before, "retry": again, "after": state(root), "errors": errors_of(root)}


def one(operation: str, base: str, root: str, env: dict[str, str]) -> dict[str, Any]:
    """One fault on a copy of a prepared root."""
    shutil.copytree(base, root)
    ran = in_child(lambda: attempt(operation, root, env))
    found = {"killed": ran is None, **(in_child(lambda: recover(operation, root)) if ran is None else ran)}
    if "crash" in found:
        message = f"{operation} under {env}: {found['crash']}"
        raise AssertionError(message)
    shutil.rmtree(root)
    return found


def sweep(operation: str, base: str, scratch: Path, do: str, match: str, step: int = 1) -> list[dict[str, Any]]:
    """The fault at the first, second … file operation, until there are no more; with a step at some, and at the last.

    A kill before one call is a kill after the one before it, so `kill_before` alone finds every state on the disk.
    """
    found: list[dict[str, Any]] = []
    for nth in range(1, MOST_CALLS, step):
        calls, result = swept_at(nth, operation, base, scratch, do, match)
        if len(calls) >= nth:
            found.append(result)
        elif len(calls) > nth - step:
            return [*found, swept_at(len(calls), operation, base, scratch, do, match)[1]]
        else:
            return found
    message = f"{operation} did not end"
    raise AssertionError(message)


def swept_at(
    nth: int, operation: str, base: str, scratch: Path, do: str, match: str
) -> tuple[list[str], dict[str, Any]]:
    """The fault at one file operation: which there were, and what it left behind."""
    root, log = str(scratch / f"{do}-{nth}"), scratch / f"{do}-{nth}.log"
    env = {
        "FAULT_AT": "write",
        "FAULT_DO": do,
        "FAULT_MATCH": match or root,
        "FAULT_NTH": str(nth),
        "FAULT_LOG": str(log),
    }
    result = one(operation, base, root, env)
    calls = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    at = calls[nth - 1].replace(root, "") if len(calls) >= nth else ""
    return calls, {"fault": f"{do} at {at}", **result}


def main() -> None:
    asked = json.loads(sys.argv[1])
    print("ready", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()
    scratch = Path(asked["scratch"])
    if "points" in asked:
        found = [
            {
                "fault": point,
                **one(asked["operation"], asked["base"], str(scratch / f"copy-{at}"), {"KAFKALIKE_FAULT": point}),
            }
            for at, point in enumerate(asked["points"])
        ]
    else:
        how = {"match": asked["match"], "step": asked.get("step", 1)}
        found = [r for do in asked["do"] for r in sweep(asked["operation"], asked["base"], scratch, do, **how)]
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
