"""A gateway is killed or paused; its clients continue through another one, and nothing is lost or done twice."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from benchmarks.foreign_programs import fetched, java, run
from kafkalike import KafkaProducer
from kafkalike.connect import connect
from kafkalike.gateway import api_versions as keys
from tests.processes.test_gateway_soak import Gateways
from tests.tools.mixed_fleet import TOOLS
from tests.tools.mixed_group import CLASSIC, Owners, librdkafka, running
from tests.tools.transactional import T0, committed, values
from tests.tools.wire_client import WireClient
from tests.tools.wire_transactional import WireTransactional

PARTITIONS = 4
COUNT = 400


@contextlib.contextmanager
def gateways(root: Path, count: int) -> Iterator[list[tuple[str, subprocess.Popen[str]]]]:
    """Gateways started by the command, as long as the block lasts, with their addresses."""
    command = [sys.executable, "-m", "kafkalike", "gateway", "--bootstrap-server", str(root), "--listen", "127.0.0.1:0"]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        found = []
        for process in started:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith(f"Serving {root} at "), line
            found.append((line.split()[-1], process))
        yield found
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.communicate(timeout=60)


@pytest.mark.slow
def test_clients_of_a_killed_gateway_go_on_without_loss_or_rebalance(tmp_path: Path) -> None:
    cluster = connect(str(tmp_path))
    cluster.create_topic("t", PARTITIONS, {})
    owners = Owners()
    reports: list[KafkaError | None] = []
    with gateways(tmp_path, 2) as ((first, killed), (second, survivor)):
        addresses = f"{first},{second}"
        cooperative = {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"}
        producer = Producer(
            {"bootstrap.servers": addresses, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
        )

        def send(count: int) -> None:
            for number in range(count):
                producer.produce(
                    "t", str(number), partition=number % PARTITIONS, on_delivery=lambda e, _: reports.append(e)
                )
                producer.poll(0)

        with (
            running(librdkafka(owners, "classic", addresses, "t", cooperative)),
            running(librdkafka(owners, "consumer", addresses, "t", {"group.protocol": "consumer"})),
        ):
            owners.wait_for_owners({"classic", "consumer"}, PARTITIONS)
            members = set(cluster.groups.refresh().group("t").roster.members)
            send(COUNT // 2)
            killed.kill()
            send(COUNT // 2)
            assert producer.flush(60) == 0
            owners.wait(lambda: len(owners.read) == COUNT)
            assert set(cluster.groups.refresh().group("t").roster.members) == members
        assert survivor.poll() is None

    assert reports == [None] * COUNT
    assert set(owners.read.values()) == {1}
    assert owners.clashes == []
    log = cluster.log("t")
    log.refresh()
    assert [log.log_end(p) for p in range(PARTITIONS)] == [COUNT // PARTITIONS] * PARTITIONS


@pytest.mark.slow
def test_late_requests_of_a_paused_gateway_do_not_touch_the_next_transaction(tmp_path: Path) -> None:
    """Their client has closed the connection, and has ended the transaction through another gateway."""
    cluster = connect(str(tmp_path))
    cluster.create_topic("t", 1, {})
    with gateways(tmp_path, 2) as ((first, paused), (second, _)):
        producer = WireTransactional(second, "t")
        paused.send_signal(signal.SIGSTOP)
        late = producer.batch(0, b"aborted"), producer.offsets("g", 7), producer.ending(commit=True)
        for request in (producer.beginning(), *late):
            with WireClient(first) as wire:
                wire.send(*request)
        codes = [producer.send(second, 0, b"aborted"), producer.end(second, commit=False)]
        codes += [producer.send(second, 1, b"next")]
        paused.send_signal(signal.SIGCONT)
        with WireClient(first) as wire:
            wire.ask(keys.API_VERSIONS, 0, {})
        # It finishes the requests that it has begun.
        paused.send_signal(signal.SIGTERM)
        paused.wait(60)
        before = values(cluster, "t")
        codes += [producer.end(second, commit=True)]

    assert codes == [0] * 4
    assert before == []
    assert values(cluster, "t") == [b"next"]
    assert committed(cluster) == {}


@contextlib.contextmanager
def dying_gateway(root: Path, kill: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A gateway that kills itself at a step of a transaction, and another one that then follows at its address."""
    monkeypatch.setenv("KAFKALIKE_FAULT", f"transaction.{kill}")
    gateways = Gateways(root, 1)
    monkeypatch.delenv("KAFKALIKE_FAULT")
    killed = gateways.running[0]
    next_one = threading.Thread(target=gateways.replace, args=(0,))
    next_one.start()
    try:
        yield gateways.addresses
    finally:
        next_one.join(60)
        gateways.stop()
    assert killed.returncode == -signal.SIGKILL


KILLS = ["staged:kill@2", "before_commit:kill", "after_commit:kill", "before_apply:kill@2", "after_apply:kill"]


@pytest.mark.slow
@pytest.mark.parametrize("kill", KILLS)
def test_transactional_producer_whose_gateway_is_killed_before_its_answer_writes_each_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill: str
) -> None:
    """It sends the requests again to a gateway that knows nothing of them but what is in the storage."""
    root = tmp_path / "root"
    cluster = connect(str(root))
    cluster.create_topic("t", 1, {})
    with dying_gateway(root, kill, monkeypatch) as address:
        reports: list[KafkaError | None] = []
        settings = {"bootstrap.servers": address, "transactional.id": "id", "linger.ms": 1, "log_level": 0}
        producer = Producer({**settings, "batch.num.messages": 10, "reconnect.backoff.max.ms": 100})
        producer.init_transactions(30)
        for number in range(3):
            producer.begin_transaction()
            for nth in range(COUNT // 4):
                producer.produce("t", f"{number}.{nth}", partition=0, on_delivery=lambda e, _: reports.append(e))
            producer.commit_transaction(60)

    assert reports == [None] * (3 * COUNT // 4)
    assert values(cluster, "t") == [f"{number}.{nth}".encode() for number in range(3) for nth in range(COUNT // 4)]


@pytest.mark.soak
@pytest.mark.parametrize("kill", KILLS)
def test_java_copier_whose_gateway_is_killed_before_its_answer_copies_each_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill: str
) -> None:
    """It copies in transactions with the group's offsets, some of which it aborts."""
    root = tmp_path / "root"
    cluster = connect(str(root))
    cluster.create_topic("t", 1, {})
    cluster.create_topic("u", 1, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for number in range(COUNT):
            producer.send("t", str(number).encode(), partition=0)
    tools = fetched(f"kafka-tools-{TOOLS}", f"org.apache.kafka:kafka-tools:{TOOLS}")
    with dying_gateway(root, kill, monkeypatch) as address:
        told = run([
            *java(tools), "org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", address,
            "--input-topic", "t", "--input-partition", "0", "--output-topic", "u", "--max-messages", "-1",
            "--consumer-group", "g", "--transaction-size", "20", "--transactional-id", "id", "--enable-random-aborts",
        ])  # fmt: skip

    assert '"stage":"ShutdownComplete"' in told, told[-3000:]
    assert values(cluster, "u") == [str(number).encode() for number in range(COUNT)]
    assert committed(cluster)[T0].offset == COUNT
