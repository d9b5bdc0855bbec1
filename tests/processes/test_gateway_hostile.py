"""Hostile bytes, clients and crowds take a gateway neither its memory nor its other clients: `make soak-gateway`.

KAFKALIKE_GATEWAY_SECONDS says how long each attack lasts, 60 seconds by default; KAFKALIKE_FRAMES how many frames the
reader gets, 10 million by default. What was seen is printed.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import resource
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Place
from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder
from kio.index import load_request_schema

from kafkalike.connect import connect
from kafkalike.errors import KafkaError as Refused
from kafkalike.gateway.api_versions import VERSIONS, MessageFormat
from kafkalike.gateway.message_codec import MalformedRequestError, writer_of
from kafkalike.log.wire.batch_heads import read_batches
from kafkalike.log.wire.record_decoder import InflatedBatch, decode
from tests.processes.test_gateway_soak import Gateways
from tests.tools import mutating_proxy
from tests.tools.mutating_proxy import MutatingProxy, mutated
from tests.tools.wire_messages import some_message

SECONDS = float(os.environ.get("KAFKALIKE_GATEWAY_SECONDS", "60"))
FRAMES = int(os.environ.get("KAFKALIKE_FRAMES", "10000000"))
MOST_MEGABYTES = 1200
"""150 at rest, and three times 256 for requests, records to append and answers, with room for copies."""

STUCK_SECONDS = 30

pytestmark = [pytest.mark.soak, pytest.mark.timeout(SECONDS + 3600)]


def report(line: str) -> None:
    """Show what was seen."""
    sys.stdout.write(f"{line}\n")
    with Path(os.environ.get("KAFKALIKE_REPORT", os.devnull)).open("a") as out:
        out.write(f"{line}\n")


def valid_frames(chance: random.Random) -> list[tuple[int, int, bytes]]:
    """Return requests of all keys and versions, as key, version and bytes."""
    found = []
    for key, (low, high) in VERSIONS.items():
        for version in range(low, high + 1):
            schema: Any = load_request_schema(key, version)
            for number in range(4):
                out = bytearray(struct.pack(">hhih", key, version, number, 1) + b"f")
                if schema.__header_schema__.__flexible__:
                    out.append(0)
                writer_of(schema)(out, some_message(chance, schema))
                found.append((key, version, bytes(out)))
    return found


def batch(chance: random.Random, codec: int) -> bytes:
    """Return a record batch."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for at in range(chance.randint(1, 20)):
        builder.append(
            at, 1_700_000_000_000, b"k", chance.randbytes(20), [("h", b"v")] if chance.random() < 0.3 else []
        )
    return bytes(builder.build())


def test_reader_refuses_millions_of_random_and_mutated_frames_within_bounds() -> None:
    chance = random.Random(int(os.environ.get("KAFKALIKE_SEED", "1")))
    frames = valid_frames(chance)
    batches = [batch(chance, codec) for codec in (0, 0, 0, 1, 3, 4) for _ in range(20)]
    for key, version, frame in frames:
        MessageFormat.of(key, version).request(memoryview(frame))
    seen: Counter[str] = Counter()
    slowest, begun, before = 0.0, time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(FRAMES):
        start = time.thread_time()
        if number % 10 == 0:
            sent = bytearray(mutated(chance, chance.choice(batches)))
            if len(sent) > 21:
                struct.pack_into(">i", sent, 8, len(sent) - 12)
                struct.pack_into(">I", sent, 17, crc32c(bytes(sent[21:])))
            try:
                inflated = [InflatedBatch(one, 0, one.inflated(1 << 20)) for one in read_batches(bytes(sent))]
                decode(inflated, now_ms=0)
                seen["batch read"] += 1
            except Refused:
                seen["batch refused"] += 1
        else:
            key, version, frame = chance.choice(frames)
            content = chance.randbytes(chance.randrange(100)) if number % 10 == 1 else mutated(chance, frame)
            try:
                MessageFormat.of(key, version).request(memoryview(content))
                seen["request read"] += 1
            except MalformedRequestError:
                seen["request refused"] += 1
        slowest = max(slowest, time.thread_time() - start)

    spent = time.process_time() - begun
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    rate = FRAMES / spent
    report(
        f"{FRAMES:,} frames, {rate:,.0f} a CPU second, slowest {slowest * 1000:.1f} ms, +{grown:.0f} MB, {dict(seen)}"
    )
    assert sum(seen.values()) == FRAMES
    assert grown < 200


