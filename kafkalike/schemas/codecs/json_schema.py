"""JSON Schema's codec: JSON in UTF-8, checked by the schema. Nothing is fetched from the network."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend, validator_for
from referencing.exceptions import Unresolvable

from kafkalike.errors import InvalidSchemaError, SerializationError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.codec import Codec, Decode, Encode
from kafkalike.schemas.codecs.json_keywords import Keywords, check_patterns
from kafkalike.schemas.compatibility.json_places import load_json_schema
from kafkalike.schemas.json_references import JsonReferences, without_dialect
from kafkalike.schemas.source import SchemaSource


class JsonCodec(Codec):
    """Values are what Python's `json` reads.

    Args:
        schema: the writer's.
        source: knows what the schemas refer to.
        reader: the schema that values are checked by when they are read; None for the writer's.
        validate: whether they are checked.
        dumps: writes a value as text or bytes; None for compact JSON, in which NaN is refused.
        loads: reads it; None for Python's.
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
        """The schema's title."""
        title = self.document.get("title") if isinstance(self.document, dict) else None
        return title if isinstance(title, str) else None

    def encoder(self, prefix: bytes) -> Encode:
        """A function that writes records; see `Codec`."""
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
        """A function that reads records; see `Codec`."""
        check, loads = self._check_read, self._loads

        def decode(data: bytes) -> Any:  # noqa: ANN401
            try:
                value = loads(data[start:])
            except (TypeError, ValueError, RecursionError) as cause:
                raise SerializationError(f"the record is no JSON: {type(cause).__name__}: {cause}") from cause
            if check is not None:
                check(value)
            return value

        return decode


def _loads(data: bytes) -> Any:  # noqa: ANN401
    """JSON in UTF-8 and nothing else; Python's own function guesses other encodings and takes halves of characters."""
    return json.loads(data.decode())


_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _check(schema: Schema, source: SchemaSource) -> Callable[[Any], None]:
    """A function that raises SerializationError for a value that is not of the schema."""
    document = load_json_schema(schema)
    used = {name: load_json_schema(other) for name, other in source.referenced(schema).items()}
    try:
        validator, keywords = _validator(document, used)
    except InvalidSchemaError:
        raise
    except SchemaError as cause:
        raise InvalidSchemaError(f"it is no JSON Schema: {_short(cause.message)}") from cause
    except Exception as cause:
        # The libraries take texts for granted that are none, such as an `$id` that is a number.
        raise InvalidSchemaError(f"it is no JSON Schema: {type(cause).__name__}: {cause}") from cause

    def check(value: Any) -> None:  # noqa: ANN401
        keywords.begin()
        try:
            validator.validate(value)
        except ValidationError as cause:
            place = cause.json_path
            raise SerializationError(
                f"the value is not of the JSON Schema, at {place}: {_short(cause.message)}"
            ) from cause
        except SerializationError:
            raise
        except Unresolvable as cause:
            raise SerializationError(f"the JSON Schema refers to what it has no reference for: {cause}") from cause
        except Exception as cause:
            # A schema may hold patterns and numbers that Python cannot work with.
            raise SerializationError(f"the JSON Schema cannot be applied: {type(cause).__name__}: {cause}") from cause

    return check


def _validator(document: Any, used: Mapping[str, Any]) -> tuple[Any, Keywords]:  # noqa: ANN401 - jsonschema's class
    found = validator_for(document)
    found.check_schema(document)
    check_patterns([document, *used.values()])
    registry = JsonReferences(document, used).registry
    keywords = Keywords(found.VALIDATORS)
    return extend(found, keywords.changed)(without_dialect(document), registry=registry), keywords


def _short(text: str) -> str:
    return text if len(text) <= 500 else text[:497] + "..."  # noqa: PLR2004 - a value may be long
