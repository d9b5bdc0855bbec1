"""Gateways and members are killed again and again in one group of five kinds of members, beside other producers.

KAFKALIKE_GATEWAY_SECONDS says how long; 60 seconds by default.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Place

from kafkalike import TopicPartition
from kafkalike.connect import connect
from kafkalike.errors import UnknownOutcomeError
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.model.clock import SYSTEM_CLOCK
from tests.jepsen.history import Recorder, judge
from tests.jepsen.ownership import explained, overlaps, reread, spans
from tests.tools.dropping_proxy import DroppingProxy
from tests.tools.fleet import Fleet
from tests.tools.mixed_fleet import KINDS, MixedFleet

SECONDS = float(os.environ.get("KAFKALIKE_GATEWAY_SECONDS", "60"))
PARTITIONS = 6


class Gateways:
    """Gateways at fixed ports, started by the command."""

    def __init__(self, root: Path, count: int) -> None:
        self._root = root
        self._started = 0
        self.ports = []
        for _ in range(count):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.ports.append(int(probe.getsockname()[1]))
        self.running = [self._start(port) for port in self.ports]

    @property
    def addresses(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "kafkalike", "gateway", "--bootstrap-server", str(self._root)]
        self._started += 1
        log = self._root.parent / f"gateway-{self._started}.log"
        with log.open("w") as told:
            process = subprocess.Popen([*command, "--listen", f"127.0.0.1:{port}"], stderr=told)
        end = time.monotonic() + 60
        while "Serving " not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end
            time.sleep(0.05)
        return process

    def restart(self, at: int, how: signal.Signals) -> None:
        self.running[at].send_signal(how)
        self.replace(at)

    def replace(self, at: int) -> None:
        """Wait until a gateway has ended, and start another one at its port."""
        self.running[at].wait(60)
        self.running[at] = self._start(self.ports[at])

    def stop(self) -> None:
        for process in self.running:
            process.send_signal(signal.SIGTERM)
        for process in self.running:
            process.wait(60)


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 900)
def test_one_group_of_five_kinds_of_members_keeps_its_promises_while_gateways_and_members_die(tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("KAFKALIKE_SEED", "1")))
    root = tmp_path / "root"
    cluster = connect(str(root))
    cluster.create_topic("t", PARTITIONS, {})
    gateways = Gateways(root, 2)
    fleet = MixedFleet(root, gateways.addresses, tmp_path)
    acts: Counter[str] = Counter()
    try:
        with producing(gateways.addresses, fleet.histories):
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                what, live = chance.random(), sorted(fleet.live)
                # Java takes a second of a processor to start, so that the kinds are taken in turn.
                if len(live) < 3 or (what < 0.35 and len(live) < 6):
                    kind = KINDS[acts["joins"] % len(KINDS)]
                    fleet.join(kind)
                    acts["joins"] += 1
                elif what < 0.5:
                    fleet.leave(chance.choice(live))
                    acts["leaves"] += 1
                elif what < 0.62:
                    fleet.kill(chance.choice(live))
                    acts["kills of members"] += 1
                else:
                    how = chance.choice([signal.SIGKILL, signal.SIGTERM])
                    gateways.restart(chance.randrange(2), how)
                    acts[f"{how.name} of gateways"] += 1
                time.sleep(chance.uniform(0.5, 6))
        log, offsets = cluster.log("t"), GroupOffsets.of(cluster, SYSTEM_CLOCK)
        partitions = [TopicPartition("t", p) for p in range(PARTITIONS)]

        def drained() -> bool:
            log.refresh()
            found = offsets.committed("g", partitions, {"t": log.info.topic_id})
            return {tp: at.offset for tp, at in found.items()} == {tp: log.log_end(tp.partition) for tp in partitions}

        Fleet.await_that(drained, lambda: f"the group does not come to the end: {acts}", 240)
        for name in sorted(fleet.live):
            fleet.leave(name)
    finally:
        fleet.stop()
        gateways.stop()

    fleet.write_histories()
    verdict = judge(fleet.histories)
    clashes = overlaps(spans(fleet.histories, "g", fleet.halted))
    again, wrong = reread(fleet.histories, "g")
    sent = sum(log.log_end(tp.partition) for tp in partitions)
    told = f"{sent} records, {again} read again, {dict(acts)}, members {dict(fleet.kinds)}\n"
    sys.stdout.write(told)
    Path(os.environ.get("KAFKALIKE_REPORT", os.devnull)).write_text(told)
    assert verdict["valid"], (verdict["bad"], verdict["anomalies"])
    assert not clashes, f"halted: {fleet.halted}\n{explained(fleet.histories, clashes)}"
    assert wrong == []


@contextmanager
def producing(addresses: str, histories: Path) -> Iterator[None]:
    """Send records by an idempotent producer of librdkafka, which must lose none."""
    done = threading.Event()
    settings = {"bootstrap.servers": addresses, "enable.idempotence": True, "linger.ms": 2, "log_level": 0}

    def send(producer: Producer, records: list[tuple[int, str]]) -> list[int]:
        offsets: list[int] = []
        for partition, value in records:
            producer.produce("t", value, partition=partition, on_delivery=partial(told, offsets))
        if producer.flush(120) or len(offsets) < len(records):
            raise UnknownOutcomeError("an append", str(records[0]))
        return offsets

    def told(offsets: list[int], error: KafkaError | None, message: Message) -> None:
        if error is None:
            offsets.append(message.offset() or 0)

    def produce() -> None:
        producer, number = Producer(settings), 0
        with Recorder(str(histories / "producer.jsonl"), "producer", "t") as recorder:
            while not done.wait(0.1):
                number += 1
                # Reports of several partitions come in any order.
                records = [(number % PARTITIONS, f"{number}.{nth}") for nth in range(8)]
                assert recorder.send(records, partial(send, producer, records), atomic=False)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(produce)
        try:
            yield
        finally:
            done.set()
        future.result()


def read_all(address: str, topic: str, done: threading.Event, found: list[bytes]) -> None:
    """Read partition 0 of a topic until nothing comes for a second after `done`."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic})
    consumer.assign([Place(topic, 0, 0)])
    while True:
        last = done.is_set()
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
        elif last:
            break
    consumer.close()


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 600)
def test_producers_that_lose_a_fifth_of_the_answers_write_all_records_once_and_no_aborted_ones(tmp_path: Path) -> None:
    cluster = connect(str(tmp_path))
    for topic in ("plain", "whole"):
        cluster.create_topic(topic, 1, {})
    requests = {keys.PRODUCE, keys.ADD_PARTITIONS_TO_TXN, keys.END_TXN}
    reports: list[KafkaError | None] = []
    expected: list[bytes] = []
    found: dict[str, list[bytes]] = {"plain": [], "whole": []}
    done = threading.Event()
    chance, sent, rounds = random.Random(1), 0, 0
    with DroppingProxy(requests, 0.2, seed=5).running() as proxy:
        server = GatewayServer(cluster, advertised=("127.0.0.1", proxy.port))
        proxy.server = server.address
        server.start()
        settings: dict[str, Any] = {
            "bootstrap.servers": server.bootstrap_servers,
            "linger.ms": 1,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
        readers = [
            threading.Thread(target=read_all, args=(server.bootstrap_servers, topic, done, values))
            for topic, values in found.items()
        ]
        for reader in readers:
            reader.start()
        plain = Producer({**settings, "enable.idempotence": True, "batch.num.messages": 5})
        whole = Producer({**settings, "transactional.id": "id"})
        whole.init_transactions(60)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            rounds += 1
            whole.begin_transaction()
            values = [f"{rounds}.{nth}".encode() for nth in range(chance.randint(1, 6))]
            for value in values:
                whole.produce("whole", value, partition=0)
                for _ in range(3):
                    plain.produce("plain", str(sent), partition=0, on_delivery=lambda e, _: reports.append(e))
                    sent += 1
                plain.poll(0)
                whole.flush(60)
            if chance.random() < 0.3:
                whole.abort_transaction(60)
            else:
                whole.commit_transaction(60)
                expected += values
        assert plain.flush(60) == 0
        done.set()
        for reader in readers:
            reader.join(120)
        server.stop()

    Path(os.environ.get("KAFKALIKE_REPORT", os.devnull)).write_text(
        f"{sent} records, {rounds} transactions with {len(expected)} committed records, {proxy.lost} answers lost\n"
    )
    assert set(reports) == {None}
    assert found["plain"] == [str(number).encode() for number in range(sent)]
    assert found["whole"] == expected
