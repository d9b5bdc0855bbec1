"""Keys: options that name keys in, their bytes out."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

FORMATS: Final[Mapping[str, Callable[[str], bytes]]] = {
    "text": str.encode,
    "hex": bytes.fromhex,
    "base64": lambda text: base64.b64decode(text, validate=True),
}
"""How a key may be written."""


def key_options(command: F) -> F:
    """`--key`, `--key-file` and `--key-format`."""
    form = click.option(
        "--key-format",
        type=click.Choice(list(FORMATS)),
        default="text",
        show_default=True,
        help="How keys are written, in both; text is taken as UTF-8.",
    )
    file = click.option(
        "--key-file",
        "key_files",
        multiple=True,
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="A file with a key in each line; repeatable. Keeps keys out of the shell's history.",
    )
    single = click.option("--key", "keys", multiple=True, metavar="KEY", help="A key; repeatable.")
    return single(file(form(command)))


def keys_of(keys: Iterable[str], key_files: Iterable[str], key_format: str) -> list[bytes]:
    """The bytes of all keys that were named.

    Raises:
        click.UsageError: one is not written as its format says.
        click.ClickException: a file cannot be read.
    """
    found = [_parsed(key, key_format, "--key") for key in keys]
    for name in key_files:
        try:
            lines = Path(name).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as cause:
            raise click.ClickException(f"{name} cannot be read: {cause}") from cause
        found += [_parsed(line, key_format, f"{name}, line {at}") for at, line in enumerate(lines, 1) if line]
    return found


def _parsed(text: str, key_format: str, where: str) -> bytes:
    try:
        return FORMATS[key_format](text)
    except (ValueError, binascii.Error) as cause:
        # Not the text itself: it may be what is to be forgotten.
        raise click.UsageError(f"{where}: not {key_format}: {cause}") from cause
