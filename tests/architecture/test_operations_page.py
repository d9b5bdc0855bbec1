"""The pages for operators have a line for each finding of `verify`, each metric and each alert."""

import ast
import re
from pathlib import Path

PROJECT = Path(__file__).parents[2]
OPERATIONS, FINDINGS, METRICS = (
    (PROJECT / "docs" / page).read_text(encoding="utf-8")
    for page in ("operations.md", "reference/findings.md", "reference/metrics.md")
)

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


def first_cells(page: str) -> set[str]:
    """Names in the first cells of a page's tables."""
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_each_finding_has_a_line_that_says_what_to_do() -> None:
    assert kinds() == first_cells(FINDINGS)


def test_each_metric_of_the_exporter_is_listed() -> None:
    """By the name that a scrape shows: counters end with `_total`."""
    source = "".join(
        (PROJECT / "kafkalike" / file).read_text()
        for file in (
            "admin/metrics/cluster_collector.py",
            "admin/metrics/cluster_view.py",
            "gateway/gateway_metrics.py",
        )
    )
    named = set(re.findall(r'"((?:kafka|kafkalike)_[a-z_]+)"', source))
    listed = {name for name in first_cells(METRICS) if re.match(r"kafka(like)?_", name)}

    assert len(named) > 25
    assert {name for name in named if not {name, f"{name}_total"} & listed} == set()
    assert {
        name for name in listed if not {name, name.removesuffix("_total"), name.removesuffix("_max")} & named
    } == set()


def test_each_alert_has_a_first_look() -> None:
    """But for the one that says to read the exporter's log."""
    rules = (PROJECT / "kafkalike" / "conf" / "alerts.yml").read_text()

    assert set(re.findall(r"alert: (\w+)", rules)) - set(re.findall(r"`(Kafkalike\w+)`", OPERATIONS)) == {
        "KafkalikeScrapeErrors"
    }
