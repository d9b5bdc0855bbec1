"""JSONSerializer and JSONDeserializer, with the arguments and settings of Confluent's, and their codec.

The codec validates UTF-8 JSON against the schema and fetches nothing from the network. Validation time is bounded by
the size of the value, which `jsonschema` alone does not guarantee: RE2 matches patterns in linear time, references that
were followed are counted (two that lead to each other twice double on each level), and `uniqueItems` does not compare
all pairs.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import re2
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend, validator_for
from referencing.exceptions import Unresolvable

from kafkalike.errors import IllegalArgumentError, InvalidSchemaError, SerializationError
from kafkalike.errors.kafka_error import foreign_errors
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas import limits
from kafkalike.schemas.json_documents import JsonReferences, load_json_schema, valid_json_schema, without_dialect
from kafkalike.schemas.schema_source import NoRegistry, SchemaSource, value_of
from kafkalike.schemas.serde.codec import Codec, Decode, Encode
from kafkalike.schemas.serde.schema_deserializer import SchemaDeserializer
from kafkalike.schemas.serde.schema_serializer import SchemaSerializer
from kafkalike.schemas.serde.serde_settings import READING, WRITING, read_settings


class JSONSerializer(SchemaSerializer):
    """Writes values as JSON, preceded by the id of their JSON Schema.

    Args:
        schema_str: the schema as text, or a `Schema` of kafkalike or Confluent with its references; None if `conf`
            selects a registered schema.
        schema_registry_client: a `Registry`, a `RemoteRegistry`, or Confluent's client.
        to_dict: turns an object into a JSON value, `(object, ctx)`.
        conf: settings under Confluent's names, as for `AvroSerializer` without `validate.strict`, and `validate`
            (True): validate each value.
        json_encode: encodes a value; None for compact JSON without NaN.

    Raises:
        KafkaConfigurationError: a setting is unknown or invalid.
        InvalidSchemaError: the schema is invalid.
    """

    __slots__ = ("_json_encode", "_name", "_schema")

    def __init__(
        self,
        schema_str: Any,  # noqa: ANN401 - text or a schema
        schema_registry_client: Any,  # noqa: ANN401 - see `RegistryApi`
        to_dict: Callable[[Any, Any], Any] | None = None,
        conf: Mapping[str, Any] | None = None,
        *,
        json_encode: Callable[[Any], str | bytes] | None = None,
    ) -> None:
        super().__init__(schema_registry_client, read_settings(conf, (*WRITING, "validate")), to_dict)
        self._json_encode = json_encode
        self._schema = None if schema_str is None else _schema(schema_str)
        self._name = None if self._schema is None else JsonCodec(self._schema, self._source).name

    def record_name(self) -> str | None:
        """Return the title of the schema."""
        return self._name

    def own_schema(self, context: Any) -> Schema | None:  # noqa: ANN401
        """Return the schema given to the serializer, or None."""
        del context
        return self._schema

    def codec(self, schema: Schema) -> Codec:
        """Return a codec with the serializer's settings."""
        return JsonCodec(schema, self._source, validate=self.settings.validate, dumps=self._json_encode)

    def encoder(self, codec: Codec, prefix: bytes) -> Encode:
        """Return an encoder of records with a prefix."""
        return codec.encoder(prefix)


class JSONDeserializer(SchemaDeserializer):
    """Reads values of JSON Schemas.

    Args:
        schema_str: the schema to validate against; None for the schema of each record.
        from_dict: turns a value into an object, `(value, ctx)`.
        schema_registry_client: a `Registry`, a `RemoteRegistry`, or Confluent's client; optional if `schema_str` is
            given and has no references.
        conf: settings under Confluent's names, as for `AvroDeserializer`, and `validate` (True).
        json_decode: decodes a value from bytes; None for Python's `json`.

    Raises:
        KafkaConfigurationError: a setting is unknown or invalid.
        InvalidSchemaError: the schema is invalid.
    """

    __slots__ = ("_json_decode",)

    def __init__(
        self,
        schema_str: Any,  # noqa: ANN401 - text or a schema
        from_dict: Callable[[Any, Any], Any] | None = None,
        schema_registry_client: Any = None,  # noqa: ANN401 - see `RegistryApi`
        conf: Mapping[str, Any] | None = None,
        *,
        json_decode: Callable[[bytes], Any] | None = None,
    ) -> None:
        reader = None if schema_str is None else _schema(schema_str)
        if schema_registry_client is None and (reader is None or reader.references):
            raise IllegalArgumentError(
                "schema_registry_client is needed unless schema_str is a schema without references"
            )
        registry: Any = (
            NoRegistry(reader) if schema_registry_client is None and reader is not None else schema_registry_client
        )
        super().__init__(registry, read_settings(conf, (*READING, "validate")), reader, from_dict)
        self._json_decode = json_decode
        if reader is not None:
            self._codec(reader, None)

    def decoder(self, schema: Schema, reader: Schema | None, start: int) -> Decode:
        """Return a decoder of records written with a schema."""
        return self._codec(schema, reader).decoder(start)

    def record_name(self, schema: Schema) -> str | None:
        """Return the title of a schema."""
        return self._codec(schema, None).name

    def _codec(self, schema: Schema, reader: Schema | None) -> JsonCodec:
        return JsonCodec(schema, self._source, reader, validate=self.settings.validate, loads=self._json_decode)


