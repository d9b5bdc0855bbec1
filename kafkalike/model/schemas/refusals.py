"""Refusals: why a registry says no, with the status and error codes of Confluent's REST interface."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.schemas.schema import LEVELS, SCHEMA_TYPES, SETTABLE_MODES

MAX_ID = 2**31 - 1
"""Largest id and version: records carry an id in 4 bytes with a sign."""


def no_subject(subject: str) -> SchemaRegistryError:
    """There is no such subject, or all its versions are deleted."""
    return SchemaRegistryError(404, 40401, f"Subject '{subject}' not found.")


def no_version(version: object) -> SchemaRegistryError:
    """The subject has no such version."""
    return SchemaRegistryError(404, 40402, f"Version {version} not found.")


def no_schema(schema_id: object = None) -> SchemaRegistryError:
    """No such id, or the subject does not have the schema."""
    return SchemaRegistryError(404, 40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")


def subject_soft_deleted(subject: str) -> SchemaRegistryError:
    """It was deleted before."""
    message = f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
    return SchemaRegistryError(404, 40404, message)


def subject_not_soft_deleted(subject: str) -> SchemaRegistryError:
    """Versions go in two steps."""
    return SchemaRegistryError(
        404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
    )


def version_soft_deleted(subject: str, version: int) -> SchemaRegistryError:
    """It was deleted before."""
    message = f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    return SchemaRegistryError(404, 40406, message)


def version_not_soft_deleted(subject: str, version: int) -> SchemaRegistryError:
    """Versions go in two steps."""
    message = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return SchemaRegistryError(404, 40407, message)


def no_level(subject: str) -> SchemaRegistryError:
    """The subject has no compatibility level of its own."""
    message = f"Subject '{subject}' does not have subject-level compatibility configured"
    return SchemaRegistryError(404, 40408, message)


def no_mode(subject: str) -> SchemaRegistryError:
    """The subject has no mode of its own."""
    return SchemaRegistryError(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, problems: Sequence[str]) -> SchemaRegistryError:
    """The subject's level does not allow the schema."""
    message = (
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
        f"[{'; '.join(problems)}]"
    )
    return SchemaRegistryError(409, 409, message)


def another_type(subject: str, known: str, wanted: str) -> SchemaRegistryError:
    """Readers of a topic know one type."""
    message = (
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: [it has '
        f"{known} schemas, and the type of a subject never changes, so {wanted} is refused: create a new topic instead]"
    )
    return SchemaRegistryError(409, 409, message)


def invalid_schema(why: object) -> SchemaRegistryError:
    """The text is not a schema, or uses what is not there."""
    return SchemaRegistryError(422, 42201, f"Invalid schema: {why}")


def unknown_type(given: object) -> SchemaRegistryError:
    """There are three."""
    return SchemaRegistryError(
        422, 42201, f"Invalid schema: unknown type {str(given)[:80]!r}; the types are {', '.join(SCHEMA_TYPES)}"
    )


def invalid_version(given: object) -> SchemaRegistryError:
    """Neither a number nor `latest`."""
    message = (
        f"The specified version '{str(given)[:80]}' is not a valid version id. Allowed values are between [1, 2^31-1] "
        'and the string "latest"'
    )
    return SchemaRegistryError(422, 42202, message)


def invalid_level(given: object) -> SchemaRegistryError:
    """Not a level."""
    levels = ", ".join(level.lower() for level in LEVELS)
    return SchemaRegistryError(
        422, 42203, f"Invalid compatibility level {str(given)[:80]!r}. Valid values are {levels}"
    )


def invalid_mode(given: object) -> SchemaRegistryError:
    """Not a mode."""
    return SchemaRegistryError(
        422, 42204, f"Invalid mode {str(given)[:80]!r}. Valid values are {', '.join(SETTABLE_MODES)}"
    )


def forwards_nothing() -> SchemaRegistryError:
    """A mode of Confluent's that needs a second registry."""
    why = "FORWARD passes changes on to another registry, and this one knows none; READONLY takes no changes either"
    return SchemaRegistryError(422, 42204, f"Invalid mode 'FORWARD': {why}")


def not_permitted(why: str) -> SchemaRegistryError:
    """The mode of the subject, or of all, is against it."""
    return SchemaRegistryError(422, 42205, why)


def no_associations() -> SchemaRegistryError:
    """A topic cannot be tied to a subject by hand."""
    return not_permitted(
        "associations of topics with subjects are not kept here; name the subject, or go by the topic's name"
    )


def referenced(subject: str, version: int) -> SchemaRegistryError:
    """Other schemas use it."""
    message = (
        f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={subject},version={version}}}."
    )
    return SchemaRegistryError(422, 42206, message)


def invalid_subject(why: str) -> SchemaRegistryError:
    """A subject's name that cannot be one."""
    return SchemaRegistryError(422, 42208, f"The specified subject is not a valid subject name: {why}")
