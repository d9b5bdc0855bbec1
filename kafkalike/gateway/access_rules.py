"""Access rules: what a user of the gateway may do with topics, groups and transactional ids.

A rule is a line of text such as `read topic orders*`. A pattern names one resource, or all with a prefix if it ends
with `*`. Without a rule nothing is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafkalike.errors import KafkaConfigurationError


class AccessKind(StrEnum):
    """Kind of a resource."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class AccessOperation(StrEnum):
    """The operations that a rule allows."""

    READ = "read"
    """Topics: fetch records, and look up offsets."""
    WRITE = "write"
    """Topics: produce records to them."""
    MANAGE = "manage"
    """Topics: create, delete, and change settings, partitions and the log start. Groups: delete, and their offsets."""
    USE = "use"
    """Groups: join, and commit offsets. Transactional ids: run transactions."""


ADMIN: Final = "admin"
"""The rule that allows everything."""

OPERATIONS: Final = {
    AccessKind.TOPIC: (AccessOperation.READ, AccessOperation.WRITE, AccessOperation.MANAGE),
    AccessKind.GROUP: (AccessOperation.USE, AccessOperation.MANAGE),
    AccessKind.TRANSACTIONAL_ID: (AccessOperation.USE,),
}


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One allowed operation on resources of a kind."""

    operation: AccessOperation
    kind: AccessKind
    pattern: str

    @classmethod
    def parse(cls, text: str) -> AccessRule:
        """Parse a rule other than `admin`.

        Raises:
            KafkaConfigurationError: the text is not a rule.
        """
        known = "; ".join(f"{'|'.join(operations)} {kind} PATTERN" for kind, operations in OPERATIONS.items())
        words = text.split()
        try:
            operation, kind, pattern = words
            rule = cls(AccessOperation(operation), AccessKind(kind), pattern)
        except ValueError:
            raise KafkaConfigurationError(f"{text!r} is not a rule; rules are {ADMIN}; {known}") from None
        if rule.operation not in OPERATIONS[rule.kind] or "*" in pattern[:-1]:
            raise KafkaConfigurationError(
                f"{text!r} is not a rule; rules are {ADMIN}; {known}. A * may only end the pattern"
            )
        return rule

    def matches(self, name: str) -> bool:
        """Return whether the rule concerns a resource of its kind."""
        return name.startswith(self.pattern[:-1]) if self.pattern.endswith("*") else name == self.pattern


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The rules of one user."""

    admin: bool = False
    rules: tuple[AccessRule, ...] = ()

    @classmethod
    def parse(cls, lines: Iterable[str]) -> AccessRules:
        """Parse the rules of a user.

        Raises:
            KafkaConfigurationError: a line is not a rule.
        """
        found = list(lines)
        return cls(ADMIN in found, tuple(AccessRule.parse(line) for line in found if line != ADMIN))

    def allow(self, operation: AccessOperation, kind: AccessKind, name: str) -> bool:
        """Return whether an operation on a resource is allowed."""
        return self.admin or any(
            rule.operation is operation and rule.kind is kind and rule.matches(name) for rule in self.rules
        )

    def show(self, kind: AccessKind, name: str) -> bool:
        """Return whether a resource is shown, because any operation on it is allowed."""
        return self.admin or any(rule.kind is kind and rule.matches(name) for rule in self.rules)