def _schema(given: Any) -> Schema:  # noqa: ANN401
    if isinstance(given, str):
        return Schema("JSON", given)
    made = value_of(given)
    if made.type != "JSON":
        raise IllegalArgumentError(f"the schema is of type {made.type}, not JSON")
    return made


class JsonCodec(Codec):
    """Codec of the values of Python's `json`.

    Args:
        schema: the writer's schema.
        source: looks up the referenced schemas.
        reader: the schema that values are validated against when they are read; None for the writer's.
        validate: validate values.
        dumps: encodes a value as str or bytes; None for compact JSON without NaN.
        loads: decodes a value; None for Python's `json`.
    """

    def __init__(
        self,
        schema: Schema,
        source: SchemaSource,
        reader: Schema | None = None,
        *,
        validate: bool = True,
        dumps: Callable[[Any], str | bytes] | None = None,
        loads: Callable[[bytes], Any] | None = None,
    ) -> None:
        self.schema = schema
        self.document = load_json_schema(schema)
        self._check_written = _check(schema, source) if validate else None
        self._check_read = self._check_written
        if validate and reader is not None and reader != schema:
            self._check_read = _check(reader, source)
        self._dumps = dumps or _JSON.encode
        self._loads = loads or _loads

    @property
    def name(self) -> str | None:
        """Title of the schema, if any."""
        title = self.document.get("title") if isinstance(self.document, dict) else None
        return title if isinstance(title, str) else None

    def encoder(self, prefix: bytes) -> Encode:
        """Return an encoder of records; see `Codec`."""
        check, dumps = self._check_written, self._dumps

        def encode(value: Any) -> bytes:  # noqa: ANN401
            if check is not None:
                check(value)
            try:
                text = dumps(value)
                return prefix + (text if isinstance(text, bytes) else text.encode())
            except (TypeError, ValueError, OverflowError, RecursionError) as cause:
                raise SerializationError(f"the value cannot be written as JSON: {cause}") from cause

        return encode

    def decoder(self, start: int) -> Decode:
        """Return a decoder of records; see `Codec`."""
        check, loads = self._check_read, self._loads

        def decode(data: bytes) -> Any:  # noqa: ANN401
            try:
                value = loads(data[start:])
            except (TypeError, ValueError, RecursionError) as cause:
                raise SerializationError(f"the record is not valid JSON: {type(cause).__name__}: {cause}") from cause
            if check is not None:
                check(value)
            return value

        return decode


def _loads(data: bytes) -> Any:  # noqa: ANN401
    """Parse JSON in UTF-8 only. Python's own function guesses other encodings and accepts lone surrogates."""
    return json.loads(data.decode())


_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _check(schema: Schema, source: SchemaSource) -> Callable[[Any], None]:
    """Return a function that raises SerializationError for a value that does not match the schema."""
    document = load_json_schema(schema)
    used = {name: load_json_schema(other) for name, other in source.referenced(schema).items()}
    with valid_json_schema():
        try:
            validator, keywords = _validator(document, used)
        except SchemaError as cause:
            raise InvalidSchemaError(f"it is not a JSON Schema: {_short(cause.message)}") from cause

    def check(value: Any) -> None:  # noqa: ANN401
        keywords.begin()
        # A schema may contain patterns and numbers that Python cannot process.
        with foreign_errors(_inapplicable):
            try:
                validator.validate(value)
            except ValidationError as cause:
                place = cause.json_path
                raise SerializationError(
                    f"the value is not of the JSON Schema, at {place}: {_short(cause.message)}"
                ) from cause
            except Unresolvable as cause:
                raise SerializationError(f"the JSON Schema has a $ref that no reference resolves: {cause}") from cause

    return check


def _inapplicable(cause: Exception) -> SerializationError:
    return SerializationError(f"the JSON Schema cannot be applied: {type(cause).__name__}: {cause}")


def _validator(document: Any, used: Mapping[str, Any]) -> tuple[Any, Keywords]:  # noqa: ANN401 - jsonschema's class
    found = validator_for(document)
    found.check_schema(document)
    check_patterns([document, *used.values()])
    registry = JsonReferences(document, used).registry
    keywords = Keywords(found.VALIDATORS)
    return extend(found, keywords.changed)(without_dialect(document), registry=registry), keywords


def _short(text: str) -> str:
    return text if len(text) <= 500 else text[:497] + "..."  # noqa: PLR2004 - a value may be long


Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]
"""`(validator, keyword's value, instance, schema) -> errors`, as `jsonschema` calls it."""

