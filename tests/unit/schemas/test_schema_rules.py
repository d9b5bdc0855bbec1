"""Rules of the registry one by one: ids, versions, references, deletion, levels, modes, identity, rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalike.errors import LogCorruptError, SchemaRegistryError, UnsupportedVersionError
from kafkalike.model.schemas import registration_rules, schemas_topic
from kafkalike.model.schemas import subject_changes as registry_settings
from kafkalike.model.schemas import subject_changes as subject_deletion
from kafkalike.model.schemas.registry_state import RegistryState
from kafkalike.model.schemas.schema import Checks, Reference, Schema, compact, fingerprint, guid_of, remembered
from kafkalike.model.schemas.schema_rows import Config, SchemaRow, parse_row
from tests.tools.effort import examples
from tests.tools.schema_world import ONE, OTHER, THREE, TOY, TWO, USER, World

if TYPE_CHECKING:
    from collections.abc import Callable


def code(act: Callable[[], object]) -> int:
    """The code of the refusal."""
    with pytest.raises(SchemaRegistryError) as caught:
        act()
    return caught.value.error_code


def subjects(world: World) -> dict[str, list[tuple[int, int]]]:
    """Live versions and ids, by subject."""
    return {
        name: [(version, subject.versions[version].id) for version in subject.live]
        for name, subject in world.state.subjects.items()
    }


def test_a_schema_has_one_id_in_all_subjects() -> None:
    """And a subject has it once."""
    world = World()

    for subject in ("a", "a", "b"):
        world.register(subject, ONE)

    assert subjects(world) == {"a": [(1, 1)], "b": [(1, 1)]}


def test_white_space_does_not_make_another_schema() -> None:
    """The text is kept as compact JSON, in its order; a bare name of a primitive is quoted."""
    loose, tight = Schema("AVRO", '{ "type" : "record",\n"a": 1.50}'), Schema("AVRO", '{"type":"record","a":1.5}')

    assert compact(loose) == compact(tight)
    assert compact(tight).text == tight.text
    assert compact(Schema("AVRO", " string ")).text == '"string"'
    assert compact(Schema("PROTOBUF", "\n message A {} \n")).text == "message A {}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcé", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(100, 15), deadline=None)
@given(JSON, JSON)
def test_compact_text_says_the_same_and_stays_as_it_is(one: Any, other: Any) -> None:
    """Two schemas are one exactly when they say the same in the same order."""
    first, second = compact(Schema("JSON", json.dumps(one, indent=2))), compact(Schema("JSON", json.dumps(other)))

    assert json.loads(first.text) == one
    assert compact(first) == first
    assert (fingerprint(first) == fingerprint(second)) is (first.text == second.text)


def test_type_text_and_references_all_count_for_the_identity() -> None:
    """A GUID is made of the schema alone."""
    schemas = [ONE, TWO, OTHER, USER, replace(USER, references=(Reference("one", "a", 2),))]

    assert len({fingerprint(schema) for schema in schemas}) == len(schemas)
    assert guid_of(fingerprint(ONE)) == guid_of(fingerprint(Schema("AVRO", "1")))


def test_a_number_and_an_id_are_never_given_again() -> None:
    """Not even after both deletions; the same schema gets its id back."""
    world = World()
    world.register("a", ONE)
    world.delete("a", None, permanent=False)
    world.delete("a", None, permanent=True)
    assert world.state.schema(1) is None

    world.register("a", TWO)
    world.register("a", ONE)

    assert subjects(world)["a"][1] == (3, 1)
    assert subjects(world)["a"][0][1] > 1


def test_a_soft_deletion_hides_a_version_whose_records_can_be_read() -> None:
    """The next version gets the next number, and may have the same schema."""
    world = World()
    world.register("a", ONE)

    world.delete("a", 1, permanent=False)

    assert world.state.latest("a") is None
    assert world.state.schema(1) == ONE
    assert world.register("a", ONE).version == 2


def test_deletions_are_refused_with_confluents_codes() -> None:
    """In the order in which people meet them."""
    world = World()
    world.register("a", ONE)
    delete = world.delete

    assert code(lambda: delete("b", None, permanent=False)) == 40401
    assert code(lambda: delete("a", None, permanent=True)) == 40405
    assert code(lambda: delete("a", 1, permanent=True)) == 40407
    assert code(lambda: delete("a", 9, permanent=False)) == 40402
    assert code(lambda: delete("a", 0, permanent=False)) == 42202
    delete("a", 1, permanent=False)
    assert code(lambda: delete("a", 1, permanent=False)) == 40406
    assert code(lambda: delete("a", None, permanent=False)) == 40404
    assert code(lambda: delete("a", "latest", permanent=False)) == 40402
    delete("a", "latest", permanent=True)
    assert code(lambda: delete("a", 1, permanent=False)) == 40401


def test_what_is_referred_to_stays() -> None:
    """For good as long as records of the referrer can be read."""
    world = World()
    world.register("a", ONE)
    world.register("b", USER)
    assert subject_deletion.referrers(world.state, "a", 1) == [2]

    assert code(lambda: world.delete("a", 1, permanent=False)) == 42206
    world.delete("b", None, permanent=False)
    world.delete("a", 1, permanent=False)
    assert code(lambda: world.delete("a", 1, permanent=True)) == 42206
    world.delete("b", None, permanent=True)

    assert world.delete("a", 1, permanent=True) == [1]


def test_references_come_before_what_uses_them() -> None:
    """Through several levels, each once."""
    world = World()
    world.register("a", ONE)
    world.register("b", USER)
    both = Schema("AVRO", "3", (Reference("two", "b", 1), Reference("one", "a", 1)))
    world.register("c", both)

    assert list(world.state.referenced(both).items()) == [("one", ONE), ("two", USER)]


def test_a_subject_keeps_its_type() -> None:
    """At each level, and the refusal says what to do."""
    world = World()
    world.set_level("NONE")
    world.register("a", ONE)

    with pytest.raises(SchemaRegistryError, match="create a new topic instead") as caught:
        world.register("a", OTHER)

    assert (caught.value.http_status_code, caught.value.error_code) == (409, 409)


def one_step_back(new: Schema, old: Schema, resolve: object) -> list[str]:
    return [] if 0 <= int(new.text) - int(old.text) <= 1 else ["no"]


@pytest.mark.parametrize(
    ("level", "allowed"),
    [
        ("BACKWARD", {"3", "4"}),
        ("BACKWARD_TRANSITIVE", {"3"}),
        ("FORWARD", {"2", "3"}),
        ("FORWARD_TRANSITIVE", {"2"}),
        ("FULL", {"3"}),
        ("FULL_TRANSITIVE", set()),
        ("NONE", {"0", "2", "3", "4"}),
    ],
)
def test_a_level_says_who_must_read_whom(level: str, allowed: set[str]) -> None:
    """Versions 2 (old) and 3 (last); a reader reads what is at most one below it, and what is equal."""
    checks = replace(TOY, problems=one_step_back)
    world = World()
    world.register("a", TWO)
    world.register("a", THREE)
    state = world.state.applied(registry_settings.set_config(world.state, "a", Config(level), 1)[0])
    verdicts = {
        text: registration_rules.incompatibilities(state, "a", Schema("AVRO", text), checks)
        for text in ("0", "2", "3", "4")
    }

    assert {text for text, problems in verdicts.items() if not problems} == allowed


def test_a_level_of_a_subject_counts_before_that_of_all() -> None:
    """Without any it is BACKWARD; what a deleted subject had set is gone with it."""
    world = World()
    assert world.state.level("a") == "BACKWARD"
    world.set_level("NONE")
    world.register("a", ONE)
    world.add(registry_settings.set_config(world.state, "a", Config("FULL", normalize=True), 1))
    assert (world.state.level("a"), world.state.level("b"), world.state.normalizes("a")) == ("FULL", "NONE", True)

    world.delete("a", None, permanent=False)

    assert world.state.level("a") == "NONE"
    assert code(lambda: registry_settings.delete_config(world.state, "a", 1)) == 40408
    assert code(lambda: registry_settings.delete_mode(world.state, "a", 1)) == 40409
    assert code(lambda: registry_settings.check_level("SIDEWARD")) == 42203
    assert code(lambda: registry_settings.check_mode_name("")) == 42204
    # There is no registry to forward to; a row of an older release may say it.
    assert code(lambda: registry_settings.check_mode_name("forward")) == 42204


@pytest.mark.parametrize("mode", ["READONLY", "READONLY_OVERRIDE", "FORWARD"])
def test_nothing_is_changed_in_a_read_only_mode(mode: str) -> None:
    """What is there is found by who registers it again; the mode itself can be changed back."""
    world = World()
    world.register("a", ONE)
    world.add(registry_settings.set_mode(world.state, "", mode, 1, force=False))

    assert world.register("a", ONE).id == 1
    assert code(lambda: world.add(registration_rules.register(world.state, wanted("a", TWO), TOY, 1))) == 42205
    assert code(lambda: world.delete("a", 1, permanent=False)) == 42205
    assert code(lambda: world.set_level("FULL")) == 42205
    world.add(registry_settings.set_mode(world.state, "", "READWRITE", 1, force=False))
    world.register("a", TWO)


def wanted(subject: str, schema: Schema, **more: Any) -> registration_rules.RegistrationRequest:
    return registration_rules.RegistrationRequest(subject=subject, schema=schema, **more)


def test_an_override_counts_before_a_subjects_own_mode() -> None:
    """As Confluent's does."""
    world = World()
    world.add(registry_settings.set_mode(world.state, "a", "READWRITE", 1, force=False))
    world.add(registry_settings.set_mode(world.state, "", "READONLY", 1, force=False))
    world.register("a", ONE)

    world.add(registry_settings.set_mode(world.state, "", "READONLY_OVERRIDE", 1, force=False))

    assert world.state.mode("a") == "READONLY_OVERRIDE"


