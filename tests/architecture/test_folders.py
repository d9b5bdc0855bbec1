"""Where tests lie; the rule is in tests/README.md."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FOLDERS = {"architecture", "contract", "e2e", "jepsen", "processes", "spark", "unit"}

LOGS = {"kafkalike.connect", "kafkalike.log.cluster.cluster"}
PROGRAMS = {"subprocess", "multiprocessing", "tests.tools.children"}
JVM = {"spark"}
"""The fixture that starts one."""
FORBIDDEN = {"unit": LOGS | PROGRAMS, "contract": PROGRAMS, "architecture": LOGS}


def used(file: Path, of: set[str]) -> set[str]:
    """Those of some modules and fixtures that a file imports, anywhere in it, or that one of its functions has."""
    text = file.read_text(encoding="utf-8")
    if not any(name.rpartition(".")[2] in text for name in of):
        return set()
    nodes = list(ast.walk(ast.parse(text)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    plain |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return of & (plain | (JVM & {node.arg for node in nodes if isinstance(node, ast.arg)}))


def test_every_test_file_lies_in_a_folder_of_the_rule() -> None:
    """A new folder wants a line in tests/README.md first."""
    found = {file.relative_to(TESTS).parts[0] for file in TESTS.rglob("test_*.py")}
    rule = (TESTS / "README.md").read_text(encoding="utf-8")

    assert found == FOLDERS
    assert [name for name in sorted(FOLDERS) if f"| `{name}` |" not in rule] == []


@pytest.mark.slow
@pytest.mark.parametrize("folder", sorted(FORBIDDEN))
def test_no_test_needs_more_than_its_folder_says(folder: str) -> None:
    """Unit tests open no log, and neither they nor contract tests start a program or a JVM."""
    files = sorted((TESTS / folder).rglob("test_*.py"))
    needs = {file.name: sorted(used(file, FORBIDDEN[folder] | JVM)) for file in files}

    assert files
    assert {name: found for name, found in needs.items() if found} == {}
