"""The root of the class hierarchy of errors and its branches, and helpers for errors of Java and other libraries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Final


class KafkaError(Exception):
    """Root of every error that kafkalike raises on purpose."""

    retriable: ClassVar[bool] = False
    """True if the same call may succeed when it is repeated unchanged."""
    errno: ClassVar[int] = -1
    """Kafka's protocol error code; -1 if Kafka has none."""


class RetriableError(KafkaError):
    """The operation did not happen; a retry may succeed."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """The client's metadata of a topic or the cluster is stale; a retry reads it again."""


class BrokerResponseError(KafkaError):
    """Base class of errors that have a code in Kafka's protocol."""

    description: ClassVar[str] = ""


class AuthorizationError(BrokerResponseError):
    """The storage denied access to the resource."""


class NoError(BrokerResponseError):
    """Success, for interfaces that return error classes as results."""

    errno = 0


class UnknownError(BrokerResponseError):
    """Kafka's error -1: unknown."""

    errno = -1


@contextmanager
def foreign_errors(error_of: Callable[[Exception], Exception]) -> Iterator[None]:
    """Convert any error of another library, or of a user's code, into an error of this package.

    Args:
        error_of: function that returns the error to raise; the original error becomes its cause.

    Raises:
        KafkaError: raised by the block; passed on unchanged.
    """
    try:
        yield
    except KafkaError:
        raise
    except Exception as cause:
        raise error_of(cause) from cause


JAVA_ERROR: Final = re.compile(r"(?:Caused by)?: (?:[a-z]\w*\.)+\w*(?:Exception|Error): (.+)")
"""Line of a Java error in the text of a Python error: class and message."""


_TRACEBACK: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception)): (.+)")


def python_error(text: str) -> str | None:
    """Return the error of a Python function that Java has called, without its module, or None."""
    before, found, after = text.rpartition(_TRACEBACK)
    del before
    raised = (_RAISED.fullmatch(line) for line in after.splitlines()) if found else ()
    return next((f"{match[1]}: {match[2]}" for match in raised if match), None)


def java_causes(text: str) -> list[str]:
    """Return the messages of the Java errors in a text, outermost first."""
    return [match[1] for line in text.splitlines() if (match := JAVA_ERROR.fullmatch(line.strip()))]


def innermost(error: BaseException) -> str:
    """Return the most specific line: the message of the last Java cause, otherwise the first line of the error."""
    text = str(error)
    causes = java_causes(text)
    return causes[-1] if causes else next((line.strip() for line in text.splitlines() if line.strip()), repr(error))