_COUNTED: Final = ("$ref", "$dynamicRef", "$recursiveRef", "unevaluatedItems", "unevaluatedProperties")
_OF_SCHEMAS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES: Final = frozenset({"const", "default", "enum", "examples"})
_BY_NUMBER: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u([0-9A-Fa-f]{4})")
_QUANTIFIER: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|([*+{]|(?<!\()\?)", re.DOTALL)


class Keywords:
    """Replacements for keywords of `jsonschema`, for one document. Thread-safe.

    Args:
        known: the keywords of the document's dialect.
    """

    def __init__(self, known: Mapping[str, Keyword]) -> None:
        self._known = known
        self._steps = threading.local()
        own: dict[str, Keyword] = {
            "uniqueItems": unique_items,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": self._additional_properties,
        }
        self.changed: dict[str, Keyword] = {name: keyword for name, keyword in own.items() if name in known}
        self.changed |= {name: self._counted(known[name]) for name in _COUNTED if name in known}

    def begin(self) -> None:
        """Reset the counter before a value is validated."""
        self._steps.done = 0

    def _counted(self, keyword: Keyword) -> Keyword:
        def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:  # noqa: ANN401
            done = self._steps.done = getattr(self._steps, "done", 0) + 1
            if done > limits.MAX_REFERENCES_FOLLOWED:
                raise SerializationError(
                    f"the JSON Schema refers to others more than {limits.MAX_REFERENCES_FOLLOWED:,} times for one value"
                )
            return keyword(validator, value, instance, schema)

        return counted

    def _additional_properties(
        self,
        validator: Any,  # noqa: ANN401
        value: Any,  # noqa: ANN401
        instance: Any,  # noqa: ANN401
        schema: Any,  # noqa: ANN401
    ) -> Iterator[ValidationError] | None:
        patterns = schema.get("patternProperties")
        if patterns and validator.is_type(instance, "object"):
            instance = {name: item for name, item in instance.items() if not any(_found(p, name) for p in patterns)}
            schema = {name: part for name, part in schema.items() if name != "patternProperties"}
        return self._known["additionalProperties"](validator, value, instance, schema)


def check_patterns(document: Any) -> None:  # noqa: ANN401 - any JSON
    """Reject patterns that cannot be matched in bounded time.

    Raises:
        InvalidSchemaError: RE2 rejects a pattern, for example because of a lookaround or a backreference; or a pattern
            with several quantifiers is used with `unevaluatedProperties`, for which `jsonschema` uses Python's `re`.
    """
    patterns: set[str] = set()
    names: set[str] = set()
    looks_itself = False
    waiting: list[tuple[Any, bool]] = [(document, True)]
    while waiting:
        part, is_schema = waiting.pop()
        if isinstance(part, list):
            waiting += [(item, is_schema) for item in part]
        elif isinstance(part, dict):
            # `_OF_SCHEMAS` map any name to a schema; `_VALUES` contain plain values.
            waiting += [
                (item, key not in _OF_SCHEMAS) for key, item in part.items() if not is_schema or key not in _VALUES
            ]
            if is_schema:
                patterns |= {part["pattern"]} if isinstance(part.get("pattern"), str) else set()
                names |= set(part["patternProperties"]) if isinstance(part.get("patternProperties"), dict) else set()
                looks_itself |= "unevaluatedProperties" in part
    for pattern in sorted(patterns | names):
        _compiled(pattern)
    for pattern in sorted(names) if looks_itself else ():
        if sum(bool(found[1]) for found in _QUANTIFIER.finditer(pattern)) > 1:
            raise InvalidSchemaError(
                f"the pattern {pattern[:80]!r} has more than one quantifier, and stands with unevaluatedProperties"
            )


def _pattern(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401
    del schema
    if validator.is_type(instance, "string") and not _found(value, instance):
        yield ValidationError(f"{instance!r} does not match {value!r}")


def _pattern_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401
    del schema
    if validator.is_type(instance, "object"):
        for pattern, below in value.items():
            for name, item in instance.items():
                if _found(pattern, name):
                    yield from validator.descend(item, below, path=name, schema_path=pattern)


def _found(pattern: str, text: str) -> bool:
    return _compiled(pattern).search(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:  # noqa: ANN401 - RE2's
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(_BY_NUMBER.sub(r"\1\\x{\2}", pattern), options)
    except (re2.error, UnicodeError) as cause:
        said = cause.args[0] if cause.args else cause
        said = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise InvalidSchemaError(f"the pattern {pattern[:80]!r} cannot be matched in bounded time: {said}") from cause


def unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401
    """Yield an error if an array has duplicate items: the keyword `uniqueItems`, as `jsonschema` calls it."""
    del schema
    if wanted and validator.is_type(instance, "array") and len({_mark(item) for item in instance}) < len(instance):
        yield ValidationError("the items are not unique")


def _mark(value: Any) -> Hashable:  # noqa: ANN401 - any JSON
    """Return a value that is equal for equal items: 1 equals 1.0, but not true.

    Numbers become strings, because an attacker could choose numbers with equal hashes, for which a set compares all
    pairs.
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
