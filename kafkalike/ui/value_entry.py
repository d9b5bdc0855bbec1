"""Value entry: encode JSON that people type by a registered schema, with an error for each field."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Context, Decimal
from typing import Any, Final
from uuid import UUID

from kafkalike.errors import IllegalArgumentError, KafkaError, SerializationError
from kafkalike.schemas.avro_schema import AvroType
from kafkalike.schemas.schema_source import SchemaSource
from kafkalike.schemas.serde.codec import Codec, codec_for
from kafkalike.schemas.wire import HEADER, frame, split
from kafkalike.ui.value_tree import JsonNumber, JsonObject, exact_json, json_text

MOST_PROBLEMS: Final = 20
"""Maximum number of errors that are reported at once."""

_PROTOBUF_FIELD: Final = re.compile(r"Failed to parse (\S+) field: (.*)", re.DOTALL)

_EXACT: Final = Context(prec=2000)
"""More digits than any decimal of a record."""

_LOGICAL: Final[Mapping[str, Callable[[str], Any]]] = {
    "int-date": date.fromisoformat,
    "int-time-millis": time.fromisoformat,
    "long-time-micros": time.fromisoformat,
    "long-timestamp-millis": datetime.fromisoformat,
    "long-timestamp-micros": datetime.fromisoformat,
    "long-local-timestamp-millis": datetime.fromisoformat,
    "long-local-timestamp-micros": datetime.fromisoformat,
}
"""Text of a logical type of a whole number, which may be given instead of the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem:
    """An error in a field of a form."""

    path: str
    """Place in the value, such as `lines[0].count`; empty for the whole value."""
    message: str


class InvalidEntryError(IllegalArgumentError):
    """Text that is not a value of its schema.

    Args:
        problems: at least one.
    """

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{one.path}: {one.message}" if one.path else one.message for one in problems))


def encoded(text: str, schema_id: int, source: SchemaSource) -> bytes:
    """Return a record, with the id of its schema, from JSON.

    Args:
        text: JSON. Bytes of Avro are text with a character for each byte, as in Avro's JSON encoding; bytes of Protobuf
            are Base64. Times and decimals may be text. A branch of a union is chosen by its type, or by its name, as in
            `{"shop.Card": {…}}`.
        schema_id: id of a registered schema.
        source: the registry.

    Raises:
        InvalidEntryError: the text is not a value of the schema.
        SchemaRegistryError: the id is unknown.
    """
    try:
        value = exact_json(text)
    except (ValueError, RecursionError) as cause:
        reason = str(cause) or "nested too deeply"
        raise InvalidEntryError([FieldProblem(path="", message=f"the text is not JSON: {reason}")]) from None
    problems: list[FieldProblem] = []
    codec = codec_for(source.schema_by_id(schema_id), source)
    try:
        made = _value(codec, value, problems)
        if problems:
            raise InvalidEntryError(problems[:MOST_PROBLEMS])
        record = codec.encoder(frame(schema_id))(made)
    except SerializationError as error:
        raise InvalidEntryError([_problem(error)]) from None
    except RecursionError:
        raise InvalidEntryError([FieldProblem(path="", message="the value is nested too deeply")]) from None
    # The digits of the text are kept: a JSON Schema only validates.
    return frame(schema_id) + text.encode() if codec.schema.type == "JSON" else record


