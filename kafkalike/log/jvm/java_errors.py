"""Java errors: the text of an error that came through py4j in, the messages of its causes out."""

from __future__ import annotations

import re
from typing import Final

JAVA_ERROR: Final = re.compile(r"(?:Caused by)?: (?:[a-z]\w*\.)+\w*(?:Exception|Error): (.+)")
"""The line of a Java error in the text of a Python one: its class and message."""


def java_causes(text: str) -> list[str]:
    """Messages of the Java errors in a text, outermost first."""
    return [match[1] for line in text.splitlines() if (match := JAVA_ERROR.fullmatch(line.strip()))]


def innermost(error: BaseException) -> str:
    """One line that says most: the message of the last Java cause, else the error's own first line."""
    text = str(error)
    causes = java_causes(text)
    return causes[-1] if causes else next((line.strip() for line in text.splitlines() if line.strip()), repr(error))
