"""The rules of the registry, played: an id means one schema for ever, a number one version, what is kept is read."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

from kafkalike.errors import KafkaError
from kafkalike.model.schemas import registration_rules, registry_state
from kafkalike.model.schemas import subject_changes as subject_deletion
from tests.tools.effort import examples
from tests.tools.schema_world import explore, walk

WALKS = examples(150, 25)
STEPS = 25


@pytest.mark.slow
def test_every_short_history_keeps_the_rules() -> None:
    """All steps after all steps."""
    assert explore(2) > 500


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_history_of_three_steps_keeps_the_rules() -> None:
    """And a thousand long ones."""
    assert explore(3) > 9_000
    assert sum(walk(seed, STEPS).refused for seed in range(1_000, 2_000)) > 1_000


@pytest.mark.slow
def test_long_histories_keep_the_rules() -> None:
    """Of which many steps are refused, and as many are not."""
    worlds = [walk(seed, STEPS) for seed in range(WALKS)]

    assert sum(world.refused for world in worlds) > WALKS
    assert sum(len(world.numbers) for world in worlds) > WALKS


@contextmanager
def mutated(module: ModuleType, old: str, new: str) -> Iterator[None]:
    """A module with another line."""
    source, before = inspect.getsource(module), dict(vars(module))
    assert source.count(old) >= 1, old
    try:
        exec(compile(source.replace(old, new), module.__file__ or "", "exec"), vars(module))  # noqa: S102
        yield
    finally:
        vars(module).update(before)


MUTANTS = [
    (registration_rules, "wanted.id or owned or max(state.last_id + 1, seq)", "wanted.id or state.last_id + 1"),
    (
        registration_rules,
        "wanted.id or owned or max(state.last_id + 1, seq)",
        "wanted.id or owned or max(1, len(known.live))",
    ),
    (registration_rules, "if owned not in {None, schema_id}:", "if False:"),
    (registration_rules, "if owned is None and schema_id in state.schemas:", "if False:"),
    (registration_rules, "if before is not None and before.id != schema_id:", "if False:"),
    (registration_rules, "if last is not None and last.schema.type != schema.type:", "if False:"),
    (registration_rules, "    if wanted.id is None:\n        problems =", "    if False:\n        problems ="),
    (registration_rules, "wanted.version or known.last + 1", "wanted.version or len(known.live) + 1"),
    (subject_deletion, "if referrers(state, subject, version, deleted=permanent):", "if False:"),
    (
        subject_deletion,
        "if referrers(state, subject, version, deleted=permanent):",
        "if referrers(state, subject, version):",
    ),
    (subject_deletion, "if permanent and not found.deleted:", "if permanent and found.deleted:"),
    (registry_state, "row.kind == schema_rows.SCHEMA or row.value", "row.value and 'fingerprint' not in row.value"),
    (
        registry_state,
        "last[_key(row)] == row.seq and",
        'row.seq in last.values() and \'"is":"soft"\' not in row.value and',
    ),
    (registry_state, "max(subject.last, stands.version)", "stands.version"),
    (registry_state, "self._last_id = max(self._last_id, schema_id, stands.last_id)", "self._last_id = schema_id"),
    (registry_state, "if bool(before.uses) != bool(uses):", "if bool(uses):"),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=[str(number) for number in range(len(MUTANTS))])
def test_a_safeguard_that_is_taken_away_is_missed(mutant: tuple[ModuleType, str, str]) -> None:
    """So the play can tell right from wrong."""
    with mutated(*mutant), pytest.raises((AssertionError, KafkaError)):
        walks(200)


def walks(count: int) -> None:
    for seed in range(count):
        walk(seed, STEPS)
