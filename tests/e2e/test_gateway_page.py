"""The commands of docs/gateway.md: users are added, and gateways serve until they are stopped."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalike.cli.gateway import gateway
from kafkalike.gateway.gateway_metrics import READY_PATH
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


@pytest.mark.parametrize("name", ["kafkalike-gateway.service", "gateway.Containerfile"])
def test_files_that_run_a_gateway_name_options_that_it_has(name: str) -> None:
    content = (Path(__file__).parents[2] / "conf" / name).read_text()
    (line,) = re.findall(r"^(?:ExecStart=|ENTRYPOINT )(.+)$", content, re.MULTILINE)
    options = set(re.findall(r"--[a-z-]+", line)) - {"--log-format"}

    assert f"http://127.0.0.1:9309{READY_PATH}" in content

    assert options == {"--bootstrap-server", "--listen", "--metrics-port"}
    assert options <= {option for parameter in gateway.params for option in parameter.opts}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = (Path(__file__).parents[2] / "conf" / "kafkalike-gateway.service").read_text()
    # This machine has neither the program nor the user.
    (tmp_path / "kafkalike-gateway.service").write_text(
        unit.replace("/opt/kafkalike/bin/kafkalike", "/bin/true")
        .replace("/usr/bin/curl", "/bin/true")
        .replace("User=kafkalike\n", "")
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "kafkalike-gateway.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "kafkalike-gateway" not in done.stderr, done.stderr
    assert done.returncode == 0
