"""The root of the tree of errors and its branches, which say whether a call may be made again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Final


class KafkaError(Exception):
    """Root of every error this package raises on purpose."""

    retriable: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again unchanged."""
    errno: ClassVar[int] = -1
    """Kafka's protocol error code; -1 where Kafka has none."""


class RetriableError(KafkaError):
    """The operation did not happen; trying again may work."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """What a client knew of a topic or the cluster is out of date; another try reads it again."""


class BrokerResponseError(KafkaError):
    """Parent of the errors that have a code in Kafka's protocol."""

    description: ClassVar[str] = ""


class AuthorizationError(BrokerResponseError):
    """Access was refused."""


class NoError(BrokerResponseError):
    """Success, where results are given as classes of errors."""

    errno = 0


class UnknownError(BrokerResponseError):
    """Kafka's error -1: unknown."""

    errno = -1


@contextmanager
def foreign_errors(error_of: Callable[[Exception], Exception]) -> Iterator[None]:
    """Raise any error of another library, or of a user's code, as an error of ours.

    Args:
        error_of: makes the error to raise; the foreign one becomes its cause.

    Raises:
        KafkaError: the block raised it; it stays as it is.
    """
    try:
        yield
    except KafkaError:
        raise
    except Exception as cause:
        raise error_of(cause) from cause


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
