"""`uniqueItems` in a time that grows with the array: `jsonschema` compares all pairs of items that cannot be sorted."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from jsonschema.exceptions import ValidationError


def unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401
    """The keyword `uniqueItems`, as `jsonschema` calls it: what is wrong with an array, if anything is."""
    del schema
    if wanted and validator.is_type(instance, "array") and len({_mark(item) for item in instance}) < len(instance):
        yield ValidationError("the items are not unique")


def _mark(value: Any) -> Hashable:  # noqa: ANN401 - any JSON
    """What is the same for items that are: 1 and 1.0 are, 1 and true are not.

    Numbers are texts: anybody can choose numbers with the same hash, and then a set compares all pairs, too.
    """
    if isinstance(value, bool) or value is None:
        return value, ""
    if isinstance(value, float):
        if value != value:  # noqa: PLR0124 - NaN is not the same as NaN
            return object()
        return "number", repr(int(value) if value.is_integer() else value)
    if isinstance(value, int):
        return "number", repr(value)
    if isinstance(value, list | tuple):
        return "array", tuple(_mark(item) for item in value)
    if isinstance(value, Mapping):
        return "object", frozenset((name, _mark(item)) for name, item in value.items())
    made: Hashable = value
    return made
