"""Spark Connect: a server on the loopback, and everything that kafkalike does with a session, from a client of it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.tools.children import REPOSITORY
from tests.tools.findings import errors_of
from tests.tools.session_settings import WITH_ANSI, WITHOUT_ANSI, together

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytest.importorskip("grpc", reason="pyspark[connect] is not installed")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SERVER = "tests.spark.workers.connect_server"
CLIENT = "tests.spark.workers.connect_client"

EXPECTED = {
    "written": [{"orders-0": [0, 2]}, True],
    "read": [["a", "b"], ["a", "b"]],
    "written_by_the_format": ['add .mode("append") before .save()', ["f"]],
    "in_a_transaction": [["t"], ["t"]],
    "in_sql": [2, 1, ["a", "b"]],
    "streamed": [["a", "b"], ["a", "b"], 0],
    "refused": [
        "UnsupportedVersionError",
        "reading a checkpoint through Hadoop needs a session with a JVM, which Spark Connect does not have",
    ],
}
"""What each step of the client gives."""


@pytest.fixture(params=["shared", pytest.param("own", marks=pytest.mark.full)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a Spark Connect server: in the JVM of the tests, which is warm, or in one of its own.

    The second one has the plugin that users set; it starts the same service.
    """
    with (
        in_its_own_jvm(tmp_path) if request.param == "own" else in_the_jvm_of(request.getfixturevalue("spark")) as port
    ):
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def in_the_jvm_of(spark: SparkSession) -> Iterator[int]:
    jvm: Any = spark.sparkContext._jvm
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    conf.set("spark.connect.grpc.binding.address", "127.0.0.1").set("spark.connect.grpc.binding.port", "0")
    package = jvm.org.apache.spark.sql.connect.service
    service, nothing = package.SparkConnectService, jvm.scala.Option.apply(None)
    service.start(spark.sparkContext._jsc.sc())
    try:
        yield getattr(getattr(package, "SparkConnectService$"), "MODULE$").localPort()
    finally:
        service.stop(nothing, nothing)


@contextmanager
def in_its_own_jvm(folder: Path) -> Iterator[int]:
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
        yield int(port)
    finally:
        server.communicate()


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="plain"),
        pytest.param(together(WITH_ANSI), id="together", marks=pytest.mark.full),
        pytest.param(together(WITHOUT_ANSI), id="together-without-ansi", marks=pytest.mark.full),
    ],
)
def test_a_client_of_spark_connect_does_what_a_session_does(
    server: str, tmp_path: Path, settings: dict[str, str]
) -> None:
    """One process for all steps: it is cold, and its first queries take the longest."""
    root = str(tmp_path / "root")

    client = subprocess.run(
        [sys.executable, "-m", CLIENT, server, root, str(tmp_path), json.dumps(settings)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=REPOSITORY,
    )

    assert client.returncode == 0, client.stderr
    found: dict[str, Any] = json.loads(client.stdout.splitlines()[-1])
    assert found == EXPECTED
    assert errors_of(root) == []