def entry_text(data: bytes, source: SchemaSource) -> tuple[int, str] | None:
    """Return the schema id of a record and JSON that `encoded` turns into an equal record; None if there is none.

    Args:
        data: key or value of a record.
        source: the registry.
    """
    try:
        schema_id, payload = split(data)
        codec = codec_for(source.schema_by_id(schema_id), source)
        read = _exact_decoder(codec, source)
        for text in _texts(codec, read, payload):
            with suppress(InvalidEntryError):
                again = encoded(text, schema_id, source)
                if again == data or repr(read(again[HEADER:])) == repr(read(payload)):
                    return schema_id, text
    except (KafkaError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        # The form then has the bytes.
        pass
    return None


def _texts(codec: Codec, read: Callable[[bytes], Any], payload: bytes) -> Iterator[str]:
    """Return texts of a record, the shortest first."""
    if codec.schema.type == "JSON":
        yield payload.decode()
    elif codec.schema.type == "PROTOBUF":
        yield json_text(_message_dict(read(payload)), "  ")
    else:
        yield json_text(codec.decode(payload), "  ", bytes_text=_latin)
        yield json_text(_tags(read(payload)), "  ", bytes_text=_latin)


def _exact_decoder(codec: Codec, source: SchemaSource) -> Callable[[bytes], Any]:
    """Return a decoder that names the records in unions of Avro."""
    if codec.schema.type != "AVRO":
        return codec.decode
    from kafkalike.schemas.serde.avro_codec import AvroCodec

    return AvroCodec(codec.schema, source, return_record_name=True).decode


def example(schema_id: int, source: SchemaSource) -> str:
    """Return JSON of a value of a schema to begin with; empty for a JSON Schema without properties."""
    codec = codec_for(source.schema_by_id(schema_id), source)
    if codec.schema.type == "AVRO":
        return json_text(_example(_described(codec)), "  ", bytes_text=_latin)
    if codec.schema.type == "PROTOBUF":
        return json_text(_message_dict(_message(codec), defaults=True), "  ")
    properties = getattr(codec, "document", {})
    properties = properties.get("properties") if isinstance(properties, Mapping) else None
    if not isinstance(properties, Mapping):
        return ""
    empty = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}
    kinds = {name: one.get("type") if isinstance(one, Mapping) else None for name, one in properties.items()}
    return json_text({name: empty.get(kind) if isinstance(kind, str) else None for name, kind in kinds.items()}, "  ")


def _problem(error: SerializationError) -> FieldProblem:
    cause = error.__cause__
    place = getattr(cause, "json_path", None)
    if place is not None:
        return FieldProblem(
            path=place.removeprefix("$").removeprefix("."), message=str(getattr(cause, "message", error))
        )
    message, path = str(cause or error), ""
    while found := _PROTOBUF_FIELD.match(message):
        path, message = _below(path, found[1]), found[2]
    return FieldProblem(path=path, message=message.rstrip("."))


def _value(codec: Codec, value: Any, problems: list[FieldProblem]) -> Any:  # noqa: ANN401
    if codec.schema.type == "AVRO":
        return _AvroEntry(problems).value(_described(codec), value, "")
    return _without_repeats(value, "", problems)


def _described(codec: Codec) -> AvroType:
    found: AvroType = codec.described  # type: ignore[attr-defined] # an AvroCodec, which needs fastavro to import
    return found


def _without_repeats(value: Any, path: str, problems: list[FieldProblem]) -> Any:  # noqa: ANN401
    """Return JSON as Python's own types."""
    if isinstance(value, JsonObject):
        _check_names(value, path, problems)
        return {name: _without_repeats(part, _below(path, name), problems) for name, part in value}
    if isinstance(value, list):
        return [_without_repeats(part, f"{path}[{at}]", problems) for at, part in enumerate(value)]
    if isinstance(value, JsonNumber):
        whole = _whole(value)
        return float(value) if whole is None else whole
    return value


