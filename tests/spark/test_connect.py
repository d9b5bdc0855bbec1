"""Spark Connect: a server on the loopback, and everything that kafkalike does with a session, from a client of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.children import REPOSITORY
from tests.tools.findings import errors_of

pytest.importorskip("grpc", reason="pyspark[connect] is not installed")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SERVER = "tests.spark.workers.connect_server"
CLIENT = "tests.spark.workers.connect_client"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the client has printed."""
    folder = tmp_path_factory.mktemp("connect")
    log = Path(folder, "server.log")
    with log.open("wb") as errors:
        server = subprocess.Popen(
            [sys.executable, "-m", SERVER, str(folder / "warehouse")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=REPOSITORY,
        )
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        assert port, log.read_text()
        given = [f"sc://127.0.0.1:{port}", str(folder / "root"), str(folder)]
        client = subprocess.run(
            [sys.executable, "-m", CLIENT, *given],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            cwd=REPOSITORY,
        )
        assert client.returncode == 0, client.stderr
        made: dict[str, Any] = json.loads(client.stdout.splitlines()[-1])
        assert errors_of(str(folder / "root")) == []
        return made
    finally:
        server.communicate()


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("written", [{"orders-0": [0, 2]}, True]),
        ("read", [["a", "b"], ["a", "b"]]),
        ("written_by_the_format", ['add .mode("append") before .save()', ["f"]]),
        ("in_a_transaction", [["t"], ["t"]]),
        ("in_sql", [2, 1, ["a", "b"]]),
        ("streamed", [["a", "b"], ["a", "b"], 0]),
        (
            "refused",
            [
                "UnsupportedVersionError",
                "reading a checkpoint through Hadoop needs a session with a JVM, and one of Spark Connect has none",
            ],
        ),
    ],
)
def test_a_client_of_spark_connect_does_what_a_session_does(found: dict[str, Any], step: str, expected: Any) -> None:
    assert found[step] == expected
