"""Derive Protobuf: the type of columns in, the text of a `.proto` file with a message that has just them out.

Readers know fields by their numbers, so this is for the first schema of a subject alone: who wrote another one from
other columns would give their numbers to other fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.schemas.schema import Schema

_SCALARS: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "bool",
    pa.int8(): "int32",
    pa.int16(): "int32",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
}
_KEYS: Final = frozenset({"bool", "int32", "int64", "string"})
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"


def derived_protobuf(kind: pa.DataType, message: str) -> Schema:
    """A schema for values of a type: fields are numbered in the order of their names, and all of them may be null.

    A list or map that is null is read as an empty one.

    Args:
        kind: a struct.
        message: the name of its message.

    Raises:
        IllegalArgumentError: Protobuf has no words for the type, or for a field's name.
    """
    if not pa.types.is_struct(kind):
        raise IllegalArgumentError(f"a Protobuf value is a message, made of columns; {kind} is one value")
    body = _message(kind, message, "")
    imports = [f'import "google/protobuf/{name.rpartition(".")[2].lower()}.proto";' for name in _used(body)]
    return Schema("PROTOBUF", "\n".join(['syntax = "proto3";', *imports, *body, ""]))


def _used(body: list[str]) -> list[str]:
    return [name for name in (_DURATION, _TIMESTAMP) if any(name in line for line in body)]


def _message(kind: pa.StructType, name: str, indent: str, path: str = "") -> list[str]:
    """The lines of a message; `path` leads to it."""
    taken = {field.name for field in kind}
    lines: list[str] = []
    for number, field in enumerate(sorted(kind, key=lambda field: field.name), start=1):
        if not _NAME.fullmatch(field.name):
            raise IllegalArgumentError(f"column {path}{field.name}: this cannot be the name of a field in Protobuf")
        # A message inside must not be called as a field is.
        inner = f"{field.name}_message"
        while inner in taken:
            inner += "_"
        taken.add(inner)
        try:
            found = _field(field.type, inner)
        except IllegalArgumentError as cause:
            raise IllegalArgumentError(f"column {path}{field.name}: {cause}") from None
        struct = _struct_of(field.type)
        if struct is not None:
            lines += _message(struct, inner, f"{indent}  ", f"{path}{field.name}.")
        lines.append(f"{indent}  {found} {field.name} = {number};")
    return [f"{indent}message {name} {{", *lines, f"{indent}}}"]


def _struct_of(kind: pa.DataType) -> pa.StructType | None:
    """The struct that a field's values are or are made of."""
    if pa.types.is_map(kind):
        kind = kind.item_type
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    return kind if pa.types.is_struct(kind) else None


def _field(kind: pa.DataType, inner: str) -> str:
    """The words before a field's name."""
    if pa.types.is_map(kind):
        key = _one(kind.key_type, inner)
        if key not in _KEYS:
            raise IllegalArgumentError(f"there is no map in Protobuf whose keys are {kind.key_type}")
        return f"map<{key}, {_one(kind.item_type, inner)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"repeated {_one(kind.value_type, inner)}"
    found = _one(kind, inner)
    return f"optional {found}" if kind in _SCALARS else found


def _one(kind: pa.DataType, inner: str) -> str:
    """The name of the type of a single value."""
    if pa.types.is_struct(kind):
        return inner
    if pa.types.is_timestamp(kind) and kind.tz:
        return _TIMESTAMP
    if pa.types.is_duration(kind):
        return _DURATION
    if kind not in _SCALARS:
        raise IllegalArgumentError(f"there is no type of Protobuf's for {kind}")
    return _SCALARS[kind]
