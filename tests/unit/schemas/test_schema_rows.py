"""Rows of the registry's table: their text, what each plan writes, and what a state says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafkalike.errors import LogCorruptError, SchemaRegistryError, UnsupportedVersionError
from kafkalike.model.schemas import registration_rules, registry_state, schemas_topic
from kafkalike.model.schemas import subject_changes as registry_settings
from kafkalike.model.schemas import subject_changes as subject_deletion
from kafkalike.model.schemas.registry_state import RegistryState, referenced_by
from kafkalike.model.schemas.schema import Reference, Registered, Schema, fingerprint, guid_of
from kafkalike.model.schemas.schema_rows import (
    Config,
    Configured,
    ModeSet,
    Named,
    SchemaRow,
    Stands,
    config_value,
    mode_value,
    parse_row,
    schema_value,
)
from tests.tools.schema_world import ONE, THREE, TOY, TWO, USER, World

GUID = "11111111-1111-4111-8111-111111111111"
MARK = fingerprint(ONE)
OWN_GUID = guid_of(MARK)


def wanted(subject: str, schema: Schema, **more: Any) -> registration_rules.RegistrationRequest:
    return registration_rules.RegistrationRequest(subject=subject, schema=schema, **more)


def row(value: str = "", **facts: Any) -> SchemaRow:
    facts = {"kind": "schema", "subject": "a", "version": 1, "schema_id": 1, "seq": 1, "time_ms": 1, **facts}
    return SchemaRow(value=value, **facts)


# --- texts ---------------------------------------------------------------------------------------

NAMED = Named(1, MARK, OWN_GUID, ONE)
USED = Named(2, fingerprint(USER), guid_of(fingerprint(USER)), USER)


@pytest.mark.parametrize(
    ("named", "standing", "last_id", "text"),
    [
        (NAMED, "live", 1, '{"type":"AVRO","schema":"1"}'),
        (NAMED, "soft", 0, '{"type":"AVRO","schema":"1","is":"soft"}'),
        (NAMED, "gone", 0, f'{{"fingerprint":"{MARK.hex()}","is":"gone"}}'),
        (NAMED, "live", 7, '{"type":"AVRO","schema":"1","last_id":7}'),
        (replace(NAMED, guid=GUID), "live", 0, f'{{"type":"AVRO","schema":"1","guid":"{GUID}"}}'),
        (replace(NAMED, guid=GUID, schema=None), "gone", 2, None),
        (USED, "live", 0, '{"type":"AVRO","schema":"2","references":[["one","a",1]]}'),
    ],
)
def test_a_version_is_written_with_what_cannot_be_told_otherwise(
    named: Named, standing: str, last_id: int, text: str | None
) -> None:
    """And read as it was written; one that is gone keeps its fingerprint."""
    value = schema_value(named, standing, last_id)

    assert value == (text or f'{{"fingerprint":"{MARK.hex()}","guid":"{GUID}","last_id":2,"is":"gone"}}')
    kept = replace(named, schema=None) if standing == "gone" else named
    told = last_id if last_id > named.id else 0
    assert parse_row(row(value, version=3, schema_id=named.id)) == Stands("a", 3, kept, standing, told)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (Config(), "{}"),
        (Config("FULL"), '{"compatibility":"FULL"}'),
        (Config(normalize=False), '{"normalize":false}'),
        (Config("NONE", normalize=True), '{"compatibility":"NONE","normalize":true}'),
    ],
)
def test_settings_are_written_and_read(config: Config, text: str) -> None:
    assert config_value(config) == text
    assert parse_row(row(text, kind="config")) == Configured("a", config)
    assert parse_row(row("", kind="config")) == Configured("a", None)


def test_a_mode_is_written_and_read() -> None:
    assert mode_value("IMPORT") == '{"mode":"IMPORT"}'
    assert parse_row(row('{"mode":"IMPORT"}', kind="mode")) == ModeSet("a", "IMPORT")
    assert parse_row(row("", kind="mode")) == ModeSet("a", None)


GOOD = '{"type":"AVRO","schema":"1"}'


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (row('{"type":"XML","schema":"1"}'), "ValueError(\"'XML' is not in AVRO, PROTOBUF, JSON\")"),
        (row('{"type":1,"schema":"1"}'), "TypeError(\"'type' is 1, not a text\")"),
        (row('{"type":"AVRO","schema":1}'), "TypeError(\"'schema' is 1, not a text\")"),
        (row('{"type":"AVRO","schema":"1","is":"lost"}'), "ValueError(\"'lost' is not in live, soft, gone\")"),
        (row('{"type":"AVRO","schema":"1","is":1}'), "TypeError(\"'is' is 1, not a text\")"),
        (row('{"type":"AVRO","schema":"1","guid":1}'), "TypeError(\"'guid' is 1, not a text\")"),
        (
            row('{"type":"AVRO","schema":"1","last_id":0}'),
            "TypeError(\"'last_id' is 0, not a whole number from 1\")",
        ),
        (row('{"fingerprint":"00ff","is":"gone"}'), "ValueError('a fingerprint of 2 bytes')"),
        (row('{"fingerprint":1,"is":"gone"}'), "TypeError(\"'fingerprint' is 1, not a text\")"),
        (
            row('{"type":"AVRO","schema":"1","references":[[1,"s",1]]}'),
            "TypeError(\"'name' is 1, not a text\")",
        ),
        (
            row('{"type":"AVRO","schema":"1","references":[["n",1,1]]}'),
            "TypeError(\"'subject' is 1, not a text\")",
        ),
        (
            row('{"type":"AVRO","schema":"1","references":[["n","s",0]]}'),
            "TypeError(\"'version' is 0, not a whole number from 1\")",
        ),
        (row(GOOD, schema_id=0), "TypeError(\"'schema_id' is 0, not a whole number from 1\")"),
        (row(GOOD, schema_id=2**31), "ValueError('schema_id 2147483648 is above 2147483647')"),
        (row(GOOD, version=0), "TypeError(\"'version' is 0, not a whole number from 1\")"),
        (row(GOOD, version=2**31), "ValueError('version 2147483648 is above 2147483647')"),
        (row(GOOD, subject=""), "ValueError('no subject')"),
        (
            row('{"compatibility":"SIDEWARD"}', kind="config"),
            (
                "ValueError(\"'SIDEWARD' is not in NONE, BACKWARD, BACKWARD_TRANSITIVE, FORWARD, FORWARD_TRANSITIVE, "
                'FULL, FULL_TRANSITIVE")'
            ),
        ),
        (row('{"compatibility":1}', kind="config"), "TypeError(\"'compatibility' is 1, not a text\")"),
        (row('{"normalize":1}', kind="config"), "TypeError(\"'normalize' is 1, not true or false\")"),
        (
            row('{"mode":"MAYBE"}', kind="mode"),
            "ValueError(\"'MAYBE' is not in READWRITE, READONLY, READONLY_OVERRIDE, IMPORT, FORWARD\")",
        ),
        (row('{"mode":1}', kind="mode"), "TypeError(\"'mode' is 1, not a text\")"),
    ],
)
def test_what_is_wrong_with_a_row_is_said(damaged: SchemaRow, why: str) -> None:
    """Who repairs the table has nothing else to go by."""
    with pytest.raises(LogCorruptError) as caught:
        parse_row(damaged)

    assert str(caught.value) == f"row 1 of __schemas, kind {damaged.kind!r}, cannot be read: {why}"
    assert caught.value.__cause__ is not None


def test_limits_of_numbers_are_allowed() -> None:
    assert parse_row(row(GOOD, version=2**31 - 1, schema_id=2**31 - 1)) == Stands(
        "a", 2**31 - 1, replace(NAMED, id=2**31 - 1), "live"
    )


def test_what_rows_contradict_is_said() -> None:
    first = row('{"type":"AVRO","schema":"1","guid":"g"}')
    two = '{"type":"AVRO","schema":"2"}'

    for other, why in (
        (row(two, seq=2, subject="b"), "id 1 and its schema do not belong together"),
        (row(GOOD, seq=2, subject="b", schema_id=2), "id 2 and its schema do not belong together"),
        (row(two, seq=2, schema_id=2), "version 1 had id 1"),
        (row('{"type":"AVRO","schema":"2","guid":"g"}', seq=2, subject="b", schema_id=2), "GUID g is that of id 1"),
    ):
        with pytest.raises(LogCorruptError) as caught:
            RegistryState().applied([first, other])
        assert str(caught.value) == f"row 2 of __schemas, kind 'schema', cannot be read: ValueError({why!r})"


# --- plans ---------------------------------------------------------------------------------------

PLANS: dict[str, Callable[[RegistryState], tuple[Sequence[SchemaRow], Any]]] = {
    "register": lambda state: registration_rules.register(state, wanted("a", THREE), TOY, 88),
    "take over": lambda state: registration_rules.take_over(state, wanted("a", THREE, id=50, version=7), TOY, 88),
    "delete a version": lambda state: subject_deletion.delete_version(state, "a", 1, 88, permanent=False),
    "delete a subject": lambda state: subject_deletion.delete_subject(state, "a", 88, permanent=False),
    "delete for good": lambda state: subject_deletion.delete_subject(state, "c", 88, permanent=True),
    "set a level": lambda state: registry_settings.set_config(state, "b", Config("FULL"), 88),
    "forget a level": lambda state: registry_settings.delete_config(state, "a", 88),
    "set a mode": lambda state: registry_settings.set_mode(state, "b", "READONLY", 88, force=False),
    "forget a mode": lambda state: registry_settings.delete_mode(state, "a", 88),
    "import": lambda state: schemas_topic.import_all(
        state,
        schemas_topic.Contents({("d", 1): wanted("d", ONE, id=1, version=1)}, {"d": Config("FULL")}, {"d": "READONLY"}),
        TOY,
        88,
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_rows_of_a_plan_have_the_next_numbers_and_its_time(name: str) -> None:
    world = World()
    world.register("a", ONE)
    world.register("a", TWO)
    world.register("c", TWO)
    world.delete("c", None, permanent=False)
    world.add(registry_settings.set_config(world.state, "a", Config("FULL"), 1))
    world.add(registry_settings.set_mode(world.state, "a", "READWRITE", 1, force=False))

    rows, _ = PLANS[name](world.state)

    assert rows
    assert {made.time_ms for made in rows} == {88}
    assert [made.seq for made in rows] == list(range(world.state.seq + 1, world.state.seq + 1 + len(rows)))
    world.add((rows, None))


def test_what_a_plan_says_is_what_is_then_there() -> None:
    """An id that is given, one that is brought, and one that is deleted softly at once."""
    world = World()

    made = world.add(registration_rules.register(world.state, wanted("a", ONE), TOY, 1))
    brought = world.add(
        registration_rules.take_over(world.state, wanted("a", TWO, id=40, version=5, guid=GUID), TOY, 1)
    )
    deleted = world.add(
        registration_rules.take_over(world.state, wanted("b", TWO, id=40, version=2, deleted=True), TOY, 1)
    )

    assert made == Registered("a", 1, 1, ONE) == world.state.registered("a", 1)
    assert brought == Registered("a", 5, 40, TWO) == world.state.latest("a")
    assert deleted == Registered("b", 2, 40, TWO, deleted=True) == world.state.latest("b", deleted=True)
    assert world.state.schemas[40].named.guid == GUID
    assert world.state.guids.get(GUID) == 40
    assert world.state.registered("b", 2) is None
    assert (world.state.last_id, world.state.subject("a").last) == (40, 5)


def test_each_version_is_found_by_its_schema() -> None:
    world = World()
    for schema in (ONE, TWO, THREE):
        world.register("a", schema)

    assert [registration_rules.find_registered(world.state, "a", schema) for schema in (ONE, TWO, THREE)] == [
        Registered("a", 1, 1, ONE),
        Registered("a", 2, 2, TWO),
        Registered("a", 3, 3, THREE),
    ]


def test_a_guid_of_elsewhere_stays_its_schemas_in_all_subjects() -> None:
    world = World()
    world.add(registration_rules.take_over(world.state, wanted("a", ONE, id=4, version=1, guid=GUID), TOY, 1))

    world.register("b", ONE)

    assert f'"guid":"{GUID}"' in world.rows[-1].value
    assert RegistryState().applied(world.rows[1:]).guids.get(GUID) == 4


def test_the_latest_alone_is_compared_where_that_is_asked_for() -> None:
    """Whatever the level asks of a new version."""
    world = World()
    world.register("a", ONE)
    world.register("a", TWO)
    world.add(registry_settings.set_config(world.state, "a", Config("BACKWARD_TRANSITIVE"), 1))

    assert registration_rules.examined(world.state, wanted("a", THREE), TOY, "latest") == []
    assert len(registration_rules.examined(world.state, wanted("a", THREE), TOY, None)) == 1


def test_a_high_id_is_said_by_what_is_taken_over_below_it() -> None:
    world = World()
    world.take_over("a", 1, 40, ONE)
    world.take_over("b", 1, 4, TWO)

    assert RegistryState().applied(world.rows[1:]).last_id == 40


def test_versions_are_in_order_whatever_came_first() -> None:
    world = World()
    for version, schema in ((5, ONE), (2, TWO), (3, THREE)):
        world.take_over("a", version, version, schema)

    assert world.state.subject("a").live == (2, 3, 5)
    for version in (5, 2):
        world.delete("a", version, permanent=False)
    assert (world.state.subject("a").live, world.state.subject("a").soft) == ((3,), (2, 5))
    assert world.state.subject("a").kept == (2, 3, 5)


def test_what_is_taken_over_twice_is_one_version() -> None:
    """It stands as who takes it over says, last."""
    world = World()
    world.add(registration_rules.take_over(world.state, wanted("a", ONE, id=4, version=2), TOY, 1))

    rows, again = registration_rules.take_over(world.state, wanted("a", ONE, id=4, version=2), TOY, 1)
    assert (list(rows), again) == ([], Registered("a", 2, 4, ONE))
    world.add(registration_rules.take_over(world.state, wanted("a", ONE, id=4, version=2, deleted=True), TOY, 1))

    assert (world.state.subject("a").live, world.state.subject("a").soft) == ((), (2,))


def test_a_permanent_deletion_of_a_subject_takes_what_was_deleted_softly_and_nothing_else() -> None:
    """What a live subject has set stays with its other versions."""
    world = World()
    for schema in (ONE, TWO, THREE):
        world.register("a", schema)
    world.delete("a", 2, permanent=False)
    assert subject_deletion.delete_subject(world.state, "a", 1, permanent=False)[1] == [1, 3]

    world.delete("a", None, permanent=False)

    rows, gone = subject_deletion.delete_subject(world.state, "a", 1, permanent=True)
    assert gone == [1, 2, 3]
    assert [(made.version, made.schema_id) for made in rows] == [(1, 1), (2, 2), (3, 3)]
    assert all(made.value.endswith('"is":"gone"}') for made in rows)


def test_the_latest_version_is_deleted_by_that_name() -> None:
    """For good it is the latest of all that are kept."""
    world = World()
    for schema in (ONE, TWO, THREE):
        world.register("a", schema)

    assert world.delete("a", "latest", permanent=False) == [3]
    assert world.delete("a", 1, permanent=False) == [1]
    assert world.delete("a", "latest", permanent=False) == [2]
    assert world.delete("a", "latest", permanent=True) == [3]
    assert world.state.subject("a").kept == (1, 2)


def test_settings_that_are_not_said_stay() -> None:
    world = World()

    assert world.add(registry_settings.set_config(world.state, "a", Config("FULL"), 1)) == Config("FULL")
    assert world.add(registry_settings.set_config(world.state, "a", Config(normalize=True), 1)) == Config(
        "FULL", normalize=True
    )
    assert world.add(registry_settings.set_config(world.state, "a", Config("NONE"), 1)) == Config(
        "NONE", normalize=True
    )
    assert world.add(registry_settings.set_config(world.state, "a", Config(normalize=False), 1)) == Config(
        "NONE", normalize=False
    )
    assert not world.state.normalizes("a")
    world.add(registry_settings.set_config(world.state, "", Config(normalize=True), 1))
    assert not world.state.normalizes("a")
    assert world.state.normalizes("b")
    assert world.add(registry_settings.set_mode(world.state, "a", "READONLY", 1, force=False)) == "READONLY"
    assert world.add(registry_settings.delete_mode(world.state, "a", 1)) == "READONLY"


def test_a_subject_may_have_its_schemas_normalized() -> None:
    """Though nobody asks for it; others stay as they are written."""
    doubled = replace(TOY, normalized=lambda schema: replace(schema, text=schema.text.strip("+")))
    world = World()
    world.add(registry_settings.set_config(world.state, "a", Config(normalize=True), 1))
    odd = Schema("AVRO", "+1")

    made = [world.add(registration_rules.register(world.state, wanted(subject, odd), doubled, 1)) for subject in "ab"]

    assert [one.schema.text for one in made] == ["1", "+1"]
    assert registration_rules.look_up(world.state, wanted("a", odd), doubled).version == 1


def test_who_begins_to_import_may_have_subjects_without_versions() -> None:
    """Whether all are gone, or the subject is another one; an import that has begun goes on."""
    world = World()
    world.register("a", ONE)
    world.delete("a", None, permanent=False)

    with pytest.raises(SchemaRegistryError, match="Cannot import"):
        registry_settings.set_mode(world.state, "a", "IMPORT", 1, force=False)
    assert registry_settings.set_mode(world.state, "b", "IMPORT", 1, force=False)[1] == "IMPORT"
    assert registry_settings.set_mode(world.state, "a", "IMPORT", 1, force=True)[1] == "IMPORT"
    world.delete("a", None, permanent=True)
    assert world.add(registry_settings.set_mode(world.state, "", "IMPORT", 1, force=False)) == "IMPORT"
    world.take_over("b", 1, 9, TWO)
    assert registry_settings.set_mode(world.state, "", "IMPORT", 1, force=False) == ([], "IMPORT")


# --- state ---------------------------------------------------------------------------------------


def test_a_version_is_found_by_whether_it_is_deleted() -> None:
    world = World()
    for schema in (ONE, TWO, THREE):
        world.register("a", schema)
    world.delete("a", 3, permanent=False)
    world.delete("a", 1, permanent=False)
    state = world.state

    assert [state.registered("a", n) for n in (1, 2, 3, 4)] == [None, Registered("a", 2, 2, TWO), None, None]
    assert state.registered("a", 3, deleted=True) == Registered("a", 3, 3, THREE, deleted=True)
    assert state.latest("a") == Registered("a", 2, 2, TWO)
    assert state.latest("a", deleted=True) == Registered("a", 3, 3, THREE, deleted=True)
    assert state.latest("b") is None
    assert registration_rules.find_registered(state, "a", THREE) is None
    assert registration_rules.find_registered(state, "a", THREE, deleted=True) == state.latest("a", deleted=True)
    asked = wanted("a", THREE)
    assert registration_rules.look_up(state, asked, TOY, deleted=True).version == 3
    with pytest.raises(SchemaRegistryError, match="Schema not found"):
        registration_rules.look_up(state, asked, TOY)
    world.delete("a", 2, permanent=False)
    with pytest.raises(SchemaRegistryError, match="Subject 'a' not found"):
        registration_rules.look_up(world.state, asked, TOY)
    world.delete("a", 1, permanent=True)
    assert world.state.registered("a", 1, deleted=True) is None
    assert world.state.schema(1) is None
    assert world.state.schemas[1].named == replace(NAMED, schema=None)


def test_the_newest_version_that_has_a_schema_is_found() -> None:
    world = World()
    world.register("a", ONE)
    world.delete("a", 1, permanent=False)
    world.register("a", ONE)

    assert registration_rules.find_registered(world.state, "a", ONE) == Registered("a", 2, 1, ONE)
    assert registration_rules.find_registered(world.state, "a", ONE, deleted=True) == Registered("a", 2, 1, ONE)
    world.delete("a", 2, permanent=False)
    assert registration_rules.find_registered(world.state, "a", ONE, deleted=True) == Registered(
        "a", 2, 1, ONE, deleted=True
    )


def test_an_old_text_is_found_where_it_is_deleted_softly_only_by_who_asks_for_that() -> None:
    """Older releases kept the keys of Avro schemas as they were written."""
    old = '{"size":4,"name":"n.F","type":"fixed"}'
    text = '{"type":"AVRO","schema":' + '"' + old.replace('"', '\\"') + '"'
    state = RegistryState().applied([row(text + ',"is":"soft"}')])
    asked = registration_rules.prepared(Schema("AVRO", old))

    assert registration_rules.find_registered(state, "a", asked) is None
    found = registration_rules.find_registered(state, "a", asked, deleted=True)
    assert found is not None
    assert (found.version, found.schema.text) == (1, old)
    assert registration_rules.find_registered(state, "a", replace(asked, type="JSON"), deleted=True) is None


def test_who_refers_to_a_version_is_forgotten_with_its_last_version() -> None:
    """Live ones count apart from those whose records can only be read."""
    world = World()
    world.register("a", ONE)
    world.register("b", USER)
    world.register("c", USER)
    user = world.state.ids[fingerprint(USER)]

    def referrers(*, deleted: bool) -> list[int]:
        return subject_deletion.referrers(world.state, "a", 1, deleted=deleted)

    assert referrers(deleted=False) == [user]
    world.delete("b", None, permanent=False)
    assert referrers(deleted=False) == [user]
    world.delete("c", None, permanent=False)
    assert (referrers(deleted=False), referrers(deleted=True)) == ([], [user])
    world.delete("b", None, permanent=True)
    assert referrers(deleted=True) == [user]
    world.delete("c", None, permanent=True)
    assert referrers(deleted=True) == []
    assert len(world.state.referrers) == 0
    assert subject_deletion.referrers(world.state, "q", 9) == []


def test_a_version_may_have_several_referrers() -> None:
    world = World()
    world.register("a", ONE)
    world.add(registry_settings.set_config(world.state, "", Config("NONE"), 1))
    others = [Schema("AVRO", text, (Reference("one", "a", 1),)) for text in ("5", "6")]
    made = [world.register(subject, schema).id for subject, schema in zip("bc", others, strict=True)]

    assert subject_deletion.referrers(world.state, "a", 1) == sorted(made)
    world.delete("b", None, permanent=False)
    world.delete("b", None, permanent=True)
    assert subject_deletion.referrers(world.state, "a", 1) == made[1:]


def test_of_two_references_of_one_name_the_last_one_counts_unless_the_schema_has_its_own() -> None:
    """And each stands behind what it uses itself."""
    world = World()
    x1, x2 = Schema("AVRO", "11"), Schema("AVRO", "12")
    left = Schema("AVRO", "21", (Reference("x", "x", 1),))
    right = Schema("AVRO", "22", (Reference("x", "x", 2),))
    there = {("x", 1): x1, ("x", 2): x2, ("l", 1): left, ("r", 1): right}

    def used(*references: Reference) -> list[tuple[str, Schema]]:
        schema = Schema("AVRO", "0", references)
        return list(referenced_by(schema, lambda r: there[r.subject, r.version]).items())

    both = (Reference("l", "l", 1), Reference("r", "r", 1))
    assert used(*both) == [("l", left), ("x", x2), ("r", right)]
    assert used(*both[::-1]) == [("r", right), ("x", x1), ("l", left)]
    assert used(Reference("x", "x", 1), *both) == [("x", x1), ("l", left), ("r", right)]
    assert used(*both, Reference("x", "x", 1)) == [("x", x1), ("l", left), ("r", right)]
    assert world.state.referenced(ONE) == {}


def test_a_reference_is_looked_up_once_though_many_use_it() -> None:
    asked: list[Reference] = []
    shared = Reference("s", "s", 1)
    there = {"s": ONE, "p": Schema("AVRO", "2", (shared,)), "q": Schema("AVRO", "3", (shared,))}

    def look_up(reference: Reference) -> Schema:
        asked.append(reference)
        return there[reference.subject]

    found = referenced_by(Schema("AVRO", "4", (Reference("p", "p", 1), Reference("q", "q", 1), shared)), look_up)

    assert list(found) == ["s", "p", "q"]
    assert len(asked) == len(set(asked)) == 3


def test_a_chain_of_references_may_be_longer_than_the_stack() -> None:
    def look_up(reference: Reference) -> Schema:
        below = (Reference("n", "n", reference.version - 1),) if reference.version > 1 else ()
        return Schema("AVRO", str(reference.version), below)

    found = referenced_by(Schema("AVRO", "0", (Reference("n", "n", 5_000),)), look_up)

    assert found == {"n": look_up(Reference("n", "n", 5_000))}


def test_the_highest_id_is_remembered_whatever_comes_after_it() -> None:
    """A row may say one that was given before; else it is the highest that there was."""
    nine = row('{"type":"AVRO","schema":"9"}', schema_id=9)

    state = RegistryState().applied([nine, row(GOOD, seq=2, subject="b", schema_id=3)])
    assert state.last_id == 9
    said = state.applied([row('{"type":"AVRO","schema":"2","last_id":40}', seq=3, subject="c", schema_id=4)])
    assert said.last_id == 40


def test_a_row_of_a_newer_release_is_named() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"^row 1 of __schemas is of kind 'schema' in format 2"):
        parse_row(row('{"v":2,"type":"AVRO","schema":"1"}'))


def test_what_is_forgotten_leaves_a_row_without_a_value() -> None:
    """None is what a table of Delta has for nothing at all."""
    world = World()
    world.add(registry_settings.set_config(world.state, "a", Config("FULL"), 1))
    world.add(registry_settings.set_mode(world.state, "a", "IMPORT", 1, force=False))

    (config,), _ = registry_settings.delete_config(world.state, "a", 1)
    (mode,), _ = registry_settings.delete_mode(world.state, "a", 1)

    assert (config.kind, config.subject, config.value) == ("config", "a", "")
    assert (mode.kind, mode.subject, mode.value) == ("mode", "a", "")


# --- kept rows -----------------------------------------------------------------------------------


def test_a_compacted_table_keeps_the_last_word_on_each_thing_and_the_last_row() -> None:
    """A setting that was forgotten is not worth a row, unless it is the last one, which numbers go on from."""
    world = World()
    world.register("a", ONE)
    world.add(registry_settings.set_config(world.state, "a", Config("FULL"), 1))
    world.add(registry_settings.set_config(world.state, "b", Config("FULL"), 1))
    world.add(registry_settings.set_config(world.state, "b", Config("NONE"), 1))
    world.add(registry_settings.delete_config(world.state, "a", 1))
    world.add(registry_settings.set_mode(world.state, "a", "READONLY", 1, force=False))
    world.add(registry_settings.delete_mode(world.state, "a", 1))
    last = registry_state.kept_schema_rows(world.rows)
    world.register("a", TWO)

    assert [kept.seq for kept in last] == [1, 4, 7]
    assert [kept.seq for kept in registry_state.kept_schema_rows(world.rows)] == [1, 4, 8]


def test_rows_that_cannot_be_read_are_not_thrown_away() -> None:
    with pytest.raises(LogCorruptError):
        registry_state.kept_schema_rows([row("{"), row(GOOD, seq=2)])
    assert registry_state.kept_schema_rows([]) == []
