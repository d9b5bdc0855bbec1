"""What tests of the command line ask for: the command as a process of its own, and a root with records."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.record_batch import Headers
from kafkalike.ui.console_server import ConsoleServer
from tests.tools import warm
from tests.tools.browser import chromium
from tests.tools.records import append_records

# For tests of services, which a real start begins.
MAIN = "import sys; from kafkalike.cli import main; sys.exit(main())"


class Run(Protocol):
    """Runs `kafkalike` with arguments against the test's root."""

    def __call__(self, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]: ...


class Fill(Protocol):
    """Appends records of one partition; creates the topic with a number of partitions when it is missing."""

    def __call__(
        self,
        topic: str,
        records: Sequence[tuple[bytes | None, bytes | None, int]],
        *,
        partition: int = 0,
        partitions: int = 1,
        headers: Headers | None = None,
    ) -> None: ...


@pytest.fixture
def environ(root: str) -> dict[str, str]:
    """The environment of a user whose root is the test's."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**own, "KAFKALIKE_BOOTSTRAP_SERVERS": root, "COLUMNS": "120"}


@pytest.fixture
def kafkalike(environ: dict[str, str], tmp_path: Path) -> Run:
    """The command as a process of its own, far from the checkout; how it starts from nothing, others show."""

    def run(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        pipe = subprocess.PIPE
        with warm.start("kafkalike", *args, env=environ, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe) as command:
            try:
                out, err = command.communicate(stdin, timeout=60)
            finally:
                command.kill()
        return subprocess.CompletedProcess(args, command.returncode, out.decode(), err.decode())

    return run


@pytest.fixture
def fill(root: str) -> Fill:
    """Writes records without a producer."""

    def append(
        topic: str,
        records: Sequence[tuple[bytes | None, bytes | None, int]],
        *,
        partition: int = 0,
        partitions: int = 1,
        headers: Headers | None = None,
    ) -> None:
        rows = [(partition, key, value, at_ms, headers) for key, value, at_ms in records]
        append_records(root, topic, rows, partitions=partitions)

    return append


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for the tests of a module."""
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def url(cluster: Cluster) -> Iterator[str]:
    """The address of a console over the module's own fixture `cluster`."""
    server = ConsoleServer(cluster, token="")
    server.start()
    yield server.url
    server.stop()
