"""Fuzzed records and schemas, in a process of little memory: each is read, or refused by name.

Run as `python -m tests.tools.schema_fuzz FIRST_SEED SEEDS`; prints how many were read and refused, and the memory.
"""

from __future__ import annotations

import json
import random
import resource
import sys
from collections import Counter
from typing import Any

from kafkalike.errors import InvalidSchemaError, SchemaRegistryError, SerializationError
from kafkalike.model.schemas.schema import Schema, SchemaType
from kafkalike.schemas.compatibility import avro_compatibility as avro
from kafkalike.schemas.compatibility import json_compatibility as json_schema
from kafkalike.schemas.compatibility import protobuf_compatibility as protobuf
from kafkalike.schemas.format_checks import CHECKS
from kafkalike.schemas.serde.codec import codec_for
from tests.tools.schemas import SchemasInMemory

MEMORY = 700 << 20
"""Bytes of address space; importing everything takes about half of it."""
SECONDS = 150
"""Of the processor, for the whole run."""

_NODE = {
    "type": "record",
    "name": "N",
    "fields": [{"name": "v", "type": "long"}, {"name": "next", "type": ["null", "N"]}],
}
_WIDE = {
    "type": "record",
    "name": "W",
    "fields": [
        {"name": "s", "type": "string", "default": "x" * 20},
        {"name": "b", "type": ["null", "bytes"], "default": None},
        {"name": "l", "type": {"type": "array", "items": "null"}},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 4}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "n", "type": _NODE},
    ],
}
_JSON: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "a": {"type": "integer", "minimum": 0, "multipleOf": 2},
        "b": {"type": "array", "items": {"$ref": "#/definitions/n"}, "uniqueItems": True},
        "c": {"oneOf": [{"type": "string", "pattern": "^a*$"}, {"enum": [1, None]}]},
    },
    "required": ["a"],
    "definitions": {"n": {"type": "object", "properties": {"n": {"$ref": "#/definitions/n"}}}},
}
_PROTO = """syntax = "proto3"; package p; import "google/protobuf/struct.proto";
message A { string s = 1; repeated int32 r = 2; map<string, A> m = 3; oneof o { A a = 4; bytes b = 5; } E e = 6;
  google.protobuf.Struct x = 7; message B { repeated A as = 1 [deprecated = true]; } reserved 9 to 12; }
enum E { X = 0; Y = -1; }
"""
SCHEMAS = [
    Schema("AVRO", json.dumps(_WIDE)),
    Schema("AVRO", json.dumps(_NODE)),
    Schema("AVRO", json.dumps({"type": "array", "items": {"type": "record", "name": "Z", "fields": []}})),
    Schema("JSON", json.dumps(_JSON)),
    Schema("PROTOBUF", _PROTO),
]
PAYLOADS = {
    "AVRO": [
        b"\x02x\x00\x04\x00\x02\x02k\x02\x08\x00\x00\x02abcd\x04\x01\x02\x80\x01\x06\x02\x08\x00",
        b"\x02\x02\x04\x02\x06\x00",
        b"\x06\x00",
    ],
    "JSON": [b'{"a": 4, "b": [{"n": {"n": {}}}], "c": "aaa"}', b'{"a": 2}', b"[]"],
    "PROTOBUF": [
        b"\x00\x0a\x01x\x12\x03\x01\x02\x03\x1a\x06\x0a\x01k\x12\x01\x00",
        b"\x04\x00\x00\x0a\x02\x0a\x00",
        b"\x00",
    ],
}
_HOSTILE = [
    b"\xff" * 9 + b"\x01",
    b"\x80" * 9 + b"\x01",
    b"\xfe\xff\xff\xff\x0f",
    b"\x02" * 5_000,
    b"\x00" * 50,
    b"[" * 3_000,
    b'{"a":' * 3_000,
    b"1" * 6_000,
    b"1e999999",
    b"\x12\xff\xff\xff\xff\x0f",
    b"\x0a" * 400,
]
_WORDS: list[Any] = [
    None,
    True,
    -1,
    1 << 70,
    1e308,
    "",
    "int",
    "N",
    "record",
    "array",
    "null",
    [],
    {},
    ["null", "null"],
    "x" * 5_000,
    {"$ref": "#"},
    {"$ref": "#/definitions/n/properties/n"},
    {"type": "array", "items": "null"},
    "(a+)+$",
    "[",
]


