"""The gateway beside a real Kafka broker, with librdkafka as the client of both: `python -m benchmarks.kafka_gateway`.

Each server is a process of its own on the loopback, and its CPU time comes from the kernel. So records per second of a
server's core hold on a busy machine, too; the other figures want a quiet one. `--no-kafka` leaves the broker out.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import resource
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.bench_objects import slow
from benchmarks.harness import Report, percentile
from benchmarks.kafka_broker import broker
from kafkalike.connect import connect
from kafkalike.gateway.gateway_server import GatewayServer
from tests.tools.object_servers import S3, running

RUNS: Final = int(os.environ.get("KAFKALIKE_BENCH_RUNS", "3"))
RECORDS: Final = int(os.environ.get("KAFKALIKE_BENCH_RECORDS", "200000"))
PARTITIONS: Final = 4
SINGLE: Final = 200
"""Records of the latency test."""
MEMBERS: Final = 100
IDLE_SECONDS: Final = 15.0
SETTLE_SECONDS: Final = 10.0
VALUE: Final = os.urandom(50).hex().encode()
TICKS: Final = os.sysconf("SC_CLK_TCK")

# Tests have hypothesis, users have not, and kio loads it if it is there.
GATEWAY: Final = "import sys; sys.modules['hypothesis'] = None; from kafkalike.cli import main; main()"

PRODUCERS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "16 kB batches": ({"linger.ms": 5, "batch.size": 16_384}, "≥ 150,000"),
    "16 kB batches, idempotent": ({"linger.ms": 5, "batch.size": 16_384, "enable.idempotence": True}, "≥ 150,000"),
    "1 MB batches, linger 20 ms": ({"linger.ms": 20, "batch.size": 1_000_000}, "≥ 300,000"),
}


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    name: str
    address: str
    pid: int

    @property
    def cpu(self) -> float:
        """Seconds of all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def memory(self) -> float:
        """Resident MB."""
        (line,) = [row for row in Path(f"/proc/{self.pid}/status").read_text().splitlines() if row.startswith("VmRSS")]
        return int(line.split()[1]) / 1024


def children() -> set[int]:
    """Processes that this one has started."""
    return {int(pid) for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}


def first_answer(port: int) -> None:
    """Wait until a server at a port answers ApiVersions."""
    request = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(request)
            if client.recv(8, socket.MSG_WAITALL):
                return
        time.sleep(0.002)


def spawn(root: str) -> tuple[subprocess.Popen[bytes], int, float, float]:
    """Start a gateway; return it, its port, and the seconds and CPU seconds to its first answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    begun = time.perf_counter()
    command = [sys.executable, "-c", GATEWAY, "gateway", "--bootstrap-server", root, "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    first_answer(port)
    return process, port, time.perf_counter() - begun, Server("", "", process.pid).cpu


@contextlib.contextmanager
def gateway() -> Iterator[Server]:
    """A gateway over a new root."""
    with tempfile.TemporaryDirectory(prefix="gateway-") as root:
        process, port, _, _ = spawn(root)
        try:
            yield Server("gateway", f"127.0.0.1:{port}", process.pid)
        finally:
            process.terminate()
            process.wait(60)


@contextlib.contextmanager
def kafka() -> Iterator[Server]:
    """A broker."""
    with broker() as (address, _):
        (pid,) = [pid for pid in children() if b"kafka.Kafka" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
        yield Server("Kafka", address, pid)


def create(server: Server, topic: str) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": server.address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)


def produce(server: Server, topic: str, settings: dict[str, Any], count: int) -> None:
    """Send records and wait for all of them."""
    failed = list[KafkaError]()

    def report(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {"bootstrap.servers": server.address, "queue.buffering.max.messages": 1_000_000, "acks": "all", **settings}
    )
    for number in range(count):
        producer.produce(topic, VALUE, key=b"key%06d" % (number % 5000), partition=number % PARTITIONS, callback=report)
        if not number % 1000:
            producer.poll(0)
    assert producer.flush(120) == 0
    assert not failed, failed[0]


def assigned(server: Server, topic: str, **more: Any) -> Consumer:  # noqa: ANN401 - settings of librdkafka
    """Return a consumer of all partitions, without a group."""
    consumer = Consumer({"bootstrap.servers": server.address, "group.id": "none", "enable.auto.commit": False, **more})
    consumer.assign([Place(topic, partition, 0) for partition in range(PARTITIONS)])
    return consumer


def consume(server: Server, topic: str, count: int) -> None:
    """Read a topic from its start."""
    consumer = assigned(server, topic)
    found = 0
    while found < count:
        found += len(consumer.consume(10_000, 1.0))
    consumer.close()


def singles(server: Server, topic: str) -> tuple[list[float], list[float]]:
    """Send single records; return the seconds to the answer, and to another client's poll."""
    producer = Producer({"bootstrap.servers": server.address, "linger.ms": 0})
    consumer = assigned(server, topic, **{"fetch.wait.max.ms": 500})
    acknowledged, read, clock = list[float](), list[float](), time.perf_counter
    for number in range(SINGLE + 20):
        answered = list[float]()
        begun = clock()
        producer.produce(topic, VALUE, partition=number % PARTITIONS, callback=lambda *_: answered.append(clock()))  # noqa: B023 - called before the next round
        while not answered:
            producer.poll(1)
        while consumer.poll(1) is None:
            pass
        if number >= 20:  # the first ones connect
            acknowledged.append(answered[0] - begun)
            read.append(clock() - begun)
    consumer.close()
    return acknowledged, read


