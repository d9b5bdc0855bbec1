"""Checks of schemas at the log: what a topic with `kafkalike.value.schema.validation` takes, at every door."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.admin import KafkaAdminClient
from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.errors import InvalidConfigurationError, InvalidRecordError, TransactionAbortableError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.column_rules import ColumnRouter, Rules
from kafkalike.log.topic.record_rules import check_batch
from kafkalike.model.config.dead_letter_config import topic_settings
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.model.config.topic_config import TopicConfig
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.schemas.admission import admitted
from kafkalike.model.structs import ConfigResource
from kafkalike.model.topic import TopicInfo
from kafkalike.producer import KafkaProducer
from kafkalike.schemas import Registry
from kafkalike.spark.writes.staged_files import stage_topics
from kafkalike.spark.writes.targets import target_of
from tests.tools.partitions import partition_values
from tests.tools.records import fill

CHECKED = {"kafkalike.value.schema.validation": "true"}
Opener = Callable[[], Cluster]


def avro(name: str = "Order", **more: Any) -> ConfluentSchema:
    return ConfluentSchema(json.dumps({"type": "record", "name": name, "fields": [], **more}), "AVRO")


def wire(schema_id: int, payload: bytes = b"") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


@pytest.fixture
def registry(log_cluster: Cluster) -> Registry:
    return Registry(log_cluster)


def test_a_value_with_a_schema_of_the_topic_is_taken_and_so_is_a_tombstone(
    log_cluster: Cluster, registry: Registry
) -> None:
    log_cluster.create_topic("t", 1, CHECKED)
    good = wire(registry.register_schema("t-value", avro()), b"...")

    fill(log_cluster, "t", good, None, good, key=b"k")

    assert partition_values(log_cluster.log("t")) == [good, None, good]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "magic byte"),
        (b"\0\0\0\0", "magic byte"),
        (b'{"id": 1}', "magic byte"),
        (wire(99), "schema 99, which the registry does not have"),
        (wire(2), r"schema 2, which is not of the topic's subject 't-value' \(TopicNameStrategy\)"),
    ],
)
def test_what_is_not_of_the_topic_is_refused_and_nothing_is_written(
    log_cluster: Cluster, registry: Registry, value: bytes, why: str
) -> None:
    log_cluster.create_topic("t", 1, CHECKED)
    assert [registry.register_schema(f"{t}-value", avro(t)) for t in "tu"] == [1, 2]

    with pytest.raises(InvalidRecordError, match=rf"t: record 1 of the batch: its value .*{why}"):
        fill(log_cluster, "t", wire(1), value)

    assert partition_values(log_cluster.log("t")) == []


def test_only_the_part_that_a_setting_names_is_looked_at(log_cluster: Cluster, registry: Registry) -> None:
    log_cluster.create_topic("t", 1, {"kafkalike.key.schema.validation": "true"})
    key = wire(registry.register_schema("t-key", avro()))

    fill(log_cluster, "t", b"anything", key=key)
    with pytest.raises(InvalidRecordError, match="its key has schema 7"):
        fill(log_cluster, "t", b"anything", key=wire(7))


def test_a_schema_that_is_registered_later_by_others_is_found(open_log_cluster: Opener) -> None:
    """What is not known is looked up anew, once for each batch; what is deleted is no schema for new records."""
    here, there = open_log_cluster(), Registry(open_log_cluster())
    here.create_topic("t", 1, CHECKED)
    with pytest.raises(InvalidRecordError):
        fill(here, "t", wire(1))
    new = there.register_schema("t-value", avro())

    fill(here, "t", wire(new))
    there.delete_subject("t-value")
    here.schemas.refresh()
    with pytest.raises(InvalidRecordError, match="not of the topic's subject"):
        fill(here, "t", wire(new))

    assert partition_values(here.log("t")) == [wire(new)]


def test_a_topic_without_the_setting_never_opens_the_registry(log_cluster: Cluster) -> None:
    log_cluster.create_topic("t", 1, {})
    fill(log_cluster, "t", b"anything")

    assert "schemas" not in vars(log_cluster)


def test_the_setting_may_be_switched_on_and_off(log_cluster: Cluster) -> None:
    log_cluster.create_topic("t", 1, {})
    log = log_cluster.log("t")
    fill(log_cluster, "t", b"1")
    log_cluster.set_configs("t", CHECKED)
    with pytest.raises(InvalidRecordError):
        log.append(RecordBatch(partitions=[0], keys=[None], values=[b"2"], timestamps=[1000], headers=[None]))
    log_cluster.set_configs("t", {})
    fill(log_cluster, "t", b"3")

    assert partition_values(log_cluster.log("t")) == [b"1", b"3"]


# --- doors ---------------------------------------------------------------------------------------


def test_a_producer_is_told_which_records_are_refused(log_cluster: Cluster, registry: Registry) -> None:
    """Those of the same batch that are right are written."""
    log_cluster.create_topic("t", 1, CHECKED)
    good = wire(registry.register_schema("t-value", avro()))
    with KafkaProducer(bootstrap_servers=log_cluster, linger_ms=1000) as producer:
        sent = [producer.send("t", value) for value in (good, b"bad", good, wire(9))]

    assert [future.exception for future in sent[::2]] == [None, None]
    for future in sent[1::2]:
        with pytest.raises(InvalidRecordError):
            future.get(1)
    assert partition_values(log_cluster.log("t")) == [good, good]


def test_a_record_that_is_refused_fails_its_transaction(log_cluster: Cluster) -> None:
    log_cluster.create_topic("t", 1, CHECKED)
    with KafkaProducer(bootstrap_servers=log_cluster, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(InvalidRecordError):
            producer.send("t", b"bad").get(60)
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()

    assert partition_values(log_cluster.log("t")) == []


def test_a_dead_letter_topic_may_check_too_and_one_that_is_made_does_not(log_cluster: Cluster) -> None:
    """By a default of the server."""
    server = ServerProperties.from_properties({"log.kafkalike.value.schema.validation": "true"})
    assert TopicConfig.from_properties(server.effective({})).schemas.value == "TopicNameStrategy"
    assert TopicConfig.from_properties(server.effective(topic_settings(server.effective({})))).schemas.parts == {}


# --- whole columns -------------------------------------------------------------------------------

INFO = TopicInfo(name=TopicName("t"), topic_id=TopicId("id"), num_partitions=1, configs={}, location="t")
BOTH = {"kafkalike.value.schema.validation": "true", "kafkalike.key.schema.validation": "true"}
contents = st.one_of(
    st.none(), st.builds(wire, st.sampled_from([1, 2, 3, 2**32 - 1]), st.binary(max_size=3)), st.binary(max_size=7)
)


@pytest.fixture(scope="module")
def known() -> Registry:
    registry = Registry(MemoryCluster())
    assert [registry.register_schema(f"t-{part}", avro(part)) for part in ("key", "value")] == [1, 2]
    return registry


@given(st.lists(st.tuples(contents, contents), min_size=1, max_size=6))
def test_columns_are_refused_exactly_when_one_of_their_records_is(
    known: Registry, rows: list[tuple[bytes | None, bytes | None]]
) -> None:
    config = TopicConfig.from_properties(BOTH)
    batch = RecordBatch()
    for key, value in rows:
        batch.add(0, key, value, 1000)
    state = known.cluster.schemas.state
    ids = tuple((p, admitted(state, "t", p, strategy)) for p, strategy in config.schemas.parts.items())
    rules = pickle.loads(pickle.dumps(Rules.of(1, config, ManualClock(), 0, ids)))  # noqa: S301
    keys, values = (pa.array([None, *column], pa.binary())[1:] for column in (batch.keys, batch.values))
    table = pa.table({"key": keys, "value": values})

    expected = None
    try:
        check_batch(batch, INFO, config, 1000, lambda: known.cluster.schemas)
    except InvalidRecordError as error:
        expected = error
    if expected is None:
        assert ColumnRouter(rules, 0).routed(table).num_rows == len(rows)
    else:
        with pytest.raises(InvalidRecordError):
            ColumnRouter(rules, 0).routed(table)


def test_a_job_of_spark_has_the_ids_that_are_registered_when_it_begins(tmp_path: Any) -> None:
    from kafkalike.maintenance.staging_lease import HeldFolder
    from tests.tools.clusters import on_disk

    cluster = on_disk(str(tmp_path / "c"))
    cluster.create_topic("t", 1, CHECKED)
    good = wire(Registry(cluster).register_schema("t-value", avro()))
    target = target_of(cluster, "t", codec="none")

    def staged(*values: bytes | None) -> str | None:
        rows = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
        return stage_topics(target, HeldFolder(str(tmp_path)), [rows], 0).refusal

    assert (staged(good, None), staged(good, b"bad"), staged(wire(7))) == (
        None,
        "InvalidRecordError",
        "InvalidRecordError",
    )


def test_a_job_of_spark_may_create_a_topic_whose_schema_is_registered(tmp_path: Path) -> None:
    """Where topics check schemas by default, those that do not exist yet are no exception."""
    from kafkalike.maintenance.staging_lease import HeldFolder
    from tests.tools.clusters import on_disk

    root = tmp_path / "c"
    root.mkdir()
    (root / "server.properties").write_text("log.kafkalike.value.schema.validation=true\n")
    cluster = on_disk(str(root))
    good = wire(Registry(cluster).register_schema("new-value", avro()))
    target = target_of(cluster, None, codec="none")

    def staged(topic: str, value: bytes) -> str | None:
        columns = [pa.array([topic]), pa.array([value], pa.binary())]
        rows = pa.RecordBatch.from_arrays(columns, ["topic", "value"])
        return stage_topics(target, HeldFolder(str(tmp_path)), [rows], 0).refusal

    assert staged("new", good) is None
    assert staged("new", wire(7)) == staged("other", good) == "InvalidRecordError"


# --- strategies ----------------------------------------------------------------------------------

NAMED = {"type": "record", "name": "Order", "namespace": "shop", "fields": []}


@pytest.mark.parametrize(
    ("strategy", "subject", "taken"),
    [
        ("RecordNameStrategy", "shop.Order", True),
        ("RecordNameStrategy", "t-value", False),
        ("TopicRecordNameStrategy", "t-shop.Order", True),
        ("TopicRecordNameStrategy", "u-shop.Order", False),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "shop.Order", True),
        ("TopicNameStrategy", "t-value", True),
        ("TopicNameStrategy", "t-key", False),
    ],
)
@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_the_subject_is_what_the_strategy_names(strategy: str, subject: str, taken: bool, kind: str) -> None:  # noqa: FBT001
    cluster = MemoryCluster()
    cluster.create_topic("t", 1, {**CHECKED, "confluent.value.subject.name.strategy": strategy})
    text = NAMED if kind == "AVRO" else {"title": "shop.Order", "type": "object"}
    schema_id = Registry(cluster).register_schema(subject, ConfluentSchema(json.dumps(text), kind))
    log = cluster.log("t")
    batch = RecordBatch(partitions=[0], keys=[None], values=[wire(schema_id)], timestamps=[1000], headers=[None])

    assert (schema_id in admitted(cluster.schemas.state, "t", "value", log.config.schemas.value or "")) == taken
    if taken:
        log.append(batch)
    else:
        with pytest.raises(InvalidRecordError):
            log.append(batch)


@pytest.mark.parametrize(("subject", "taken"), [("shop.Order", True), ("t-shop.Order", True)])
def test_of_a_protobuf_schema_any_subject_will_do(subject: str, taken: bool) -> None:  # noqa: FBT001
    """The record says which of its messages it is, and only serializers read that."""
    cluster = MemoryCluster()
    cluster.create_topic("t", 1, {**CHECKED, "kafkalike.value.subject.name.strategy": "RecordNameStrategy"})
    text = 'syntax = "proto3"; package shop; message Order {}'
    schema_id = Registry(cluster).register_schema(subject, ConfluentSchema(text, "PROTOBUF"))

    fill(cluster, "t", wire(schema_id))
    assert (len(partition_values(cluster.log("t"))) == 1) == taken


# --- names ---------------------------------------------------------------------------------------


def test_confluents_names_are_aliases(cluster: Cluster) -> None:
    """Kept and shown under kafkalike's."""
    cluster.create_topic("t", 1, {"confluent.value.schema.validation": "true"})
    assert cluster.topic("t").configs == CHECKED
    admin = KafkaAdminClient(bootstrap_servers=cluster)
    resource = ConfigResource("TOPIC", "t", {"confluent.value.schema.validation": "false"})
    assert admin.alter_configs([resource]) == {"topic": {"t": "OK"}}
    assert cluster.topic("t").configs == {"kafkalike.value.schema.validation": "false"}
    admin.reset_configs([ConfigResource("TOPIC", "t", ["confluent.value.schema.validation"])])
    assert cluster.topic("t").configs == {}


def test_a_setting_and_its_alias_must_not_differ(cluster: Cluster) -> None:
    with pytest.raises(InvalidConfigurationError, match="given twice"):
        cluster.create_topic("t", 1, {**CHECKED, "confluent.value.schema.validation": "false"})


@pytest.mark.parametrize(
    "configs", [{"kafkalike.value.schema.validation": "maybe"}, {"kafkalike.key.subject.name.strategy": "Mine"}]
)
def test_bad_values_are_refused(cluster: Cluster, configs: dict[str, str]) -> None:
    with pytest.raises(InvalidConfigurationError, match=next(iter(configs))):
        cluster.create_topic("t", 1, configs)
