"""What starts a Spark job stands in few places; SQL is a constant."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "kafkalike"
DRIVERS = ("cli/demo/", "maintenance/", "spark/")
WITHOUT_SPARK = ("consumer/", "delta/", "log/", "producer/", "replication/", "schemas/", "storage/")
"""They have Arrow's arrays and files, whose methods are called like actions; none imports pyspark."""

ACTIONS = {"collect", "count", "first", "head", "toLocalIterator", "toPandas"}
"""Actions when called without arguments; `"text".count(x)` is none."""
ACTIONS_WITH_ARGUMENTS = {"foreachPartition", "head", "take"}


def spark_actions(source: str) -> Iterator[str]:
    """Say where the source starts a Spark job, or would if the object were a DataFrame."""
    nodes = list(ast.walk(ast.parse(source)))
    called = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if not isinstance(node, ast.Attribute):
            continue
        call = called.get(id(node))
        # `df.write` is a property; `file.write(text)` is a call.
        if call is None:
            starts = node.attr == "write" and isinstance(node.ctx, ast.Load)
        else:
            starts = node.attr in (ACTIONS_WITH_ARGUMENTS if call.args or call.keywords else ACTIONS)
        if starts:
            yield f"line {node.lineno}: .{node.attr}"


def built_sql(source: str) -> Iterator[str]:
    """Say where SQL is put together from strings rather than given as a constant with markers."""
    if ".sql" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr="sql"), args=[ast.JoinedStr() | ast.BinOp() | ast.Call(), *_]):
                yield f"line {node.lineno}"


def sources() -> dict[str, str]:
    """The text of each module, by its path within the package."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def test_what_may_not_know_spark_does_not() -> None:
    looked_at = {name: text for name, text in sources().items() if name.startswith(WITHOUT_SPARK)}

    assert [
        name for name, text in looked_at.items() if re.search(r"^\s*(from|import) pyspark", text, re.MULTILINE)
    ] == []
    assert len(looked_at) > 100


def test_only_drivers_start_spark_jobs() -> None:
    looked_at = {name: text for name, text in sources().items() if not name.startswith(DRIVERS + WITHOUT_SPARK)}

    found = {name: list(spark_actions(text)) for name, text in looked_at.items()}

    assert {name: actions for name, actions in found.items() if actions} == {}
    assert len(found) > 100


def test_sql_is_never_built_from_strings() -> None:
    found = {name: list(built_sql(text)) for name, text in sources().items()}

    assert {name: places for name, places in found.items() if places} == {}
    assert len(found) > 400


@pytest.mark.parametrize(
    "source",
    ["df.collect()", "df.count()", "df.take(3)", "df.write.format('delta')", "rdd.foreachPartition(f)", "w = df.write"],
)
def test_an_action_is_seen(source: str) -> None:
    assert list(spark_actions(source))


@pytest.mark.parametrize("source", ["'a'.count('b')", "out.write(text)", "self.count", "df.select('x')", "a.write = 1"])
def test_what_is_no_action_is_let_pass(source: str) -> None:
    assert list(spark_actions(source)) == []


@pytest.mark.parametrize("source", ["spark.sql(f'SELECT {x}')", "s.sql('SELECT ' + x)", "s.sql('{}'.format(x))"])
def test_built_sql_is_seen(source: str) -> None:
    assert list(built_sql(source))
