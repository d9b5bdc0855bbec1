"""A new user of Spark Connect: an empty folder, the server and the cells of docs/spark.md, in a kernel of Jupyter."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.tools.blocks import all_blocks
from tests.tools.findings import errors_of
from tests.tools.records import all_records

pytest.importorskip("grpc", reason="pyspark[connect] is not installed")


PATIENCE = 180
"""Seconds for Spark to fetch what it needs and to serve."""

BLOCKS = [block for block in all_blocks("docs/spark.md", "Spark Connect") if block.run_by]
PORT = "15002"
"""Spark's, which the page names."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serves(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of this environment are on the path, and none of the variables of the tests' own Spark is set."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in ("SPARK_HOME", "SPARK_REMOTE", "KAFKALIKE_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def port(user: None, tmp_path: Path) -> Iterator[int]:
    """The page's server, started in an empty folder; where it serves."""
    (command,) = (block.text for block in BLOCKS if block.language == "sh")
    port, folder, log = free_port(), tmp_path / "server", tmp_path / "server.log"
    folder.mkdir()
    told = command.replace(
        "--class", f"--conf spark.connect.grpc.binding.port={port} --conf spark.master=local[2] --class"
    )
    with log.open("wb") as output:
        # A group of its own: bash, spark-submit and the JVM end together.
        server = subprocess.Popen(
            ["bash", "-c", told], cwd=folder, stdout=output, stderr=output, start_new_session=True
        )
    try:
        until = time.monotonic() + PATIENCE
        while not serves(port):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        yield port
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def shown(cell: Any) -> str:
    """What a cell shows below itself."""
    return "".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell["outputs"])


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_notebook_of_the_page_runs_on_a_server_of_the_page(port: int, tmp_path: Path) -> None:
    """Every cell, with the places of the test for those of the page; what the user sees is what the page says."""
    folder = tmp_path / "notebook"
    folder.mkdir()
    cells = [block.text for block in BLOCKS if block.language == "python"]
    for name, other in {"/data/": f"{tmp_path}/data/", PORT: str(port)}.items():
        cells = [text.replace(name, other) for text in cells]
    notebook = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    notebook.cells = [nbformat.v4.new_code_cell(text) for text in cells]  # type: ignore[no-untyped-call]

    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(folder)}}).execute()

    first, written, queried, streamed = map(shown, notebook.cells)
    assert first == ""
    assert "range(0, 2)" in written or written.count("range(0, 1)") == 2
    assert "|customer-7| 10.50|" in queried
    assert "|customer-8|  3.00|" in queried
    assert streamed.strip().endswith("2")
    root = f"{tmp_path}/data/log"
    copied = sorted(value for records in all_records(root, "copies").values() for _, value in records)
    assert copied == ["10.50", "3.00"]
    assert errors_of(root) == []
    # Nothing is left where the user has started anything but what Spark itself keeps there.
    assert {path.name for path in folder.iterdir()} == set()
    assert {path.name for path in (tmp_path / "server").iterdir()} <= {"spark-warehouse", "artifacts"}


def test_the_page_has_a_server_and_cells() -> None:
    assert [block.language for block in BLOCKS] == ["sh", *["python"] * 4]
    assert {block.run_by for block in BLOCKS} == {str(Path(__file__).relative_to(Path(__file__).parents[2]))}
