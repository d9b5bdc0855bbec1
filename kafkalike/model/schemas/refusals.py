"""Refusals: the errors of a registry, with the status and error codes of Confluent's REST interface."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.schemas.schema import LEVELS, SCHEMA_TYPES, SETTABLE_MODES

MAX_ID = 2**31 - 1
"""Largest id and version: records carry an id in 4 signed bytes."""


def no_subject(subject: str) -> SchemaRegistryError:
    """The subject does not exist, or all its versions are deleted."""
    return SchemaRegistryError(404, 40401, f"Subject '{subject}' not found.")


def no_version(version: object) -> SchemaRegistryError:
    """The subject does not have this version."""
    return SchemaRegistryError(404, 40402, f"Version {version} not found.")


def no_schema(schema_id: object = None) -> SchemaRegistryError:
    """The id does not exist, or the subject does not have the schema."""
    return SchemaRegistryError(404, 40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")


def subject_soft_deleted(subject: str) -> SchemaRegistryError:
    """The subject was soft-deleted before."""
    message = f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
    return SchemaRegistryError(404, 40404, message)


def subject_not_soft_deleted(subject: str) -> SchemaRegistryError:
    """A permanent deletion of a subject requires a soft deletion first."""
    return SchemaRegistryError(
        404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
    )


def version_soft_deleted(subject: str, version: int) -> SchemaRegistryError:
    """The version was soft-deleted before."""
    message = f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    return SchemaRegistryError(404, 40406, message)


def version_not_soft_deleted(subject: str, version: int) -> SchemaRegistryError:
    """A permanent deletion of a version requires a soft deletion first."""
    message = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return SchemaRegistryError(404, 40407, message)


def no_level(subject: str) -> SchemaRegistryError:
    """The subject does not have its own compatibility level."""
    message = f"Subject '{subject}' does not have subject-level compatibility configured"
    return SchemaRegistryError(404, 40408, message)


def no_mode(subject: str) -> SchemaRegistryError:
    """The subject does not have its own mode."""
    return SchemaRegistryError(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, problems: Sequence[str]) -> SchemaRegistryError:
    """The subject's compatibility level does not allow the schema."""
    message = (
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
        f"[{'; '.join(problems)}]"
    )
    return SchemaRegistryError(409, 409, message)


def another_type(subject: str, known: str, wanted: str) -> SchemaRegistryError:
    """The schema's type differs from the type of the subject's versions, which readers expect."""
    message = (
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: [it has '
        f"{known} schemas, and the type of a subject never changes, so {wanted} is refused: create a new topic instead]"
    )
    return SchemaRegistryError(409, 409, message)


def invalid_schema(why: object) -> SchemaRegistryError:
    """The text is not a schema, or uses an undefined name."""
    return SchemaRegistryError(422, 42201, f"Invalid schema: {why}")


def unknown_type(given: object) -> SchemaRegistryError:
    """The schema type is unknown."""
    return SchemaRegistryError(
        422, 42201, f"Invalid schema: unknown type {str(given)[:80]!r}; the types are {', '.join(SCHEMA_TYPES)}"
    )


def invalid_version(given: object) -> SchemaRegistryError:
    """The version is neither a number nor `latest`."""
    message = (
        f"The specified version '{str(given)[:80]}' is not a valid version id. Allowed values are between [1, 2^31-1] "
        'and the string "latest"'
    )
    return SchemaRegistryError(422, 42202, message)


def invalid_level(given: object) -> SchemaRegistryError:
    """The compatibility level is unknown."""
    levels = ", ".join(level.lower() for level in LEVELS)
    return SchemaRegistryError(
        422, 42203, f"Invalid compatibility level {str(given)[:80]!r}. Valid values are {levels}"
    )


def invalid_mode(given: object) -> SchemaRegistryError:
    """The mode is unknown."""
    return SchemaRegistryError(
        422, 42204, f"Invalid mode {str(given)[:80]!r}. Valid values are {', '.join(SETTABLE_MODES)}"
    )


def forwards_nothing() -> SchemaRegistryError:
    """Confluent's FORWARD mode needs a second registry."""
    why = "FORWARD passes changes on to another registry, and this one knows none; READONLY takes no changes either"
    return SchemaRegistryError(422, 42204, f"Invalid mode 'FORWARD': {why}")


def not_permitted(why: str) -> SchemaRegistryError:
    """The mode of the subject or of the registry forbids the change."""
    return SchemaRegistryError(422, 42205, why)


def no_associations() -> SchemaRegistryError:
    """Associations of topics with subjects are not supported."""
    return not_permitted(
        "associations of topics with subjects are not kept here; name the subject, or go by the topic's name"
    )


def referenced(subject: str, version: int) -> SchemaRegistryError:
    """Other schemas refer to the version."""
    message = (
        f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={subject},version={version}}}."
    )
    return SchemaRegistryError(422, 42206, message)


def invalid_subject(why: str) -> SchemaRegistryError:
    """The text cannot be the name of a subject."""
    return SchemaRegistryError(422, 42208, f"The specified subject is not a valid subject name: {why}")
