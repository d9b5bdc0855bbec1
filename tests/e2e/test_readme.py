"""The README's five minutes: its blocks, run as they stand, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def blocks(heading: str) -> list[tuple[str, str]]:
    """Language and text of the code blocks below a heading."""
    text = (PROJECT / "README.md").read_text()
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^```(\w+)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


def test_the_tour_runs_as_it_stands(tmp_path: Path) -> None:
    """Every block of the tour ends well in an empty folder, and they see each other's records."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    commands = {"python": [sys.executable, "-c"], "sh": ["bash", "-euc"]}

    outputs = []
    for language, text in blocks("Five minutes"):
        done = subprocess.run(
            [*commands[language], text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        outputs.append(done.stdout + done.stderr)

    python, spark, shell = outputs
    assert "{'item': 'tea', 'price': 4}" in python
    assert "orders" in spark
    assert "billing" in spark
    assert "PartitionCount: 4" in shell
    assert "Processed a total of 3 messages" in shell
