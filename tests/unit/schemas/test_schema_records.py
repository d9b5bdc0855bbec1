"""Lines of Confluent's `_schemas` topic: what each says, what a later one takes back, and how they are written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.schemas import registration_rules, schemas_topic
from kafkalike.model.schemas import subject_changes as registry_settings
from kafkalike.model.schemas.registry_state import RegistryState
from kafkalike.model.schemas.schema import Checks, Reference, Schema
from kafkalike.model.schemas.schema_rows import Config
from tests.tools.schema_world import ONE, TOY, TWO, USER, World

GUID = "11111111-1111-4111-8111-111111111111"


def line(key: str, value: str = "null") -> str:
    return f"{key}\t{value}"


def schema_line(subject: str, version: int, schema_id: int, text: str = "1", **more: Any) -> str:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": schema_id, "schema": text, **more}
    return line(json.dumps(key), json.dumps(value))


def setting_line(kind: str, subject: str | None, value: dict[str, Any] | None) -> str:
    return line(json.dumps({"keytype": kind, "subject": subject, "magic": 0}), json.dumps(value))


def state_of(*lines: str) -> RegistryState:
    rows, _ = schemas_topic.import_all(RegistryState(), schemas_topic.read_records(lines), TOY, 1)
    return RegistryState().applied(rows)


def test_a_registry_is_written_as_confluent_writes_its_topic() -> None:
    """To the letter: another registry reads it. What its own readers take for granted is left out."""
    world = World()
    world.add(registry_settings.set_config(world.state, "", Config("FULL"), 1))
    world.add(registry_settings.set_config(world.state, "a", Config("NONE", normalize=False), 1))
    world.add(registry_settings.set_mode(world.state, "", "READWRITE", 1, force=False))
    world.add(registry_settings.set_mode(world.state, "c", "IMPORT", 1, force=False))
    world.register("a", ONE)
    world.register("b", USER)
    world.add(
        registration_rules.take_over(
            world.state,
            registration_rules.RegistrationRequest(
                subject="b", schema=Schema("AVRO", "9"), id=9, version=4, deleted=True, guid=GUID
            ),
            TOY,
            1,
        )
    )
    world.add(
        registration_rules.register(
            world.state, registration_rules.RegistrationRequest(subject="d", schema=Schema("JSON", '"é"')), TEXTS, 1
        )
    )

    assert list(schemas_topic.written_records(world.state)) == [
        '{"keytype":"CONFIG","subject":null,"magic":0}\t{"subject":null,"compatibilityLevel":"FULL"}',
        '{"keytype":"CONFIG","subject":"a","magic":0}\t{"subject":"a","compatibilityLevel":"NONE","normalize":false}',
        '{"keytype":"MODE","subject":null,"magic":0}\t{"subject":null,"mode":"READWRITE"}',
        '{"keytype":"MODE","subject":"c","magic":0}\t{"subject":"c","mode":"IMPORT"}',
        (
            '{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}\t'
            '{"subject":"a","version":1,"id":5,"schema":"1","deleted":false}'
        ),
        (
            '{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}\t'
            '{"subject":"b","version":1,"id":6,"references":[{"name":"one","subject":"a","version":1}],"schema":"2",'
            '"deleted":false}'
        ),
        (
            '{"keytype":"SCHEMA","subject":"b","version":4,"magic":1}\t'
            f'{{"subject":"b","version":4,"id":9,"schema":"9","deleted":true,"guid":"{GUID}"}}'
        ),
        (
            '{"keytype":"SCHEMA","subject":"d","version":1,"magic":1}\t'
            '{"subject":"d","version":1,"id":10,"schemaType":"JSON","schema":"\\"é\\"","deleted":false}'
        ),
    ]


TEXTS = Checks(
    check=lambda schema, resolve: None,  # noqa: ARG005
    normalized=lambda schema: schema,
    problems=lambda new, old, resolve: [],  # noqa: ARG005
)
"""No language: any text is a schema."""


def test_a_prefix_picks_subjects_and_what_they_refer_to() -> None:
    """In an order in which another registry can take them: what was registered first comes first."""
    world = World()
    world.register("a", ONE)
    world.register("bb", USER)
    world.register("b", TWO)
    for subject in ("a", "b", "bb"):
        world.add(registry_settings.set_config(world.state, subject, Config("FULL"), 1))
        world.add(registry_settings.set_mode(world.state, subject, "READWRITE", 1, force=False))

    def written(prefix: str) -> list[tuple[str, str]]:
        keys = [json.loads(text.partition("\t")[0]) for text in schemas_topic.written_records(world.state, prefix)]
        return [(key["keytype"], key["subject"]) for key in keys]

    assert written("bb") == [("CONFIG", "bb"), ("MODE", "bb"), ("SCHEMA", "a"), ("SCHEMA", "bb")]
    assert written("b") == [
        ("CONFIG", "b"),
        ("CONFIG", "bb"),
        ("MODE", "b"),
        ("MODE", "bb"),
        ("SCHEMA", "a"),
        ("SCHEMA", "bb"),
        ("SCHEMA", "b"),
    ]
    assert written("c") == []


def test_a_version_says_all_that_is_kept_of_it() -> None:
    """A type that is not said is AVRO; keys of Confluent's that mean nothing here are left out."""
    references = [{"name": "r", "subject": ":.:b", "version": 2}]
    given = schema_line("a", 3, 5, ' {"b":1, "a":2}', schemaType="JSON", references=references, guid=GUID, deleted=True)
    bare = schema_line(
        "b", 2, 4, ' {"b":1, "a":2}', schemaType=None, references=None, metadata=None, ruleSet={}, md5=""
    )

    contents = schemas_topic.read_records([given, bare])

    assert contents.schemas == {
        ("a", 3): registration_rules.RegistrationRequest(
            subject="a",
            version=3,
            id=5,
            schema=Schema("JSON", '{"b":1,"a":2}', (Reference("r", "b", 2),)),
            guid=GUID,
            deleted=True,
        ),
        # The order of its keys stays: there may be two ids of schemas that differ in it alone.
        ("b", 2): registration_rules.RegistrationRequest(
            subject="b", version=2, id=4, schema=Schema("AVRO", '{"b":1,"a":2}')
        ),
    }


