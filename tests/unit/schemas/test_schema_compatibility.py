"""Which evolutions of schemas can be read: the published rules as a table, and properties of all schemas."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from avro import compatibility as apache
from avro import schema as apache_schema
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalike.errors import InvalidSchemaError
from kafkalike.model.schemas.schema import Reference, Schema
from kafkalike.schemas.compatibility import avro_compatibility as avro
from kafkalike.schemas.compatibility import json_compatibility as json_schema
from kafkalike.schemas.compatibility import protobuf_compatibility as protobuf
from kafkalike.schemas.format_checks import CHECKS
from tests.tools.evolutions import AVRO, JSON, PROTOBUF, Evolution
from tests.tools.schemas import SchemasInMemory

PROBLEMS: dict[str, Callable[..., list[str]]] = {
    "AVRO": avro.problems,
    "PROTOBUF": protobuf.problems,
    "JSON": json_schema.problems,
}
CASES = [pytest.param(case, id=f"{case.old.type}: {case.name}") for case in (*AVRO, *PROTOBUF, *JSON)]


def nothing(schema: Schema) -> dict[str, Schema]:
    return {}


@pytest.mark.parametrize("case", CASES)
def test_an_evolution_has_the_verdict_of_the_published_rules(case: Evolution) -> None:
    problems = PROBLEMS[case.old.type]
    backward, forward = problems(case.new, case.old, nothing), problems(case.old, case.new, nothing)

    assert (not backward, not forward) == (case.backward, case.forward), (backward, forward)


@pytest.mark.parametrize("case", CASES)
def test_every_schema_reads_itself(case: Evolution) -> None:
    assert PROBLEMS[case.old.type](case.old, case.old, nothing) == []
    assert PROBLEMS[case.old.type](case.new, case.new, nothing) == []


def test_a_problem_says_where_it_is() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "string"}]}
    wider = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}, {"name": "m", "type": "int"}]}

    def outer(items: Any) -> Schema:
        fields = [{"name": "list", "type": {"type": "array", "items": items}}]
        return Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}))

    assert avro.problems(outer(wider), outer(inner), nothing) == [
        "R.list[].n: int cannot read string",
        "R.list[].m: it was not written, and has no default",
    ]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in AVRO])
def test_apaches_library_says_the_same_but_for_what_it_does_not_know(case: Evolution) -> None:
    theirs: Any = apache.ReaderWriterCompatibilityChecker  # it has no types
    checker = theirs()
    verdicts = tuple(
        checker.get_compatibility(avro_schema(reader), avro_schema(writer)).compatibility
        is apache.SchemaCompatibilityType.compatible
        for reader, writer in ((case.new, case.old), (case.old, case.new))
    )

    if case.name in {"renamed in a namespace, alias without it", "scale of a decimal"}:
        assert verdicts != (case.backward, case.forward)
    else:
        assert verdicts == (case.backward, case.forward)


def avro_schema(schema: Schema) -> Any:
    return apache_schema.make_avsc_object(json.loads(schema.text))


# --- references ----------------------------------------------------------------------------------


def test_types_of_references_are_compared() -> None:
    source = SchemasInMemory()
    for version, kind in enumerate(("int32", "string"), start=1):
        text = f'syntax = "proto3"; package q; message T {{ {kind} v = {1} ; }} // {version}'
        source.register("t.proto", Schema("PROTOBUF", text))

    def using(version: int) -> Schema:
        text = 'syntax = "proto3"; import "t.proto"; message M { q.T t = 1; }'
        return Schema("PROTOBUF", text, (Reference("t.proto", "t.proto", version),))

    assert protobuf.problems(using(1), using(1), source.referenced) == []
    assert protobuf.problems(using(2), using(1), source.referenced) == [
        "q.T.v (number 1): the type int32 became string, which has another form"
    ]


def test_avro_and_json_references_are_compared() -> None:
    source = SchemasInMemory()
    enum = {"type": "enum", "name": "n.E", "symbols": ["X"]}
    source.register("e", Schema("AVRO", json.dumps(enum)))
    source.register("e", Schema("AVRO", json.dumps({**enum, "symbols": ["Y"]})))
    source.register("j", Schema("JSON", '{"type": "integer"}'))
    source.register("j", Schema("JSON", '{"type": "string"}'))

    def record(version: int) -> Schema:
        text = '{"type":"record","name":"R","fields":[{"name":"e","type":"n.E"}]}'
        return Schema("AVRO", text, (Reference("n.E", "e", version),))

    def document(version: int) -> Schema:
        return Schema("JSON", '{"properties":{"a":{"$ref":"t.json"}}}', (Reference("t.json", "j", version),))

    assert avro.problems(record(2), record(1), source.referenced) == [
        "R.e: the enum lacks X, and has no default for what it lacks"
    ]
    assert json_schema.problems(document(1), document(1), source.referenced) == []
    assert json_schema.problems(document(2), document(1), source.referenced) == ["$.a: the type integer became string"]


# --- schemas that nobody can read ----------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"type":"record","name":"R"}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"nowhere"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        '{"type":"record","name":"1R","fields":[]}',
        '{"type":"enum","name":"E","symbols":["A","A"]}',
        '{"type":"enum","name":"E","symbols":["A"],"default":"B"}',
        '{"type":"fixed","name":"F","size":-1}',
        '["int","int"]',
        '["null",["int"]]',
        '{"type":"array"}',
        "[" * 100_000,
        '{"type":"array","items":' * 300 + '"int"' + "}" * 300,
        " " * (1 << 20) + '"int"',
    ],
    ids=range(15),
)
def test_a_text_that_is_no_avro_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        avro.problems(Schema("AVRO", text), Schema("AVRO", '"int"'), nothing)


def test_a_type_that_uses_others_twice_at_each_level_is_compared_in_no_time() -> None:
    def twice(leaf: str) -> Schema:
        fields: list[Any] = [
            {"name": "a0", "type": {"type": "record", "name": "A0", "fields": [{"name": "x", "type": leaf}]}}
        ]
        for level in range(1, 40):
            parts = [{"name": side, "type": f"A{level - 1}"} for side in ("l", "r")]
            fields.append({"name": f"a{level}", "type": {"type": "record", "name": f"A{level}", "fields": parts}})
        return Schema("AVRO", json.dumps({"type": "record", "name": "Top", "fields": fields}))

    assert avro.problems(twice("int"), twice("int"), nothing) == []
    assert 0 < len(avro.problems(twice("int"), twice("string"), nothing)) < 200


@pytest.mark.slow
def test_choices_of_choices_are_given_up() -> None:
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, 40):
        both = [{"$ref": f"#/definitions/d{level - 1}"}, {"$ref": f"#/definitions/d{level - 1}"}]
        definitions[f"d{level}"] = {"anyOf": both, "minLength": 1}
    schema = Schema("JSON", json.dumps({"$ref": "#/definitions/d39", "definitions": definitions}))

    with pytest.raises(InvalidSchemaError, match="steps to compare"):
        json_schema.problems(Schema("JSON", '{"type":"integer"}'), schema, nothing)


@pytest.mark.parametrize("reference", ["#/definitions/none", "other.json", "http://127.0.0.1:1/x.json", "#none"])
def test_a_ref_that_leads_nowhere_is_refused(reference: str) -> None:
    schema = Schema("JSON", json.dumps({"properties": {"a": {"$ref": reference}}}))

    with pytest.raises(InvalidSchemaError, match="ref"):
        json_schema.problems(schema, Schema("JSON", '{"properties":{"a":{"type":"string"}}}'), nothing)


def test_a_ref_to_itself_is_refused() -> None:
    circle = Schema("JSON", '{"$ref":"#/definitions/a","definitions":{"a":{"$ref":"#/definitions/a"}}}')

    with pytest.raises(InvalidSchemaError, match="circle"):
        json_schema.problems(circle, circle, nothing)


# --- properties ----------------------------------------------------------------------------------

_types = st.sampled_from(["string", "integer", "number", "boolean", "null"])
_json = st.recursive(
    st.builds(lambda kind: {"type": kind}, _types) | st.just({}) | st.just({"enum": [1, "a"]}),
    lambda inner: (
        st.builds(
            lambda properties, required, further: {
                "type": "object",
                "properties": properties,
                "required": sorted(properties)[:required],
                "additionalProperties": further,
            },
            st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
            st.integers(0, 2),
            st.booleans() | inner,
        )
        | st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=3))
    ),
    max_leaves=8,
)


@given(_json)
@settings(deadline=None)
def test_every_json_schema_reads_itself_and_true_reads_all(document: Any) -> None:
    schema = Schema("JSON", json.dumps(document))

    assert json_schema.problems(schema, schema, nothing) == []
    assert json_schema.problems(Schema("JSON", "true"), schema, nothing) == []
    assert json_schema.problems(schema, Schema("JSON", "false"), nothing) == []


@given(_json, _json, st.data())
@settings(deadline=None)
def test_what_a_compatible_json_schema_replaces_stays_valid(new: Any, old: Any, data: st.DataObject) -> None:
    """Defaults apart, which Confluent's rules take for values: none are generated."""
    from jsonschema import Draft7Validator

    if json_schema.problems(Schema("JSON", json.dumps(new)), Schema("JSON", json.dumps(old)), nothing):
        return
    leaf = st.sampled_from([None, True, 1, 1.5, "a", "b"])
    keys = st.sampled_from("abcde")
    value = data.draw(
        st.recursive(leaf, lambda v: st.lists(v, max_size=2) | st.dictionaries(keys, v, max_size=3), max_leaves=6)
    )

    if Draft7Validator(old).is_valid(value):
        assert Draft7Validator(new).is_valid(value)


