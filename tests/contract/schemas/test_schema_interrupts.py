"""An exception at any line of what a registry does leaves it right: it goes on as a fresh one would."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from kafkalike.errors import SchemaRegistryError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.verify.verify import verify
from kafkalike.schemas import Registry, Schema
from kafkalike.storage.memory import MemoryStorage
from tests.tools.effort import examples
from tests.tools.interrupts import sweep

V1 = Schema('{"type":"record","name":"R","fields":[]}')
V2 = Schema('{"type":"record","name":"R","fields":[{"name":"n","type":"int","default":0}]}')
V3 = Schema('{"type":"record","name":"R","fields":[{"name":"n","type":"long","default":0}]}')


class OnRegistry:
    """A registry in which another client has changed something since it looked."""

    def __init__(self) -> None:
        self.store = MemoryStorage()
        self.registry = self.opened()
        self.registry.register_schema("s", V1)
        other = self.opened()
        other.register_schema("t", V1)
        other.set_compatibility("t", "FULL")

    def opened(self) -> Registry:
        return Registry(Cluster(self.store))

    def operate(self) -> None:
        raise NotImplementedError

    def expected(self) -> bool:
        """Whether the registry says what it should, after the operation was made again."""
        raise NotImplementedError

    def judge(self) -> Iterable[str]:
        seen = self.registry.cluster.schemas.refresh()
        if seen != self.opened().cluster.schemas.refresh():
            yield "it knows something else than a fresh one"
        try:
            self.operate()
        except SchemaRegistryError as error:
            # Of a deletion that was done.
            if error.error_code not in {40401, 40404, 40408}:
                raise
        if not self.expected():
            yield "what was done again is not there once"
        cluster = self.opened().cluster
        yield from map(str, verify(cluster, []).findings)

    def close(self) -> None:
        self.registry.close()


class Register(OnRegistry):
    """A new version."""

    def operate(self) -> None:
        self.registry.register_schema("s", V2)

    def expected(self) -> bool:
        other = self.opened()
        return other.get_versions("s") == [1, 2] and other.get_latest_version("s").schema == V2


class Settings(OnRegistry):
    """Level of all, mode of one."""

    def operate(self) -> None:
        self.registry.set_compatibility(level="NONE")
        self.registry.update_mode("t", "READONLY")

    def expected(self) -> bool:
        other = self.opened()
        return (other.get_compatibility(), other.get_mode("t")) == ("NONE", "READONLY")


class Delete(OnRegistry):
    """A subject with what is set for it."""

    def operate(self) -> None:
        self.registry.delete_subject("t")

    def expected(self) -> bool:
        other = self.opened()
        return other.get_subjects() == ["s"] and other.get_subjects(deleted=True) == ["s", "t"]


class Import(OnRegistry):
    """Many rows in one change."""

    def __init__(self) -> None:
        super().__init__()
        other = Registry(Cluster(MemoryStorage()))
        for number in range(5):
            other.register_schema(f"u{number}", Schema(f'{{"type":"enum","name":"E{number}","symbols":["A"]}}'))
        self.lines = [line.replace('"id":', '"id":10') for line in other.export_records()]

    def operate(self) -> None:
        self.registry.import_records(self.lines)

    def expected(self) -> bool:
        return len(self.opened().get_subjects()) == 7


CASES = [Register, Settings, Delete, Import]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_registry_goes_on(case: Callable[[], OnRegistry]) -> None:
    """At some of its lines; `make soak` tries each."""
    found = sweep(case, most=examples(12, 4))

    assert not found.wrong, str(found)
    assert found.raised > 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES)
def test_a_registry_interrupted_at_each_of_its_lines_goes_on(case: Callable[[], OnRegistry]) -> None:
    """Each spot of the code once."""
    found = sweep(case)

    assert not found.wrong, str(found)
    assert found.tried > 200
