"""Java errors: the text of an error that came through py4j in, the messages of its causes out, Python's among them."""

from __future__ import annotations

import re
from typing import Final

JAVA_ERROR: Final = re.compile(r"(?:Caused by)?: (?:[a-z]\w*\.)+\w*(?:Exception|Error): (.+)")
"""The line of a Java error in the text of a Python one: its class and message."""


_TRACEBACK: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception)): (.+)")


def python_error(text: str) -> str | None:
    """What a Python function has raised that Java has called, without its module; None where a text has no such."""
    before, found, after = text.rpartition(_TRACEBACK)
    del before
    raised = (_RAISED.fullmatch(line) for line in after.splitlines()) if found else ()
    return next((f"{match[1]}: {match[2]}" for match in raised if match), None)


def java_causes(text: str) -> list[str]:
    """Messages of the Java errors in a text, outermost first."""
    return [match[1] for line in text.splitlines() if (match := JAVA_ERROR.fullmatch(line.strip()))]


def innermost(error: BaseException) -> str:
    """One line that says most: the message of the last Java cause, else the error's own first line."""
    text = str(error)
    causes = java_causes(text)
    return causes[-1] if causes else next((line.strip() for line in text.splitlines() if line.strip()), repr(error))
