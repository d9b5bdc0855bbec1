"""Random messages of Kafka's protocol, by the schemas of kio, and damaged ones."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

LIKELY = 0.7

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "error_code": (-1, 100),
    "timedelta_i32": (0, 2**31 - 1),
    "timedelta_i64": (0, 2**40),
    "datetime_i64": (0, 2**41),
}


def some_value(chance: random.Random, kind: str, likely: Mapping[str, Sequence[Any]]) -> Any:
    """Return a value of a type of Kafka's protocol, more often than not one of the likely ones."""
    if kind in likely and chance.random() < LIKELY:
        return chance.choice(likely[kind])
    if kind in RANGES:
        return chance.choice([*RANGES[kind], chance.randint(*RANGES[kind])])
    if kind == "string":
        return "".join(chance.choice("aé中-") for _ in range(chance.choice([0, 3, 200])))
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "uuid":
        return uuid.UUID(int=chance.getrandbits(128) | 1)
    return chance.randbytes(chance.choice([0, 1, 300]))


def some_message(
    chance: random.Random, schema: Any, likely: Mapping[str, Sequence[Any]] = MappingProxyType({})
) -> dict[str, Any]:
    """Return values for all fields of a class of kio.

    Args:
        chance: chooses them.
        schema: the class.
        likely: values by type that occur more often than others.
    """
    values: dict[str, Any] = {}
    for field in fields(schema):
        if get_field_tag(field) is not None and chance.random() < 0.5:
            continue
        kind = classify_field(field)
        tagged = get_field_tag(field) is not None  # kio reads no null there
        if is_optional(field) and not tagged and chance.random() < 0.3:
            values[field.name] = -1 if field.metadata.get("kafka_type") == "datetime_i64" else None
        elif isinstance(kind, EntityField):
            values[field.name] = some_message(chance, kind.type_, likely)
        elif isinstance(kind, EntityTupleField):
            values[field.name] = [some_message(chance, kind.type_, likely) for _ in range(chance.choice([0, 1, 3]))]
        else:
            name = get_schema_field_type(field)
            values[field.name] = (
                some_value(chance, name, likely)
                if isinstance(kind, PrimitiveField)
                else [some_value(chance, name, likely) for _ in range(chance.choice([0, 1, 3]))]
            )
    return values


def damaged(chance: random.Random, good: bytes) -> bytes:
    """Return random bytes, or a message with some bytes replaced, cut off or added."""
    if chance.random() < 0.3:
        return chance.randbytes(chance.choice([1, 5, 40]))
    body = bytearray(good)
    for _ in range(chance.choice([1, 2, 8])):
        at = chance.randrange(len(body) + 1)
        how = chance.random()
        if how < 0.5 and at < len(body):
            body[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        elif how < 0.75:
            del body[at:]
        else:
            body[at:at] = chance.randbytes(3)
    return bytes(body)