def test_who_imports_says_the_id() -> None:
    """Only where nothing is, or by force; an id and a schema belong together for ever."""
    world = World()
    register = registration_rules.register
    assert code(lambda: register(world.state, wanted("a", ONE, id=7), TOY, 1)) == 42205
    world.add(registry_settings.set_mode(world.state, "", "IMPORT", 1, force=False))
    assert code(lambda: register(world.state, wanted("a", ONE), TOY, 1)) == 42205

    world.add(register(world.state, wanted("a", ONE, id=7, version=3), TOY, 1))

    assert subjects(world) == {"a": [(3, 7)]}
    assert code(lambda: register(world.state, wanted("b", TWO, id=7), TOY, 1)) == 42205
    assert code(lambda: register(world.state, wanted("b", ONE, id=8), TOY, 1)) == 42205
    assert code(lambda: register(world.state, wanted("a", TWO, id=8, version=3), TOY, 1)) == 42205
    world.add(registry_settings.set_mode(world.state, "", "READWRITE", 1, force=False))
    assert code(lambda: registry_settings.set_mode(world.state, "", "IMPORT", 1, force=False)) == 42205
    assert world.register("a", TWO).id == 8


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (Schema("AVRO", ""), 42201),
        (Schema("AVRO", "{"), 42201),
        (Schema("AVRO", "[" * 5_000 + "]" * 5_000), 42201),
        (Schema("JSON", "1e999"), 42201),
        (Schema("JSON", "NaN"), 42201),
        (Schema("JSON", '"\\ud800"'), 42201),
        (Schema("XML", "<a/>"), 42201),  # type: ignore[arg-type]
        (Schema("AVRO", '"' + "x" * 1_000_001 + '"'), 42201),
        (Schema("AVRO", "1", (Reference("r", "s", 0),)), 42202),
        (Schema("AVRO", "1", (Reference("r", ":.ctx:s", 1),)), 42208),
        (Schema("AVRO", "1", (Reference("", "s", 1),)), 42201),
        (Schema("AVRO", "1", (Reference("r", "s", 1), Reference("r", "t", 1))), 42201),
    ],
)
def test_what_cannot_be_a_schema_is_refused_by_name(schema: Schema, expected: int) -> None:
    """Before anything is looked at."""
    assert code(lambda: registration_rules.prepared(schema)) == expected


