"""Avro's types: a schema in, the Arrow type of its values, and defaults as Arrow values, out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kafkalike.errors import IllegalArgumentError

Type = Any
"""A type as fastavro's parser gives it: a name, a list (a union) or a dict."""

VALUE: Final = "value"
"""The one column of a schema that is no record."""

DURATION: Final = pa.struct([("months", pa.int64()), ("days", pa.int64()), ("milliseconds", pa.int64())])
MOST_DIGITS: Final = 38
"""Of a decimal in Arrow and in Spark; longer ones stay bytes."""

_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
    ("fixed", "uuid"): pa.string(),
    ("fixed", "duration"): DURATION,
}


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A parsed schema, with the types that it names."""

    top: Type
    named: Mapping[str, dict[str, Any]]

    def resolved(self, kind: Type) -> Type:
        """A type whose name stands for it → the type itself."""
        if isinstance(kind, str):
            return self.named.get(kind, {"type": kind})
        if isinstance(kind, dict) and not isinstance(kind["type"], str):
            # {"type": {"type": …}}, as some writers have it.
            return self.resolved(kind["type"])
        if isinstance(kind, dict) and kind["type"] in self.named:
            return self.named[kind["type"]]
        return kind


def parse(text: str, references: Sequence[str] = ()) -> AvroSchema:
    """Parse a schema.

    Args:
        text: the schema, as JSON, or the bare name of a type.
        references: the schemas that it uses, those that are used before those that use them.

    Raises:
        IllegalArgumentError: it is no schema of Avro's.
    """
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    named: dict[str, Any] = {}
    try:
        for used in references:
            parse_schema(_loaded(used), named)
        top = parse_schema(_loaded(text), named)
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError, RecursionError) as cause:
        raise IllegalArgumentError(f"this is no schema of Avro's: {cause!r}") from cause
    return AvroSchema(top, named)


def _loaded(text: str) -> Any:  # noqa: ANN401 - JSON
    stripped = text.strip()
    return json.loads(stripped) if stripped[:1] in {"{", "[", '"'} else stripped


class ArrowTypes:
    """The Arrow types of one schema's types.

    Args:
        schema: the schema.
        depth: how often a record may stand in itself; fields that would go deeper are left out.
    """

    def __init__(self, schema: AvroSchema, depth: int) -> None:
        self.schema = schema
        self.depth = depth

    def columns(self) -> pa.Schema:
        """The columns of a value: a record's fields, or one column `value`."""
        top = self.schema.resolved(self.schema.top)
        kind = self.of(top)
        if kind is None:
            raise IllegalArgumentError("a schema that only consists of itself has no columns")
        if isinstance(top, dict) and top["type"] in {"record", "error"}:
            return pa.schema(list(kind))
        return pa.schema([pa.field(VALUE, kind)])

    def of(self, kind: Type, around: tuple[str, ...] = ()) -> pa.DataType | None:
        """The Arrow type of a type; None where a record would stand too deeply in itself.

        Args:
            kind: the type.
            around: names of the records that it stands in.
        """
        kind = self.schema.resolved(kind)
        if isinstance(kind, list):
            return self._union(kind, around)
        name = kind["type"]
        if name in {"record", "error"}:
            return self._record(kind, around)
        if name == "array":
            item = self.of(kind["items"], around)
            return None if item is None else pa.list_(item)
        if name == "map":
            item = self.of(kind["values"], around)
            return None if item is None else pa.map_(pa.string(), item)
        return leaf(kind)

    def fields(self, record: dict[str, Any], around: tuple[str, ...]) -> list[tuple[dict[str, Any], pa.DataType]]:
        """The fields of a record that become columns, and their Arrow types."""
        inside = (*around, record["name"])
        found = [(field, self.of(field["type"], inside)) for field in record["fields"]]
        return [(field, kind) for field, kind in found if kind is not None]

    def _record(self, record: dict[str, Any], around: tuple[str, ...]) -> pa.DataType | None:
        if around.count(record["name"]) >= self.depth:
            return None
        return pa.struct([pa.field(field["name"], kind) for field, kind in self.fields(record, around)])

    def _union(self, union: list[Type], around: tuple[str, ...]) -> pa.DataType | None:
        branches = branches_of(union)
        if not branches:
            return pa.null()
        merged = self.merged(branches)
        if merged is not None:
            return merged
        if len(branches) == 1:
            return self.of(branches[0], around)
        kinds = [(nth, self.of(branch, around)) for nth, branch in enumerate(branches)]
        return pa.struct([pa.field(f"member{nth}", kind) for nth, kind in kinds if kind is not None])

    def merged(self, branches: Sequence[Type]) -> pa.DataType | None:
        """The wider of two numbers, which takes the place of their union, as in Spark's `from_avro`."""
        resolved = [self.schema.resolved(branch) for branch in branches]
        names = [branch["type"] for branch in resolved if isinstance(branch, dict) and "logicalType" not in branch]
        for narrow, wide in (("int", "long"), ("float", "double")):
            if len(resolved) == 2 and sorted(names) == sorted((narrow, wide)):  # noqa: PLR2004 - two of them
                return _PLAIN[wide]
        return None


def branches_of(union: Sequence[Type]) -> list[Type]:
    """The types of a union besides null."""
    return [branch for branch in union if branch not in ("null", {"type": "null"})]


def leaf(kind: dict[str, Any]) -> pa.DataType:
    """The Arrow type of a type that has no others in it; a logical type that is not known, or wrong, does not count."""
    name, logical = kind["type"], kind.get("logicalType")
    if logical == "decimal" and name in {"bytes", "fixed"}:
        digits, scale = kind.get("precision", 0), kind.get("scale", 0)
        if 0 < digits <= MOST_DIGITS and 0 <= scale <= digits and kind.get("size", 1) > 0:
            return pa.decimal128(digits, scale)
    if (logical == "duration" and kind.get("size") != 12) or (logical == "uuid" and kind.get("size", 16) != 16):  # noqa: PLR2004
        return _PLAIN[name]
    return _LOGICAL.get((name, logical or ""), _PLAIN[name])
