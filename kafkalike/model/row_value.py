"""Row value: a control row in, the facts of its JSON `value` out; a row that this release cannot read is refused.

Every row has a format version: the key `v` of its `value`, or 1 where that is empty or has no `v`. It is the oldest
format of that kind of row that says what the row says, so a release raises it only for rows that older ones would
misread. A newer version, or a kind that is not known, stops the client: it must not go on as if the row were not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, Self

from kafkalike.errors import LogCorruptError, UnsupportedVersionError
from kafkalike.model.json_values import parse_json

VERSION: Final = "v"
"""Key of the format version in a row's `value`."""

UNREADABLE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading the value of a damaged row may raise."""


class ControlRow(Protocol):
    """A row of a control table."""

    @property
    def seq(self) -> int:
        """Its number."""
        ...

    @property
    def kind(self) -> str:
        """What it is about."""
        ...

    @property
    def value(self) -> str:
        """JSON, or empty."""
        ...


class ControlState(Protocol):
    """A state made of rows: a value, which never changes."""

    @property
    def seq(self) -> int:
        """Number of the last row applied."""
        ...

    def applied(self, rows: Iterable[Any]) -> Self:
        """The state after some more rows, in `seq` order; those that were applied before change nothing."""
        ...


def row_value(table: str, row: ControlRow, versions: Mapping[str, int]) -> dict[str, Any]:
    """What the `value` of a row says.

    Args:
        table: where the row is; for errors.
        row: the row.
        versions: by kind, the newest format that the caller reads.

    Returns:
        The object that the JSON is; empty when `value` is.

    Raises:
        UnsupportedVersionError: the kind is not known, or the format is newer.
        ValueError, TypeError, RecursionError: `value` is not JSON, or not an object with a whole number as version.
    """
    if row.kind not in versions:
        raise _newer(table, row, f"kind {row.kind!r}")
    if not row.value:
        return {}
    found = parse_json(row.value)
    if not isinstance(found, dict):
        raise TypeError(f"{row.value[:80]!r} is not an object")
    if VERSION not in found:
        return found
    version = whole(found, VERSION, at_least=1)
    if version > versions[row.kind]:
        raise _newer(table, row, f"kind {row.kind!r} in format {version}")
    return found


def damaged(table: str, row: ControlRow, cause: Exception) -> LogCorruptError:
    """The error for a row that cannot be read."""
    return LogCorruptError(f"row {row.seq} of {table}, kind {row.kind!r}, cannot be read: {cause!r}")


def _newer(table: str, row: ControlRow, what: str) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"row {row.seq} of {table} is of {what}, which this release does not know: it was written by a newer "
        "kafkalike; upgrade this client"
    )


def whole(found: Mapping[str, Any], name: str, *, at_least: int = 0) -> int:
    """A whole number of an object, not below a bound."""
    value = found[name]
    if type(value) is int and value >= at_least:  # one call less, for every row of a table
        return value
    return as_whole(value, name, at_least=at_least)


def as_whole(value: object, name: str, *, at_least: int = 0) -> int:
    """A value that must be a whole number, not below a bound."""
    if type(value) is not int or value < at_least:
        raise TypeError(f"{name!r} is {value!r}, not a whole number from {at_least}")
    return value


def text(found: Mapping[str, Any], name: str) -> str:
    """A text of an object."""
    return as_text(found[name], name)


def as_text(value: object, name: str) -> str:
    """A value that must be a text."""
    if type(value) is not str:
        raise TypeError(f"{name!r} is {value!r}, not a text")
    return value


def flag(found: Mapping[str, Any], name: str) -> bool:
    """A truth value of an object."""
    value = found[name]
    if type(value) is not bool:
        raise TypeError(f"{name!r} is {value!r}, not true or false")
    return value
