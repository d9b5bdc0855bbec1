"""Output of commands: the option `--output`, and rows as a table or as lines of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import click

from kafkalike.model.names import counted as counted  # noqa: PLC0414 - for commands

F = TypeVar("F", bound=Callable[..., Any])

FORMATS: Final = ("table", "json")

Cell = str | int | float | list[Any] | dict[str, Any] | None

Row = Sequence[Cell]


class OutputFormat(click.Choice[str]):
    """Option type of `FORMATS` that is read as a bool: whether the output is JSON."""

    name = "boolean"

    def __init__(self) -> None:
        super().__init__(FORMATS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return whether a format is JSON; click also converts the result."""
        return value if isinstance(value, bool) else super().convert(value, param, ctx) == "json"


def output_option(each: str = "row") -> Callable[[F], F]:
    """Return the option `--output`, which passes `as_json`; `--json` is its short form.

    Args:
        each: what a line of JSON is printed for.
    """

    def add(command: F) -> F:
        short = click.option("--json", "as_json", flag_value="json", type=OutputFormat(), hidden=True)
        full = click.option(
            "--output",
            "as_json",
            type=OutputFormat(),
            default="table",
            help=f"table: text, the default. json: one line with a JSON object for each {each}; also --json.",
        )
        return full(short(command))

    return add


def echo_rows(heads: Sequence[str], rows: Iterable[Row], *, as_json: bool, separator: str = " ") -> None:
    """Print rows as a table, or each as a line of JSON.

    Args:
        heads: names of the columns.
        rows: cells, in the order of the heads.
        as_json: print JSON.
        separator: text between two columns of the table.
    """
    lines = json_lines(heads, rows) if as_json else table_lines(heads, rows, separator=separator)
    for line in lines:
        click.echo(line)


def json_lines(heads: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """Yield each row as a JSON object, with the heads in snake case as names."""
    names = list(map(field_name, heads))
    return (json.dumps(dict(zip(names, row, strict=True))) for row in rows)


def field_name(head: str) -> str:
    """Return the name in JSON of a column.

    >>> [field_name(head) for head in ("CURRENT-OFFSET", "#MEMBERS", "COORDINATOR (ID)", "ProducerId", "CONSUMED/S")]
    ['current_offset', 'members', 'coordinator_id', 'producer_id', 'consumed_per_s']
    """
    words = head if head.isupper() else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", head)
    return re.sub(r"\W+", "_", words.replace("/", "_per_")).strip("_").lower()


def table_lines(heads: Sequence[str], rows: Iterable[Row], *, separator: str = " ") -> Iterator[str]:
    """Yield heads and rows as lines with columns of equal width."""
    texts = [list(heads), *([text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        yield separator.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def text(cell: Cell, missing: str = "-") -> str:
    """Return a cell of a table; None is a missing value."""
    if isinstance(cell, list):
        return ",".join(map(str, cell))
    if isinstance(cell, float):
        return f"{cell:.3f}"
    return missing if cell is None else str(cell)


def content_text(data: bytes | None) -> str | None:
    """Return bytes of a record as text; bytes that are not UTF-8 are escaped."""
    return None if data is None else data.decode(errors="backslashreplace")
