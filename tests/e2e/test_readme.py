"""The README: its blocks, run as they stand, one after the other, each in a process of its own; and the site.

`test_wheel.py` runs the tour, with the wheel.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.tools.blocks import PROJECT, blocks
from tests.tools.object_servers import S3, in_environment, running


def outputs_of(heading: str, folder: Path, more: Mapping[str, str], page: str = "README.md") -> list[str]:
    """What the blocks below a heading print; each must end well."""
    commands = {"python": [sys.executable, "-c"], "sh": ["bash", "-euc"]}
    return [ran([*commands[language], text], folder, more) for language, text in blocks(heading, page)]


def ran(command: list[str], folder: Path, more: Mapping[str, str]) -> str:
    """What a command prints; it must end well."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **more}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_the_blocks_about_schemas_run_as_they_stand(tmp_path: Path) -> None:
    """The good record is read, and the bad one is a dead letter."""
    python, shell = outputs_of("Records with schemas", tmp_path, {})

    assert python.strip() == "[{'id': 7, 'euro': 4.5}]"
    assert "payments-value" in shell
    assert "payments.dlq" in shell
    assert "not Avro at all" in shell


@pytest.mark.full
def test_the_site_is_built_strictly_without_a_network(tmp_path: Path) -> None:
    """Each link leads somewhere, each name of the reference is there."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # news of the theme, not of the pages
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    names = ("index", "notebooks/03_sql", "reference/api", "reference/cli", "reference/settings", "reference/errors")
    pages = {name: (tmp_path / f"{name}.html").read_text() for name in names}
    assert 'id="kafkalike.KafkaProducer.send"' in pages["reference/api"]
    assert "--bootstrap-server" in pages["reference/cli"]
    assert 'href="changelog.html"' in pages["index"]
    assert '<img alt="png" src="03_sql/03_sql_' in pages["notebooks/03_sql"]
    assert "<code>int | str</code>" in pages["reference/settings"]
    boosts = {
        re.split("[/#]", entry["location"])[0]: entry.get("boost", 1)
        for entry in json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    }
    assert (boosts["decisions"], boosts["notebooks"], boosts["tutorial.html"]) == (0.1, 0.5, 1)


@pytest.mark.objects
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_blocks_on_s3_run_as_they_stand(tmp_path: Path) -> None:
    """Against a real server, which the environment names."""
    with running(S3, tmp_path / "server") as server:
        shell, python, spark = outputs_of("On S3", tmp_path, in_environment(server), "docs/operations.md")

    assert "Created topic orders." in shell
    assert "RecordMetadata" in python
    assert "[b'tea']" in python
    assert "|partition|count|" in spark
    assert "only showing top 3 rows" in spark
