"""Which schemas a topic's records may have: a registry and the topic's settings in, ids and reasons out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from kafkalike.model.names import RECORD_NAME, STRATEGIES, TOPIC_NAME, TOPIC_RECORD_NAME
from kafkalike.model.row_value import INT32, checked_int, checked_list, checked_text
from kafkalike.model.schemas import registration_rules
from kafkalike.model.schemas.admission import admits, admitted, heads_of, id_of, refusal, topics_with_subjects
from kafkalike.model.schemas.registry_state import RegistryState
from kafkalike.model.schemas.schema import Checks, Schema
from tests.tools.schema_world import World

SHOP_ORDER = Schema("AVRO", '{"type":"record","namespace":"shop","name":"Order","fields":[]}')
FULL_NAME = Schema("AVRO", '{"type":"record","name":"shop.Order","fields":[{"name":"n","type":"int"}]}')
WORD = Schema("AVRO", '"string"')
WRAPPED = Schema("AVRO", '{"type":"string"}')
TITLED = Schema("JSON", '{"title":"Order"}')
NAMELESS = Schema("JSON", "true")
UNTITLED = Schema("JSON", '{"name":"Order","type":"object"}')
MESSAGE = Schema("PROTOBUF", 'syntax = "proto3"; message Order {}')


ANYTHING = Checks(
    check=lambda schema, resolve: None,  # noqa: ARG005
    normalized=lambda schema: schema,
    problems=lambda new, old, resolve: [],  # noqa: ARG005
)
"""No language: any text is a schema."""


def registry(**schemas: Schema) -> tuple[World, dict[str, int]]:
    """A registry with a schema for each subject, and the ids; `__` stands for `-`, `_dot_` for a dot."""
    world, ids = World(), {}
    for subject, schema in schemas.items():
        name = subject.replace("__", "-").replace("_dot_", ".")
        wanted = registration_rules.RegistrationRequest(subject=name, schema=registration_rules.prepared(schema))
        ids[name] = world.add(registration_rules.register(world.state, wanted, ANYTHING, 1)).id
    return world, ids


def test_a_topics_subject_admits_its_own_schemas_as_long_as_they_are_not_deleted() -> None:
    world, ids = registry(orders__value=SHOP_ORDER, other__value=TITLED)

    mine, others = ids["orders-value"], ids["other-value"]

    assert admits(world.state, "orders", "value", TOPIC_NAME, mine)
    assert not admits(world.state, "orders", "key", TOPIC_NAME, mine)
    assert not admits(world.state, "orders", "value", TOPIC_NAME, others)
    assert not admits(world.state, "orders", "value", TOPIC_NAME, 99)
    world.delete("orders-value", None, permanent=False)
    assert not admits(world.state, "orders", "value", TOPIC_NAME, mine)


@pytest.mark.parametrize(
    ("subject", "schema", "name"),
    [
        ("shop_dot_Order", SHOP_ORDER, "shop.Order"),
        ("shop_dot_Order", FULL_NAME, "shop.Order"),
        ("string", WORD, "string"),
        ("string", WRAPPED, "string"),
        ("Order", TITLED, "Order"),
    ],
)
def test_by_the_records_name_any_topic_may_have_it(subject: str, schema: Schema, name: str) -> None:
    world, ids = registry(**{subject: schema})

    assert admits(world.state, "any", "value", RECORD_NAME, ids[name])
    assert not admits(world.state, "any", "value", TOPIC_RECORD_NAME, ids[name])


def test_by_topic_and_name_only_that_topic_may() -> None:
    world, ids = registry(orders__Order=TITLED)

    assert admits(world.state, "orders", "value", TOPIC_RECORD_NAME, ids["orders-Order"])
    assert not admits(world.state, "order", "value", TOPIC_RECORD_NAME, ids["orders-Order"])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_schema_that_is_gone_is_nobodys(strategy: str) -> None:
    world, ids = registry(orders__value=SHOP_ORDER)
    world.delete("orders-value", None, permanent=False)
    world.delete("orders-value", None, permanent=True)

    assert not admits(world.state, "orders", "value", strategy, ids["orders-value"])
    assert admitted(world.state, "orders", "value", strategy) == frozenset()


@pytest.mark.parametrize("schema", [MESSAGE, NAMELESS, UNTITLED])
def test_where_the_schema_names_no_record_the_topic_alone_counts(schema: Schema) -> None:
    world, ids = registry(orders__x=schema)

    number = ids["orders-x"]

    assert admits(world.state, "any", "value", RECORD_NAME, number)
    assert admits(world.state, "orders", "value", TOPIC_RECORD_NAME, number)
    assert not admits(world.state, "bills", "value", TOPIC_RECORD_NAME, number)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"type":"string","name":"n"}', "string"),
        ('{"type":"record","name":"shop.Order","namespace":"other"}', "shop.Order"),
        ('{"type":"record","name":"Order","namespace":"shop"}', "shop.Order"),
        ('{"type":"record","name":"Order"}', "Order"),
        ('{"type":"string"}', "string"),
    ],
)
def test_an_avro_record_has_its_full_name_whoever_wrote_its_text(text: str, name: str) -> None:
    """Texts that an older release has kept are not in the form of today."""
    world, ids = registry(orders__x=SHOP_ORDER)
    (old,) = [replace(row, value=json.dumps(json.loads(row.value) | {"schema": text})) for row in world.rows]
    state = RegistryState().applied([old])
    assert not admits(state, "any", "value", RECORD_NAME, ids["orders-x"])

    state = state.applied([replace(old, seq=9, subject=name)])

    assert admits(state, "any", "value", RECORD_NAME, ids["orders-x"])


@pytest.mark.parametrize("text", ['{"type":', "[" * 100_000])
def test_a_schema_that_cannot_be_read_names_no_record(text: str) -> None:
    """Other hands have written its row."""
    world, ids = registry(orders__x=SHOP_ORDER)
    state = RegistryState()
    for row in world.rows:
        state = state.applied([replace(row, value=json.dumps(json.loads(row.value) | {"schema": text}))])

    assert admits(state, "any", "value", RECORD_NAME, ids["orders-x"])
    assert registration_rules.find_registered(state, "orders-x", registration_rules.prepared(FULL_NAME)) is None


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_that_are_admitted_are_those_that_are_asked_for_one_by_one(strategy: str) -> None:
    world, ids = registry(orders__value=SHOP_ORDER, shop_dot_Order=FULL_NAME, orders__Order=TITLED, bills__key=WORD)

    for topic in ("orders", "bills", "unknown"):
        each = {number for number in ids.values() if admits(world.state, topic, "value", strategy, number)}
        assert admitted(world.state, topic, "value", strategy) == each


def test_topics_that_may_have_subjects_of_their_own() -> None:
    world, _ = registry(a__b__value=TITLED, c__key=WORD)

    assert topics_with_subjects(world.state, "value", TOPIC_NAME) == {"a-b"}
    assert topics_with_subjects(world.state, "key", TOPIC_NAME) == {"c"}
    assert topics_with_subjects(world.state, "value", RECORD_NAME) == set()
    assert topics_with_subjects(world.state, "value", TOPIC_RECORD_NAME) == {"a", "a-b", "c"}


def test_the_id_is_the_four_bytes_behind_a_zero() -> None:
    assert heads_of([b"\x00\x00\x00\x00\x07payload", None, b"\x00\x00\x00\x00\x07other", b"x"]) == {
        b"\x00\x00\x00\x00\x07",
        b"x",
    }
    assert id_of(b"\x00\x01\x02\x03\x04") == 0x01020304
    assert [id_of(head) for head in (b"\x00\x00\x00\x01\x02", b"\x01\x00\x00\x01\x02", b"\x00\x00", b"")] == [
        258,
        None,
        None,
        None,
    ]


def test_a_refusal_says_what_is_wrong() -> None:
    world, ids = registry(other__value=TITLED)
    head = ids["other-value"].to_bytes(5, "big")

    assert refusal(world.state, "t", "key", TOPIC_NAME, b"x") == (
        "its key does not begin with the magic byte 0 and a schema's id, which kafkalike.key.schema.validation=true "
        "asks for"
    )
    assert refusal(RegistryState(), "t", "value", TOPIC_NAME, b"\x00\x00\x00\x00\x09") == (
        "its value has schema 9, which the registry does not have; kafkalike.value.schema.validation=true"
    )
    assert refusal(world.state, "t", "value", TOPIC_NAME, head) == (
        "its value has schema 1, which is not of the topic's subject 't-value' (TopicNameStrategy); "
        "kafkalike.value.schema.validation=true"
    )
    assert refusal(world.state, "t", "value", RECORD_NAME, head) == (
        "its value has schema 1, which is not of the topic's subject (RecordNameStrategy); "
        "kafkalike.value.schema.validation=true"
    )


@pytest.mark.parametrize(
    ("check", "good", "bad", "why"),
    [
        (checked_list, [1], {"a": 1}, "expected a list, not dict"),
        (
            lambda found: checked_int(found, INT32),
            7,
            2**31,
            r"expected an int in range\(.*\), not 2147483648",
        ),
        (
            lambda found: checked_int(found, INT32),
            -1,
            True,
            r"expected an int in range\(.*\), not True",
        ),
        (checked_text, "é", 5, "expected text, not int"),
        (checked_text, "a", "\ud800", "'utf-8' codec can't encode"),
    ],
)
def test_json_of_others_has_the_types_that_are_asked_for(
    check: Callable[[object], object], good: object, bad: object, why: str
) -> None:
    assert check(good) == good
    with pytest.raises((TypeError, ValueError), match=f"^{why}"):
        check(bad)
