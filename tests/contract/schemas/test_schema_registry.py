"""What `Registry` promises: over a cluster in memory, on Delta tables and in an object store."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.errors import KafkaConfigurationError, LogCorruptError, SchemaRegistryError, UnsupportedVersionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.works.control_maintenance import compact_control, control_tables, vacuum_control
from kafkalike.model.schemas.schema_rows import SchemaRow
from kafkalike.schemas import Registry, Schema, SchemaReference, open_registry
from tests.tools.cli import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalike.log.cluster.cluster import Cluster

V1 = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
V2 = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"n","type":"int","default":0}]}'
BAD = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'
USES = '{"type":"record","name":"Bill","fields":[{"name":"order","type":"Order"}]}'


def code(act: Callable[[], object]) -> int:
    """The code of the refusal."""
    with pytest.raises(SchemaRegistryError) as caught:
        act()
    return caught.value.error_code


def test_a_registered_schema_is_found_by_all_who_open_the_cluster(open_control: Callable[[], Cluster]) -> None:
    """By id, subject, version, GUID and text."""
    made = Registry(open_control()).register_schema_full_response("orders-value", Schema(V1))
    other = Registry(open_control())

    assert (made.schema_id, made.version) == (1, 1)
    assert other.get_schema(1) == Schema(V1)
    assert other.get_latest_version("orders-value") == made
    assert other.get_version("orders-value", 1) == made
    assert other.lookup_schema("orders-value", Schema(f" {V1} ")) == made
    assert made.guid is not None
    assert other.get_schema_by_guid(made.guid) == Schema(V1)
    assert other.get_subjects() == ["orders-value"]
    latest = other.latest("orders-value")
    assert latest is not None
    assert (latest.id, other.schema_by_id(1), other.ids_of("orders-value")) == (1, latest.schema, [1])


def test_an_incompatible_schema_is_refused_and_nothing_is_written(open_control: Callable[[], Cluster]) -> None:
    """Until the level allows it."""
    registry = Registry(open_control())
    registry.register_schema("s", Schema(V1))

    assert code(lambda: registry.register_schema("s", Schema(BAD))) == 409
    assert not registry.test_compatibility("s", Schema(BAD))
    assert registry.test_compatibility_all_versions("s", Schema(V2))
    assert registry.get_versions("s") == [1]
    registry.set_compatibility("s", "none")
    registry.register_schema("s", Schema(BAD))

    assert registry.get_versions("s") == [1, 2]


def test_a_schema_may_use_another_one(open_control: Callable[[], Cluster]) -> None:
    """Which then cannot be deleted."""
    registry = Registry(open_control())
    registry.register_schema("order", Schema(V1))
    uses = Schema(USES, "AVRO", [SchemaReference("Order", "order", 1)])
    number = registry.register_schema("bill", uses)

    assert registry.get_referenced_by("order", 1) == [number]
    assert [s.text for s in registry.referenced(registry.schema_by_id(number)).values()] == [V1]
    assert code(lambda: registry.delete_subject("order")) == 42206
    assert code(lambda: registry.register_schema("x", Schema(USES))) == 42201


def test_a_schema_is_found_whatever_the_order_of_its_keys(open_control: Callable[[], Cluster]) -> None:
    """Of Avro's keys; of what others add in the normal form, when the caller says so."""
    registry = Registry(open_control())
    turned = '{"name":"Order","fields":[{"type":{"type":"long"},"name":"id"}],"type":"record"}'
    first = registry.register_schema("s", Schema(V1))

    assert registry.register_schema("s", Schema(turned)) == registry.register_schema("t", Schema(turned)) == first
    assert registry.lookup_schema("s", Schema(turned)).version == 1
    one, other = '{"type":"int","a":1,"b":2}', '{"type":"int","b":2,"a":1}'
    second = registry.register_schema("int", Schema(one), normalize_schemas=True)
    assert registry.register_schema("int", Schema(other), normalize_schemas=True) == second
    assert registry.lookup_schema("int", Schema(other), normalize_schemas=True).version == 1
    assert code(lambda: registry.lookup_schema("int", Schema(other))) == 40403


def test_a_clock_that_jumps_changes_no_order(open_control: Callable[[], Cluster]) -> None:
    """Ids and versions come from the rows before, never from the time."""
    Registry(open_control()).set_compatibility("s", "NONE")
    ids = []
    for nth, now in enumerate((10**9, 5.0, 10**10, 0.0)):
        registry = Registry(open_control(), clock=ManualClock(now))
        ids.append(registry.register_schema("s", Schema(f'"{(*KINDS, "float")[nth]}"')))
        assert registry.get_latest_version("s").version == nth + 1
    assert ids == sorted(set(ids))