def test_settings_are_read_as_they_are_meant() -> None:
    """Names in any case; of all, or of a subject; what is not said is not set."""
    contents = schemas_topic.read_records(
        [
            setting_line("CONFIG", None, {"compatibilityLevel": "full"}),
            setting_line("CONFIG", "a", {"normalize": True, "alias": None, "validateFields": False}),
            setting_line("CONFIG", "b", {"compatibilityLevel": "NONE", "normalize": False}),
            setting_line("MODE", None, {"mode": "readonly"}),
            setting_line("MODE", ":.:a", {"mode": "IMPORT"}),
        ]
    )

    assert contents.configs == {"": Config("FULL"), "a": Config(normalize=True), "b": Config("NONE", normalize=False)}
    assert contents.modes == {"": "READONLY", "a": "IMPORT"}


ALL = (
    schema_line("a", 1, 1),
    schema_line("a", 2, 2, "2"),
    schema_line("b", 1, 1),
    setting_line("CONFIG", "a", {"compatibilityLevel": "NONE"}),
    setting_line("CONFIG", "b", {"compatibilityLevel": "NONE"}),
    setting_line("MODE", "a", {"mode": "IMPORT"}),
    setting_line("MODE", "b", {"mode": "IMPORT"}),
)


def left(*more: str) -> tuple[dict[tuple[str, int], bool], list[str], list[str]]:
    """Versions and whether they are deleted softly, subjects with levels, and those with modes."""
    found = schemas_topic.read_records([*ALL, *more])
    return {where: w.deleted for where, w in found.schemas.items()}, list(found.configs), list(found.modes)


def deletion(kind: str, **value: Any) -> str:
    return line(json.dumps({"keytype": kind, "subject": "a", "magic": 0}), json.dumps({"subject": "a", **value}))


