"""The wheel on each Python that it is for, installed with what it needs from a package index: `make wheel-pythons`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from kafkalike import __version__
from tests.tools.blocks import blocks
from tests.tools.wheels import BESIDE, built, clean, interpreter, ran

VERSIONS = ("3.11", "3.12", "3.13")

ELSEWHERE = [place for place in os.environ["PATH"].split(os.pathsep) if Path(place) != Path(sys.executable).parent]
"""The search path without this environment."""

PAGES = ("/topics", "/topics/orders", "/topics/orders/records?key=alice", "/groups", "/schemas", "/cluster", "/metrics")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, for all of them."""
    return built(tmp_path_factory.mktemp("dist"))


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_user_comes_through_the_readme(wheel: Path, version: str, tmp_path: Path) -> None:
    """An empty folder and a fresh environment: install, the five-minute tour, the console, a job by spark-submit."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"NOT TESTED: the wheel on Python {version}, as there is none on this machine")
    environment, home = tmp_path / "environment", tmp_path / "home"
    home.mkdir()
    ran("uv", "venv", "--quiet", "--python", python, environment, folder=tmp_path, more={"PATH": BESIDE})
    install = ("uv", "pip", "install", "--quiet", "--python", environment / "bin" / "python")
    wanted = f"kafkalike[registry,schemas,spark,ui] @ {wheel.as_uri()}"
    # PySpark comes as half a gigabyte of sources, which are built here.
    ran(*install, wanted, folder=tmp_path, more={"PATH": BESIDE}, seconds=1200)
    path = {"PATH": os.pathsep.join([str(environment / "bin"), *ELSEWHERE])}

    about = ran("python", "-c", "import kafkalike; print(kafkalike.__file__)", folder=home, more=path)
    assert about.startswith(str(environment / "lib" / f"python{version}"))
    assert ran("kafkalike", "--version", folder=home, more=path).split()[-1] == __version__

    tour = _told("Five minutes", home, path)
    assert "{'item': 'tea', 'price': 4}" in tour[0]
    assert "billing" in tour[1]
    assert "PartitionCount: 4" in tour[2]
    python_, shell = _told("Records with schemas", home, path)
    assert python_.strip() == "[{'id': 7, 'euro': 4.5}]"
    assert "payments.dlq" in shell

    assert set(_console(home, path).values()) == {200}

    (home / "cups.json").write_text('{"key": "a", "value": "tea"}\n')
    job = """
        export SPARK_CONF_DIR="$(kafkalike conf-path)"
        spark-submit --master "local[2]" "$(kafkalike job-path produce)" --bootstrap-server ./tour --topic cups \\
            --format json --key-column key --value-columns value cups.json
    """
    assert "records: 1" in ran("bash", "-euc", job, folder=home, more=path)
    assert "0 errors, 0 warnings" in ran("kafkalike", "verify", "--bootstrap-server", "./tour", folder=home, more=path)


def _told(heading: str, folder: Path, path: dict[str, str]) -> list[str]:
    """What the blocks below a heading of the README print."""
    commands = {"python": ("python", "-c"), "sh": ("bash", "-euc")}
    return [ran(*commands[language], text, folder=folder, more=path) for language, text in blocks(heading)]


def _console(folder: Path, path: dict[str, str]) -> dict[str, int]:
    """`kafkalike ui`, started, looked at, and ended by SIGTERM: the pages and what they answer."""
    command = ["kafkalike", "ui", "--port", "0", "--bootstrap-server", "./tour"]
    with subprocess.Popen(command, cwd=folder, env=clean(path), stderr=subprocess.PIPE, text=True) as console:
        try:
            assert console.stderr is not None
            found = re.search(r" at (http\S+)/\?(token=\S+)", console.stderr.readline())
            assert found is not None
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
            browser.open(f"{found[1]}/?{found[2]}", timeout=30).close()
            answers = {}
            for page in PAGES:
                with browser.open(found[1] + page, timeout=30) as answer:
                    answers[page] = answer.status
        finally:
            console.send_signal(signal.SIGTERM)
    assert console.returncode == 0
    return answers