class Witness:
    """An honest producer and its consumer, which must notice nothing."""

    def __init__(self, address: str, topic: str) -> None:
        self.latencies: list[float] = []
        self.sent = 0
        self.read: list[bytes] = []
        self.failures: list[str] = []
        self._address, self._topic = address, topic
        self._done = threading.Event()
        self._threads = [threading.Thread(target=one) for one in (self._produce, self._consume)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(60)

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._address, "enable.idempotence": True, "linger.ms": 0})

        def told(error: KafkaError | None, _: object) -> None:
            if error is not None:
                self.failures.append(str(error))

        while not self._done.wait(0.02):
            begun = time.monotonic()
            producer.produce(self._topic, str(self.sent).encode(), partition=0, on_delivery=told)
            self.sent += 1
            producer.flush(60)
            self.latencies.append(time.monotonic() - begun)

    def _consume(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._address, "group.id": "witness", "enable.auto.commit": False})
        consumer.assign([Place(self._topic, 0, 0)])
        end = None
        while len(self.read) < self.sent or not self._done.is_set():
            if self._done.is_set():
                end = end or time.monotonic() + 30
                if time.monotonic() > end:
                    break
            self.read += [m.value() or b"" for m in consumer.consume(100, 0.2) if m.error() is None]
        consumer.close()

    def report(self) -> str:
        found = sorted(self.latencies)
        p50, p99, most = (found[int((len(found) - 1) * share)] * 1000 for share in (0.5, 0.99, 1))
        return f"{self.sent} records sent beside it, p50 {p50:.0f} ms, p99 {p99:.0f} ms, {most:.0f} ms at most"

    def check(self) -> None:
        assert self.failures == []
        assert self.read == [str(number).encode() for number in range(self.sent)]