@pytest.mark.parametrize("subject", ["", ":.ctx:a", ":*:", "a\nb", "a\x00", "x" * 2_000, None, 5])
def test_what_cannot_be_a_subject_is_refused_by_name(subject: object) -> None:
    """The default context alone may be named."""
    assert code(lambda: registration_rules.check_subject(subject)) == 42208
    assert registration_rules.check_subject(":.:a") == "a"


# --- rows ----------------------------------------------------------------------------------------


def row(**facts: Any) -> SchemaRow:
    facts = {"kind": "schema", "subject": "a", "version": 1, "schema_id": 1, "seq": 1, "time_ms": 1, **facts}
    return SchemaRow(**facts)


GOOD = '{"type":"AVRO","schema":"1"}'


@pytest.mark.parametrize(
    "damaged",
    [
        row(value=""),
        row(value="{"),
        row(value="[]"),
        row(value='{"type":"AVRO"}'),
        row(value='{"type":"XML","schema":"1"}'),
        row(value='{"type":"AVRO","schema":1}'),
        row(value='{"type":"AVRO","schema":"1","references":[["a"]]}'),
        row(value='{"type":"AVRO","schema":"1","is":"lost"}'),
        row(value='{"fingerprint":"00","is":"gone"}'),
        row(value=GOOD, schema_id=None),
        row(value=GOOD, schema_id=0),
        row(value=GOOD, schema_id=2**31),
        row(value=GOOD, version=None),
        row(value=GOOD, version=2**31),
        row(value=GOOD, subject=""),
        row(kind="config", value='{"compatibility":"SIDEWARD"}'),
        row(kind="config", value='{"normalize":1}'),
        row(kind="mode", value='{"mode":"MAYBE"}'),
        row(kind="mode", value="{}"),
    ],
)
def test_a_damaged_row_makes_no_state(damaged: SchemaRow) -> None:
    """And the error says which one it is."""
    with pytest.raises(LogCorruptError, match="row 1 of __schemas"):
        RegistryState().applied([damaged])


