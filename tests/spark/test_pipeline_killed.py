"""A pipeline of six queries whose driver, JVM or both are killed again and again; each table is what it should be.

The truth is computed here, without Spark, from the lines of the files. See `workers/pipeline.py` for the queries.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafkalike.connect import connect
from tests.spark.workers.pipeline import EVERY
from tests.tools.children import Child
from tests.tools.findings import errors_of
from tests.tools.records import all_records, make_topic

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(3600)]

WORKER: Final = "tests.spark.workers.pipeline"
TOPICS: Final = ("events", "clean", "windows", "joined", "merged", "running")
KILLS: Final = int(os.environ.get("KAFKALIKE_PIPELINE_KILLS", "10"))
SEED: Final = int(os.environ.get("KAFKALIKE_PIPELINE_SEED", "33"))
PATIENCE: Final = 600.0
"""Seconds for a start of Spark, and for the queries to read what is left, on a machine that does much else."""

Event = dict[str, Any]
WAYS: Final = ("python", "jvm", "both", "between the write and the commit note")


class Events:
    """Files of events: orders, payments of earlier orders, views; one of eight lines comes twice."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        folder.mkdir()
        self._folder = folder
        self._chance = chance
        self.lines: list[Event] = []
        self._files = 0

    def add(self) -> None:
        """One more file, twenty seconds later than the last by the events' time."""
        begin = 1_750_000_000_000 + self._files * 20_000
        orders = [event for event in self.lines[-80:] if event["kind"] == "order"]
        fresh: list[Event] = []
        for _ in range(24):
            kind = self._chance.choice(("order", "paid", "view"))
            amount = self._chance.choice(orders)["id"] if kind == "paid" and orders else self._chance.randrange(100)
            ms = begin + self._chance.randrange(25_000)
            number = len({event["id"] for event in self.lines}) + len(fresh)
            fresh.append({"id": number, "kind": kind, "user": f"u{number % 7}", "ms": ms, "amount": amount})
        again = self._chance.sample([*self.lines[-60:], *fresh], 3)
        self._write([*fresh, *again])

    def end(self) -> None:
        """Events of much later days, which close all windows."""
        for day in (1, 2):
            number = len({event["id"] for event in self.lines})
            ms = 1_750_000_000_000 + day * 86_400_000
            self._write([{"id": number, "kind": "end", "user": "end", "ms": ms, "amount": 0}])

    def _write(self, events: list[Event]) -> None:
        hidden = self._folder.parent / "next.txt"
        hidden.write_text("".join(f"{json.dumps(event)}\n" for event in events))
        # Never half a file, and no two files of one time: the source takes them by their times.
        os.utime(hidden, ns=(time.time_ns(), 1_750_000_000_000_000_000 + self._files * 1_000_000_000))
        hidden.rename(self._folder / f"{self._files:05}.txt")
        self.lines += events
        self._files += 1


@dataclass
class Truth:
    """What each topic, and the table, must hold."""

    topics: dict[str, Counter[str]]
    accounts: set[tuple[str, int, int]]


