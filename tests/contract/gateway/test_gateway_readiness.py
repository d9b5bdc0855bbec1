"""`/health/ready` tells a load balancer whether a gateway can serve clients."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from prometheus_client import CollectorRegistry, start_http_server

from kafkalike.connect import connect
from kafkalike.gateway.gateway_metrics import READY_PATH, add_readiness
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.gateway.live_gateways import LiveGateways
from kafkalike.testing import ManualClock


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
