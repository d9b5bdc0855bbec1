"""Identity: when two schemas are the same one, and so have the same id.

White space in an Avro or JSON Schema does not matter, since no reader ever sees it: the text is kept as compact JSON.
That of an Avro schema is kept as `avro_text` has it, so that the order of its keys does not matter either, as in
Confluent's registry; the keys of a JSON Schema stay in the order in which they were written. The text of a Protobuf
schema counts as it is, but for white space around it.
"""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from dataclasses import replace
from typing import Any, NoReturn

from kafkalike.model.schemas.avro_text import AVRO_PRIMITIVES, canonical
from kafkalike.model.schemas.values import Schema


def compact(schema: Schema, *, ordered: bool = True) -> Schema:
    """The schema with its text in the one form that is kept.

    Args:
        schema: as somebody wrote it.
        ordered: whether the keys of an Avro schema are put in order; not those of a schema that already has an id
            elsewhere, where schemas that differ in the order alone may have two.

    Raises:
        ValueError, RecursionError: it cannot be UTF-8; an Avro or JSON Schema is not JSON, or is nested too deeply.
    """
    bare = schema.text.strip()
    if schema.type == "PROTOBUF":
        text = bare
    elif schema.type == "AVRO":
        value = bare if bare in AVRO_PRIMITIVES else parsed_json(bare)
        text = json_text(canonical(value) if ordered else value)
    else:
        text = json_text(parsed_json(bare))
    text.encode()  # half of a pair of surrogates cannot be stored
    return schema if text == schema.text else replace(schema, text=text)


def parsed_json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """What a text of strict JSON says.

    Raises:
        ValueError, RecursionError: it is none.
    """
    return json.loads(text, parse_constant=_no_constant, parse_float=_finite)


def json_text(value: object, *, sort_keys: bool = False) -> str:
    """A value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=sort_keys)


def fingerprint(schema: Schema) -> bytes:
    """What distinguishes a schema from all others: a SHA-256 of its type, text and references.

    Args:
        schema: with its text as `compact` makes it.
    """
    references = [[r.name, r.subject, r.version] for r in schema.references]
    # ASCII, so that a text that cannot be UTF-8 has a fingerprint too.
    said = json.dumps([schema.type, schema.text, references])
    return hashlib.sha256(said.encode()).digest()


def guid_of(mark: bytes) -> str:
    """The GUID of a schema: the same in every root, since it is made of the schema alone.

    Args:
        mark: its `fingerprint`.
    """
    return str(uuid.UUID(bytes=mark[:16], version=5))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number