def test_a_deletion_counts_for_the_versions_up_to_the_one_that_it_names() -> None:
    """And takes the subject's settings along; other subjects stay."""
    kept = {("a", 1): False, ("a", 2): False, ("b", 1): False}

    assert left() == (kept, ["a", "b"], ["a", "b"])
    assert left(deletion("DELETE_SUBJECT", version=1)) == (kept | {("a", 1): True}, ["b"], ["b"])
    assert left(deletion("DELETE_SUBJECT", version=2)) == (kept | {("a", 1): True, ("a", 2): True}, ["b"], ["b"])
    assert left(deletion("DELETE_SUBJECT")) == (kept, ["b"], ["b"])
    assert left(deletion("CLEAR_SUBJECT")) == ({("b", 1): False}, ["b"], ["b"])
    assert left(setting_line("DELETE_SUBJECT", "a", None)) == (kept, ["a", "b"], ["a", "b"])


def test_a_later_record_of_a_key_counts() -> None:
    found = schemas_topic.read_records(
        [
            *ALL,
            schema_line("a", 1, 8, "3"),
            setting_line("CONFIG", "a", {"normalize": True}),
            setting_line("MODE", "a", {"mode": "READONLY"}),
            setting_line("MODE", "b", None),
            setting_line("CONFIG", "b", None),
            line('{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}'),
        ]
    )

    assert [(*where, w.id) for where, w in found.schemas.items()] == [("a", 2, 2), ("a", 1, 8)]
    assert (found.configs, found.modes) == ({"a": Config(normalize=True)}, {"a": "READONLY"})


def bad_schema(**value: Any) -> str:
    return schema_line("a", 1, 1, **{"text": "1", **value})


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("{}", "a tab between key and value is missing"),
        ("[]\tnull", "list indices must be integers or slices, not str"),
        ('{"keytype":5}\tnull', "'keytype' is 5, not a text"),
        ('{"keytype":NaN}\tnull', "NaN is not JSON"),
        (line('{"keytype":"MAGIC","subject":"a"}', "{}"), "records of keytype 'MAGIC' are not supported"),
        (
            line(f'{{"keytype":"{"M" * 50}","subject":"a"}}', "{}"),
            f"records of keytype '{'M' * 40}' are not supported",
        ),
        (
            line('{"keytype":"SCHEMA","subject":null,"version":1}'),
            "The specified subject is not a valid subject name: it must be a text that is not empty, not 'None'",
        ),
        (
            line('{"keytype":"SCHEMA","subject":"a","version":0}'),
            (
                "The specified version '0' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
                'string "latest"'
            ),
        ),
        (
            bad_schema(schemaType="XML"),
            "Invalid schema: unknown type 'XML'; the types are AVRO, PROTOBUF, JSON",
        ),
        (bad_schema(metadata={"x": 1}), "Invalid schema: metadata is not supported here"),
        (bad_schema(ruleSet={"x": 1}), "Invalid schema: ruleSet is not supported here"),
        (bad_schema(text=5), "'schema' is 5, not a text"),
        (bad_schema(guid=5), "'guid' is 5, not a text"),
        (bad_schema(id=0), "'id' is 0, not a whole number from 1"),
        (bad_schema(references=[{"name": 5}]), "'name' is 5, not a text"),
        (bad_schema(references=[{"name": "n", "subject": 5}]), "'subject' is 5, not a text"),
        (
            bad_schema(references=[{"name": "n", "subject": "s", "version": "x"}]),
            (
                "The specified version 'x' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
                'string "latest"'
            ),
        ),
        (setting_line("CONFIG", "a", {"alias": "b"}), "Invalid schema: alias is not supported here"),
        (
            setting_line("CONFIG", "a", {"validateRules": True, "alias": "b"}),
            "Invalid schema: alias, validateRules is not supported here",
        ),
        (setting_line("CONFIG", "a", {"compatibilityLevel": "SIDEWARD"}), "Invalid compatibility level 'SIDEWARD'"),
        (setting_line("MODE", "a", {"mode": "MAYBE"}), "Invalid mode 'MAYBE'"),
        (setting_line("DELETE_SUBJECT", "a", {"version": -1}), "'version' is -1, not a whole number from 0"),
    ],
)
def test_a_line_that_cannot_be_read_is_told_with_its_number_and_its_beginning(bad: str, why: str) -> None:
    """Nothing is imported then."""
    with pytest.raises(SchemaRegistryError) as caught:
        schemas_topic.read_records(["", " ", f"  {bad}\n", *ALL])

    error = caught.value
    assert (error.http_status_code, error.error_code) == (422, 42201)
    assert error.error_message.startswith(f"line 3: {why}")
    assert error.error_message.endswith(f": {bad[:80]}")


