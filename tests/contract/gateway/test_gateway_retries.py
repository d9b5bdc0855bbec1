"""Idempotent producers whose answers are lost write each record once and in order, through any gateway."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from confluent_kafka import Producer

from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.log.cluster.cluster import Cluster

Served = tuple[Cluster, str]

EVERY = 6
"""The proxy drops each such answer, and its connection."""


class DroppingProxy:
    """Forwards connections to a gateway, and closes them instead of some answers."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()[:2]
        self.target = ("", 0)
        self.dropped = 0
        self._answers = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self.target)
                threading.Thread(target=self._forward, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._forward, args=(server, client, True), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:  # noqa: FBT001
        with contextlib.suppress(OSError):
            while (content := source.recv(65_536)) and not (answers and self._drops()):
                sink.sendall(content)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _drops(self) -> bool:
        with self._lock:
            self._answers += 1
            drops = self._answers % EVERY == 0
            self.dropped += drops
            return drops


@contextlib.contextmanager
def gateway_behind_a_proxy(cluster: Cluster) -> Iterator[DroppingProxy]:
    proxy = DroppingProxy()
    server = GatewayServer(cluster, advertised=proxy.address)
    proxy.target = server.address
    server.start()
    try:
        yield proxy
    finally:
        proxy.close()
        server.stop()


def test_records_of_an_idempotent_producer_are_written_once_although_answers_are_lost(served: Served) -> None:
    cluster, _ = served
    cluster.create_topic("retried", 2, {})
    reports = []
    with gateway_behind_a_proxy(cluster) as one, gateway_behind_a_proxy(cluster) as two:
        producer = Producer(
            {
                "bootstrap.servers": ",".join(f"{host}:{port}" for host, port in (one.address, two.address)),
                "enable.idempotence": True,
                "linger.ms": 0,
                "batch.num.messages": 5,
                "retry.backoff.ms": 10,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,
            }
        )
        for number in range(200):
            producer.produce(
                "retried", str(number).encode(), partition=number % 2, on_delivery=lambda e, _: reports.append(e)
            )
        assert producer.flush(60) == 0
        dropped = one.dropped + two.dropped

    assert reports == [None] * 200
    assert dropped >= 5
    with KafkaConsumer(bootstrap_servers=cluster, auto_offset_reset="earliest", consumer_timeout_ms=100) as consumer:
        consumer.assign([TopicPartition("retried", p) for p in (0, 1)])
        found = [(r.partition, r.offset, r.value) for r in consumer]
    expected = [(p, n // 2, str(n).encode()) for p in (0, 1) for n in range(p, 200, 2)]
    assert sorted(found) == expected
