"""Schemas: what a schema registry refuses, with the codes of Confluent's REST interface."""

from __future__ import annotations

from typing import Any

from kafkalike.errors.base import KafkaError
from kafkalike.errors.storage import UnknownOutcomeError


class SchemaRegistryError(KafkaError):
    """A schema registry, in the cluster or as a service, said no; nothing was changed.

    The attributes have the names of `confluent_kafka.schema_registry.error.SchemaRegistryError`.

    Args:
        http_status_code: what the REST interface answers, such as 404.
        error_code: Confluent's code, such as 40401; -1 where there is none.
        error_message: what is wrong.
    """

    def __init__(self, http_status_code: int, error_code: int, error_message: str) -> None:
        super().__init__(f"{error_message} (HTTP status code {http_status_code}, SR code {error_code})")
        self.http_status_code = http_status_code
        self.error_code = error_code
        self.error_message = error_message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.http_status_code, self.error_code, self.error_message)


class InvalidSchemaError(SchemaRegistryError, ValueError):
    """A schema that cannot be understood: not in its language, a type that is nowhere defined, too long or too deep.

    Args:
        error_message: what is wrong with it.
    """

    def __init__(self, error_message: str) -> None:
        super().__init__(422, 42201, error_message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.error_message,)


class UnknownRegistryOutcomeError(UnknownOutcomeError):
    """A change was sent to a registry that is a service, and no answer came: it may or may not have been made.

    Args:
        what: the change.
        cause: what came instead of an answer.
    """

    def __init__(self, what: str, cause: str) -> None:
        KafkaError.__init__(
            self, f"{what}: no answer came, and it may have been done ({cause}); look before trying again"
        )
        self.what = what
        self.append_id = ""
        self._cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self._cause)