def mutated_bytes(dice: random.Random, data: bytes) -> bytes:
    """Bytes with a few faults."""
    made = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        place = dice.randint(0, len(made))
        kind = dice.randint(0, 4)
        if kind == 0:
            del made[place:]
        elif kind == 1:
            made[place:place] = dice.choice(_HOSTILE)
        elif kind == 2 and place < len(made):
            made[place] ^= 1 << dice.randint(0, 7)
        elif kind == 3:
            made[place:place] = made[dice.randint(0, place) : place]
        else:
            made[place:place] = dice.randbytes(dice.randint(1, 9))
    return bytes(made)


def mutated_json(dice: random.Random, value: Any) -> Any:
    """A value with a part that is another one."""
    if dice.random() < 0.15 or not isinstance(value, dict | list) or not value:
        made = dice.choice(_WORDS)
        return json.loads(json.dumps(value)) if dice.random() < 0.2 else made
    if isinstance(value, list):
        place = dice.randrange(len(value))
        changed = mutated_json(dice, value[place])
        return [*value[:place], changed, *value[place + dice.randint(0, 1) :]]
    key = dice.choice(sorted(value))
    if dice.random() < 0.1:
        return {name: part for name, part in value.items() if name != key}
    return {**value, key: mutated_json(dice, value[key])}


def mutated_schema(dice: random.Random, schema: Schema) -> Schema:
    """A schema with a few faults."""
    if schema.type != "PROTOBUF" and dice.random() < 0.8:
        value = json.loads(schema.text)
        for _ in range(dice.randint(1, 3)):
            value = mutated_json(dice, value)
        return Schema(schema.type, json.dumps(value))
    text = mutated_bytes(dice, schema.text.encode()).decode("latin-1")
    words = [w for w in schema.text.split() if w]
    for _ in range(dice.randint(0, 3)):
        place = dice.randint(0, len(text))
        text = text[:place] + dice.choice([*words, "{" * 250, "message M {", '"' * 3, "/*", "map<"]) + text[place:]
    return Schema(schema.type, text)


def trial(seed: int, outcomes: Counter[str]) -> None:
    """One record and one schema."""
    dice, source = random.Random(seed), SchemasInMemory()
    schema = dice.choice(SCHEMAS)
    payload = mutated_bytes(dice, dice.choice(PAYLOADS[schema.type]))
    outcomes[attempt(schema, payload, source)] += 1
    other = mutated_schema(dice, schema)
    outcomes[attempt(other, payload, source)] += 1
    outcomes[registered(other, source)] += 1
    compare: dict[SchemaType, Any] = {"AVRO": avro, "JSON": json_schema, "PROTOBUF": protobuf}
    for new, old in ((other, schema), (schema, other), (other, other)):
        try:
            found = compare[schema.type].problems(new, old, source.referenced)
        except InvalidSchemaError:
            outcomes["not compared"] += 1
        else:
            outcomes["compatible" if not found else "incompatible"] += 1


def attempt(schema: Schema, payload: bytes, source: SchemasInMemory) -> str:
    """Read a record; what comes of it."""
    try:
        codec = codec_for(schema, source)
    except InvalidSchemaError:
        return "no schema"
    try:
        value = codec.decode(payload)
    except SerializationError:
        return "refused"
    try:
        codec.encode(value)
    except SerializationError:
        return "read, and not written"
    return "read"


def registered(schema: Schema, source: SchemasInMemory) -> str:
    """What a registry says to a schema that is new."""
    try:
        CHECKS.check(schema, source.referenced)
    except (SchemaRegistryError, ValueError, RecursionError):
        return "not registered"
    return "registered"


def main(first: int, count: int) -> None:
    """Try seeds; the limits are the process's."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS * max(1, count // 2_000), SECONDS * max(1, count // 2_000)))
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + count):
        trial(seed, outcomes)
    outcomes["MiB at most"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
