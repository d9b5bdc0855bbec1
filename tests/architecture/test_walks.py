"""docs/architecture.md names what is there: modules, classes and their methods, and the files to go to for a change."""

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WALKS = (
    "One `send`",
    "One `poll`",
    "One `commit`",
    "One transaction",
    "One `write` of a DataFrame",
    "One micro-batch",
    "One maintenance run",
    "When something comes in between",
)
ELSEWHERE = frozenset({"__consumer_offsets", "df.write.format", "ks.write", "ks.write_stream", "mapInArrow"})
"""A table, and functions that users and Spark call by these names."""


@cache
def sources() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in ROOT.glob("kafkalike/**/*.py")}


@cache
def words() -> frozenset[str]:
    """What modules and folders are called, and what the code defines."""
    files = {part for path in sources() for part in path.relative_to(ROOT).with_suffix("").parts}
    defined = re.compile(r"(?:\bdef|\bclass) (\w+)|^\s*(?:self\.)?(\w+)(?:: .*)? =|(\w+): ", re.MULTILINE)
    return frozenset(files | {name for text in sources().values() for found in defined.findall(text) for name in found})


@cache
def modules_of() -> dict[str, list[str]]:
    """The texts of the modules that define a class, by its name."""
    found: dict[str, list[str]] = {}
    for text in sources().values():
        for name in set(re.findall(r"^class (\w+)", text, re.MULTILINE)):
            found.setdefault(name, []).append(text)
    return found


@cache
def members(owner: str) -> frozenset[str] | None:
    """What classes of a name and their bases in the package define; None where there is no such class."""
    found = [
        n
        for text in modules_of().get(owner, ())
        for n in ast.parse(text).body
        if isinstance(n, ast.ClassDef) and n.name == owner
    ]
    own = {n.name for one in found for n in one.body if isinstance(n, ast.FunctionDef)}
    bases = [base.id for one in found for base in one.bases if isinstance(base, ast.Name)]
    return frozenset(own.union(*(members(base) or () for base in bases))) if found else None


@pytest.mark.slow
@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_names_what_is_there(walk: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    part = page.split(f"\n## {walk}\n", 1)[1].split("\n## ", 1)[0]
    names = set(re.findall(r"`([A-Za-z_][\w.]*)`", part)) - ELSEWHERE

    unknown = {name for name in names if not words().issuperset(name.split("."))}
    unknown |= {name for name in names for a, b in pairwise(name.split(".")) if b not in (members(a) or {b})}

    assert names
    assert unknown == set()


def test_each_change_of_the_table_names_files_that_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.split("\n## I want to change", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| ") and "I want to" not in line]
    named = {change.strip(): re.findall(r"`([\w/]+\.(?:py|toml))`", files) for change, files in rows}
    missing = {
        change: [name for name in files if not any((ROOT / top / name).is_file() for top in ("", "kafkalike"))]
        for change, files in named.items()
    }

    assert len(named) >= 30
    assert [change for change, files in named.items() if not files] == []
    assert {change: files for change, files in missing.items() if files} == {}
