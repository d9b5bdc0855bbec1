"""Processes that register schemas at once: of two that exclude each other one wins, always."""

from __future__ import annotations

import json

import pytest

from kafkalike.connect import connect
from kafkalike.maintenance.verify.verify import verify
from kafkalike.schemas import Registry, Schema
from tests.tools.children import Child, started

REGISTER = "tests.processes.workers.register"
LONG = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'
TEXT = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
MORE = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"b","type":"int","default":1}]}'
SUBJECTS = [f"s{number}" for number in range(12)]


def race(root: str, *schemas: str, queue: bool = True) -> list[dict[str, int]]:
    """Register each schema for all subjects, each in a process of its own; returns what they were told."""
    children = [
        Child(REGISTER, {"root": root, "subjects": SUBJECTS, "schema": schema, "queue": queue}, {})
        for schema in schemas
    ]
    with started(*children):
        for child in children:
            child.go()
        return [json.loads(child.finish()) for child in children]


@pytest.mark.parametrize("queue", [True, False])
def test_of_two_incompatible_schemas_one_wins_always(root: str, *, queue: bool) -> None:
    """In each subject; the other process is told 409. Without a queue the compare-and-set alone decides."""
    found = race(root, LONG, TEXT, LONG, queue=queue)

    registry = Registry(root)
    for subject in SUBJECTS:
        told = [answer[subject] for answer in found]
        (winner,) = {number for number in told if number > 0}
        assert sorted(set(told)) == [-409, winner]
        assert registry.get_versions(subject) == [1]
        assert registry.get_latest_version(subject).schema_id == winner
    assert len({registry.schema_by_id(number) for answer in found for number in answer.values() if number > 0}) <= 2
    assert verify(connect(root), []).findings == []


def test_of_two_first_writes_of_columns_as_protobuf_one_makes_the_schema(root: str) -> None:
    """The other one's columns are not of it, and are refused: what a field's number means is said once."""
    subjects = [f"{subject}-value" for subject in SUBJECTS]
    children = [
        Child(REGISTER, {"root": root, "subjects": subjects, "columns": columns}, {})
        for columns in (["a", "b"], ["a", "c"], ["a"])
    ]
    with started(*children):
        for child in children:
            child.go()
        found = [json.loads(child.finish()) for child in children]

    registry = Registry(root)
    for subject in subjects:
        told = [answer[subject] for answer in found]
        assert registry.get_versions(subject) == [1]
        assert {number for number in told if number > 0} == {registry.get_latest_version(subject).schema_id}
        # Columns of the one that has `a` alone fit any of them; where it came first it fits nobody else's.
        assert told.count(-1) == (1 if told[2] > 0 and max(told[:2]) > 0 else 2), told
    assert verify(connect(root), []).findings == []


def test_compatible_schemas_all_get_in_once(root: str) -> None:
    """Two versions in each subject, whichever came first, and one id for each schema."""
    first, second = race(root, LONG, MORE)

    assert len(set(first.values())) == len(set(second.values())) == 1
    assert set(first.values()).isdisjoint(second.values())
    assert all(Registry(root).get_versions(subject) == [1, 2] for subject in SUBJECTS)


@pytest.mark.parametrize(("point", "there"), [("commit.before", 2), ("commit.after", 3)])
def test_a_writer_killed_in_the_middle_leaves_a_version_or_none(root: str, point: str, there: int) -> None:
    """The next one goes on, and who registers again gets the same id."""
    Registry(root).register_schema("s", Schema(LONG))
    orders = {"root": root, "subjects": SUBJECTS, "schema": LONG}
    child = Child(REGISTER, orders, {"KAFKALIKE_FAULT": f"{point}:kill@2"})
    with started(child):
        child.go()
        child.finish(-9)

    registry = Registry(root)
    assert len(registry.get_subjects()) == there
    assert {registry.register_schema(subject, Schema(LONG)) for subject in SUBJECTS} == {1}
    assert all(registry.get_versions(subject) == [1] for subject in SUBJECTS)
    assert verify(connect(root), []).findings == []