@pytest.mark.parametrize("newer", [row(kind="rule", value="{}"), row(value='{"v":2,"type":"AVRO","schema":"1"}')])
def test_a_row_of_a_newer_release_stops_this_one(newer: SchemaRow) -> None:
    """It must not go on as if the row were not there."""
    with pytest.raises(UnsupportedVersionError):
        parse_row(newer)


def test_rows_that_contradict_each_other_make_no_state() -> None:
    """An id of two schemas, a schema of two ids, a version of two ids, a GUID of two schemas."""
    first = row(value='{"type":"AVRO","schema":"1","guid":"g"}')
    two = '{"type":"AVRO","schema":"2"}'

    for other in (
        row(seq=2, subject="b", value=two),
        row(seq=2, subject="b", schema_id=2, value=GOOD),
        row(seq=2, schema_id=2, value=two),
        row(seq=2, subject="b", schema_id=2, value='{"type":"AVRO","schema":"2","guid":"g"}'),
    ):
        with pytest.raises(LogCorruptError):
            RegistryState().applied([first, other])


def test_a_high_id_is_not_given_again_though_its_row_is_lost() -> None:
    """Rows that come after it say it; when they are replaced, the next one does."""
    world = World()
    world.add(registration_rules.take_over(world.state, wanted("far", THREE, id=5_000, version=1), TOY, 1))
    world.register("a", ONE)
    world.delete("a", 1, permanent=False)
    world.register("b", ONE)

    for lost in ({1}, {1, 2}, {1, 3}):
        left = RegistryState().applied([kept for kept in world.rows if kept.seq not in lost])
        assert left.last_id >= 5_000, lost


def test_a_schema_of_an_older_release_is_found_whatever_the_order_of_its_keys() -> None:
    """It kept them as they were written; the id stays."""
    old = row(value=json.dumps({"type": "AVRO", "schema": '{"size":4,"name":"n.F","type":"fixed"}'}), schema_id=7)
    state = RegistryState().applied([old])

    for text in ('{"type":"fixed","name":"F","namespace":"n","size":4}', '{"size": 4, "name": "n.F", "type": "fixed"}'):
        asked = wanted("a", registration_rules.prepared(Schema("AVRO", text)))
        assert registration_rules.look_up(state, asked, TOY).id == 7
        assert registration_rules.register(state, asked, TOY, 1) == ([], registration_rules.look_up(state, asked, TOY))