_scalars = st.sampled_from(["int32", "int64", "uint32", "sint64", "bool", "string", "bytes", "fixed32", "double", "M"])


@given(st.dictionaries(st.integers(1, 20), _scalars, max_size=6), st.integers(21, 30), _scalars)
@settings(deadline=None)
def test_fields_of_protobuf_may_come_and_go(fields: dict[int, str], number: int, kind: str) -> None:
    def message(numbers: dict[int, str]) -> Schema:
        body = "".join(f"{of} f{at} = {at};" for at, of in numbers.items())
        return Schema("PROTOBUF", f'syntax = "proto3"; message M {{ {body} }}')

    more = message({**fields, number: kind})

    assert protobuf.problems(more, message(fields), nothing) == []
    assert protobuf.problems(message(fields), more, nothing) == []


def test_what_can_never_be_compared_is_refused_at_once() -> None:
    """A subject with such a version could have no other one, and an export with it could not come in."""
    used = {
        f"R{i}": Schema("AVRO", json.dumps({"type": "record", "name": f"R{i}", "fields": below(i)})) for i in range(999)
    }
    last = Schema("AVRO", json.dumps({"type": "record", "name": "R999", "fields": below(999)}))

    with pytest.raises(InvalidSchemaError, match="too deeply"):
        CHECKS.check(last, lambda _: used)


