"""Asking: what a request of Confluent's REST interface is made of, and the door that it goes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Door(Protocol):
    """Takes requests of Confluent's REST interface."""

    def ask(self, method: str, path: Sequence[str], query: Mapping[str, str] | None = None, body: object = None) -> Any:  # noqa: ANN401 - any JSON
        """The JSON of the answer; see `RegistryService.ask`."""
        ...


class Asking:
    """What asks a registry.

    Args:
        door: where requests go.
    """

    def __init__(self, door: Door) -> None:
        self._door = door


def said(value: bool) -> str:  # noqa: FBT001
    """A truth value in a query."""
    return "true" if value else "false"


def query_of(**given: str | float | bool | None) -> dict[str, str]:
    """A query without what is None."""
    return {
        name: said(value) if isinstance(value, bool) else str(value)
        for name, value in given.items()
        if value is not None
    }


def at(kind: str, subject: str | None) -> tuple[str, ...]:
    """The path of a setting, of a subject or of all."""
    return (kind,) if subject is None else (kind, subject)