# --- moving in and out ---------------------------------------------------------------------------


def test_what_goes_out_comes_in_with_all_ids() -> None:
    """Also what is deleted softly, what refers to it, levels and modes."""
    world = World()
    world.register("a", ONE)
    world.register("b", USER)
    world.register("b", THREE)
    world.delete("b", 1, permanent=False)
    world.add(registry_settings.set_config(world.state, "b", Config("FULL"), 1))
    world.add(registry_settings.set_mode(world.state, "a", "READONLY", 1, force=False))
    lines = list(schemas_topic.written_records(world.state))
    there = RegistryState()

    rows, done = schemas_topic.import_all(there, schemas_topic.read_records(lines), TOY, 1)
    there = there.applied(rows)

    assert list(schemas_topic.written_records(there)) == lines
    assert (done.versions, done.known, done.settings) == (3, 0, 2)
    assert len(list(schemas_topic.written_records(world.state, "b"))) == 4


ON_A = '{"name":"one","subject":"a","version":1}'


def test_records_of_confluents_topic_are_read() -> None:
    """As its console consumer prints them: the last one of a key counts, deletions of subjects, and nothing else."""
    lines = [
        '{"keytype":"NOOP","magic":0}\tnull',
        '{"keytype":"CONFIG","subject":null,"magic":0}\t{"subject":null,"compatibilityLevel":"FULL"}',
        f'{{"keytype":"SCHEMA","subject":"b","version":2}}\t{{"id":5,"schema":"2","references":[{ON_A}]}}',
        '{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}\t{"id":9,"md5":"x","schema":" 1 "}',
        '{"keytype":"SCHEMA","subject":"c","version":1,"magic":1}\t{"subject":"c","version":1,"id":2,"schema":"3"}',
        '{"keytype":"SCHEMA","subject":"d","version":1,"magic":1}\t{"subject":"d","version":1,"id":2,"schema":"3"}',
        '{"keytype":"DELETE_SUBJECT","subject":"c","magic":0}\t{"subject":"c","version":1}',
        '{"keytype":"SCHEMA","subject":"d","version":1,"magic":1}\tnull',
    ]

    rows, _ = schemas_topic.import_all(RegistryState(), schemas_topic.read_records(lines), TOY, 1)
    state = RegistryState().applied(rows)

    assert {name: (s.live, s.soft) for name, s in state.subjects.items()} == {
        "a": ((1,), ()),
        "b": ((2,), ()),
        "c": ((), (1,)),
    }
    assert (state.level("a"), state.last_id) == ("FULL", 9)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{}", "a tab between key and value is missing"),
        ("{}\t{}", "keytype"),
        ('{"keytype":"SCHEMA","subject":"a","version":1}\t{"id":1}', "schema"),
        ('{"keytype":"SCHEMA","subject":"a","version":1}\t{"id":1,"schema":"1","ruleSet":{"x":1}}', "ruleSet"),
        ('{"keytype":"SCHEMA","subject":":.c:a","version":1}\t{"id":1,"schema":"1"}', "context"),
        ('{"keytype":"MAGIC","subject":"a"}\t{}', "MAGIC"),
        ('{"keytype":"MODE","subject":null}\t{"mode":"MAYBE"}', "MAYBE"),
        ("[]\tnull", "list"),
    ],
)
def test_a_line_that_cannot_be_imported_is_named(line: str, said: str) -> None:
    """By its number and what is wrong with it."""
    with pytest.raises(SchemaRegistryError, match=rf"line 2: .*{said}"):
        schemas_topic.read_records(["", line])


def test_an_import_into_a_subject_that_is_read_only_is_refused() -> None:
    """What is there already is no change."""
    world = World()
    world.register("a", ONE)
    world.add(registry_settings.set_mode(world.state, "a", "READONLY", 1, force=False))

    def imported(schema: Schema, version: int) -> tuple[Any, schemas_topic.Imported]:
        contents = schemas_topic.Contents(schemas={("a", version): wanted("a", schema, id=version, version=version)})
        return schemas_topic.import_all(world.state, contents, TOY, 1)

    assert imported(ONE, 1) == ([], schemas_topic.Imported(versions=0, known=1, settings=0))
    assert code(lambda: imported(TWO, 2)) == 42205


