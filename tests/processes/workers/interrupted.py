"""Interrupted worker: works while signals raise in it, and looks after each whether it still sees what is there.

Prints what was attempted, acknowledged and handed out, and what was wrong, as one line of JSON. A `steady` one is not
interrupted. It works until it is told to stop, and so do readers and maintenance after their last interrupt.
"""

from __future__ import annotations

import abc
import json
import logging
import random
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from kafkalike.admin import KafkaAdminClient
from kafkalike.consumer import KafkaConsumer
from kafkalike.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import NewTopic
from kafkalike.producer import KafkaProducer
from kafkalike.producer.future import FutureRecordMetadata
from tests.processes.workers.common import cluster, orders, told_to_stop, wait_for_go
from tests.tools.interrupt_world import PATIENCE_MS, log_view, view_of
from tests.tools.interrupts import comes_of
from tests.tools.records import batch, open_log

TRIES = 100
"""Looks after which two clients beside busy writers must have seen the same once."""
ROWS = ("rows of the metadata", "rows of the groups", "version")
"""What only rises."""

View = dict[str, Any]


class Alarm(Exception):  # noqa: N818 - what a program's own handler raises need not be called an error
    """What this program's handler of SIGALRM raises."""


class Worker(abc.ABC):
    """Does one step again and again."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.name: str = asked["name"]
        self.cluster: Cluster = cluster(asked["root"])
        self.root: str = asked["root"]
        self.number = 0
        self.attempted: list[list[Any]] = []
        self.acked: list[list[Any]] = []
        self.seen: list[list[Any]] = []
        self.wrong: list[str] = []

    @abc.abstractmethod
    def step(self) -> None:
        """What may be interrupted."""

    def after(self) -> None:  # noqa: B027 - not every worker has any
        """Take note of what the step has done; not interrupted."""

    def logs(self) -> dict[str, TopicLog]:
        """Logs that the client holds open."""
        return {}

    def end(self) -> None:  # noqa: B027 - not every worker has any
        """Let go of everything, and take note of what is known by now."""

    def value(self, partition: int) -> str:
        """A new value, which is sent from now on."""
        self.number += 1
        self.attempted.append([partition, f"{self.name}-{self.number}"])
        return f"{self.name}-{self.number}"

    def compare(self) -> None:
        """Look whether this client sees what a new one sees, at moments when both have seen as much."""
        fresh = cluster(self.root)
        self._compare("cluster", lambda: view_of(self.cluster), lambda: view_of(fresh))
        for topic, log in self.logs().items():
            new = open_log(fresh, topic)
            self._compare(f"log of {topic}", lambda log=log: _log_now(log), lambda new=new: _log_now(new))  # type: ignore[misc]

    def _compare(self, what: str, look: Callable[[], View], look_anew: Callable[[], View]) -> None:
        theirs: View = {}
        mine: View = {}
        for _ in range(TRIES):
            theirs, mine = look_anew(), look()
            if mine == theirs:
                return
            if any(mine[name] < theirs[name] for name in ROWS if name in theirs):
                break
        differ = {name: (mine.get(name), theirs.get(name)) for name in theirs if mine.get(name) != theirs.get(name)}
        self.wrong.append(f"{what}: this client and a new one see {str(differ)[:2000]}")


def _log_now(log: TopicLog) -> View:
    log.refresh()
    return log_view(log)


class Append(Worker):
    """Appends to an open log."""

    def __init__(self, asked: dict[str, Any]) -> None:
        super().__init__(asked)
        self.log = open_log(self.cluster)
        self.sent: list[tuple[int, str]] = []
        self.done: Any = None

    def step(self) -> None:
        self.done = None
        self.sent = [(p, self.value(p)) for p in range(2)]
        self.done = self.log.append(batch(*self.sent), timeout_ms=PATIENCE_MS)

    def after(self) -> None:
        if self.done is not None:
            self.acked += [[p, value, self.done.ranges[p].start] for p, value in self.sent]
            self.done = None

    def logs(self) -> dict[str, TopicLog]:
        return {"t": self.log}


class Produce(Worker):
    """Sends through a KafkaProducer, and flushes."""

    def __init__(self, asked: dict[str, Any]) -> None:
        super().__init__(asked)
        self.producer = KafkaProducer(bootstrap_servers=self.cluster)
        self.futures: list[tuple[int, str, FutureRecordMetadata]] = []

    def step(self) -> None:
        for partition in range(2):
            value = self.value(partition)
            self.futures.append((partition, value, self.producer.send("t", value.encode(), partition=partition)))
        self.producer.flush(PATIENCE_MS / 1000)

    def end(self) -> None:
        self.producer.close(PATIENCE_MS / 1000)
        for partition, value, future in self.futures:
            if not future.is_done:
                self.wrong.append(f"{value} has no outcome after close")
            elif future.succeeded():
                self.acked.append([partition, value, future.get(timeout=0).offset])
            else:
                self.wrong.append(f"{value} failed: {future.exception!r}")


class Steady(Produce):
    """The same, at a walk."""

    def step(self) -> None:
        super().step()
        time.sleep(0.05)


class Consume(Worker):
    """A member of a group that polls and commits."""

    def __init__(self, asked: dict[str, Any]) -> None:
        super().__init__(asked)
        self.consumer = KafkaConsumer(
            "t",
            bootstrap_servers=self.cluster,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=7,
            session_timeout_ms=10_000,
        )
        self.got: Any = None

    def step(self) -> None:
        self.got = None
        # No signal gets in between the return of a call and the assignment of what it returned.
        self.got = self.consumer.poll(timeout_ms=20)
        if self.got and self.number % 2:
            self.after()
            self.consumer.commit()
        self.number += 1

    def after(self) -> None:
        if self.got:
            found = [[tp.partition, r.offset, r.value.decode()] for tp, records in self.got.items() for r in records]
            self.seen += found
            self.got = None

    def drained(self) -> bool:
        """Whether it has read everything that it is to read."""
        return self.consumer.assignment() != set() and all(
            self.consumer.position(tp) == end
            for tp, end in self.consumer.end_offsets(list(self.consumer.assignment())).items()
        )

    def end(self) -> None:
        self.consumer.commit()
        self.consumer.close()


class Admin(Worker):
    """Creates and deletes topics of its own, and looks at the list."""

    def __init__(self, asked: dict[str, Any]) -> None:
        super().__init__(asked)
        self.admin = KafkaAdminClient(bootstrap_servers=self.cluster)

    def step(self) -> None:
        self.number += 1
        name = f"{self.name}-{self.number % 3}"
        try:
            self.admin.create_topics([NewTopic(name, 1)])
        except TopicAlreadyExistsError:
            try:
                self.admin.delete_topics([name])
            except UnknownTopicOrPartitionError:
                # It was there a moment ago, and nobody else deletes it.
                self.wrong.append(f"{name} is gone")
        if "t" not in self.admin.list_topics():
            self.wrong.append("t is not in the list of topics")

    def end(self) -> None:
        self.admin.close()


class Maintain(Worker):
    """Runs maintenance."""

    def step(self) -> None:
        report = maintain(self.cluster, ["t"], clock=SYSTEM_CLOCK)
        if report.failed:
            self.wrong.append(f"maintenance failed: {report}")


ROLES: dict[str, type[Worker]] = {
    "append": Append,
    "produce": Produce,
    "steady": Steady,
    "consume": Consume,
    "admin": Admin,
    "maintain": Maintain,
}


class Signals:
    """Lets a step be interrupted once, at a random moment, by SIGINT or by SIGALRM."""

    def __init__(self, seed: str) -> None:
        self._chance = random.Random(seed)
        self._usual = 0.01
        """Seconds that a step takes."""
        self.count = 0
        """How often a handler raised."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, self._handle)

    def _handle(self, number: int, frame: object) -> NoReturn:
        del number, frame
        self.count += 1
        if self.count % 2:
            signal.raise_signal(signal.SIGINT)
        raise Alarm

    def during(self, worker: Worker) -> bool:
        """One step; returns whether it was interrupted."""
        before, begun = self.count, time.monotonic()
        try:
            signal.setitimer(signal.ITIMER_REAL, max(1e-6, self._chance.random() * 1.5 * self._usual))
            try:
                worker.step()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except (KeyboardInterrupt, Alarm):
            # Else the end of a step that takes longer than was thought would never be interrupted.
            self._usual *= 1.2
            return True
        except Exception as error:  # noqa: BLE001 - judged
            # A KafkaError may be the answer to a signal, anything else comes up on its way.
            answer = isinstance(error, KafkaError) and self.count != before
            if not answer and not comes_of(error, Alarm) and not comes_of(error, KeyboardInterrupt):
                worker.wrong.append(f"a step failed: {error!r}")
        else:
            self._usual += 0.2 * (time.monotonic() - begun - self._usual)
        return self.count != before


def main() -> None:
    logging.disable(logging.CRITICAL)
    asked = orders()
    worker = ROLES[asked["role"]](asked)
    signals = Signals(asked["name"])
    # What is imported at the first need is imported undisturbed.
    for _ in range(3):
        worker.step()
        worker.after()
    wait_for_go()
    stop = told_to_stop()
    while signals.count < asked["interrupts"]:
        hit = signals.during(worker)
        worker.after()
        if hit:
            worker.compare()
            if worker.wrong:
                break
    while not worker.wrong and isinstance(worker, (Steady, Consume, Maintain)):
        last = stop.is_set()
        worker.step()
        worker.after()
        if last and (not isinstance(worker, Consume) or worker.drained()):
            break
    worker.end()
    told = {name: getattr(worker, name) for name in ("attempted", "acked", "seen", "wrong")}
    print(json.dumps({**told, "interrupts": signals.count}))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
