"""Progress of long work: shown on standard error if that is a terminal, and nowhere else."""

import contextlib
import io
import os
import pty
from pathlib import Path

import pytest

from kafkalike.admin.testing import MemoryCluster
from kafkalike.cli.app import run
from kafkalike.cli.environment import Environment
from tests.tools.cli import call
from tests.tools.records import batch

COMMANDS = {
    "verify": "verify",
    "maintain": "maintain",
    "replicate": "replicate",
    "fork orders orders-2": "fork orders",
}


@pytest.fixture
def orders() -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.create_topic("orders", 1, {})
    cluster.log("orders").append(batch((0, "tea")))
    return cluster


def at_terminal(cluster: MemoryCluster | None, *args: str) -> tuple[int, str, str]:
    """Exit code, standard output, and what a terminal at standard error gets."""
    master, slave = pty.openpty()
    out, shown = io.StringIO(), b""
    with os.fdopen(slave, "w") as terminal, contextlib.redirect_stdout(out), contextlib.redirect_stderr(terminal):
        code = run(args, Environment(cluster=cluster, stdin=io.BytesIO(), stdout=io.BytesIO()))
    with os.fdopen(master, "rb", buffering=0) as screen, contextlib.suppress(OSError):  # the end of a terminal is EIO
        while part := screen.read(65_536):
            shown += part
    return code, out.getvalue(), shown.decode()


@pytest.mark.parametrize("command", COMMANDS)
def test_terminal_gets_the_progress_and_a_file_does_not(orders: MemoryCluster, command: str) -> None:
    quiet = call(orders, *command.split(), *(["--help"] if command.startswith("fork") else []))

    code, out, shown = at_terminal(orders, *command.split())

    assert (code, quiet.code, quiet.err) == (0, 0, "")
    assert COMMANDS[command] in shown
    assert "\x1b" not in out


def test_mirror_counts_the_files_that_it_copies(tmp_path: Path) -> None:
    source, target = str(tmp_path / "near"), str(tmp_path / "far")
    environment = Environment()
    with contextlib.redirect_stdout(io.StringIO()):
        assert run(["topics", "--create", "--topic", "orders", "--bootstrap-server", source], environment) == 0
    lines = Environment(stdin=io.BytesIO(b"tea\n"))
    assert run(["console-producer", "--topic", "orders", "--bootstrap-server", source], lines) == 0

    code, out, shown = at_terminal(None, "mirror", "--source", source, "--target", target)

    assert code == 0
    assert "1 file copied" in shown
    assert "orders: version" in out