def test_an_import_that_contradicts_what_is_here_is_refused_as_a_whole() -> None:
    """An id that is another schema's here; a reference that is missing; a circle."""
    world = World()
    world.register("a", ONE)

    def imported(*more: registration_rules.RegistrationRequest) -> object:
        contents = schemas_topic.Contents(schemas={(w.subject, w.version or 0): w for w in more})
        return schemas_topic.import_all(world.state, contents, TOY, 1)

    circle = [
        wanted("x", Schema("AVRO", "1", (Reference("y", "y", 1),)), id=5, version=1),
        wanted("y", Schema("AVRO", "1", (Reference("x", "x", 1),)), id=6, version=1),
    ]
    assert code(lambda: imported(wanted("b", TWO, id=9, version=1), wanted("b", THREE, id=1, version=2))) == 42205
    assert code(lambda: imported(wanted("b", Schema("AVRO", "2", (Reference("r", "q", 1),)), id=9, version=1))) == 42201
    assert code(lambda: imported(*circle)) == 42201


def test_a_check_is_made_once_for_a_change() -> None:
    """However often its plan is."""
    asked: list[object] = []

    def check(schema: Schema, resolve: object) -> None:
        asked.append((schema, resolve))

    def normalized(schema: Schema) -> Schema:
        asked.append(schema)
        return schema

    def problems(new: Schema, old: Schema, resolve: object) -> list[str]:
        asked.append((new, old, resolve))
        return []

    once = remembered(Checks(check, normalized, problems))

    for _ in range(3):
        once.check(ONE, dict)  # type: ignore[arg-type]
        assert once.normalized(ONE) == ONE
        assert once.problems(ONE, TWO, dict) == []  # type: ignore[arg-type]

    assert asked == [(ONE, dict), ONE, (ONE, TWO, dict)]


# --- what is asked and refused at the edges ------------------------------------------------------


def test_a_schema_is_examined_without_being_registered() -> None:
    """Against all that the level says, the latest, or one version."""
    world = World()
    world.register("a", ONE)
    world.register("a", TWO)

    def found(version: int | str | None, subject: str = "a", text: str = "4") -> list[str]:
        return registration_rules.examined(world.state, wanted(subject, Schema("AVRO", text)), TOY, version)

    assert len(found(None)) == len(found("latest")) == len(found(1)) == 1
    assert found("latest", "b") == found(2, text="3") == found(None, "b") == []
    assert "is AVRO, not JSON" in registration_rules.examined(world.state, wanted("a", OTHER), TOY, 1)[0]
    assert code(lambda: found(1, "b")) == 40401
    assert code(lambda: found(9)) == 40402


def test_a_schema_is_looked_up_as_it_is_or_in_its_normal_form() -> None:
    """Also where it is deleted softly, when that is asked for."""
    doubled = replace(TOY, normalized=lambda schema: replace(schema, text=schema.text.strip("+")))
    world = World()
    world.register("a", ONE)
    odd = wanted("a", Schema("AVRO", "+1"), normalize=True)

    assert registration_rules.look_up(world.state, odd, doubled).version == 1
    assert registration_rules.register(world.state, odd, doubled, 1)[1].version == 1
    assert code(lambda: registration_rules.look_up(world.state, wanted("a", TWO), TOY)) == 40403
    assert code(lambda: registration_rules.look_up(world.state, wanted("b", TWO), TOY)) == 40401
    world.delete("a", 1, permanent=False)
    assert registration_rules.look_up(world.state, wanted("a", ONE), TOY, deleted=True).deleted


def refuse(*given: object) -> Any:
    raise RecursionError


def test_who_cannot_read_a_schema_says_so_by_name() -> None:
    """Whatever its reader raises for it."""
    deep = replace(TOY, check=refuse, normalized=refuse, problems=refuse)
    state = RegistryState()

    for asked in (wanted("a", ONE), wanted("a", ONE, normalize=True)):
        assert code(lambda asked=asked: registration_rules.register(state, asked, deep, 1)) == 42201  # type: ignore[misc]
    assert code(lambda: registration_rules.take_over(state, wanted("a", ONE, id=1, version=1), deep, 1)) == 42201