def _check_names(pairs: Iterable[tuple[str, Any]], path: str, problems: list[FieldProblem]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            problems.append(FieldProblem(path=_below(path, name), message="the name is repeated"))
        seen.add(name)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _whole(text: str) -> int | None:
    """Return a whole number; None for other texts, and for more digits than any type takes."""
    return int(text) if re.fullmatch(r"-?\d{1,400}", text) else None


class _AvroEntry:
    """Converts JSON to values of Avro types.

    Args:
        problems: the errors are appended.
    """

    def __init__(self, problems: list[FieldProblem]) -> None:
        self._problems = problems

    def value(self, of: AvroType, value: Any, path: str) -> Any:  # noqa: ANN401
        """Return a value for fastavro."""
        if of.kind == "union":
            return self._union(of, value, path)
        if of.kind == "record":
            return self._record(of, value, path)
        if of.items is not None:
            return self._items(of, of.items, value, path)
        return self._scalar(of, value, path)

    def _bad(self, path: str, wanted: str, value: Any) -> Any:  # noqa: ANN401 - None, which nobody encodes
        shown = json_text(value)
        shown = shown if len(shown) <= 60 else f"{shown[:60]}…"  # noqa: PLR2004 - one line
        self._problems.append(FieldProblem(path=path, message=f"{wanted} is needed, not {shown}"))
        return None

    def _record(self, of: AvroType, value: Any, path: str) -> Any:  # noqa: ANN401
        if not isinstance(value, JsonObject):
            return self._bad(path, f"an object of {of.name}", value)
        _check_names(value, path, self._problems)
        given, fields = dict(value), {field.name: field for field in of.fields}
        for name in (name for name in given if name not in fields):
            known = ", ".join(fields)
            self._problems.append(
                FieldProblem(path=_below(path, name), message=f"{of.name} has no such field; it has {known}")
            )
        made = {}
        for name, field in fields.items():
            if name in given:
                made[name] = self.value(field.type, given[name], _below(path, name))
            elif field.has_default:
                made[name] = _default(field.type, field.default)
            else:
                self._problems.append(
                    FieldProblem(path=_below(path, name), message=f"is missing: a {field.type.label} is needed")
                )
        return made

    def _items(self, of: AvroType, items: AvroType, value: Any, path: str) -> Any:  # noqa: ANN401
        if of.kind == "array":
            if not isinstance(value, list):
                return self._bad(path, "an array", value)
            return [self.value(items, one, f"{path}[{at}]") for at, one in enumerate(value)]
        if not isinstance(value, JsonObject):
            return self._bad(path, "an object", value)
        _check_names(value, path, self._problems)
        return {name: self.value(items, one, _below(path, name)) for name, one in value}

    def _union(self, of: AvroType, value: Any, path: str) -> Any:  # noqa: ANN401
        """Return the value of the first branch that fits, with its name where fastavro takes it."""
        tried: list[list[FieldProblem]] = []
        for branch in of.branches:
            other = _AvroEntry([])
            made = other.value(branch, value, path)
            if not other._problems:
                return _named(branch, made)
            tried.append(other._problems)
        if isinstance(value, JsonObject) and len(value) == 1:
            name, inner = value[0]
            for branch in of.branches:
                if name == (branch.name or branch.kind):
                    return _named(branch, self.value(branch, inner, path))
        # The errors inside of the only branch that could be meant; else the choice.
        records = [problems for branch, problems in zip(of.branches, tried, strict=True) if branch.kind == "record"]
        if isinstance(value, JsonObject) and len(records) == 1:
            self._problems += records[0]
        else:
            self._bad(path, " or ".join(branch.label for branch in of.branches), value)
        return None

    def _scalar(self, of: AvroType, value: Any, path: str) -> Any:  # noqa: ANN401, C901, PLR0911, PLR0912 - a case for each kind
        kind = of.kind
        if kind in {"int", "long"}:
            return self._number(of, value, path)
        if kind in {"float", "double"}:
            if not isinstance(value, JsonNumber):
                return self._bad(path, "a number", value)
            number = float(value)
            if math.isinf(number) and "Infinity" not in value:
                return self._bad(path, f"a number in the range of {kind}", value)
            return number
        if of.logical == "decimal" and kind in {"bytes", "fixed"}:
            return self._decimal(of, value, path)
        if kind in {"bytes", "fixed"}:
            try:
                data = value.encode("latin-1") if type(value) is str else None
            except UnicodeEncodeError:
                data = None
            if data is None:
                return self._bad(path, "text with a character from \\u0000 to \\u00ff for each byte", value)
            if kind == "fixed" and len(data) != of.size:
                return self._bad(path, f"a text of {of.size} bytes", value)
            return data
        if kind == "enum":
            return value if value in of.symbols else self._bad(path, f"one of {', '.join(of.symbols)}", value)
        if kind == "string" and type(value) is str:
            try:
                return UUID(value) if of.logical == "uuid" else value
            except ValueError:
                return self._bad(path, "a UUID", value)
        if kind == "boolean" and isinstance(value, bool):
            return value
        if kind == "null" and value is None:
            return None
        return self._bad(path, {"null": "null", "string": "a text", "boolean": "true or false"}[kind], value)

    def _number(self, of: AvroType, value: Any, path: str) -> Any:  # noqa: ANN401
        read = _LOGICAL.get(f"{of.kind}-{of.logical}")
        if read is not None and type(value) is str:
            try:
                found = read(value)
            except ValueError:
                return self._bad(path, f"a {of.logical} in ISO 8601 or a number", value)
            if (of.logical or "").startswith("timestamp") and found.tzinfo is None:
                return self._bad(path, "a time with its zone, such as 2026-01-31T12:00:00Z,", value)
            return found
        bits = 31 if of.kind == "int" else 63
        number = _whole(value) if isinstance(value, JsonNumber) else None
        if number is None:
            return self._bad(path, "a whole number", value)
        if not -(1 << bits) <= number < 1 << bits:
            return self._bad(path, f"a number from {-(1 << bits)} to {(1 << bits) - 1}", value)
        return number

    def _decimal(self, of: AvroType, value: Any, path: str) -> Any:  # noqa: ANN401
        precision, scale = of.attributes.get("precision", 0), of.attributes.get("scale", 0)
        try:
            number = Decimal(value) if isinstance(value, str) and len(value) < 1000 else None  # noqa: PLR2004
        except ArithmeticError:
            number = None
        if number is None or not number.is_finite():
            return self._bad(path, "a decimal", value)
        shifted = _EXACT.scaleb(number, scale) if abs(number.adjusted()) < 1000 else None  # noqa: PLR2004
        if shifted is None or shifted != shifted.to_integral_value() or shifted.adjusted() >= precision:
            return self._bad(path, f"a decimal of {precision} digits, of which {scale} are behind the point,", value)
        return number


def _named(branch: AvroType, value: Any) -> Any:  # noqa: ANN401
    """Name the branch of a union, so that fastavro does not choose another one."""
    return branch.name or branch.kind, value


def _default(of: AvroType, value: Any) -> Any:  # noqa: ANN401 - JSON in, a value for fastavro out
    from kafkalike.schemas.serde.avro_codec import default_value

    return default_value(of, value)


def _example(of: AvroType, above: frozenset[int] = frozenset()) -> Any:  # noqa: ANN401, PLR0911 - a return for each kind
    """Return the smallest value of a type."""
    if of.kind == "union":
        return _example(of.branches[0], above)
    if of.kind == "record":
        if id(of) in above:
            return None
        inner = above | {id(of)}
        return {field.name: field.default if field.has_default else _example(field.type, inner) for field in of.fields}
    if of.items is not None:
        return [] if of.kind == "array" else {}
    if of.kind == "enum":
        return of.symbols[0] if of.symbols else ""
    if of.kind == "fixed":
        return bytes(of.size)
    values = {"boolean": False, "int": 0, "long": 0, "float": 0.0, "double": 0.0, "string": ""}
    return Decimal(0) if of.logical == "decimal" else _LOGICAL_EXAMPLES.get(of.logical or "", values.get(of.kind, b""))


_LOGICAL_EXAMPLES: Final = {
    "uuid": "00000000-0000-0000-0000-000000000000",
    "date": "2026-01-31",
    "timestamp-millis": "2026-01-31T12:00:00Z",
    "timestamp-micros": "2026-01-31T12:00:00Z",
}


def _tags(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, tuple):
        name, inner = value
        return {name: _tags(inner)}
    if isinstance(value, dict):
        return {name: _tags(part) for name, part in value.items()}
    return [_tags(part) for part in value] if isinstance(value, list) else value


def _message(codec: Codec) -> Any:  # noqa: ANN401 - a message
    return codec.message_class()()  # type: ignore[attr-defined] # a ProtobufCodec, which needs protobuf to import


def _message_dict(message: Any, *, defaults: bool = False) -> Any:  # noqa: ANN401
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=defaults)


def _latin(data: bytes) -> str:
    return data.decode("latin-1")
