"""Schema world: a registry whose rules are played step by step, and what must hold after each step.

Schemas are numbers: two are compatible when they are neighbours, and each is readable when what it refers to is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.schemas import registration_rules, registry_state, schema_rows
from kafkalike.model.schemas import subject_changes as registry_settings
from kafkalike.model.schemas import subject_changes as subject_deletion
from kafkalike.model.schemas.schema import Checks, Reference, Resolve, Schema

ONE = Schema("AVRO", "1")
TWO = Schema("AVRO", "2")
THREE = Schema("AVRO", "3")
USER = Schema("AVRO", "2", (Reference("one", "a", 1),))
OTHER = Schema("JSON", "1")

SCHEMAS = (ONE, TWO, THREE, USER, OTHER)
SUBJECTS = ("a", "b")


def far_apart(new: Schema, old: Schema) -> list[str]:
    """The toy's compatibility."""
    return [] if abs(int(new.text) - int(old.text)) <= 1 else [f"{new.text} is far from {old.text}"]


def readable(schema: Schema, resolve: Resolve) -> None:
    """The toy's language."""
    int(schema.text)
    resolve(schema)


TOY = Checks(
    check=readable,
    normalized=lambda schema: schema,
    problems=lambda new, old, resolve: far_apart(new, old),  # noqa: ARG005
)

Act = Callable[["World"], object]


class World:
    """A registry, its rows, and what was ever seen of it."""

    def __init__(self) -> None:
        self.rows: list[schema_rows.SchemaRow] = []
        self.state = registry_state.RegistryState()
        self.meanings: dict[int, Schema] = {}
        self.numbers: dict[tuple[str, int], int] = {}
        self.refused = 0

    def do(self, act: Act) -> object:
        """One step; a refusal changes nothing."""
        before = self.state
        try:
            result = act(self)
        except SchemaRegistryError:
            self.refused += 1
            assert self.state is before
            return None
        self.check()
        return result

    def add(self, planned: tuple[Sequence[schema_rows.SchemaRow], Any]) -> Any:
        """Take in the rows of a plan; returns its result."""
        made, result = planned
        assert [row.seq for row in made] == list(range(self.state.seq + 1, self.state.seq + 1 + len(made)))
        self.rows += made
        self.state = self.state.applied(made)
        return result

    # --- steps -----------------------------------------------------------------------------------

    def register(self, subject: str, schema: Schema) -> Any:
        """Register a schema: it must be found afterwards, and be refused exactly when it should be."""
        before, allowed = self.state, self._allowed(subject, schema)
        wanted = registration_rules.RegistrationRequest(subject=subject, schema=registration_rules.prepared(schema))
        try:
            made = self.add(registration_rules.register(before, wanted, TOY, 1))
        except SchemaRegistryError:
            assert not allowed, "it is refused without a reason"
            raise
        assert allowed, "it should have been refused"
        assert registration_rules.look_up(self.state, wanted, TOY) == made
        return made

    def _allowed(self, subject: str, schema: Schema) -> bool:
        known = self.state.subject(subject)
        found = [self.state.registered(subject, version, deleted=True) for version in known.kept]
        held = [one for one in found if one is not None]
        live = [one for one in held if not one.deleted]
        if any(one.schema == schema for one in live):
            return True
        there = all(self.state.registered(r.subject, r.version, deleted=True) for r in schema.references)
        same_type = all(one.schema.type == schema.type for one in held)
        near = self.state.level(subject) == "NONE" or not live or not far_apart(schema, live[-1].schema)
        return there and same_type and near

    def take_over(self, subject: str, version: int, schema_id: int, schema: Schema) -> Any:
        """Take a schema over under an id."""
        wanted = registration_rules.RegistrationRequest(
            subject=subject, schema=registration_rules.prepared(schema), id=schema_id, version=version, deleted=False
        )
        made = self.add(registration_rules.take_over(self.state, wanted, TOY, 1))
        assert (made.id, made.version) == (schema_id, version)
        return made

    def delete(self, subject: str, version: int | str | None, *, permanent: bool) -> Any:
        """Delete a version, or all of a subject: for good only what was deleted softly."""
        before = self.state.subject(subject)
        if version is None:
            gone = self.add(subject_deletion.delete_subject(self.state, subject, 1, permanent=permanent))
        else:
            gone = [self.add(subject_deletion.delete_version(self.state, subject, version, 1, permanent=permanent))]
        assert set(gone) <= set(before.soft if permanent else before.live)
        after = self.state.subject(subject)
        assert set(gone) <= (set(before.versions) - set(after.kept) if permanent else set(after.soft))
        return gone

    def set_level(self, level: str) -> Any:
        """Set the level of all."""
        return self.add(registry_settings.set_config(self.state, schema_rows.EVERYWHERE, schema_rows.Config(level), 1))

    # --- what must hold --------------------------------------------------------------------------

    def check(self) -> None:
        """Everything that must hold of the state."""
        for name, subject in self.state.subjects.items():
            kinds = set()
            for number, version in subject.versions.items():
                known = self.numbers.setdefault((name, number), version.id)
                assert known == version.id, f"{name} {number} was {known} and is {version.id}"
                found = self.state.registered(name, number, deleted=True)
                if found is None:
                    continue
                kinds.add(found.schema.type)
                assert self.meanings.setdefault(found.id, found.schema) == found.schema, f"id {found.id} changed"
                assert self.state.schema(found.id) == found.schema
                self.state.referenced(found.schema)  # can be read
            assert len(kinds) <= 1, f"{name} has {kinds}"
        schemas = list(self.meanings.values())
        assert len(set(schemas)) == len(schemas), "a schema has two ids"
        self._check_compacted()

    def _check_compacted(self) -> None:
        kept = registry_state.kept_schema_rows(self.rows)
        again = registry_state.RegistryState().applied(kept)
        assert again == self.state, "a compacted table says something else"
        half = len(kept) // 2
        assert registry_state.RegistryState().applied(kept[:half]).applied(kept[half:]) == again

    def compact(self) -> None:
        """Go on from a compacted table, read from nothing."""
        self.rows = registry_state.kept_schema_rows(self.rows)
        self.state = registry_state.RegistryState().applied(self.rows)


def acts() -> list[Act]:
    """All steps that there are."""
    made: list[Act] = [World.compact]
    made += [partial(World.set_level, level=level) for level in ("BACKWARD", "NONE")]
    for subject in SUBJECTS:
        for schema in SCHEMAS:
            made.append(partial(World.register, subject=subject, schema=schema))
            made.append(partial(World.take_over, subject=subject, version=2, schema_id=7, schema=schema))
        for permanent in (False, True):
            made += [
                partial(World.delete, subject=subject, version=version, permanent=permanent)
                for version in (1, 2, "latest", None)
            ]
    return made


def walk(seed: int, steps: int) -> World:
    """A random history."""
    chance, world, choices = random.Random(seed), World(), acts()
    for _ in range(steps):
        world.do(chance.choice(choices))
    return world


def explore(depth: int) -> int:
    """Every history of so many steps; returns how many there are."""
    choices, count = acts(), 0
    level = [World()]
    for _ in range(depth):
        after: dict[object, World] = {}
        for world in level:
            for act in choices:
                copy = World()
                copy.rows, copy.state = list(world.rows), world.state
                copy.meanings, copy.numbers = dict(world.meanings), dict(world.numbers)
                copy.do(act)
                count += 1
                after[tuple((row.kind, row.subject, row.version, row.value, row.seq) for row in copy.rows)] = copy
        level = list(after.values())
    return count
