"""JSON columns: values of a JSON Schema as Arrow columns, and Arrow arrays as JSON that the schema accepts.

A value that may have several types, or any, has no column type of its own: its column holds the JSON text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa

from kafkalike.errors import InvalidSchemaError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow import value_arrays as arrays
from kafkalike.schemas.arrow.column_reader import UnmatchedError, ValueReader, check_struct, check_type
from kafkalike.schemas.arrow.exact_cast import at, check_kind, is_list, is_numeric, is_text, objects, without_doubles
from kafkalike.schemas.json_documents import JsonReferences, Resolver, valid_json_schema
from kafkalike.schemas.limits import load_json
from kafkalike.schemas.schema_source import SchemaSource
from kafkalike.schemas.serde.codec import codec_for

_MOST_REFS: Final = 50
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INSTANT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d+))?([Zz]|[+-]\d\d(?::?\d\d)?)", re.ASCII
)
"""RFC 3339, and variants written by Java and Python: without seconds, or with an offset without a colon."""


def json_text(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return a value as compact JSON.

    Raises:
        ValueError: a number has more digits than a double.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=arrays.exact)


@dataclass(frozen=True, slots=True)
class _Part:
    """A schema that a value must match, and the base of its references."""

    schema: Any
    resolver: Resolver


class JsonColumns:
    """The columns of a JSON Schema.

    Args:
        schema: the schema.
        source: looks up the schemas that it references.
        depth: how many times a referenced schema may be nested in itself; deeper properties are left out.

    Raises:
        InvalidSchemaError: a schema is not valid JSON, or a `$ref` cannot be resolved.
    """

    def __init__(self, schema: Schema, source: SchemaSource, depth: int) -> None:
        self._depth = depth
        documents = {name: load_json(other.text) for name, other in source.referenced(schema).items()}
        with valid_json_schema():
            self._references = JsonReferences(load_json(schema.text), documents)

    def top(self) -> tuple[arrays.Structs, bool]:
        """Return the column of whole values, and True if it has an object's fields; else it has one field `value`."""
        references = self._references
        found = self._of([_Part(references.document, references.resolver)], ())
        if isinstance(found, arrays.Structs):
            return found, True
        if found is None:
            raise InvalidSchemaError("a schema that only consists of itself has no columns")
        return arrays.Structs([("value", lambda values: values, found)]), False

    def _of(self, parts: Sequence[_Part], around: tuple[int, ...]) -> arrays.Column | None:
        """Return the column of values that match all given schemas; None for a schema nested too deeply in itself."""
        targets: dict[int, None] = {}
        parts = self._flat(parts, targets)
        if any(around.count(target) >= self._depth for target in targets):
            return None
        around = (*around, *targets)
        kind = self._kind(parts)
        if kind == "object":
            return self._object(parts, around)
        if kind == "array" and any(isinstance(part.schema.get("items"), dict) for part in parts):
            item = self._of(self._inner(parts, "items"), around)
            return None if item is None else arrays.Lists(item, list)
        if kind == "string":
            return _text(next((part.schema["format"] for part in parts if "format" in part.schema), None))
        return _leaf(kind)

    def _flat(self, parts: Sequence[_Part], targets: dict[int, None]) -> list[_Part]:
        """Return all schemas that a value must match: behind `$ref`, in `allOf`, and in a choice with null.

        Args:
            parts: the schemas to start with.
            targets: receives the schemas that references lead to.
        """
        found: list[_Part] = []
        waiting = list(reversed(parts))
        while waiting:
            part = waiting.pop()
            if not isinstance(part.schema, dict):
                continue
            schema, further = part.schema, list[_Part]()
            if "$ref" in schema:
                target = _Part(*self._references.follow(part.resolver, schema["$ref"]))
                if id(target.schema) in targets:
                    self._check_end(target)
                    continue
                targets[id(target.schema)] = None
                further.append(target)
            if "$ref" not in schema or not self._references.ignores_siblings:
                found.append(part)
                further += self._chosen(part)
            waiting += reversed(further)
        return found

    def _check_end(self, part: _Part, path: tuple[int, ...] = ()) -> None:
        """Reject a chain of references that leads only back to itself."""
        if not isinstance(part.schema, dict):
            return
        if id(part.schema) in path or len(path) > _MOST_REFS:
            raise InvalidSchemaError("a $ref leads to itself")
        path = (*path, id(part.schema))
        if "$ref" in part.schema:
            self._check_end(_Part(*self._references.follow(part.resolver, part.schema["$ref"])), path)
        for one in self._alternatives(part, "allOf"):
            self._check_end(one, path)

    def _chosen(self, part: _Part) -> list[_Part]:
        """Return the schemas added by `allOf`, and by a choice whose only other option is null."""
        found = self._alternatives(part, "allOf")
        for word in ("oneOf", "anyOf"):
            others = self._not_null(part, word)
            found += others if len(others) == 1 else []
        return found

    def _not_null(self, part: _Part, word: str) -> list[_Part]:
        return [one for one in self._alternatives(part, word) if not self._is_null(one)]

    def _is_null(self, part: _Part) -> bool:
        for _ in range(_MOST_REFS):
            if not isinstance(part.schema, dict) or "$ref" not in part.schema:
                break
            part = _Part(*self._references.follow(part.resolver, part.schema["$ref"]))
        else:
            raise InvalidSchemaError("a $ref leads to itself")
        return isinstance(part.schema, dict) and part.schema.get("type") in ("null", ["null"])

    def _alternatives(self, part: _Part, word: str) -> list[_Part]:
        options = part.schema.get(word)
        if not isinstance(options, list):
            return []
        return [_Part(option, self._references.inside(part.resolver, option)) for option in options]

    def _inner(self, parts: Sequence[_Part], *names: str) -> list[_Part]:
        """Return the schemas below a keyword, or below a name in it, of all parts that have it."""
        found = []
        for part in parts:
            inner: Any = part.schema
            for name in names:
                inner = inner.get(name) if isinstance(inner, dict) else None
            if isinstance(inner, dict | bool):
                found.append(_Part(inner, self._references.inside(part.resolver, inner)))
        return found

    def _kind(self, parts: Sequence[_Part]) -> str:
        """Return the only type of non-null values; `any` if several types are possible or none is given."""
        kinds: set[str] | None = None
        for part in parts:
            if any(len(self._not_null(part, word)) > 1 for word in ("oneOf", "anyOf")):
                return "any"
            said = part.schema.get("type", _implied(part.schema))
            if said == "any":
                continue
            mine = {name for name in (said if isinstance(said, list) else [said]) if isinstance(name, str)}
            # An integer is also valid as a number.
            mine |= {"integer"} if "number" in mine else set()
            kinds = mine if kinds is None else kinds & mine
        if not kinds:
            return "any"
        kinds -= {"integer"} if "number" in kinds else set()
        others = kinds - {"null"} or kinds
        return next(iter(others)) if len(others) == 1 else "any"

    def _object(self, parts: Sequence[_Part], around: tuple[int, ...]) -> arrays.Column | None:
        names = dict.fromkeys(name for part in parts for name in _dict_of(part.schema.get("properties")))
        if names:
            found = [(name, self._of(self._inner(parts, "properties", name), around)) for name in names]
            required = {name for part in parts for name in _list_of(part.schema.get("required"))}
            return arrays.Structs(
                [(name, _taking(name), column) for name, column in found if column is not None], required
            )
        if any(_dict_of(part.schema.get("additionalProperties")) for part in parts):
            item = self._of(self._inner(parts, "additionalProperties"), around)
            return None if item is None else arrays.Maps(arrays.LeafColumn(pa.string()), item)
        return arrays.LeafColumn(pa.string(), json_text)


