"""`kafkalike sql`: run SELECT statements over the topics of a cluster, from the command line or a prompt."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import cluster_options, version_option
from kafkalike.cli.output import echo_rows

if TYPE_CHECKING:
    from kafkalike.spark.sql.queries import Queries

PROMPT: Final = "sql> "
CONTINUED: Final = "...> "
LEAVE: Final = frozenset({"exit", "quit"})

_PARTS: Final = re.compile(r"""('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|--[^\n]*|/\*.*?\*/|;)""", re.DOTALL)
"""Quoted texts, comments, and the end of a statement."""

MOST_SHOWN: Final = 100
"""Most characters of a cell on the screen; a statement such as `SELECT substr(value, 100)` shows the others."""


@click.command(epilog="Example: kafkalike sql -e 'SELECT * FROM kafkalike_lag'")
@cluster_options
@click.option(
    "-e",
    "--execute",
    "statements",
    multiple=True,
    metavar="STATEMENT",
    help="Run this statement and exit; repeatable. Default: statements from standard input, each ended by a semicolon.",
)
@click.option("--bail", is_flag=True, help="Stop after the first statement that fails. Default: run the others, too.")
@version_option
@pass_environment
def sql(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    statements: tuple[str, ...],
    bail: bool,
) -> None:
    """Query topics in SQL: run SELECT statements, and print the first 200 rows of each.

    Each topic is a view with the columns key, value, headers, partition, offset and timestamp; keys and values are
    shown as text. Views such as kafkalike_lag show groups, transactions and replicas; SHOW TABLES lists all views,
    and DESCRIBE lists the columns of one.
    A statement that fails does not end the others, but without a prompt the exit code is 1.
    """
    from kafkalike.errors import KafkaConnectionError, KafkaError

    cluster = environment.existing(bootstrap_server, command_config)
    is_prompt = not statements and sys.stdin.isatty()
    if is_prompt:
        from kafkalike.model.topic_sql import SQL_RESERVED, view_names

        views = ", ".join([*sorted(view_names(cluster.topics()).values()), *SQL_RESERVED])
        click.echo(f"Views: {views}\nEnd a statement with a semicolon, and the session with exit. Spark starts.")
    queries = environment.queries(cluster, "kafkalike-sql", limited=False)
    failed = False
    for statement in statements or (_prompted() if is_prompt else _split(environment.stdin.read().decode())):
        try:
            _show(queries, statement)
        except KafkaConnectionError:
            # Spark has ended.
            raise
        except KafkaError as error:
            if bail:
                raise
            failed = True
            click.echo(f"Error: {error}", err=True)
    if failed and not is_prompt:
        click.get_current_context().exit(1)


def _show(queries: Queries, statement: str) -> None:
    """Run a statement and print its rows."""
    from kafkalike.spark.sql.queries import SqlQuery

    answer = queries.run(SqlQuery(statement))
    rows = [["NULL" if cell is None else _line(cell) for cell in row] for row in answer.rows]
    echo_rows(answer.columns, rows, as_json=False, separator="  ")
    if answer.more:
        click.echo(f"(only the first {len(rows)} rows)", err=True)


def _line(cell: str) -> str:
    """Return a cell as a piece of a line: shortened, with escapes for characters that move the cursor."""
    shown = cell if len(cell) <= MOST_SHOWN else f"{cell[: MOST_SHOWN - 1]}…"
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in shown)


def _split(text: str) -> Iterator[str]:
    r"""Yield the statements of a text, without comments at their ends.

    >>> list(_split("SELECT 'a;b'; -- c; d\nSELECT `e;f`; ;"))
    ["SELECT 'a;b'", 'SELECT `e;f`']
    """
    statement = ""
    for part in _PARTS.split(f"{text};"):
        if part == ";":
            if statement.strip():
                yield statement.strip()
            statement = ""
        elif not part.startswith(("--", "/*")):
            statement += part


def _prompted() -> Iterator[str]:
    """Ask for statements until the end of the input, or `exit`."""
    import readline  # noqa: F401 - gives `input` a history and editing keys

    typed = ""
    while True:
        try:
            typed += input(CONTINUED if typed else PROMPT) + "\n"
        except EOFError:
            click.echo()
            return
        if typed.strip().rstrip(";").strip().lower() in LEAVE:
            return
        if not typed.strip():
            typed = ""
        elif typed.rstrip().endswith(";"):
            yield from _split(typed)
            typed = ""
