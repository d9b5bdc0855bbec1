"""Avro pairs: hypothesis's schemas, each with values of its own."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from typing import Any

from hypothesis import strategies as st

_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
_UTC = dt.UTC
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
Pair = tuple[Any, st.SearchStrategy[Any]]


def _decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda unscaled: decimal.Decimal(unscaled).scaleb(-scale))


def _stamps(*, millis: bool) -> st.SearchStrategy[dt.datetime]:
    first, last = (dt.datetime(year, 1, 1) for year in (1900, 2200))  # noqa: DTZ001 - as hypothesis wants them
    made = st.datetimes(first, last, timezones=st.just(_UTC))
    return made.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)) if millis else made


def _logical(kind: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


LEAVES: list[Pair] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    ("long", st.integers(-(1 << 63), (1 << 63) - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=12)),
    ("string", _TEXT),
    (_logical("int", "date"), st.dates()),
    (_logical("int", "time-millis"), st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))),
    (_logical("long", "time-micros"), st.times()),
    (_logical("long", "timestamp-millis"), _stamps(millis=True)),
    (_logical("long", "timestamp-micros"), _stamps(millis=False)),
    (_logical("long", "local-timestamp-micros"), _stamps(millis=False).map(lambda t: t.replace(tzinfo=None))),
    (_logical("string", "uuid"), st.uuids()),
    (_logical("bytes", "decimal", precision=9, scale=2), _decimals(9, 2)),
    (_logical("bytes", "decimal", precision=30, scale=0), _decimals(30, 0)),
]


class _Names:
    """Names that are used once in a schema."""

    def __init__(self) -> None:
        self.used = 0

    def __call__(self) -> str:
        self.used += 1
        return f"T{self.used}"


@st.composite
def _named(draw: st.DrawFn, names: _Names) -> Pair:
    name = names()
    kind = draw(st.sampled_from(["enum", "fixed", "duration", "fixed decimal", "fixed uuid"]))
    if kind == "enum":
        symbols = draw(st.lists(_NAMES, min_size=1, max_size=4, unique=True))
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.integers(0, 6))
        return {"type": "fixed", "name": name, "size": size}, st.binary(min_size=size, max_size=size)
    if kind == "duration":
        return _logical("fixed", "duration", name=name, size=12), st.binary(min_size=12, max_size=12)
    if kind == "fixed uuid":
        return {"type": "fixed", "name": name, "size": 16}, st.uuids().map(lambda u: uuid.UUID(int=u.int).bytes)
    return _logical("fixed", "decimal", name=name, size=8, precision=12, scale=4), _decimals(12, 4)


@st.composite
def pairs(draw: st.DrawFn, names: _Names | None = None, depth: int = 3, known: tuple[Pair, ...] = ()) -> Pair:  # noqa: PLR0911 - one for each kind
    """A schema, and a strategy of its values.

    Args:
        draw: hypothesis's.
        names: names of types.
        depth: how many types may stand in each other.
        known: named types that were defined before, which may be used again by their names.
    """
    names = names or _Names()
    kinds = ["leaf", "leaf", "named"]
    if known:
        kinds.append("known")
    if depth:
        kinds += ["array", "map", "union", "record", "record", "recursive"]
    kind = draw(st.sampled_from(kinds))
    if kind == "leaf":
        return draw(st.sampled_from(LEAVES))
    if kind == "known":
        return draw(st.sampled_from(known))
    if kind == "named":
        return draw(_named(names))
    if kind in {"array", "map"}:
        schema, values = draw(pairs(names, depth - 1, known))
        if kind == "array":
            return {"type": "array", "items": schema}, st.lists(values, max_size=3)
        return {"type": "map", "values": schema}, st.dictionaries(_TEXT, values, max_size=3)
    if kind == "union":
        return draw(_unions(names, depth, known))
    return draw(_records(names, depth, known, recursive=kind == "recursive"))


@st.composite
def _unions(draw: st.DrawFn, names: _Names, depth: int, known: tuple[Pair, ...]) -> Pair:
    schema, values = draw(pairs(names, depth - 1, known))
    if schema == "null" or isinstance(schema, list):
        schema, values = "string", _TEXT
    branches: list[Any] = draw(st.permutations(["null", schema]))
    return branches, st.none() | values


@st.composite
def _records(draw: st.DrawFn, names: _Names, depth: int, known: tuple[Pair, ...], *, recursive: bool) -> Pair:
    name = names()
    namespace = draw(st.sampled_from([None, "n", "n.m"]))
    full = name if namespace is None else f"{namespace}.{name}"
    fields: list[dict[str, Any]] = []
    values: dict[str, st.SearchStrategy[Any]] = {}
    for number in range(draw(st.integers(0, 3))):
        # Inside another namespace a name would mean another type.
        schema, of = draw(pairs(names, depth - 1, known if namespace is None else ()))
        fields.append({"name": f"f{number}", "type": schema})
        values[f"f{number}"] = of
        if isinstance(schema, dict) and schema.get("type") in {"enum", "fixed"} and "namespace" not in schema:
            known = (*known, (schema["name"], of)) if namespace is None else known
    made: st.SearchStrategy[Any] = st.fixed_dictionaries(values)
    if recursive:
        fields.append({"name": "next", "type": ["null", full]})
        made = st.recursive(
            made.map(lambda value: {**value, "next": None}),
            lambda inner: st.tuples(made, inner).map(lambda both: {**both[0], "next": both[1]}),
            max_leaves=3,
        )
    schema = {"type": "record", "name": name, "fields": fields}
    return (schema if namespace is None else {**schema, "namespace": namespace}), made


@st.composite
def schemas_with_values(draw: st.DrawFn) -> tuple[Any, Any]:
    """A schema, as JSON, and one of its values."""
    schema, values = draw(pairs())
    return schema, draw(values)
