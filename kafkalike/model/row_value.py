"""Row value: read and check the JSON `value` of a control row; a row that this release cannot read is rejected.

Every row has a format version: the key `v` of its `value`, or 1 if the value is empty or has no `v`. The version is the
oldest format that can express the row, so a release raises it only for rows that older releases would misread. A newer
version or an unknown kind stops the client, because skipping the row would give wrong results.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, Self

from kafkalike.errors import LogCorruptError, UnsupportedVersionError

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


raw_decode: Final = json.JSONDecoder().raw_decode
"""Return the JSON value at the start of a text and the index of its end; for loops that parse many texts."""


def parse_json(text: str) -> Any:  # noqa: ANN401
    """As `json.loads`, which first looks for white space around the value, though hardly anybody writes any.

    Raises:
        ValueError, RecursionError: it is not JSON.
    """
    if text[:1] == "{" and text[-1] == "}":
        found, end = raw_decode(text)
        if end == len(text):
            return found
    return json.loads(text)


INT32: Final = range(-(2**31), 2**31)
INT64: Final = range(-(2**63), 2**63)


def checked_list(found: Any) -> list[Any]:  # noqa: ANN401 - any JSON
    """A list.

    Raises:
        TypeError: it is none.
    """
    if type(found) is not list:
        raise TypeError(f"{type(found).__name__} where a list must be")
    return found


def checked_int(found: Any, within: range) -> int:  # noqa: ANN401 - any JSON
    """A whole number of a range.

    Raises:
        ValueError: it is none.
    """
    if type(found) is not int or found not in within:
        raise ValueError(f"{type(found).__name__} where a number of {within} must be, or one outside it")
    return found


def checked_text(found: Any) -> str:  # noqa: ANN401 - any JSON
    """Text that can be stored.

    Raises:
        TypeError: it is none.
        ValueError: half a surrogate pair is text to JSON, and can be stored nowhere.
    """
    if type(found) is not str:
        raise TypeError(f"{type(found).__name__} where text must be")
    found.encode()
    return found