@contextlib.contextmanager
def members(server: Server, topic: str, count: int) -> Iterator[None]:
    """Idle members of one group, each polled once in a while."""
    consumers = []
    for _ in range(count):
        one = Consumer(
            {"bootstrap.servers": server.address, "group.id": "idle", "group.protocol": "classic", "log_level": 0}
        )
        one.subscribe([topic])
        one.poll(0.01)
        consumers.append(one)
    end = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < end:
        for one in consumers:
            one.poll(0.001)
    yield
    for one in consumers:
        one.close()


def measure(call: Callable[[], None], server: Server, count: int) -> tuple[float, float]:
    """Records per second of the server's core, and of the clock."""
    cpu, begun = server.cpu, time.perf_counter()
    call()
    return count / max(server.cpu - cpu, 1 / TICKS), count / (time.perf_counter() - begun)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--only", default="start produce fetch single idle objects")
    options = parser.parse_args()
    report = Report("kafka_gateway")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(gateway())]
        if not options.no_kafka:
            servers.append(stack.enter_context(kafka()))
        if "start" in options.only:
            start(report)
        for server in servers:
            report.add("memory at the start", f"{server.memory:.0f} MB", rival=server.name, aim="≤ 150 MB")
        load(report, servers, options.only)
        for server in servers:
            report.add("memory after the load", f"{server.memory:.0f} MB", rival=server.name)
        if "single" in options.only:
            for server in servers:
                latency(report, server)
        if "idle" in options.only:
            for server in servers:
                idle(report, server)
    if "objects" in options.only:
        objects(report)
    compare(report)
    report.finish()


def compare(report: Report) -> None:
    """Put Kafka's figures beside the gateway's, with the ratio of the first number of each."""
    broker = {row["what"]: row for row in report.rows if row["against"] == "Kafka"}
    report.rows = [row for row in report.rows if row["against"] != "Kafka"]
    for row in report.rows:
        if row["against"] == "gateway":
            row["against"] = ""
            if beside := broker.get(row["what"]):
                ours, theirs = (
                    float(re.findall(r"\b\d[\d,.]*", one["figure"])[0].replace(",", "")) for one in (row, beside)
                )
                what = "speed" if "records/s" in row["figure"] else "memory" if "MB" in row["figure"] else "time"
                row |= {"against": f"Kafka: {beside['figure']}", "ratio": f"{ours / theirs:.2f} x its {what}"}


