"""Avro reading: a schema as fastavro has parsed it in, one with which it reads by Avro's rules where it does not, out.

fastavro takes a union's number below 0 as Python takes it, from the end, and gives a field that the writer did not have
the default as its JSON stands in the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from fastavro.read import LOGICAL_READERS

from kafkalike.schemas.avro_types import AvroType, default_fits

_NAMED: Final = "__named_schemas"
"""Where fastavro keeps the named types of a parsed schema, which it goes through for each record."""


def for_reading(parsed: Any) -> Any:  # noqa: ANN401 - a schema as fastavro has it
    """A parsed schema that is read with by Avro's rules, in as few steps as it can. Changes it, and gives it back."""
    parsed = guarded(parsed)
    if isinstance(parsed, dict) and _NAMED in parsed:
        used = set(_names({key: part for key, part in parsed.items() if key != _NAMED}))
        parsed[_NAMED] = {name: of for name, of in parsed[_NAMED].items() if name in used}
    return parsed


def _names(parsed: Any) -> Iterator[str]:  # noqa: ANN401 - a schema as fastavro has it
    """Names that stand for a type, of Avro's own types too."""
    if isinstance(parsed, str):
        yield parsed
    elif isinstance(parsed, list):
        for branch in parsed:
            yield from _names(branch)
    else:
        for part in ("type", "items", "values"):
            if part in parsed:
                yield from _names(parsed[part])
        for field in parsed.get("fields", ()):
            yield from _names(field["type"])


def guarded(parsed: Any) -> Any:  # noqa: ANN401 - a schema as fastavro has it
    """A parsed schema whose unions have no branches below 0. Changes it, and gives it back."""
    if isinstance(parsed, list):
        return _branches([guarded(branch) for branch in parsed])
    if isinstance(parsed, dict):
        for part in ("items", "values"):
            if part in parsed:
                parsed[part] = guarded(parsed[part])
        for field in parsed.get("fields", ()):
            field["type"] = guarded(field["type"])
    return parsed


def _branches(branches: list[Any]) -> list[Any]:
    """A list that is indexed by its numbers alone.

    C code adds the length to an index below 0 before it asks, so there must be none. Both methods are C's own: Python's
    would cost more than the rest of a union.
    """
    methods = {"__slots__": (), "__getitem__": dict(enumerate(branches)).__getitem__, "__len__": ().__len__}
    made: list[Any] = type("Branches", (list,), methods)(branches)
    return made


def with_defaults(parsed: Any, described: AvroType) -> bool:  # noqa: ANN401 - a schema as fastavro has it
    """Put values in the place of the defaults of a parsed schema.

    Args:
        parsed: is changed.
        described: the same schema.

    Returns:
        Whether some are lists or dicts, which who reads a record could change for all.
    """
    lent = False
    if isinstance(parsed, list):
        pairs = list(zip(parsed, described.branches, strict=True))
    elif not isinstance(parsed, dict):
        return False
    elif described.items is not None:
        pairs = [(parsed["items" if described.kind == "array" else "values"], described.items)]
    else:
        pairs = []
        for field, known in zip(parsed.get("fields", ()), described.fields, strict=True):
            pairs.append((field["type"], known.type))
            if known.has_default:
                field["default"] = default_value(known.type, known.default)
                lent |= isinstance(field["default"], list | dict)
    for part, of in pairs:
        lent |= with_defaults(part, of)
    return lent


def default_value(of: AvroType, value: Any) -> Any:  # noqa: ANN401 - JSON in, a value out
    """What fastavro reads where a record says what a default says.

    Args:
        of: the field's type.
        value: the default's JSON; one that does not fit, as older registries took, is given as it is.
    """
    if of.kind == "union":
        fitting = (branch for branch in of.branches if default_fits(branch, value))
        branch = next(fitting, None)
        return value if branch is None else default_value(branch, value)
    if not default_fits(of, value):
        return value
    if of.kind == "record":
        return {field.name: default_value(field.type, value.get(field.name, field.default)) for field in of.fields}
    if of.items is not None:
        if of.kind == "array":
            return [default_value(of.items, item) for item in value]
        return {key: default_value(of.items, item) for key, item in value.items()}
    if of.kind in {"bytes", "fixed"}:
        value = value.encode("latin-1")
    elif of.kind in {"float", "double"}:
        value = float(value)
    return _logical(of, value)


def _logical(of: AvroType, value: Any) -> Any:  # noqa: ANN401
    convert: Callable[..., Any] | None = LOGICAL_READERS.get(f"{of.kind}-{of.logical}")
    if convert is None:
        return value
    try:
        return convert(value, of.attributes, None)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return value