def _dict_of(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _list_of(found: object) -> list[Any]:
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _implied(schema: dict[str, Any]) -> str:
    """Return the type that a schema without `type` implies."""
    if isinstance(schema.get("properties"), dict):
        return "object"
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return "string" if values and all(isinstance(value, str) for value in values) else "any"


def _taking(name: str) -> Callable[[Sequence[Any]], Sequence[Any]]:
    def take(values: Sequence[Any]) -> Sequence[Any]:
        for value in values:
            if not isinstance(value, dict):
                raise TypeError(f"an object is needed, not {json_text(value)[:100]}")
        return [value.get(name) for value in values]

    return take


def _leaf(kind: object) -> arrays.Column:
    if kind == "integer":
        return arrays.LeafColumn(pa.int64(), _whole)
    if kind == "number":
        return arrays.LeafColumn(pa.float64(), _number)
    if kind in {"boolean", "null"}:
        return arrays.LeafColumn(pa.bool_() if kind == "boolean" else pa.null())
    return arrays.LeafColumn(pa.string(), json_text)


def _text(form: object) -> arrays.Column:
    if form == "date":
        return arrays.LeafColumn(pa.date32(), _day)
    if form == "date-time":
        return arrays.LeafColumn(pa.timestamp("us", "UTC"), moment)
    return arrays.LeafColumn(pa.string())


def _day(value: str) -> date:
    if _DATE.fullmatch(value) is None:
        raise ValueError(f"{value[:40]!r} is not a date such as 2026-12-31")
    return date.fromisoformat(value)


def moment(value: str) -> datetime:
    """Return the instant of an RFC 3339 timestamp.

    Raises:
        ValueError: the text is not such a timestamp: it has no zone, for instance, or a finer resolution than
            microseconds.
    """
    found = _INSTANT.fullmatch(value)
    if found is None:
        raise ValueError(f"{value[:40]!r} is not a timestamp with a zone such as 2026-12-31T23:59:59Z")
    day, clock, fraction, zone = found.groups()
    if (fraction or "")[6:].strip("0"):
        raise ValueError(f"{value[:40]!r} has a finer resolution than microseconds")
    exact_to_micros = f".{fraction[:6]}" if fraction else ""
    made = datetime.fromisoformat(f"{day}T{clock}{exact_to_micros}{zone.upper()}")
    # `astimezone` rejects instants outside of the years 1 to 9999 in UTC.
    return made.astimezone(UTC)


def _whole(value: Any) -> int:  # noqa: ANN401
    if not arrays.is_number(value):
        raise TypeError(f"a whole number is needed, not {json_text(value)[:100]}")
    return arrays.whole_number(value)


def _number(value: Any) -> float:  # noqa: ANN401
    if not arrays.is_number(value):
        raise TypeError(f"a number is needed, not {json_text(value)[:100]}")
    return arrays.nearest(value)


class JsonReader:
    """Reader of JSON values as columns; see `reader_of`.

    JSON describes itself, so the writer's schema is not needed.
    """

    def __init__(self, schema: Schema, source: SchemaSource, depth: int) -> None:
        self._top, self.is_record = JsonColumns(schema, source, depth).top()
        self.columns = pa.schema(list(self._top.kind))

    def of(self, schema: Schema) -> ValueReader:
        """Return a reader of values written with any JSON Schema; see `ColumnReader.of`."""
        check_type(schema, "JSON")
        return partial(arrays.one_by_one, self._top, _parsed)


def _parsed(value: bytes) -> Any:  # noqa: ANN401 - any JSON
    # Reject a BOM and encodings other than UTF-8; `json.loads` would guess the encoding of bytes.
    found = arrays.parsed(str(value, "utf-8"))
    if found is None:
        raise ValueError("the value is null")
    return found


Plain = Callable[[Any], Any]
"""Converts a value of an array to an argument of `json.dumps`."""


def json_encoder(
    schema: Schema, source: SchemaSource, kind: pa.DataType, depth: int
) -> Callable[[pa.Array], pa.BinaryArray]:
    """Return an encoder of values of a type. A null is left out unless its property is required.

    Raises:
        UnmatchedError: the type has fields that the schema does not name.
    """
    top, is_record = JsonColumns(schema, source, depth).top()
    if not is_record and not (pa.types.is_struct(kind) and kind.names == ["value"]):
        plain = _plain(top.fields[0][2], kind, "")
    else:
        whole = _plain(top, kind, "")
        plain = whole if is_record else lambda value: whole(value).get("value")
    encode = codec_for(schema, source).encoder(b"")

    def write(values: pa.Array) -> pa.BinaryArray:
        return pa.array([encode(plain(value)) for value in objects(values)], pa.binary())

    return write


def _plain(column: arrays.Column, kind: pa.DataType, path: str) -> Plain:
    if isinstance(column, arrays.Structs):
        return _object(column, kind, path)
    if isinstance(column, arrays.Lists) and is_list(kind):
        item = _plain(column.item, kind.value_type, f"{path}[]")
        return lambda values: [None if value is None else item(value) for value in values]
    if isinstance(column, arrays.Maps) and pa.types.is_map(kind) and is_text(kind.key_type):
        inner = _plain(column.item, kind.item_type, f"{path}{{}}")
        return lambda entries: {
            key: None if value is None else inner(value) for key, value in without_doubles(entries, path).items()
        }
    if isinstance(column, arrays.LeafColumn):
        check_kind(kind, path)
        known = _leaf_encoder(column, kind)
        if known is not None:
            return at(path, known)
    raise UnmatchedError(f"{path or 'the value'} is {kind}, and the schema has {column.kind}")


def _object(column: arrays.Structs, kind: pa.DataType, path: str) -> Plain:
    known = {name: inner for name, _, inner in column.fields}
    check_struct(kind, known, path, "an object", "the schema does not name")
    parts = [(f.name, _plain(known[f.name], f.type, f"{path}.{f.name}".lstrip("."))) for f in kind]
    required = column.required

    def plain(value: dict[str, Any]) -> dict[str, Any]:
        made = {}
        for name, part in parts:
            inner = value[name]
            if inner is not None:
                made[name] = part(inner)
            elif name in required:
                made[name] = None
        return made

    return plain


def _leaf_encoder(column: arrays.LeafColumn, kind: pa.DataType) -> Plain | None:
    """Return an encoder of values of a type for a leaf of the schema; None if none of them can mean the same."""
    if pa.types.is_null(kind):
        return arrays.unchanged
    if column.convert is json_text:
        return _any(kind)
    wanted = column.kind
    known: list[tuple[bool, bool, Plain]] = [
        (pa.types.is_integer(wanted), is_numeric(kind), arrays.whole_number),
        (pa.types.is_floating(wanted), is_numeric(kind), _double),
        (pa.types.is_boolean(wanted), pa.types.is_boolean(kind), arrays.unchanged),
        (pa.types.is_null(wanted), not pa.types.is_nested(kind), _nothing),
        (pa.types.is_date(wanted), pa.types.is_date(kind), _time),
        (pa.types.is_date(wanted), is_text(kind), _checked(column)),
        (pa.types.is_timestamp(wanted), pa.types.is_timestamp(kind) and kind.tz is not None, _time),
        (pa.types.is_timestamp(wanted), is_text(kind), _checked(column)),
        (pa.types.is_string(wanted), is_text(kind), arrays.unchanged),
        (pa.types.is_string(wanted), pa.types.is_date(kind) or pa.types.is_timestamp(kind), _time),
    ]
    return next((plain for is_wanted, is_kind, plain in known if is_wanted and is_kind), None)


def _any(kind: pa.DataType) -> Plain | None:
    """Return an encoder of values for a place that accepts any JSON; strings are parsed as JSON."""
    if is_text(kind):
        return _json
    if is_numeric(kind):
        return arrays.exact
    if pa.types.is_boolean(kind):
        return arrays.unchanged
    return _time if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else None


def _nothing(value: Any) -> Any:  # noqa: ANN401
    raise ValueError(f"{value!r} is not null, and the schema accepts only null")


def _double(value: Any) -> Any:  # noqa: ANN401
    """Return a number that readers parse as a double."""
    arrays.nearest(value)
    return arrays.exact(value)


def _checked(column: arrays.LeafColumn) -> Plain:
    """Return an encoder of strings that readers parse as dates or timestamps."""
    convert = column.convert or arrays.unchanged

    def checked(value: str) -> str:
        convert(value)
        return value

    return checked


def _json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON without losing digits of its numbers."""
    return _undecimal(arrays.parsed(text, strict=True))


def _undecimal(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return {name: _undecimal(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_undecimal(inner) for inner in value]
    if isinstance(value, Decimal):
        arrays.exact(value)
        return arrays.nearest(value)
    return value


def _time(value: date | datetime) -> str:
    return value.isoformat().replace("+00:00", "Z")
