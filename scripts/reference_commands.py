"""Write `docs/reference/cli.md`: all commands with their options, as `--help` shows them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Final

import click

from kafkalike.cli.app import COMMANDS, app

HEAD: Final = """# Command line

<!-- Written by `make reference`; tests say when it is out of date. -->

Kafka's commands and flags; `kafkalike COMMAND --help` says the same as this page.
[Operations](../operations.md#signals-exit-codes-and-logs) has the exit codes and the logs.
"""

COMMON: Final = ("--bootstrap-server ", "--command-config ", "--version", "--help")
"""Options of nearly all commands: the page has them once."""


CODE: Final = re.compile(
    r"'kafkalike [^']*'|(?<![\w-])(?:--[a-z][\w-]* (?!and |or )[a-z]+ (?=--))*--[a-z][\w-]*(?: [A-Z]{2,}\b)?"
    r"|\$?KAFKALIKE_\w+(?:=1)?"
)
"""Commands, options and variables in a text, which a narrow page would break at their hyphens."""


def page() -> str:
    """The page of all commands."""
    context = click.Context(app, info_name="kafkalike")
    common = [option for option in _options(*_of(context, "topics")) if option[0].startswith(COMMON)]
    own = [option for option in _options(context, app) if option not in common]
    names = list(_commands(context, app))
    lines = [HEAD, "## kafkalike", "", *_text(app), *_table("option", own)]
    lines += ["Nearly all commands have these options; the tables below leave them out:", ""]
    lines += _table("option", common)
    lines += ["| command | meaning |", "|---|---|"]
    lines += [f"| [{name}](#kafkalike-{name}) | {_plain(COMMANDS[name][1])} |" for name in names]
    for name in names:
        lines += ["", *_command(*_of(context, name), common, level=2)][:-1]
    return "\n".join([*lines, ""])


def _of(context: click.Context, name: str) -> tuple[click.Context, click.Command]:
    assert isinstance(context.command, click.Group)
    command = context.command.get_command(context, name)
    assert command is not None, name
    return click.Context(command, parent=context, info_name=name), command


def _commands(context: click.Context, command: click.Command) -> dict[str, click.Command]:
    if not isinstance(command, click.Group):
        return {}
    found = {name: _of(context, name)[1] for name in command.list_commands(context)}
    return {name: one for name, one in found.items() if not one.hidden}


def _command(
    context: click.Context, command: click.Command, common: Sequence[tuple[str, str]], level: int
) -> Iterator[str]:
    yield from ("#" * level + f" {context.command_path}", "", *_text(command))
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"Usage: `{context.command_path} {usage}`", "")
    yield from _table("option", [option for option in _options(context, command) if option not in common])
    for name in _commands(context, command):
        yield from _command(*_of(context, name), common, level + 1)


def _text(command: click.Command) -> Iterator[str]:
    """Help and example; what click does not wrap is a block of code."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield from (f"    {line}" for line in paragraph.splitlines()[1:])
        else:
            yield _plain(" ".join(paragraph.split()))
        yield ""
    if command.epilog:
        title, _, example = command.epilog.partition(": ")
        yield from (f"{title}: `{example}`", "")


def _options(context: click.Context, command: click.Command) -> list[tuple[str, str]]:
    records = (one.get_help_record(context) for one in command.get_params(context))
    return [record for record in records if record is not None and record[1]]  # arguments stand in the usage


def _table(head: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    lines = [f"| `{_cell(name)}` | {_cell(_plain(text))} |" for name, text in rows]
    return [f"| {head} | meaning |", "|---|---|", *lines, ""] if lines else []


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _code(found: re.Match[str]) -> str:
    code = found[0].strip("'")
    return f"`{code}`"


def _plain(text: str) -> str:
    """Text whose signs mean nothing in Markdown, outside of code; options and variables become code."""
    return "".join(
        part if part.startswith("`") else CODE.sub(_code, part.replace("*", r"\*").replace("<", "&lt;"))
        for part in re.split("(`[^`]*`)", text)
    )
