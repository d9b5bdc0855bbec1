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
    made: Hashable = value
    if isinstance(value, bool):
        made = "boolean", value
    elif isinstance(value, float) and value != value:  # noqa: PLR0124 - NaN is not the same as NaN
        made = object()
    elif isinstance(value, int | float):
        made = "number", repr(int(value) if isinstance(value, float) and value.is_integer() else value)
    elif isinstance(value, list | tuple):
        made = "array", tuple(_mark(item) for item in value)
    elif isinstance(value, Mapping):
        made = "object", frozenset((name, _mark(item)) for name, item in value.items())
    return made
