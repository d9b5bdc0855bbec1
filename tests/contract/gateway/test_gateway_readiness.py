"""Operators see the state of a gateway: `/health/ready` for load balancers, and its log."""

from __future__ import annotations

import logging
import shutil
import struct
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from kafkalike.cli.app import JsonLogFormatter, TextLogFormatter
from kafkalike.connect import connect
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.gateway_metrics import READY_PATH, add_readiness
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.gateway.live_gateways import LiveGateways
from kafkalike.testing import ManualClock
from tests.tools.wire_client import WireClient
from tests.tools.wire_transcript import batch, produced


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        return refused.code, refused.read().decode()


def test_gateway_is_ready_from_its_start_to_its_stop(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    server = GatewayServer(connect(str(tmp_path)), registry=registry)
    http, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    add_readiness(http, lambda: server.unready)
    try:
        found = [asked(http.server_port, READY_PATH)]
        server.start()
        found.append(asked(http.server_port, READY_PATH))
        status, metrics = asked(http.server_port, "/metrics")
        server.stop()
        found.append(asked(http.server_port, READY_PATH))
    finally:
        http.shutdown()
        http.server_close()
        thread.join()

    stopped = (503, "the gateway accepts no connections\n")
    assert found == [stopped, (200, "ready\n"), stopped]
    assert status == 200
    assert "kafkalike_gateway_connections 0.0" in metrics


def test_gateway_is_not_ready_while_the_storage_does_not_answer(tmp_path: Path) -> None:
    clock, root = ManualClock(), tmp_path / "root"
    gateways = LiveGateways(connect(str(root)), ("127.0.0.1", 9092), clock)
    gateways.join()
    found = [gateways.silent_seconds]
    root.rename(tmp_path / "away")
    clock.sleep(30)
    gateways.beat()
    found.append(gateways.silent_seconds)
    shutil.rmtree(root, ignore_errors=True)
    (tmp_path / "away").rename(root)
    gateways.beat()
    found.append(gateways.silent_seconds)
    gateways.leave()

    assert found == [0, 30, 0]


@pytest.mark.parametrize("formatter", [TextLogFormatter(), JsonLogFormatter()], ids=["text", "json"])
def test_log_has_one_line_for_each_event_whatever_clients_send(
    formatter: logging.Formatter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    forged = "t\nERROR gateway: forged\r\u2028\x1b[2J"
    caplog.set_level(logging.INFO, "kafkalike")
    server = GatewayServer(connect(str(tmp_path)))
    server.start()
    with WireClient(server.bootstrap_servers) as client:
        client.ask(keys.PRODUCE, 8, produced(forged, 0, batch(b"v")))
        client.socket.sendall(struct.pack(">i", 3))
        with pytest.raises(ConnectionError):
            client.receive(keys.PRODUCE, 8)
    server.stop()
    logging.getLogger("kafkalike.gateway").warning("gateway: group %s", forged)

    records = [record for record in caplog.records if record.name.startswith("kafkalike.gateway")]
    lines = [formatter.format(record) for record in records]
    assert [line for line in lines if not line.isprintable()] == []
    events = [record.getMessage().partition(" 127.0.0.1 ")[0] for record in records]
    assert [event for event in events if event.startswith(("gateway: records", "gateway: connection"))] == [
        "gateway: records of",
        "gateway: connection of",
    ]
