"""JSON pairs: hypothesis's JSON Schemas of several drafts, each with values of its own."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

DRAFTS = [
    None,
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ({}, st.none() | st.booleans() | st.integers() | _TEXT),
    ({"type": "null"}, st.none()),
    ({"type": "boolean"}, st.booleans()),
    ({"type": "integer"}, st.integers(-(1 << 70), 1 << 70)),
    ({"type": "integer", "minimum": 3, "maximum": 9}, st.integers(3, 9)),
    ({"type": "number"}, st.floats(allow_nan=False, allow_infinity=False) | st.integers()),
    ({"type": "number", "multipleOf": 2}, st.integers().map(lambda n: 2 * n)),
    ({"type": "string"}, _TEXT),
    ({"type": "string", "maxLength": 3}, st.text("aé€😀", max_size=3)),
    ({"type": "string", "pattern": "^a+$"}, st.from_regex("a{1,5}", fullmatch=True)),
    ({"type": "string", "format": "date-time"}, st.just("2020-01-01T00:00:00Z")),
    ({"enum": ["x", 1, None]}, st.sampled_from(["x", 1, None])),
    ({"type": ["string", "null"]}, _TEXT | st.none()),
]


@st.composite
def _pairs(draw: st.DrawFn, depth: int = 3) -> tuple[Any, st.SearchStrategy[Any]]:
    kinds = ["leaf", *(["array", "object", "object", "anyOf", "oneOf", "allOf", "ref"] if depth else [])]
    kind = draw(st.sampled_from(kinds))
    if kind == "leaf":
        leaf: tuple[Any, st.SearchStrategy[Any]] = draw(st.sampled_from(_LEAVES))
        return leaf
    schema, values = draw(_pairs(depth - 1))
    if kind == "array":
        return {"type": "array", "items": schema, "maxItems": 3}, st.lists(values, max_size=3)
    if kind in {"anyOf", "allOf"}:
        return {kind: [schema]}, values
    if kind == "oneOf":
        # A second branch that nothing fits.
        return {"oneOf": [schema, {"allOf": [{"type": "string"}, {"type": "integer"}]}]}, values
    if kind == "ref":
        return {"$ref": "#/definitions/node"}, st.recursive(
            st.just({"v": 1}), lambda inner: inner.map(lambda node: {"v": 2, "next": node}), max_leaves=3
        )
    properties = {"a": schema, "b": {"type": "string"}}
    required = draw(st.sampled_from([[], ["a"], ["a", "b"]]))
    made = {"type": "object", "properties": properties, "additionalProperties": draw(st.booleans())}
    if required:
        made["required"] = required
    optional = {name: of for name, of in (("a", values), ("b", _TEXT)) if name not in required}
    needed = {name: of for name, of in (("a", values), ("b", _TEXT)) if name in required}
    return made, st.fixed_dictionaries(needed, optional=optional)


@st.composite
def schemas_with_values(draw: st.DrawFn) -> tuple[Any, Any]:
    """A schema, as JSON, and one of its values."""
    schema, values = draw(_pairs())
    draft = draw(st.sampled_from(DRAFTS))
    node = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/definitions/node"}}}
    made = (
        {**schema, "definitions": {"node": node}, "title": "T"}
        if schema != {"$ref": "#/definitions/node"}
        else {"allOf": [schema], "definitions": {"node": node}}
    )
    return ({**made, "$schema": draft} if draft else made), draw(values)
