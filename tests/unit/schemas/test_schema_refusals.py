"""What a registry answers when it says no: HTTP status, code and words, which clients of Confluent's show to people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.schemas import refusals, registration_rules
from kafkalike.model.schemas import subject_changes as registry_settings
from kafkalike.model.schemas import subject_changes as subject_deletion
from kafkalike.model.schemas.registry_state import RegistryState
from kafkalike.model.schemas.schema import Reference, Schema
from kafkalike.model.schemas.schema_rows import Config
from tests.tools.schema_world import ONE, OTHER, THREE, TOY, TWO, USER, World


def said(act: Callable[[], object]) -> tuple[int, int, str]:
    """Status, code and words of the refusal."""
    with pytest.raises(SchemaRegistryError) as caught:
        act()
    return caught.value.http_status_code, caught.value.error_code, caught.value.error_message


def wanted(subject: str, schema: Schema, **more: Any) -> registration_rules.RegistrationRequest:
    return registration_rules.RegistrationRequest(subject=subject, schema=schema, **more)


def register(state: RegistryState, subject: str, schema: Schema, **more: Any) -> registration_rules.Plan:
    return registration_rules.register(state, wanted(subject, schema, **more), TOY, 1)


def delete(world: World, *facts: Any, permanent: bool = False) -> Callable[[], object]:
    return lambda: world.delete(*facts, permanent=permanent)


def world_of(*schemas: Schema) -> World:
    """A registry with these as versions of `a`."""
    world = World()
    for schema in schemas:
        world.register("a", schema)
    return world


def test_what_is_not_there() -> None:
    world = world_of(ONE, TWO)
    state = world.state

    no_subject = (404, 40401, "Subject 'b' not found.")
    assert said(delete(world, "b", None)) == no_subject
    assert said(delete(world, "b", 1)) == no_subject
    assert said(lambda: registration_rules.look_up(state, wanted("b", ONE), TOY)) == no_subject
    assert said(lambda: registration_rules.examined(state, wanted("b", ONE), TOY, 1)) == no_subject
    assert said(delete(world, "a", 9)) == (404, 40402, "Version 9 not found.")
    assert said(lambda: registration_rules.examined(state, wanted("a", ONE), TOY, 9)) == (
        404,
        40402,
        "Version 9 not found.",
    )
    assert said(lambda: registration_rules.look_up(state, wanted("a", THREE), TOY)) == (404, 40403, "Schema not found")
    assert said(lambda: state.referenced(Schema("AVRO", "1", (Reference("r", "q", 7),)))) == (
        404,
        40402,
        "Version 7 of subject 'q' not found.",
    )
    assert refusals.no_schema(5).args == SchemaRegistryError(404, 40403, "Schema 5 not found").args


def test_what_goes_in_two_steps() -> None:
    world = world_of(ONE, TWO)

    assert said(delete(world, "a", None, permanent=True)) == (
        404,
        40405,
        "Subject 'a' was not deleted first before being permanently deleted",
    )
    assert said(delete(world, "a", 2, permanent=True)) == (
        404,
        40407,
        "Subject 'a' Version 2 was not deleted first before being permanently deleted",
    )
    world.delete("a", 2, permanent=False)
    assert said(delete(world, "a", 2)) == (
        404,
        40406,
        "Subject 'a' Version 2 was soft deleted. Set permanent=true to delete permanently",
    )
    world.delete("a", None, permanent=False)
    assert said(delete(world, "a", None)) == (
        404,
        40404,
        "Subject 'a' was soft deleted. Set permanent=true to delete permanently",
    )
    assert said(delete(world, "a", "latest")) == (404, 40402, "Version latest not found.")


def test_what_others_use() -> None:
    world = world_of(ONE)
    world.register("b", USER)

    used = (
        422,
        42206,
        "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=a,version=1}.",
    )
    assert said(delete(world, "a", 1)) == used
    assert said(delete(world, "a", None)) == used


def test_what_is_not_set() -> None:
    state = RegistryState()

    assert said(lambda: registry_settings.delete_config(state, "a", 1)) == (
        404,
        40408,
        "Subject 'a' does not have subject-level compatibility configured",
    )
    assert said(lambda: registry_settings.delete_mode(state, "a", 1)) == (
        404,
        40409,
        "Subject 'a' does not have subject-level mode configured",
    )


@pytest.mark.parametrize("given", ["sideward", None, 5])
def test_what_is_no_level_or_mode(given: object) -> None:
    assert said(lambda: registry_settings.check_level(given)) == (
        422,
        42203,
        (
            f"Invalid compatibility level {str(given)!r}. Valid values are none, backward, backward_transitive, "
            "forward, forward_transitive, full, full_transitive"
        ),
    )
    assert said(lambda: registry_settings.check_mode_name(given)) == (
        422,
        42204,
        f"Invalid mode {str(given)!r}. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT",
    )


def test_a_mode_that_needs_a_second_registry() -> None:
    assert said(lambda: registry_settings.check_mode_name("Forward")) == (
        422,
        42204,
        (
            "Invalid mode 'FORWARD': FORWARD passes changes on to another registry, and this one knows none; READONLY "
            "takes no changes either"
        ),
    )
    assert registry_settings.check_mode_name("readOnly") == "READONLY"
    assert registry_settings.check_level("full_Transitive") == "FULL_TRANSITIVE"


def test_what_is_not_compatible() -> None:
    """Each problem is told, with the version that it is about."""
    world = world_of(ONE, TWO)
    world.add(registry_settings.set_config(world.state, "a", Config("FULL_TRANSITIVE"), 1))

    assert said(lambda: register(world.state, "a", Schema("AVRO", "4"))) == (
        409,
        409,
        (
            'Schema being registered is incompatible with an earlier schema for subject "a", details: [the new schema '
            "cannot read what version 2 wrote: 4 is far from 2; version 2 cannot read what the new schema writes: 2 is "
            "far from 4]"
        ),
    )
    assert said(lambda: register(world.state, "a", OTHER)) == (
        409,
        409,
        (
            'Schema being registered is incompatible with an earlier schema for subject "a", details: [it has AVRO '
            "schemas, and the type of a subject never changes, so JSON is refused: create a new topic instead]"
        ),
    )
    assert registration_rules.incompatibilities(world.state, "a", OTHER, TOY) == [
        "version 2 is AVRO, not JSON",
        "version 1 is AVRO, not JSON",
    ]


def test_the_type_of_a_subject_outlives_a_soft_deletion() -> None:
    """Records of the deleted version can still be read, and readers know one type."""
    world = world_of(ONE)
    world.delete("a", 1, permanent=False)

    assert said(lambda: register(world.state, "a", OTHER))[:2] == (409, 409)


LONG = "y" * 2_000


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (Schema("AVRO", " \n"), "it is empty"),
        (Schema("JSON", '"' + "x" * 1_000_000 + '"'), "it has 1000002 characters, at most 1000000 are allowed"),
        (Schema("JSON", '"' + "é" * 500_000 + '"'), "it has 1000002 bytes, at most 1000000 are allowed"),
        (Schema("AVRO", "[" * 100_000), "it is nested too deeply"),
        (Schema("JSON", "-Infinity"), "-Infinity is not JSON"),
        (Schema("JSON", f"[1e{'9' * 60}]"), f"the number 1e{'9' * 38} is too large"),
        (Schema("AVRO", "1", (Reference("a\nb", "s", 1),)), r"a reference has the name 'a\nb'"),
        (Schema("AVRO", "1", (Reference("", "s", 1),)), "a reference has the name ''"),
        (Schema("AVRO", "1", (Reference("\n" + LONG, "s", 1),)), rf"a reference has the name '\n{LONG[:39]}'"),
        (
            Schema("AVRO", "1", (Reference(LONG, "s", 1), Reference(LONG, "t", 1))),
            f"two references have the name '{LONG[:80]}'",
        ),
        (
            Schema("AVRO", "1", tuple(Reference(f"r{n}", "s", 1) for n in range(1_001))),
            "1001 references, at most 1000 are allowed",
        ),
    ],
)
def test_what_cannot_be_a_schema(schema: Schema, why: str) -> None:
    assert said(lambda: registration_rules.prepared(schema)) == (422, 42201, f"Invalid schema: {why}")


@pytest.mark.parametrize("given", ["XML", LONG])
def test_a_type_that_nobody_knows(given: Any) -> None:
    assert said(lambda: registration_rules.prepared(Schema(given, "1"))) == (
        422,
        42201,
        f"Invalid schema: unknown type '{given[:80]}'; the types are AVRO, PROTOBUF, JSON",
    )


def test_limits_of_a_schema_are_allowed() -> None:
    """The last that fits does."""
    text = '"' + "x" * 999_998 + '"'
    many = tuple(Reference(f"r{n}", "s", 1) for n in range(1_000))

    assert registration_rules.prepared(Schema("JSON", text)).text == text
    assert registration_rules.prepared(Schema("JSON", '"' + "é" * 499_999 + '"')).type == "JSON"
    assert registration_rules.prepared(Schema("JSON", "1", many)).references == many
    assert registration_rules.check_subject("x" * 1_024) == "x" * 1_024
    assert registration_rules.check_number(2**31 - 1) == 2**31 - 1
    assert registration_rules.check_number(1) == 1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "it must be a text that is not empty, not ''"),
        (None, "it must be a text that is not empty, not 'None'"),
        ([LONG], f"it must be a text that is not empty, not {str([LONG])[:40]!r}"),
        (":.ctx:a", "':.ctx:a' is in a context, and there is only the default one here"),
        (":.:", "'' is in a context, and there is only the default one here"),
        (":.:" + ":.c:" + LONG, f"':.c:{LONG[:76]}' is in a context, and there is only the default one here"),
        (":*:", "':*:' is in a context, and there is only the default one here"),
        ("x" * 1_025, "it has 1025 characters, at most 1024 are allowed"),
        ("a\nb" + LONG[:200], rf"'a\nb{LONG[:77]}' has characters that cannot be printed"),
    ],
)
def test_what_cannot_be_a_subject(given: object, why: str) -> None:
    expected = (422, 42208, f"The specified subject is not a valid subject name: {why}")

    assert said(lambda: registration_rules.check_subject(given)) == expected


@pytest.mark.parametrize("given", [0, -1, 2**31, True, "1", 1.0, None, "9" * 100])
def test_what_cannot_be_a_version(given: object) -> None:
    assert said(lambda: registration_rules.check_number(given)) == (
        422,
        42202,
        (
            f"The specified version '{str(given)[:80]}' is not a valid version id. Allowed values are between "
            '[1, 2^31-1] and the string "latest"'
        ),
    )


def test_what_the_mode_is_against() -> None:
    world = world_of(ONE)

    def refused(act: Callable[[], object]) -> str:
        status, code, why = said(act)
        assert (status, code) == (422, 42205)
        return why

    assert refused(lambda: register(world.state, "a", TWO, id=5)) == "Subject a is not in import mode"
    assert refused(lambda: registry_settings.set_mode(world.state, "a", "IMPORT", 1, force=False)) == (
        "Cannot import since found existing versions of subject a; force=true allows it"
    )
    assert refused(lambda: registry_settings.set_mode(world.state, "", "IMPORT", 1, force=False)) == (
        "Cannot import since found existing subjects; force=true allows it"
    )
    world.add(registry_settings.set_mode(world.state, "a", "IMPORT", 1, force=True))
    assert refused(lambda: register(world.state, "a", TWO)) == "Subject a is not in read-write mode"
    world.add(registry_settings.set_mode(world.state, "", "READONLY_OVERRIDE", 1, force=False))
    read_only = "Subject a is in read-only mode"
    assert refused(lambda: register(world.state, "a", TWO)) == read_only
    assert refused(lambda: subject_deletion.delete_version(world.state, "a", 1, 1, permanent=False)) == read_only
    assert refused(lambda: subject_deletion.delete_subject(world.state, "a", 1, permanent=False)) == read_only
    assert refused(lambda: registry_settings.delete_config(world.state, "a", 1)) == read_only
    assert refused(lambda: registry_settings.set_config(world.state, "a", Config("FULL"), 1)) == read_only
    assert (
        refused(lambda: registry_settings.set_config(world.state, "", Config("FULL"), 1))
        == "The registry is in read-only mode"
    )


def test_a_read_only_mode_of_a_subject_is_against_its_own_settings_alone() -> None:
    world = World()
    world.add(registry_settings.set_config(world.state, "a", Config("FULL"), 1))
    world.add(registry_settings.set_mode(world.state, "a", "READONLY", 1, force=False))

    for act in (
        lambda: registry_settings.set_config(world.state, "a", Config("NONE"), 1),
        lambda: registry_settings.delete_config(world.state, "a", 1),
    ):
        assert said(act) == (422, 42205, "Subject a is in read-only mode")
    assert registry_settings.set_config(world.state, "b", Config("NONE"), 1)[0]
    assert registry_settings.set_config(world.state, "", Config("NONE"), 1)[0]


def test_what_ids_versions_and_guids_are_for_ever() -> None:
    world = World()
    last = 2**31 - 1
    world.take_over("a", 3, 7, ONE)
    guid = world.state.schemas[7].named.guid

    def refused(schema: Schema, **more: Any) -> str:
        status, code, why = said(lambda: registration_rules.take_over(world.state, wanted("a", schema, **more), TOY, 1))
        assert (status, code) == (422, 42205)
        return why

    assert refused(ONE, id=8, version=4) == "the schema has id 7 permanently, and cannot have id 8 too"
    assert refused(TWO, id=7, version=4) == "Overwrite new schema with id 7 is not permitted."
    assert refused(TWO, id=8, version=3) == "version 3 of subject a has id 7 permanently"
    assert refused(TWO, id=8, version=4, guid=guid) == f"GUID {guid} belongs to another schema"
    assert refused(TWO, id=last + 1, version=4) == f"ids and versions above {last} do not exist"
    assert refused(TWO, id=8, version=last + 1) == f"ids and versions above {last} do not exist"
    made, result = registration_rules.take_over(world.state, wanted("a", TWO, id=last, version=last), TOY, 1)
    assert (len(made), result.id, result.version) == (1, last, last)
    assert said(lambda: register(world.state, "a", TWO, version=5)) == (
        422,
        42201,
        "Invalid schema: version 5 is not the next version, which is 4",
    )


@pytest.mark.parametrize(
    ("cause", "why"),
    [
        (ValueError("a  b\n\tc"), "a b c"),
        (ValueError("z" * 2_000), "z" * 1_000),
        (ValueError(), "ValueError"),
        (RecursionError("x"), "it is nested too deeply"),
    ],
)
def test_what_readers_of_schemas_say(cause: Exception, why: str) -> None:
    """On one line, and not without end; each reader may say it."""

    def refuse(*given: object) -> Any:
        raise cause

    deaf = replace(TOY, check=refuse, normalized=refuse, problems=refuse)
    state = RegistryState()

    for act in (
        lambda: registration_rules.register(state, wanted("a", ONE), deaf, 1),
        lambda: registration_rules.register(state, wanted("a", ONE, normalize=True), deaf, 1),
        lambda: registration_rules.take_over(state, wanted("a", ONE, id=1, version=1), deaf, 1),
    ):
        assert said(act) == (422, 42201, f"Invalid schema: {why}")


def test_a_reference_to_what_is_not_there() -> None:
    """One that is deleted softly is there: records with it can be read."""
    world = world_of(ONE)
    world.register("b", TWO)
    user = Schema("AVRO", "3", (Reference("r", "a", 1),))
    missing = (422, 42201, "Invalid schema: it refers to version 1 of subject 'a', which is not there")
    assert said(lambda: register(RegistryState(), "c", user)) == missing
    assert (
        said(lambda: registration_rules.take_over(RegistryState(), wanted("c", user, id=1, version=1), TOY, 1))
        == missing
    )

    world.delete("a", 1, permanent=False)

    assert world.register("c", user).version == 1
    assert world.state.referenced(user) == {"r": ONE}


def test_topics_cannot_be_tied_to_subjects_by_hand() -> None:
    assert said(lambda: _raise(refusals.no_associations())) == (
        422,
        42205,
        "associations of topics with subjects are not kept here; name the subject, or go by the topic's name",
    )


def _raise(error: Exception) -> None:
    raise error
