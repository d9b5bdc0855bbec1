"""Inference of columns from sampled JSON: what each mix of values becomes, and that every sampled value fits."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.schemas.json_types import MAX_FIELDS, inferred_schema


def types(*texts: str) -> dict[str, Any]:
    """The type of each field of some objects."""
    schema = inferred_schema(text.encode() for text in texts)
    return {field["name"]: field["type"] for field in schema["fields"]}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param(
            ['{"a": 1, "b": "x", "c": true, "d": 1.5}'],
            {"a": "long", "b": "string", "c": "boolean", "d": "double"},
            id="scalars",
        ),
        pytest.param(['{"a": 1}', '{"b": 2}'], {"a": "long", "b": "long"}, id="fields-of-several-objects"),
        pytest.param(['{"a": 1}', '{"a": 1.5}'], {"a": "double"}, id="whole-and-other-numbers"),
        pytest.param(['{"a": 1}', '{"a": "x"}'], {"a": "string"}, id="number-and-text"),
        pytest.param(['{"a": true}', '{"a": 1}'], {"a": "string"}, id="boolean-and-number"),
        pytest.param(['{"a": null}', '{"a": 1}'], {"a": "long"}, id="null-and-number"),
        pytest.param(['{"a": null}'], {"a": "string"}, id="null-alone"),
        pytest.param(['{"a": 9223372036854775807}'], {"a": "long"}, id="largest-long"),
        pytest.param(['{"a": 9223372036854775808}'], {"a": "string"}, id="above-the-largest-long"),
        pytest.param(['{"a": {}}'], {"a": "string"}, id="object-without-fields"),
        pytest.param(['{"a": {"x": 1, "X": 2}}'], {"a": "string"}, id="nested-fields-that-differ-in-case"),
        pytest.param(['{"a": "2026-01-01T00:00:00Z"}'], {"a": "string"}, id="time"),
        pytest.param(["[1]", "no JSON", "\x00", "7", '{"a": 1}'], {"a": "long"}, id="values-that-are-no-objects"),
        pytest.param(
            ['{"a": []}', '{"a": [1]}'],
            {"a": {"type": "array", "elementType": "long", "containsNull": True}},
            id="array",
        ),
        pytest.param(
            ['{"a": {"x": 1}}'],
            {"a": {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}},
            id="object",
        ),
    ],
)
def test_field_has_the_type_that_holds_all_its_values(texts: list[str], expected: dict[str, Any]) -> None:
    assert types(*texts) == expected


def test_object_used_as_a_map_becomes_text() -> None:
    many = json.dumps({"a": {f"k{n}": n for n in range(MAX_FIELDS + 1)}})

    assert types('{"a": {"k": 1}}', many) == {"a": "string"}


def test_deep_nesting_ends_in_text() -> None:
    found = inferred_schema([b'{"a":' * 50 + b"1" + b"}" * 50])

    assert json.dumps(found).count('"struct"') == 8


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        pytest.param([], "no JSON object was found", id="nothing"),
        pytest.param(["[1]", "x"], "no JSON object was found", id="no-objects"),
        pytest.param(['{"id": 1}', '{"ID": 2}'], "the fields 'id' and 'ID' .* differ only in case", id="case"),
        pytest.param([json.dumps({f"k{n}": n for n in range(201)})], "more than 200 fields", id="many-fields"),
    ],
)
def test_objects_that_make_no_columns_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(IllegalArgumentError, match=message):
        types(*texts)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
documents = st.dictionaries(
    st.sampled_from("abc"), st.recursive(scalars, lambda x: st.lists(x) | st.dictionaries(st.sampled_from("xy"), x))
)


@pytest.mark.slow
@given(st.lists(documents, min_size=1))
def test_each_sampled_object_fits_and_the_order_changes_no_type(sample: list[dict[str, Any]]) -> None:
    texts = [json.dumps(one) for one in sample]

    found = types(*texts)

    assert found.keys() == {name for one in sample for name in one}
    assert all(fits(value, found[name]) for one in sample for name, value in one.items())
    assert {name: ordered(kind) for name, kind in types(*reversed(texts)).items()} == {
        name: ordered(kind) for name, kind in found.items()
    }


def ordered(kind: Any) -> Any:
    """A type with the fields of objects by name."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return ordered(kind["elementType"])
    return sorted((field["name"], str(ordered(field["type"]))) for field in kind["fields"])


def fits(value: Any, kind: Any) -> bool:
    """Whether Spark reads a value by a type without an error; any JSON is a text."""
    if value is None or kind == "string":
        return True
    if isinstance(kind, str):
        return {bool: {"boolean"}, int: {"long", "double"}, float: {"double"}}.get(type(value), set()) >= {kind}
    if kind["type"] == "array":
        return isinstance(value, list) and all(fits(one, kind["elementType"]) for one in value)
    fields = {field["name"]: field["type"] for field in kind["fields"]}
    return isinstance(value, dict) and all(fits(one, fields[name]) for name, one in value.items())