def test_threads_that_register_at_once_get_one_id_for_one_schema(open_control: Callable[[], Cluster]) -> None:
    """And different ones for different schemas."""
    registries = [Registry(open_control()) for _ in range(3)]
    found: list[tuple[int, int]] = []

    def work(registry: Registry) -> None:
        found.extend((n, registry.register_schema(f"s{n}", Schema(f'"{kind}"'))) for n, kind in enumerate(KINDS))

    threads = [threading.Thread(target=work, args=(registry,)) for registry in registries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    ids = dict(found)
    assert all(ids[n] == number for n, number in found)
    assert len(found) == 9
    assert len(set(ids.values())) == 3


KINDS = ("long", "int", "string")


def churned(cluster: Cluster) -> Registry:
    """A registry of which much is gone."""
    registry = Registry(cluster)
    registry.register_schema("kept", Schema(V1))
    for number in range(35):
        registry.register_schema("gone", Schema(f'{{"type":"enum","name":"E","symbols":["S{number}"]}}'))
        registry.delete_version("gone", "latest")
        registry.delete_version("gone", "latest", permanent=True)
    return registry


@pytest.mark.slow
def test_maintenance_keeps_what_is_in_force(open_tables: Callable[[], Cluster]) -> None:
    """A compacted table says the same to a new client, and to one that goes on."""
    cluster = open_tables()
    registry = churned(cluster)
    before = cluster.schemas.refresh()
    assert "__schemas" in control_tables(cluster)

    rows_before, rows_after = compact_control(cluster, "__schemas", dry_run=False)
    vacuum_control(cluster, "__schemas")

    fresh = open_tables()
    assert (rows_before, rows_after) == (106, 36)
    assert fresh.schemas.refresh() == before == cluster.schemas.refresh()
    assert Registry(fresh).register_schema("new", Schema(V2)) == registry.register_schema("new", Schema(V2)) > 36
    assert sum("S3" in row.value for row in fresh.schemas.rows) == 0


@pytest.mark.slow
def test_verify_and_maintain_know_the_table(open_tables: Callable[[], Cluster]) -> None:
    """A sound one has no findings."""
    cluster = open_tables()
    churned(cluster)

    assert "0 errors, 0 warnings" in call(cluster, "verify").out
    done = call(cluster, "maintain", "--only", "control")
    assert (done.code, "__schemas" in done.out) == (0, True)
    assert "0 errors, 0 warnings" in call(cluster, "verify").out


def foreign(cluster: Cluster, **facts: Any) -> None:
    """A row that no rule has made."""

    def plan(state: Any) -> list[SchemaRow]:
        return [SchemaRow(**{"seq": state.seq + 1, "kind": "schema", "time_ms": 1, **facts})]

    cluster.schemas.transact(plan)


def test_a_dangling_reference_is_found(open_control: Callable[[], Cluster]) -> None:
    """Of a foreign row, or after a loss."""
    cluster = open_control()
    value = '{"type":"AVRO","schema":"1","references":[["r","nowhere",1]]}'
    foreign(cluster, subject="a", version=1, schema_id=1, value=value)

    found = call(cluster, "verify")

    assert found.code == 1
    assert "schema-reference" in found.out
    assert code(lambda: Registry(cluster).referenced(Registry(cluster).schema_by_id(1))) == 40402


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"subject": "a", "version": 1, "schema_id": 1, "value": "{"}, LogCorruptError),
        ({"subject": "a", "kind": "rule", "value": "{}"}, UnsupportedVersionError),
    ],
)
def test_a_row_that_cannot_be_read_stops_its_readers(
    open_tables: Callable[[], Cluster], facts: dict[str, Any], error: type[Exception]
) -> None:
    """By name, each time; topics and groups go on."""
    cluster = open_tables()
    Registry(cluster).register_schema("a", Schema(V1))

    with pytest.raises(error):
        foreign(cluster, **facts)
    fresh = open_tables()
    for _ in range(2):
        with pytest.raises(error):
            Registry(fresh).get_subjects()
    with pytest.raises(error):
        Registry(fresh).register_schema("b", Schema(V1))
    fresh.create_topic("t", 1, {})
    assert call(fresh, "verify").code == 1


def test_what_is_not_a_schema_is_named(open_control: Callable[[], Cluster]) -> None:
    """Before anything is written."""
    registry = Registry(open_control())

    bad = [Schema(text) for text in ("{", '{"type":"record"}', '{"type":"Unknown"}', "[" * 3_000)]
    bad += [Schema('{"type":"nothing"}', "JSON"), Schema("message {", "PROTOBUF")]
    assert {code(partial(registry.register_schema, "s", one)) for one in bad} == {42201}
    with pytest.raises(TypeError, match="Schema is needed"):
        registry.register_schema("s", V1)
    assert registry.get_subjects() == []


def test_a_registry_is_named_by_a_setting(open_control: Callable[[], Cluster]) -> None:
    """Ours, a root's, or a service."""
    cluster = open_control()
    Registry(cluster).register_schema("s", Schema(V1))

    assert open_registry("kafkalike:", cluster).get_subjects() == ["s"]
    assert open_registry({"schema.registry.url": "kafkalike:"}, cluster).get_subjects() == ["s"]
    for wrong in ({}, {"url": "kafkalike:", "timeout": 1}, {"url": "http://h", "speed": 1}, "http://"):
        with pytest.raises(KafkaConfigurationError):
            open_registry(wrong, cluster).get_subjects()


def test_secrets_are_not_shown() -> None:
    """Neither in the client's configuration nor in an error."""
    client = open_registry({"url": "http://user:hidden@127.0.0.1:9", "max.retries": 0})

    with pytest.raises(Exception, match="does not answer") as caught:
        client.get_subjects()

    assert "hidden" not in f"{client.config()} {caught.value!r} {vars(client)}"
