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
"""Errors that parsing the value of a damaged row may raise."""


class ControlRow(Protocol):
    """A row of a control table."""

    @property
    def seq(self) -> int:
        """Number of the row in its table."""
        ...

    @property
    def kind(self) -> str:
        """Kind of fact that the row records."""
        ...

    @property
    def value(self) -> str:
        """JSON, or empty."""
        ...


class ControlState(Protocol):
    """A state computed from rows: an immutable value."""

    @property
    def seq(self) -> int:
        """Number of the last row applied."""
        ...

    def applied(self, rows: Iterable[Any]) -> Self:
        """Return the state after applying more rows, in `seq` order. Rows that are already applied are ignored."""
        ...


def row_value(table: str, row: ControlRow, versions: Mapping[str, int]) -> dict[str, Any]:
    """Parse the `value` of a row and check its format version.

    Args:
        table: name of the row's table, for errors.
        row: the row.
        versions: by kind, the newest format that the caller can read.

    Returns:
        The JSON object; empty if `value` is empty.

    Raises:
        UnsupportedVersionError: the kind is unknown, or the format is newer.
        ValueError, TypeError, RecursionError: `value` is not a JSON object, or its version is not a whole number.
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
    """Return the error for a row that cannot be read."""
    return LogCorruptError(f"row {row.seq} of {table}, kind {row.kind!r}, cannot be read: {cause!r}")


def _newer(table: str, row: ControlRow, what: str) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"row {row.seq} of {table} is of {what}, which this release does not know. "
        "It was written by a newer kafkalike; upgrade this client"
    )


def whole(found: Mapping[str, Any], name: str, *, at_least: int = 0) -> int:
    """Return a whole number of an object; raise TypeError if it is below a bound or has another type."""
    value = found[name]
    if type(value) is int and value >= at_least:  # saves a call for every row of a table
        return value
    return as_whole(value, name, at_least=at_least)


def as_whole(value: object, name: str, *, at_least: int = 0) -> int:
    """Return `value` if it is a whole number not below a bound; otherwise raise TypeError."""
    if type(value) is not int or value < at_least:
        raise TypeError(f"{name!r} is {value!r}, not a whole number from {at_least}")
    return value


def text(found: Mapping[str, Any], name: str) -> str:
    """Return a text of an object; raise TypeError if it has another type."""
    return as_text(found[name], name)


def as_text(value: object, name: str) -> str:
    """Return `value` if it is a text; otherwise raise TypeError."""
    if type(value) is not str:
        raise TypeError(f"{name!r} is {value!r}, not a text")
    return value


def flag(found: Mapping[str, Any], name: str) -> bool:
    """Return a boolean of an object; raise TypeError if it has another type."""
    value = found[name]
    if type(value) is not bool:
        raise TypeError(f"{name!r} is {value!r}, not true or false")
    return value


raw_decode: Final = json.JSONDecoder().raw_decode
"""Return the JSON value at the start of a text and the index of its end; for loops that parse many texts."""


def parse_json(text: str) -> Any:  # noqa: ANN401
    """Parse JSON as `json.loads` does, but without its search for white space around the value, which is rare.

    Raises:
        ValueError, RecursionError: the text is not JSON.
    """
    if text[:1] == "{" and text[-1] == "}":
        found, end = raw_decode(text)
        if end == len(text):
            return found
    return json.loads(text)


INT32: Final = range(-(2**31), 2**31)
INT64: Final = range(-(2**63), 2**63)


def checked_list(found: Any) -> list[Any]:  # noqa: ANN401 - any JSON
    """Return `found` if it is a list.

    Raises:
        TypeError: it has another type.
    """
    if type(found) is not list:
        raise TypeError(f"expected a list, not {type(found).__name__}")
    return found


def checked_int(found: Any, within: range) -> int:  # noqa: ANN401 - any JSON
    """Return `found` if it is a whole number in a range.

    Raises:
        ValueError: it has another type or is out of range.
    """
    if type(found) is not int or found not in within:
        raise ValueError(f"expected an int in {within}, not {found!r:.80}")
    return found


def checked_text(found: Any) -> str:  # noqa: ANN401 - any JSON
    """Return `found` if it is text that can be encoded as UTF-8.

    Raises:
        TypeError: it has another type.
        ValueError: it has half of a surrogate pair, which JSON allows.
    """
    if type(found) is not str:
        raise TypeError(f"expected text, not {type(found).__name__}")
    found.encode()
    return found