def truth_of(lines: list[Event]) -> Truth:
    once = {event["id"]: event for event in lines}.values()
    windows: dict[tuple[int, str], list[int]] = defaultdict(list)
    users: Counter[str] = Counter()
    for event in once:
        windows[event["ms"] // 60_000 * 60_000, event["user"]].append(event["amount"])
        users[event["user"]] += 1
    orders = {event["id"]: event for event in once if event["kind"] == "order"}
    pairs = [
        (orders[paid["amount"]], paid)
        for paid in once
        if paid["kind"] == "paid"
        and paid["amount"] in orders
        and 0 <= paid["ms"] - orders[paid["amount"]]["ms"] <= 60_000
    ]
    joined = Counter(f"{order['user']}:{order['id']}:{order['amount']}:{paid['id']}" for order, paid in pairs)
    return Truth(
        topics={
            "events": Counter(json.dumps(event) for event in lines),
            "clean": Counter(json.dumps(event, separators=(",", ":")) for event in once),
            # The window of the last event waits for a later one.
            "windows": Counter(
                f"{start}:{user}:{len(amounts)}:{sum(amounts)}"
                for (start, user), amounts in windows.items()
                if user != "end"
            ),
            "joined": joined,
            "merged": joined,
            "running": Counter(f"{user}:{n}" for user, total in users.items() for n in range(EVERY, total + 1, EVERY)),
        },
        accounts={(order["user"], order["id"], order["amount"]) for order, _ in pairs},
    )


def found_in(root: str, topic: str) -> Counter[str]:
    """The records of a topic; the first day that ends windows may have its own closed."""
    rows = all_records(root, topic) if topic in connect(root).topics() else {}
    return Counter(value for records in rows.values() for _, value in records if ":end:" not in value)


class Life:
    """A driver with its JVM, which runs when this is made."""

    def __init__(self, root: str, folder: Path, env: dict[str, str]) -> None:
        self._folder = folder
        for name in ("jvm", "started"):
            (folder / name).unlink(missing_ok=True)
        self.child = Child(WORKER, {"root": root, "folder": str(folder)}, env)
        self.child.wait_ready()
        self.child.go()
        self._wait("jvm")

    def wait_started(self) -> None:
        """Wait until all queries have been started, or the process is dead."""
        self._wait("started")

    def _wait(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not (self._folder / name).exists() and not self.child.ended:
            assert time.monotonic() < deadline, f"{name} does not come"
            time.sleep(0.05)

    def kill(self, way: str) -> None:
        """Kill the driver, its JVM, or both at once; without its JVM a driver ends by itself."""
        jvm = int((self._folder / "jvm").read_text())
        if way in {"jvm", "both"}:
            os.kill(jvm, signal.SIGKILL)
        if way == "jvm":
            # It learns of that from the next call; PySpark may wait for an answer for ever.
            with suppress(subprocess.TimeoutExpired):
                self.child.wait_end(30)
        self.child.kill()


def test_each_table_is_right_after_ten_kills_of_the_pipeline(root: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    for topic in TOPICS:
        make_topic(root, topic=topic, partitions=2)
    accounts = str(tmp_path / "accounts")
    columns = [("user", pa.string()), ("id", pa.int64()), ("amount", pa.int64())]
    write_deltalake(accounts, pa.schema(columns).empty_table())
    events = Events(tmp_path / "in", chance)
    done: Counter[str] = Counter()
    for _ in range(KILLS):
        way = chance.choice(WAYS)
        at = f"stream.after_write:kill@{chance.randint(1, 12)}"
        life = Life(root, tmp_path, {"KAFKALIKE_FAULT": at} if way == WAYS[-1] else {})
        deadline = time.monotonic() + chance.uniform(1, 15)
        while time.monotonic() < deadline and not life.child.ended:
            events.add()
            time.sleep(chance.uniform(0.2, 2))
        if not life.child.ended:
            life.kill("both" if way == WAYS[-1] else way)
        done[way] += 1
    for _ in range(10):
        events.add()
    events.end()
    truth = truth_of(events.lines)

    life = Life(root, tmp_path, {})
    life.wait_started()
    deadline = time.monotonic() + PATIENCE
    while any(found_in(root, topic).total() < truth.topics[topic].total() for topic in TOPICS):
        assert not life.child.ended, (tmp_path / "error").read_text()
        assert time.monotonic() < deadline, {
            topic: (found_in(root, topic).total(), truth.topics[topic].total()) for topic in TOPICS
        }
        time.sleep(1)
    life.kill("both")

    totals = {topic: rows.total() for topic, rows in truth.topics.items()}
    print(f"killed {dict(done)}; records {totals}; accounts {len(truth.accounts)}")  # noqa: T201 - the figures
    for topic in TOPICS:
        assert found_in(root, topic) == truth.topics[topic], topic
    rows = DeltaTable(accounts).to_pyarrow_table().to_pylist()
    assert len(rows) == len(truth.accounts)
    assert {(row["user"], row["id"], row["amount"]) for row in rows} == truth.accounts
    assert errors_of(root) == []
