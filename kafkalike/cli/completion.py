"""`kafkalike completion`: the name of a shell in, the script that lets it complete commands and options out."""

from __future__ import annotations

import os
from typing import Final

import click
from click.shell_completion import get_completion_class, shell_complete

from kafkalike.cli.options import version_option

VARIABLE: Final = "_KAFKALIKE_COMPLETE"
"""Through it the script asks `kafkalike` for words."""

SHELLS: Final = ("bash", "zsh", "fish")


@click.command(epilog='Example: eval "$(kafkalike completion bash)", in ~/.bashrc')
@click.argument("shell", type=click.Choice(SHELLS))
@version_option
@click.pass_context
def completion(context: click.Context, /, *, shell: str) -> None:
    """Print a script that completes commands, options and their values: for bash 4.4 and newer, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three of them"
    click.echo(kind(context.find_root().command, {}, "kafkalike", VARIABLE).source())


def completed(command: click.Command) -> int | None:
    """Print the words that a shell's script asks for, if one does.

    Args:
        command: the whole command line.

    Returns:
        Exit code; None when this is no such question.
    """
    asked = os.environ.get(VARIABLE)
    return None if not asked else shell_complete(command, {}, "kafkalike", VARIABLE, asked)