def below(place: int) -> list[dict[str, Any]]:
    """A field with the record before this one."""
    return [{"name": "f", "type": f"R{place - 1}"}] if place else []


def steps(work: Callable[[], object]) -> int:
    """How many lines of Python a call carries out."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        del frame, argument
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def record_of(first: int, count: int) -> object:
    fields = [{"name": f"f{n}", "type": "int", "default": 0} for n in range(first, first + count)]
    return {"type": "record", "name": "R", "fields": fields}


def enum_of(first: int, count: int) -> object:
    return {"type": "enum", "name": "E", "symbols": [f"s{n}" for n in range(first, first + count)]}


def union_of(first: int, count: int) -> object:
    return [{"type": "fixed", "name": f"X{n}", "size": 1} for n in range(first, first + count)]


@pytest.mark.parametrize("make", [record_of, enum_of, union_of])
@pytest.mark.parametrize("shift", [0, 1_000], ids=["same", "other"])
def test_cost_of_comparing_avro_schemas_grows_with_their_size_alone(
    make: Callable[[int, int], object], shift: int
) -> None:
    def cost(count: int) -> int:
        old, new = (Schema("AVRO", json.dumps(make(first, count))) for first in (0, shift))
        return steps(lambda: avro.problems(new, old, nothing))

    assert cost(160) < 5 * cost(40)


def test_union_branch_is_read_by_its_name_its_alias_or_a_promotion() -> None:
    def read(writer: object, *branches: object) -> list[str]:
        return avro.problems(Schema("AVRO", json.dumps(list(branches))), Schema("AVRO", json.dumps(writer)), nothing)

    four, eight = ({"type": "fixed", "name": name, "size": size} for name, size in (("a.Four", 4), ("Eight", 8)))

    assert read({"type": "fixed", "name": "b.Four", "size": 4}, "null", four, eight) == []
    assert read({"type": "fixed", "name": "Old", "size": 8}, "null", four, {**eight, "aliases": ["Old"]}) == []
    assert read("int", four, "long") == []
    assert len(read({"type": "fixed", "name": "Nine", "size": 9}, "null", four, eight)) > 1