class Attacked:
    """A gateway under attack, with its memory and log. Maintenance runs beside it, or its topics would have a file for
    each commit of an hour: several hundred thousand, each of which a gateway must know.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        cluster = connect(str(self.root))
        for name in ("witness", "target"):
            cluster.create_topic(name, 4, {})
        self._gateways = Gateways(self.root, 1)
        self.address = self._gateways.addresses
        self.port = self._gateways.ports[0]
        self._megabytes: list[float] = []
        self._log, self._upkeep_log = folder / "gateway-1.log", folder / "maintain.log"
        command = [sys.executable, "-m", "kafkalike", "maintain", "--bootstrap-server", str(self.root), "--every", "1m"]
        with self._upkeep_log.open("w") as told:
            self._upkeep = subprocess.Popen(command, stdout=told, stderr=told)

    def look(self) -> None:
        """Note the memory, and fail if the gateway has ended."""
        process = self._gateways.running[0]
        assert process.poll() is None, self._log.read_text()[-3000:]
        status = Path(f"/proc/{process.pid}/status").read_text()
        self._megabytes.append(int(status.split("VmRSS:")[1].split()[0]) / 1024)

    def close(self) -> None:
        self._upkeep.send_signal(signal.SIGTERM)
        self._upkeep.wait(120)
        self.look()
        self._gateways.stop()

    def check(self) -> None:
        for log in (self._log.read_text(), self._upkeep_log.read_text()):
            assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:3000]
        assert self._upkeep_log.read_text().count("Run ") >= max(SECONDS // 120, 1)
        assert "Error" not in self._upkeep_log.read_text()
        assert max(self._megabytes) < MOST_MEGABYTES

    def _tenth(self, at: int) -> float:
        """Return the median memory of a tenth of the time, in MB."""
        size = len(self._megabytes) // 10 + 1
        return statistics.median(self._megabytes[at * size : (at + 1) * size] or self._megabytes[-1:])

    def memory(self) -> str:
        return f"{max(self._megabytes):.0f} MB at most, by tenths {[round(self._tenth(at)) for at in range(10)]}"

    @property
    def growth(self) -> float:
        """Memory in the last tenth of the time, as a multiple of that in the second."""
        return self._tenth(9) / self._tenth(1)

    @property
    def closed(self) -> int:
        return self._log.read_text().count("closed: ")


@contextlib.contextmanager
def attacked(folder: Path) -> Iterator[tuple[Attacked, Witness]]:
    gateway = Attacked(folder)
    try:
        with Witness(gateway.address, "witness") as witness:
            yield gateway, witness
    finally:
        gateway.close()


def test_mutating_proxy_between_clients_and_a_gateway_harms_nobody_else(tmp_path: Path) -> None:
    with attacked(tmp_path) as (gateway, witness):
        proxy = MutatingProxy(gateway.port, int(os.environ.get("KAFKALIKE_SEED", "1")))
        # Apart, because damaged answers, and the answers to damaged requests, make librdkafka crash or hang.
        command = [sys.executable, "-m", mutating_proxy.__name__, proxy.address]
        ends: Counter[str] = Counter()
        clients = subprocess.Popen(command)
        end, passed, moved = time.monotonic() + SECONDS, 0, time.monotonic()
        while time.monotonic() < end:
            gateway.look()
            if proxy.requests.total() > passed:
                passed, moved = proxy.requests.total(), time.monotonic()
            stuck = time.monotonic() - moved > STUCK_SECONDS
            if stuck or clients.poll() is not None:
                clients.kill()
                code = clients.wait(60)
                ends["stuck" if stuck else str(code)] += 1
                clients, moved = subprocess.Popen(command), time.monotonic()
            time.sleep(0.5)
        clients.kill()
        clients.wait(60)
        proxy.close()

    asked, answered = proxy.requests.total(), proxy.answers
    report(f"{asked:,} requests of {proxy.connections:,} connections, {proxy.damaged_requests:,} damaged")
    report(f"{answered:,} answers, {proxy.damaged_answers:,} damaged; ends of the clients {dict(ends)}")
    report(f"{gateway.closed:,} lines of closed connections; {gateway.memory()}; {witness.report()}")
    report(f"requests by API key {dict(sorted(proxy.requests.items()))}")
    assert proxy.damaged_requests > SECONDS
    assert proxy.damaged_answers > SECONDS / 10
    # What `contract/gateway/test_gateway_memory.py` cannot show in a second.
    assert gateway.growth < 1.5
    gateway.check()
    witness.check()


def bomb() -> bytes:
    """A gzip batch that inflates to 512 MiB."""
    records = gzip.compress(bytes(16 << 20), 9) * 32
    body = struct.pack(">hiqqqhii", 1, 0, 0, 0, -1, -1, -1, 1) + records
    return struct.pack(">qiibI", 0, 9 + len(body), 0, 2, crc32c(body)) + body


def produce_request(content: bytes) -> bytes:
    request = struct.pack(">hhih", 0, 8, 1, -1) + struct.pack(">hhi", -1, -1, 5000)
    request += struct.pack(">ih", 1, 6) + b"target" + struct.pack(">iii", 1, 0, len(content)) + content
    return struct.pack(">i", len(request)) + request


def fetch_request(number: int) -> bytes:
    request = struct.pack(">hhih", 1, 4, number, -1) + struct.pack(">iiiib", -1, 0, 1, 50 << 20, 0)
    request += struct.pack(">ih", 1, 6) + b"target" + struct.pack(">i", 4)
    request += b"".join(struct.pack(">iqi", p, 0, 50 << 20) for p in range(4))
    return struct.pack(">i", len(request)) + request


ATTACKS: dict[str, list[bytes]] = {
    "silent": [b""],
    "half of a request": [struct.pack(">i", 100 << 20) + bytes(1 << 20)],
    "takes no answers": [b"".join(fetch_request(number) for number in range(64))],
    "bomb": [produce_request(bomb())],
    "drip": [produce_request(bomb())[:30]],
    "crowd": [b""] * 40,
}
"""What each connection of an attack sends, before it stays silent."""


def test_crowds_bombs_and_slow_clients_harm_nobody_else(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    with attacked(tmp_path) as (gateway, witness):
        large = Producer({"bootstrap.servers": gateway.address, "linger.ms": 50})
        for number in range(300):
            large.produce("target", os.urandom(500_000), partition=number % 4)
            large.poll(0.01)
        assert large.flush(120) == 0
        chance, held = random.Random(1), list[socket.socket]()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            kind = chance.choice(list(ATTACKS))
            seen[kind] += 1
            with contextlib.suppress(OSError):
                for sent in ATTACKS[kind]:
                    held.append(socket.create_connection(("127.0.0.1", gateway.port), timeout=5))
                    held[-1].sendall(sent)
            gateway.look()
            while len(held) > 300:
                held.pop(chance.randrange(len(held))).close()
            time.sleep(0.1)
        for client in held:
            client.close()

    report(f"{dict(seen)}; {gateway.memory()}; {witness.report()}")
    gateway.check()
    witness.check()
