"""The form in which Avro schemas are kept, as Avro's Java library 1.12 prints them, which was asked for each case."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from kafkalike.model.schemas.schema import canonical, json_text
from tests.tools.avro_pairs import schemas_with_values
from tests.tools.effort import examples

CASES = [
    ('{"type": "string"}', '"string"'),
    ('{"type":"enum","name":"E","symbols":["A"]}', '{"type":"enum","name":"E","symbols":["A"]}'),
    (
        '{"type":"record","name":"R","fields":[{"type":"int"},"f"]}',
        '{"type":"record","name":"R","fields":[{"type":"int"},"f"]}',
    ),
    ('{"doc": "x", "type": "int"}', '"int"'),
    ('{"scale":2,"type":"bytes","logicalType":"decimal"}', '{"type":"bytes","scale":2,"logicalType":"decimal"}'),
    ('{"items":{"type":"long"},"type":"array","b":1,"a":2}', '{"type":"array","items":"long","b":1,"a":2}'),
    (
        (
            '{"fields":[{"type":"int","default":1,"doc":"d","order":"DESCENDING","x":1,"aliases":["b"],"name":"a"}],'
            '"aliases":["n.Old","Older"],"namespace":"n","name":"R","type":"record","doc":"r","x":true}'
        ),
        (
            '{"type":"record","name":"R","namespace":"n","doc":"r","fields":[{"name":"a","type":"int","doc":"d",'
            '"default":1,"order":"descending","aliases":["b"],"x":1}],"x":true,"aliases":["Old","Older"]}'
        ),
    ),
    (
        (
            '{"type":"record","name":"a.R","namespace":"ignored","fields":[{"name":"e","order":"ascending","type":'
            '{"symbols":["A"],"default":"A","type":"enum","name":"a.E"}},{"name":"f","type":["null","a.E","a.R"]},'
            '{"name":"g","type":{"type":"fixed","name":"F","namespace":"","size":2}}]}'
        ),
        (
            '{"type":"record","name":"R","namespace":"a","fields":[{"name":"e","type":{"type":"enum","name":"E",'
            '"symbols":["A"],"default":"A"}},{"name":"f","type":["null","E","R"]},{"name":"g","type":'
            '{"type":"fixed","name":"F","namespace":"","size":2}}]}'
        ),
    ),
]
"""As somebody writes it, and as it is kept."""


@pytest.mark.parametrize(("written", "kept"), CASES)
def test_a_schema_is_kept_as_java_prints_it(written: str, kept: str) -> None:
    """And stays so."""
    assert json_text(canonical(json.loads(written))) == kept
    assert json_text(canonical(json.loads(kept))) == kept


@settings(max_examples=examples(100, 10), deadline=None)
@given(schemas_with_values())
def test_the_order_of_keys_does_not_matter(pair: tuple[Any, Any]) -> None:
    """Of Avro's own keys; others may stand in any order too, where they are put in order."""
    schema, _ = pair
    turned = canonical(_turned(schema), sort_added=True)
    assert json_text(turned) == json_text(canonical(schema, sort_added=True))
    assert json_text(canonical(turned)) == json_text(turned)


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _turned(part) for key, part in reversed(value.items())}
    return [_turned(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ('"a.b.E"', '"E"'),
        ('{"type":"a.b.E"}', '"E"'),
        ('{"type":{"type":"a.b.E"}}', '{"type":"E"}'),
        ('["null","a.b.E"]', '["null","E"]'),
        ('{"type":"array","items":"a.b.E"}', '{"type":"array","items":"E"}'),
        ('{"type":"map","values":["a.b.E"],"x":1}', '{"type":"map","values":["E"],"x":1}'),
        ('"b.E"', '"b.E"'),
        ('"a.E"', '"a.E"'),
        ('"E"', '"E"'),
        ('{"type":"b.E"}', '"b.E"'),
        # It would be another type.
        ('"a.b.int"', '"a.b.int"'),
    ],
)
def test_names_stand_without_the_namespace_around_them(written: str, kept: str) -> None:
    """Wherever they stand; all others with their own."""

    def record(inside: str) -> str:
        fields = f'[{{"name":"f","type":{inside}}}]'
        return f'{{"type":"record","name":"R","namespace":"a.b","fields":{fields}}}'

    assert json_text(canonical(json.loads(record(written)))) == record(kept)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ('{"type":"fixed","name":"F","namespace":"","size":2}', '{"type":"fixed","name":"F","size":2}'),
        ('{"type":"fixed","size":2,"default":1,"name":"F"}', '{"type":"fixed","name":"F","size":2,"default":1}'),
        (
            '{"type":"enum","name":"E","x":1,"symbols":["A"],"default":"A"}',
            '{"type":"enum","name":"E","symbols":["A"],"default":"A","x":1}',
        ),
        (
            '{"type":"enum","name":"E","symbols":["A"],"default":null}',
            '{"type":"enum","name":"E","symbols":["A"]}',
        ),
        (
            '{"type":"fixed","name":"F","size":2,"aliases":[5,"a.F"]}',
            '{"type":"fixed","name":"F","size":2,"aliases":[5,"a.F"]}',
        ),
    ],
)
def test_what_says_nothing_is_left_out_and_what_was_added_stays_behind(written: str, kept: str) -> None:
    assert json_text(canonical(json.loads(written))) == kept


def test_what_was_added_is_put_in_order_only_where_that_is_asked_for() -> None:
    """For a comparison; what is kept says it in the order in which it was written."""
    added = {"type": "string", "b": 1, "a": 2}

    assert json_text(canonical(added)) == '{"type":"string","b":1,"a":2}'
    assert json_text(canonical(added, sort_added=True)) == '{"type":"string","a":2,"b":1}'


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        [],
        {},
        {"type": "record"},
        {"type": "array"},
        {"type": {}},
        {"type": 5},
        {"type": "record", "name": 5, "fields": []},
        {"type": "record", "name": "R", "fields": 5},
        {"type": "fixed", "name": "a.F"},
        {"type": "fixed", "name": "a.F", "namespace": 5, "size": 2},
    ],
)
def test_what_is_no_schema_stays_as_it_is(value: Any) -> None:
    """So that who checks it can say what is wrong."""
    assert canonical(value) == value