def test_an_import_brings_first_what_others_refer_to() -> None:
    """Whatever their ids are; rows stand in the order of ids elsewhere."""
    used = [{"name": "r", "subject": "z", "version": 1}]
    lines = [
        schema_line("a", 1, 3, "1", references=used),
        schema_line("c", 10, 5, "3"),
        schema_line("c", 2, 5, "3"),
        schema_line("b", 1, 5, "3"),
        schema_line("z", 1, 4, "2"),
    ]

    rows, done = schemas_topic.import_all(RegistryState(), schemas_topic.read_records(lines), TOY, 77)

    made = [(row.subject, row.version, row.schema_id) for row in rows]
    assert made == [("z", 1, 4), ("b", 1, 5), ("c", 2, 5), ("c", 10, 5), ("a", 1, 3)]
    assert {row.time_ms for row in rows} == {77}
    assert done == schemas_topic.Imported(versions=5, known=0, settings=0)


def test_an_import_counts_what_is_new_and_what_is_known() -> None:
    lines = [*ALL, schema_line("c", 1, 7, "3", deleted=True)]
    first, done = schemas_topic.import_all(RegistryState(), schemas_topic.read_records(lines), TOY, 5)
    assert done == schemas_topic.Imported(versions=4, known=0, settings=4)
    assert {row.time_ms for row in first} == {5}
    state = RegistryState().applied(first)

    rows, done = schemas_topic.import_all(
        state,
        schemas_topic.read_records([*lines, deletion("DELETE_SUBJECT", version=1), schema_line("d", 1, 1)]),
        TOY,
        6,
    )

    assert done == schemas_topic.Imported(versions=2, known=3, settings=0)
    assert [(row.subject, row.version) for row in rows] == [("a", 1), ("d", 1)]
    assert state.applied(rows).subject("a").soft == (1,)


def test_schemas_in_a_circle_are_named() -> None:
    """A few of them; those that can be taken are not the reason."""
    ring = [
        schema_line(
            f"s{n}", n + 1, n + 1, references=[{"name": "r", "subject": f"s{(n + 1) % 4}", "version": (n + 1) % 4 + 1}]
        )
        for n in range(4)
    ]

    with pytest.raises(SchemaRegistryError) as caught:
        schemas_topic.import_all(RegistryState(), schemas_topic.read_records([*ring, schema_line("q", 1, 1)]), TOY, 1)

    assert caught.value.error_message == (
        "Invalid schema: schemas refer to each other in a circle: version 1 of subject s0, version 2 of subject s1, "
        "version 3 of subject s2"
    )


def test_an_import_into_a_read_only_registry_says_which_subject_it_is() -> None:
    state = state_of(setting_line("MODE", "a", {"mode": "READONLY"}))

    with pytest.raises(SchemaRegistryError) as caught:
        schemas_topic.import_all(state, schemas_topic.read_records([schema_line("a", 1, 1)]), TOY, 1)

    assert (caught.value.error_code, caught.value.error_message) == (42205, "Subject a is in read-only mode")


def test_an_import_sets_import_modes_where_schemas_are() -> None:
    """It brings the schemas itself."""
    state = state_of(*ALL)

    assert (state.mode("a"), state.mode("b"), state.mode("c")) == ("IMPORT", "IMPORT", "READWRITE")