def start(report: Report) -> None:
    """Measure how long a gateway starts over an empty root."""
    starts = list[tuple[float, float]]()
    for _ in range(RUNS + 1):
        with tempfile.TemporaryDirectory() as root:
            process, _, wall, cpu = spawn(root)
            process.terminate()
            process.wait(60)
            starts.append((wall, cpu))
    walls, cpus = zip(*starts[1:], strict=True)
    report.raw["start"] = starts
    figure = f"{statistics.median(walls):.2f} s, {statistics.median(cpus):.2f} s of CPU"
    report.add("start to the first answer", figure, rival="gateway", aim="≤ 1.5 s")


def latency(report: Report, server: Server, aims: tuple[int, int] = (6, 8)) -> None:
    """Measure single records."""
    create(server, "single")
    acknowledged, read = singles(server, "single")
    report.raw[f"one record, {server.name}"] = {"acknowledged": acknowledged, "read": read}
    for what, found, aim in zip(("acknowledged", "read by a poll"), (acknowledged, read), aims, strict=True):
        p50, p99 = (percentile(found, share) * 1000 for share in (0.5, 0.99))
        figure = f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"
        report.add(f"one record, sent to {what}", figure, rival=server.name, aim=f"p50 ≤ {aim} ms")


def idle(report: Report, server: Server) -> None:
    """Measure a group that has nothing to read."""
    create(server, "idle")
    with members(server, "idle", MEMBERS):
        cpu = server.cpu
        time.sleep(IDLE_SECONDS)
        share = (server.cpu - cpu) / IDLE_SECONDS * 100
    report.raw[f"idle, {server.name}"] = [share]
    report.add(f"{MEMBERS} idle members", f"{share:.1f} % of a core", rival=server.name, aim="≤ 1 % of a core")


def objects(report: Report) -> None:
    """Measure over an object store with 25 ms for a PUT and 15 ms for others. The gateway is in this process."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        try:
            store = stack.enter_context(running(S3, Path(folder)))
        except pytest.skip.Exception as missing:
            print(missing, file=sys.stderr)
            return
        behind = stack.enter_context(slow(store, 15, 25))
        served = GatewayServer(connect(behind.new_root(), behind.options))
        served.start()
        stack.callback(served.stop)
        server = Server("object store, 25 ms", served.bootstrap_servers, os.getpid())
        latency(report, server, (70, 100))
        for what, (settings, _) in PRODUCERS.items():
            topic = f"t-{len(what)}"
            create(server, topic)
            rates = [measure(partial(produce, server, topic, settings, RECORDS), server, RECORDS)[1] for _ in range(2)]
            report.add(f"produce, {what}", f"{rates[1]:,.0f} records/s of the clock", rival=server.name)
        rate = measure(lambda: consume(server, topic, 2 * RECORDS), server, 2 * RECORDS)[1]
        report.add("fetch", f"{rate:,.0f} records/s of the clock", rival=server.name)


def load(report: Report, servers: list[Server], only: str) -> None:
    """Measure producers and consumers."""
    figures: dict[tuple[str, str], list[tuple[float, float]]] = {}
    aims = {f"produce, {what}": aim for what, (_, aim) in PRODUCERS.items()} | {"fetch": "≥ 700,000"}
    for run in range(RUNS + 1):
        for server in servers:
            for number, (what, (settings, _)) in enumerate(PRODUCERS.items()):
                topic = f"t-{run}-{number}"
                if "produce" in only or (number == 0 and "fetch" in only):
                    create(server, topic)
                    found = measure(lambda: produce(server, topic, settings, RECORDS), server, RECORDS)  # noqa: B023 - called at once
                    figures.setdefault((f"produce, {what}", server.name), []).append(found)
            if "fetch" in only:
                found = measure(lambda: consume(server, f"t-{run}-0", RECORDS), server, RECORDS)  # noqa: B023
                figures.setdefault(("fetch", server.name), []).append(found)
    for (what, name), rates in figures.items():
        core, wall = (statistics.median(column) for column in zip(*rates[1:], strict=True))
        report.raw[f"{what}, {name}"] = rates
        report.add(what, f"{core:,.0f} records/s of a core, {wall:,.0f} of the clock", rival=name, aim=aims[what])


if __name__ == "__main__":
    main()
