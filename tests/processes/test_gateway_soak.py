"""Gateways are killed again and again under one group of members of three kinds and an idempotent producer.

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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Place

from kafkalike.connect import connect
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.gateway_server import GatewayServer
from tests.tools.dropping_proxy import DroppingProxy
from tests.tools.mixed_group import CLASSIC, Owners, librdkafka, native, running

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
        self.running[at].wait(60)
        self.running[at] = self._start(self.ports[at])

    def stop(self) -> None:
        for process in self.running:
            process.send_signal(signal.SIGTERM)
        for process in self.running:
            process.wait(60)


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 300)
def test_nothing_is_lost_or_owned_twice_while_gateways_and_members_come_and_go(tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("KAFKALIKE_SEED", "1")))
    root = tmp_path / "root"
    cluster = connect(str(root))
    cluster.create_topic("t", PARTITIONS, {})
    gateways, owners = Gateways(root, 2), Owners()
    # Longer than a restart takes on a busy machine: a member whose session expires does not know it yet.
    cooperative = {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": 45_000}
    kinds: list[Callable[[str], Callable[[Any], None]]] = [
        lambda name: librdkafka(owners, name, gateways.addresses, "t", cooperative),
        lambda name: librdkafka(owners, name, gateways.addresses, "t", {"group.protocol": "consumer"}),
        lambda name: native(owners, name, cluster, "t", "cooperative-sticky"),
    ]
    reports: list[KafkaError | None] = []
    sent = 0
    producer = Producer(
        {"bootstrap.servers": gateways.addresses, "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
    )
    members: list[Any] = []
    try:
        end = time.monotonic() + SECONDS
        acts = 0
        while time.monotonic() < end:
            acts += 1
            what = chance.random()
            if what < 0.4 or not members:
                if len(members) < 5:
                    member = running(chance.choice(kinds)(f"m{acts}"))
                    member.__enter__()
                    members.append(member)
            elif what < 0.6 and len(members) > 1:
                members.pop(chance.randrange(len(members))).__exit__(None, None, None)
            elif what < 0.9:
                gateways.restart(chance.randrange(2), chance.choice([signal.SIGKILL, signal.SIGTERM]))
            for _ in range(200):
                producer.produce(
                    "t", str(sent), partition=sent % PARTITIONS, on_delivery=lambda e, _: reports.append(e)
                )
                sent += 1
                producer.poll(0.005)
        assert producer.flush(120) == 0
        owners.wait(lambda: len(owners.read) == sent)
    finally:
        for member in members:
            member.__exit__(None, None, None)
        gateways.stop()

    assert set(reports) == {None}
    assert owners.clashes == [], owners.clashes
    log = cluster.log("t")
    log.refresh()
    assert sum(log.log_end(p) for p in range(PARTITIONS)) == sent == len(owners.read)
    # A member that loses its partitions with its gateway has not committed all that it has read.
    twice = sum(count > 1 for count in owners.read.values())
    assert twice < sent // 4, f"{twice} of {sent} records in {acts} acts"
    Path(os.environ.get("KAFKALIKE_REPORT", os.devnull)).write_text(f"{twice} of {sent} records twice, {acts} acts\n")


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
