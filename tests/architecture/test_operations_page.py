"""The handbook has a line for each finding of `verify`, each metric and each alert."""

import ast
import re
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")

WORDS = {"gap", "overlap", "replica", "schema", "table"}
"""Kinds of findings that are a word; all others have a hyphen."""
KIND = re.compile(r"[a-z]+(-[a-z]+)+")
NO_KINDS = {"read-only", "append-only"}


def kinds() -> set[str]:
    """Names of findings in the modules that make them."""
    files = sorted((PROJECT / "kafkalike" / "maintenance" / "verify").glob("*.py"))
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return ({text for text in texts if KIND.fullmatch(text)} | WORDS & texts) - NO_KINDS


def test_each_finding_has_a_line_that_says_what_to_do() -> None:
    section = PAGE.split("## What to do after a finding of `verify`")[1]
    told = {
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    }

    assert kinds() == told


def listed_metrics() -> str:
    """The page, and the names that it lists below what they begin with, as in "`kafkalike_up_`: `a`, `b`"."""
    lines = [re.findall(r"`([^`]+)`", line) for line in PAGE.splitlines() if re.match(r"- `kafka\w*_`: ", line)]
    return "\n".join([PAGE, *(first + rest for first, *others in lines for rest in others)])


def test_each_metric_of_the_exporter_is_listed() -> None:
    """By the name that a scrape shows."""
    source = "".join(
        (PROJECT / "kafkalike" / "admin" / "metrics" / file).read_text()
        for file in ("cluster_collector.py", "cluster_view.py")
    )
    named = set(re.findall(r'"((?:kafka|kafkalike)_[a-z_]+)"', source))

    assert len(named) > 25
    assert {name for name in named if name not in listed_metrics()} == set()


def test_each_alert_has_a_first_look() -> None:
    """But for the one that says to read the exporter's log."""
    rules = (PROJECT / "kafkalike" / "conf" / "alerts.yml").read_text()

    assert set(re.findall(r"alert: (\w+)", rules)) - set(re.findall(r"`(Kafkalike\w+)`", PAGE)) == {
        "KafkalikeScrapeErrors"
    }