def test_numbers_have_an_end_and_a_guid_is_one_schemas() -> None:
    """The last id fits four bytes."""
    world = World()
    world.take_over("a", 1, 2**31 - 1, ONE)
    guid = world.state.schemas[2**31 - 1].named.guid

    assert code(lambda: world.add(registration_rules.register(world.state, wanted("a", TWO), TOY, 1))) == 42205
    twin = wanted("b", TWO, id=5, version=1, guid=guid)
    assert code(lambda: registration_rules.take_over(world.state, twin, TOY, 1)) == 42205
    assert code(lambda: registration_rules.register(RegistryState(), wanted("b", TWO, version=3), TOY, 1)) == 42201
    assert code(lambda: registration_rules.prepared(Schema("JSON", '"' + "é" * 600_000 + '"'))) == 42201
    many = tuple(Reference(f"r{n}", "s", 1) for n in range(1_001))
    assert code(lambda: registration_rules.prepared(Schema("AVRO", "1", many))) == 42201


def test_what_is_not_set_cannot_be_forgotten_and_is_not_set_twice() -> None:
    """Of all, forgetting nothing is no error."""
    world = World()
    world.add(registry_settings.set_config(world.state, "a", Config("FULL"), 1))
    world.add(registry_settings.set_mode(world.state, "a", "IMPORT", 1, force=False))

    assert registry_settings.set_config(world.state, "a", Config("FULL"), 1)[0] == []
    assert registry_settings.set_mode(world.state, "a", "IMPORT", 1, force=False)[0] == []
    assert registry_settings.delete_config(world.state, "", 1) == ([], Config())
    assert registry_settings.delete_mode(world.state, "", 1) == ([], "READWRITE")
    assert world.add(registry_settings.delete_config(world.state, "a", 1)) == Config("FULL")
    assert world.add(registry_settings.delete_mode(world.state, "a", 1)) == "IMPORT"
    world.register("a", ONE)
    assert code(lambda: registry_settings.set_mode(world.state, "a", "IMPORT", 1, force=False)) == 42205


def test_records_that_take_back_what_was_said_are_followed() -> None:
    """Settings without a value, subjects that are cleared, and what a prefix leaves out."""
    lines = [
        '{"keytype":"SCHEMA","subject":"a","version":1}\t{"id":1,"schemaType":"JSON","schema":"1"}',
        '{"keytype":"SCHEMA","subject":"b","version":1}\t{"id":2,"schema":"2"}',
        '{"keytype":"CONFIG","subject":"b"}\t{"normalize":true}',
        '{"keytype":"CONFIG","subject":"a"}\t{"compatibilityLevel":"FULL"}',
        '{"keytype":"CONFIG","subject":"a"}\tnull',
        '{"keytype":"MODE","subject":"a"}\t{"mode":"IMPORT"}',
        '{"keytype":"MODE","subject":"a"}\tnull',
        '{"keytype":"MODE","subject":"b"}\t{"mode":"READONLY"}',
        '{"keytype":"CLEAR_SUBJECT","subject":"c"}\tnull',
    ]
    state = RegistryState()
    state = state.applied(schemas_topic.import_all(state, schemas_topic.read_records(lines), TOY, 1)[0])

    assert (state.normalizes("b"), state.mode("a"), state.mode("b")) == (True, "READWRITE", "READONLY")
    assert [json.loads(line.partition("\t")[2]).get("id") for line in schemas_topic.written_records(state, "a")] == [1]
    assert len(list(schemas_topic.written_records(state))) == 4
    cleared = [*lines, '{"keytype":"CLEAR_SUBJECT","subject":"a"}\t{"subject":"a"}']
    assert list(schemas_topic.read_records(cleared).schemas) == [("b", 1)]
    again = schemas_topic.read_records(lines)
    assert schemas_topic.import_all(state, again, TOY, 1)[0] == []
    wrong = '{"keytype":"SCHEMA","subject":"a","version":1}\t{"id":1,"schemaType":"XML","schema":"1"}'
    assert code(lambda: schemas_topic.read_records([wrong])) == 42201


