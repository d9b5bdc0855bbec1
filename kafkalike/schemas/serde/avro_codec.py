"""AvroCodec: values of an Avro schema as bytes and back, by fastavro.

fastavro encodes and decodes within limits that are checked first. It accepts a negative union index as Python does,
counting from the end, and fills a missing field with the default's plain JSON; this module corrects both.
"""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from io import BytesIO
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import LOGICAL_READERS, SchemaResolutionError

from kafkalike.errors import InvalidSchemaError, SerializationError
from kafkalike.errors.kafka_error import foreign_errors
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.avro_schema import AvroType, default_fits, parse_avro, to_json
from kafkalike.schemas.limits import MAX_DECIMAL_BYTES, MAX_VALUE_DEPTH, no_deeper_than_the_stack
from kafkalike.schemas.schema_source import SchemaSource
from kafkalike.schemas.serde.avro_limits import Walk, check_depth, shape_of
from kafkalike.schemas.serde.codec import Codec, Decode, Encode

AVRO_ERRORS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,
    SchemaResolutionError,
    TypeError,
    ValueError,
    struct.error,
)
"""Errors that fastavro raises for a value, or for bytes, that do not fit the schema."""


class AvroCodec(Codec):
    """Codec of fastavro's values: dicts, and Python's own types for logical types.

    Args:
        schema: the writer's schema.
        source: looks up the referenced schemas.
        reader: the reader's schema; None for the writer's.
        strict: require exactly the fields of the schema in a value.
        strict_allow_default: like `strict`, but fields with a default may be missing.
        return_record_name: read a record in a union as a pair of its name and its value.
    """

    def __init__(
        self,
        schema: Schema,
        source: SchemaSource,
        reader: Schema | None = None,
        *,
        strict: bool = False,
        strict_allow_default: bool = False,
        return_record_name: bool = False,
    ) -> None:
        self.schema = schema
        self.described, self._writer = _parsed(schema, source)
        self._wrote, self._reader, self._copies = for_reading(_parsed(schema, source)[1]), None, False
        if reader is not None and reader != schema:
            wanted, self._reader = _parsed(reader, source)
            # fastavro puts the same default object into each record, so changing one record would change the others.
            self._copies = with_defaults(self._reader, wanted)
        self._shape = shape_of(self.described)
        self._strict = strict
        self._strict_allow_default = strict_allow_default
        self._return_record_name = return_record_name

    @property
    def name(self) -> str | None:
        """Full name of a named type, the type of a primitive, None for a union."""
        return self.described.name or (None if self.described.kind == "union" else self.described.kind)

    def encoder(self, prefix: bytes) -> Encode:
        """Return an encoder of records; see `Codec`."""
        if self.described.kind == "bytes":
            return lambda value: prefix + _raw(value)
        writer = self._writer
        # Most serializers are not strict, and omitted arguments cost nothing.
        write: Callable[..., None] = schemaless_writer
        if self._strict or self._strict_allow_default:
            write = partial(write, strict=self._strict, strict_allow_default=self._strict_allow_default)

        def encode(value: Any) -> bytes:  # noqa: ANN401
            out = BytesIO()
            try:
                write(out, writer, value)
            except AVRO_ERRORS as cause:
                raise SerializationError(f"the value is not of the Avro schema: {_said(cause)}") from cause
            return prefix + out.getvalue()

        return self._checked_encoder(encode, len(prefix)) if self._shape.recursive else encode

    def _checked_encoder(self, encode: Encode, start: int) -> Encode:
        check = self._checker()

        def checked(value: Any) -> bytes:  # noqa: ANN401
            check_depth(value)
            done = encode(value)
            check(done, start)
            return done

        return checked

    def decoder(self, start: int) -> Decode:
        """Return a decoder of records; see `Codec`."""
        if self.described.kind == "bytes":
            return lambda data: data[start:]
        shape = self._shape
        harmless = not (shape.recursive or shape.empty_items or shape.decimals)
        if harmless and self._reader is None and not self._return_record_name:
            return PlainDecode(schemaless_reader, self._wrote, None, start)
        read: Callable[..., Any] = schemaless_reader
        if self._return_record_name:
            read = partial(read, return_record_name=True)
        decode = _Decode(read, self._wrote, self._reader, start)
        # Copy only if needed, because decoding a record takes just a few microseconds.
        read_one: Decode = (lambda data: deepcopy(decode(data))) if self._copies else decode
        if harmless:
            return read_one
        check = self._checker()

        def checked(data: bytes) -> Any:  # noqa: ANN401
            check(data, start)
            return read_one(data)

        return checked

    def _checker(self) -> Any:  # noqa: ANN401 - a function
        """Return a check of payloads, which skips payloads too short to exceed a limit.

        A level or a digit takes bytes of the payload, so short payloads cannot fail.
        """
        described, shape = self.described, self._shape
        harmless = -1 if shape.empty_items else sys.maxsize
        if shape.recursive:
            harmless = min(harmless, MAX_VALUE_DEPTH // shape.levels - 1)
        if shape.decimals:
            harmless = min(harmless, MAX_DECIMAL_BYTES)
        # A `Walk` has counters, so each thread has its own.
        walks = threading.local()

        def check(data: bytes, start: int) -> None:
            if len(data) - start > harmless:
                if not hasattr(walks, "own"):
                    walks.own = Walk(described)
                walks.own.check(data, start)

        return check


class _Decode:
    """Decodes records with fastavro; see `Codec`."""

    __slots__ = ("_read", "_reader", "_start", "wrote")

    def __init__(self, read: Callable[..., Any], wrote: Any, reader: Any, start: int) -> None:  # noqa: ANN401
        self._read = read
        self._reader = reader
        self._start = start
        self.wrote = wrote

    def __call__(self, data: bytes) -> Any:  # noqa: ANN401
        payload = BytesIO(data)
        payload.seek(self._start)
        try:
            value = self._read(payload, self.wrote, self._reader)
        except AVRO_ERRORS as cause:
            raise SerializationError(f"the record is not of its Avro schema: {_said(cause)}") from cause
        if payload.tell() != len(data):
            raise SerializationError(f"{len(data) - payload.tell()} bytes are left after the value")
        return value


class PlainDecode(_Decode):
    """A decoder that equals `schemaless_reader(payload, wrote, None)`: no reader's schema and no limit apply.

    A caller that reads many records may call fastavro directly, and this decoder for errors.
    """

    __slots__ = ()


def _parsed(schema: Schema, source: SchemaSource) -> tuple[AvroType, Any]:
    with no_deeper_than_the_stack():
        described = parse_avro(schema, source.referenced(schema), strict=False)
        shape_of(described)
        with foreign_errors(lambda cause: InvalidSchemaError(f"fastavro does not take the schema: {_said(cause)}")):
            return described, parse_schema(to_json(described, set()))


def _raw(value: Any) -> bytes:  # noqa: ANN401
    """Return the bytes of a schema that is only `bytes`, without a length, as all of Confluent's clients do."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    raise SerializationError(f"the value is not of the Avro schema: bytes are needed, not {type(value).__name__}")


def _said(cause: Exception) -> str:
    text = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
    return text if len(text) <= 500 else text[:497] + "..."  # noqa: PLR2004 - a value may be long


_NAMED: Final = "__named_schemas"
"""Key of the named types in a schema parsed by fastavro, which traverses them for each record."""


def for_reading(parsed: Any) -> Any:  # noqa: ANN401 - a schema as fastavro has it
    """Modify a parsed schema so that fastavro reads by Avro's rules in as few steps as possible; return it."""
    parsed = guarded(parsed)
    if isinstance(parsed, dict) and _NAMED in parsed:
        used = set(_names({key: part for key, part in parsed.items() if key != _NAMED}))
        parsed[_NAMED] = {name: of for name, of in parsed[_NAMED].items() if name in used}
    return parsed


def _names(parsed: Any) -> Iterator[str]:  # noqa: ANN401 - a schema as fastavro has it
    """Yield the names of types in a parsed schema, including primitives."""
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
    """Modify a parsed schema so that negative union indexes are rejected; return it."""
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
    """Return a list that rejects negative indexes.

    C code adds the length to a negative index before it calls `__getitem__`, so the length must be 0. Both methods are
    C functions, because Python functions would cost more than the rest of a union.
    """
    methods = {"__slots__": (), "__getitem__": dict(enumerate(branches)).__getitem__, "__len__": ().__len__}
    made: list[Any] = type("Branches", (list,), methods)(branches)
    return made


def with_defaults(parsed: Any, described: AvroType) -> bool:  # noqa: ANN401 - a schema as fastavro has it
    """Replace the defaults of a parsed schema by values.

    Args:
        parsed: the parsed schema, which is modified.
        described: the same schema as a type.

    Returns:
        True if a default is a list or a dict, which records would share.
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
    """Return the value that fastavro would read from a record with the value of a default.

    Args:
        of: the field's type.
        value: the default as JSON. A default that does not fit, which older registries accepted, is returned unchanged.
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
