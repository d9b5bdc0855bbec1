"""The commands of docs/gateway.md: users are added, and gateways serve until they are stopped."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import MAIN
from tests.tools.blocks import all_blocks
from tests.tools.certificates import certificate

COMMANDS = [
    shlex.split(line)[1:]
    for block in all_blocks("docs/gateway.md")
    if block.language == "bash"
    for line in block.text.splitlines()
    if line.startswith("kafkalike ")
]


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """What stands for the page's addresses and files."""
    return {
        "./kafkalike-data": str(tmp_path / "data"),
        "127.0.0.1:9092": "127.0.0.1:0",
        "127.0.0.1:9093": "127.0.0.1:0",
        "0.0.0.0:9093": "127.0.0.1:0",
        "9309": "0",
        "cert.pem": certificate(tmp_path),
        "users.toml": str(tmp_path / "users.toml"),
    }


def test_commands_of_the_page_run(places: dict[str, str], environ: dict[str, str]) -> None:
    served = []
    for words in COMMANDS:
        command = [sys.executable, "-c", MAIN, *(places.get(word, word) for word in words)]
        if "users" in words:
            done = subprocess.run(
                [*command, "--password-stdin"],
                input="pencil\n",
                env=environ,
                text=True,
                capture_output=True,
                check=False,
            )
            assert (done.returncode, done.stderr) == (0, f"User alice is in {places['users.toml']}.\n")
            continue
        process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            while "Serving" not in line or "metrics" in line:
                assert line, "the gateway has ended"
                line = process.stderr.readline()
            served.append(line)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        assert process.returncode == 0

    assert len(served) == 3
