"""Findings of trials: the page that names their tests, and what a finding needs that is no behaviour."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS / "findings.md"
GROUPS = {"A": 16, "B": 12, "C": 8, "D": 6}


def test_each_finding_has_tests_and_they_exist() -> None:
    rows = re.findall(r"^\| ([A-D]\d+) \| [^|]+ \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    named = [name for _, cell in rows for name in re.findall(r"`([^`]+)`", cell)]
    missing = []
    for name in named:
        file, _, test = name.partition("::")
        text = (TESTS / file).read_text() if (TESTS / file).is_file() else ""
        if not text or (test and f"def {test}(" not in text):
            missing.append(name)

    assert [number for number, _ in rows] == [
        f"{group}{n}" for group, most in GROUPS.items() for n in range(1, most + 1)
    ]
    assert all("`" in cell for _, cell in rows)
    assert missing == []


def test_no_job_of_spark_commits_a_table() -> None:
    """So Delta's settings of a session, such as optimized writes, change no topic."""
    writes = re.compile(
        r"\.(save|saveAsTable|insertInto|toTable)\(|DeltaTable\.(forPath|forName|create)|format\(.delta.\)"
    )
    found = {
        str(path.relative_to(TESTS.parent))
        for folder in ("delta", "log", "maintenance", "replication", "storage")
        for path in (TESTS.parent / "kafkalike" / folder).rglob("*.py")
        if writes.search(path.read_text())
    }

    assert found == set()
