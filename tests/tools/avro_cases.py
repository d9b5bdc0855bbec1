"""Avro cases: random schemas and values, each value both as fastavro takes it and as Arrow shows it."""

from __future__ import annotations

import io
import json
import struct
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fastavro import parse_schema, schemaless_writer

LEAVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL: tuple[dict[str, Any], ...] = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
    {"type": "bytes", "logicalType": "decimal", "precision": 50},
)
TEXTS = ("", "a", "é", "日本", "x" * 13, "y" * 70)
FLOATS = (0.0, -1.5, 3.25, 1e30, float("inf"))


def framed(number: int, payload: bytes) -> bytes:
    """A value as it stands in a record."""
    return b"\0" + struct.pack(">I", number) + payload


def avro(schema: Any, value: Any, number: int = 1) -> bytes:
    """A value written by fastavro."""
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), value)
    return framed(number, out.getvalue())


@dataclass
class Cases:
    """A random schema of a record, and values of it."""

    random: Random
    names: int = 0
    records: list[str] = field(default_factory=list)

    def record(self, depth: int = 3) -> dict[str, Any]:
        """A schema."""
        self.names += 1
        name = f"R{self.names}"
        made: dict[str, Any] = {"type": "record", "name": name, "namespace": "n.s", "fields": []}
        made["fields"] = [
            {"name": f"f{nth}", "type": self.type(depth - 1)} for nth in range(self.random.randrange(1, 6))
        ]
        return made

    def type(self, depth: int) -> Any:
        """A schema of anything."""
        r = self.random
        if depth <= 0 or r.random() < 0.4:
            return self.leaf()
        kind = r.choice(["array", "map", "nullable", "union", "record"])
        if kind == "array":
            return {"type": "array", "items": self.type(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self.type(depth - 1)}
        if kind == "nullable":
            inner = self.leaf() if r.random() < 0.7 else self.record(depth - 1)
            inner = "string" if inner == "null" else inner
            return ["null", inner] if r.random() < 0.7 else [inner, "null"]
        if kind == "union":
            branches: list[Any] = r.sample(["null", "boolean", r.choice(["int", "long", "double"]), "string"], 3)
            branches.append(self.record(depth - 1))
            r.shuffle(branches)
            return branches
        return self.record(depth - 1)

    def leaf(self) -> Any:
        """A schema without others in it."""
        r = self.random
        kind = r.randrange(4)
        if kind < 2:
            return r.choice(LEAVES)
        if kind == 2:
            return dict(r.choice(LOGICAL))
        self.names += 1
        if r.random() < 0.5:
            return {"type": "enum", "name": f"E{self.names}", "symbols": ["A", "BB", "C"]}
        if r.random() < 0.5:
            return {"type": "fixed", "name": f"D{self.names}", "size": 12, "logicalType": "duration"}
        return {"type": "fixed", "name": f"F{self.names}", "size": r.choice([0, 3])}

    def value(self, schema: Any) -> tuple[Any, Any]:
        """A value: as fastavro writes it, and as Arrow has it (times as numbers)."""
        r = self.random
        if isinstance(schema, list):
            return self._of_union(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "record":
            pairs = {f["name"]: self.value(f["type"]) for f in schema["fields"]}
            return {n: p[0] for n, p in pairs.items()}, {n: p[1] for n, p in pairs.items()}
        if kind == "array":
            items = [self.value(schema["items"]) for _ in range(r.randrange(4))]
            return [i[0] for i in items], [i[1] for i in items]
        if kind == "map":
            entries = {r.choice(TEXTS): self.value(schema["values"]) for _ in range(r.randrange(3))}
            return {k: v[0] for k, v in entries.items()}, [(k, v[1]) for k, v in entries.items()]
        return self._of_leaf(kind, schema if isinstance(schema, dict) else {})

    def _of_union(self, union: list[Any]) -> tuple[Any, Any]:
        number = self.random.randrange(len(union))
        written, shown = self.value(union[number])
        branch = union[number]
        if branch == "null":
            return None, None
        if isinstance(branch, dict) and branch["type"] == "record":
            written = (f"{branch['namespace']}.{branch['name']}", written)
        others = [b for b in union if b != "null"]
        return written, shown if len(others) == 1 else {f"member{others.index(branch)}": shown}

    def _of_leaf(self, kind: str, schema: dict[str, Any]) -> tuple[Any, Any]:  # noqa: C901, PLR0911
        r = self.random
        logical = schema.get("logicalType", "")
        if kind in {"int", "long"}:
            bits = 31 if kind == "int" else 40
            low = 0 if logical.startswith("time-") else -(1 << bits)
            number = r.choice([0, r.randrange(low, 1 << bits), r.randrange(low // (1 << 20), 64)])
            if logical.startswith("time-"):
                number %= 86_400_000
            if logical == "date":
                number %= 100_000
            return number, number * (1000 if logical.endswith("-millis") else 1)
        if kind in {"float", "double"}:
            number = struct.unpack("<f", struct.pack("<f", min(r.choice(FLOATS), 3e38)))[0]
            return number, number
        if logical == "uuid":
            text = f"{r.getrandbits(128):032x}"
            text = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
            return text, text
        if logical == "decimal" and schema["precision"] == 20:
            from decimal import Decimal

            unscaled = r.choice([0, -1, 127, 128, -128, -129, r.randrange(-(10**20) + 1, 10**20)])
            plain = unscaled.to_bytes(r.choice([9, 10, 17, 20]), "big", signed=True)
            return plain, Decimal(unscaled).scaleb(-3)
        if kind == "string":
            text = r.choice(TEXTS)
            return text, text
        if kind == "bytes":
            plain = r.randbytes(r.randrange(6))
            return plain, plain
        if kind == "enum":
            symbol = r.choice(schema["symbols"])
            return symbol, symbol
        if kind == "boolean":
            truth = r.random() < 0.5
            return truth, truth
        if kind == "fixed":
            plain = r.randbytes(schema["size"])
            if logical == "duration":
                months, days, milliseconds = struct.unpack("<III", plain)
                return plain, {"months": months, "days": days, "milliseconds": milliseconds}
            return plain, plain
        return None, None


def text_of(schema: Any) -> str:
    """A schema as JSON."""
    return json.dumps(schema)