def test_rows_that_were_applied_before_change_nothing() -> None:
    """Nor does one of two references of one name that is not the schema's own."""
    world = World()
    world.register("a", ONE)
    world.register("a", TWO)
    world.register("b", USER)
    mixed = Schema("AVRO", "3", (Reference("one", "a", 2), Reference("user", "b", 1)))

    assert world.state.applied(world.rows) is world.state
    assert dict(world.state.referenced(mixed)) == {"one": TWO, "user": USER}


def test_who_imports_an_id_again_makes_no_second_version() -> None:
    """A writer that got no answer asks again, and clients do so by themselves."""
    world = World()
    world.add(registry_settings.set_mode(world.state, "", "IMPORT", 1, force=False))
    wanted = registration_rules.RegistrationRequest(subject="a", schema=ONE, id=7)

    first = world.add(registration_rules.register(world.state, wanted, TOY, 1))
    again = world.add(registration_rules.register(world.state, wanted, TOY, 1))

    assert again == first
    assert subjects(world) == {"a": [(1, 7)]}


def test_a_subjects_settings_go_with_its_last_version() -> None:
    """As with the subject as a whole: who begins anew begins with the settings of all."""
    world = World()
    world.register("a", ONE)
    world.register("a", TWO)
    world.add(registry_settings.set_config(world.state, "a", Config("NONE"), 1))
    world.add(registry_settings.set_mode(world.state, "a", "IMPORT", 1, force=True))

    world.delete("a", 1, permanent=False)
    assert world.state.configs.get("a") == Config("NONE")
    world.delete("a", 2, permanent=False)

    assert world.state.configs.get("a") is None
    assert world.state.mode("a") == "READWRITE"


def topic_line(kind: str, value: dict[str, Any], **key: Any) -> str:
    """A record of Confluent's topic."""
    return f"{json.dumps({'keytype': kind, 'magic': 1, **key})}\t{json.dumps(value)}"


GUID = "11111111-1111-4111-8111-111111111111"
VERSION_LINE = topic_line(
    "SCHEMA", {"subject": "a", "version": 1, "id": 5, "schema": "1", "guid": GUID}, subject="a", version=1
)


def test_an_import_that_sets_a_read_only_mode_can_be_made_again() -> None:
    lines = [
        VERSION_LINE,
        topic_line("CONFIG", {"compatibilityLevel": "FULL"}, subject="a"),
        topic_line("MODE", {"mode": "READONLY"}, subject=None),
    ]
    contents = schemas_topic.read_records(lines)
    state = RegistryState().applied(schemas_topic.import_all(RegistryState(), contents, TOY, 1)[0])

    rows, done = schemas_topic.import_all(state, contents, TOY, 2)

    assert (list(rows), done) == ([], schemas_topic.Imported(versions=0, known=1, settings=0))
    more = schemas_topic.read_records([topic_line("CONFIG", {"compatibilityLevel": "NONE"}, subject="a")])
    assert code(lambda: schemas_topic.import_all(state, more, TOY, 2)) == 42205


def test_guids_of_elsewhere_go_out_and_come_in_again() -> None:
    """Records may name a schema by its GUID."""
    contents = schemas_topic.read_records([VERSION_LINE])
    first = RegistryState().applied(schemas_topic.import_all(RegistryState(), contents, TOY, 1)[0])

    carried = schemas_topic.read_records(schemas_topic.written_records(first))
    second = RegistryState().applied(schemas_topic.import_all(RegistryState(), carried, TOY, 1)[0])

    assert first.guids.get(GUID) == second.guids.get(GUID) == 5


@pytest.mark.parametrize("name", ["alias", "compatibilityGroup", "defaultRuleSet", "overrideRuleSet"])
def test_settings_that_are_not_kept_are_not_dropped_in_an_import(name: str) -> None:
    line = topic_line("CONFIG", {"compatibilityLevel": "FULL", name: "x"}, subject="a")

    assert code(lambda: schemas_topic.read_records([line])) == 42201
