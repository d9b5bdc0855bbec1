"""What other Delta writers may ask of a topic's table and we do not honour is refused by name, not ignored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kafkalike import KafkaProducer
from kafkalike.connect import connect
from kafkalike.delta.actions import log_name
from kafkalike.delta.commit_file import lines_of
from kafkalike.delta.layout import TOPIC_SCHEMA, TOPIC_TABLE_PROPERTIES
from kafkalike.errors import PolicyViolationError, UnsupportedVersionError
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from tests.tools.damage import checkpointed
from tests.tools.findings import errors_of
from tests.tools.records import all_records, batch, make_topic, open_log
from tests.tools.upkeep import AT_ONCE

pytestmark = pytest.mark.usefixtures("foreign_writes")

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog

FORGETS = "delta.setTransactionRetentionDuration"


@pytest.fixture
def log(root: str) -> TopicLog:
    return make_topic(root, (0, "a"))


def set_property(root: str, name: str, value: str) -> None:
    """As ALTER TABLE … SET TBLPROPERTIES of another writer does."""
    DeltaTable(f"{root}/t").alter.set_table_properties({name: value})


def new_metadata(log: TopicLog, schema: dict[str, Any], **properties: str) -> None:
    """Commit a `metaData` action as a foreign writer might."""
    metadata = {
        "id": str(log.info.topic_id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": ["partition"],
        "configuration": {**TOPIC_TABLE_PROPERTIES, **properties},
        "createdTime": 1,
    }
    content = lines_of({"timestamp": 1, "operation": "CHANGE COLUMN", "engineInfo": "other"}, [{"metaData": metadata}])
    assert log.files.put_if_absent(log_name(log.version + 1), content)


def with_rule(column: str, **metadata: Any) -> dict[str, Any]:
    fields = [{**f, "metadata": metadata if f["name"] == column else {}} for f in TOPIC_SCHEMA["fields"]]
    return {"type": "struct", "fields": fields}


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_table_that_forgets_its_transactions_is_not_appended_to(
    root: str, log: TopicLog, *, checkpoint: bool
) -> None:
    """A named write would be written twice once Delta has forgotten it; also for who loads it from a checkpoint."""
    set_property(root, FORGETS, "interval 1 days")
    if checkpoint:
        checkpointed(root, "t", 2)

    for attempt in (log, open_log(connect(root))):
        with pytest.raises(UnsupportedVersionError, match=f"t: nothing is written.*{FORGETS}=interval 1 days"):
            attempt.append(batch("b"))

    assert all_records(root) == {0: [(0, "a")], 1: []}
    assert any(f"foreign-rule: its table: the table property {FORGETS}" in error for error in errors_of(root))


def test_a_producer_is_told_of_the_property_too(root: str, log: TopicLog) -> None:
    """Through its future."""
    set_property(root, FORGETS, "interval 1 days")

    with KafkaProducer(bootstrap_servers=root) as producer:
        future = producer.send("t", b"b")
        with pytest.raises(UnsupportedVersionError, match=FORGETS):
            future.get(10)


def test_appends_go_on_when_the_property_is_taken_away(root: str, log: TopicLog) -> None:
    """As the error says."""
    set_property(root, FORGETS, "interval 1 days")
    open_log(connect(root)).refresh()
    log.refresh()
    new_metadata(log, TOPIC_SCHEMA)

    log.append(batch("b"))

    assert all_records(root)[0] == [(0, "a"), (1, "b")]


def test_maintenance_leaves_an_append_only_table_alone(root: str) -> None:
    """Appends go on; nothing is removed, and no log start moves for it."""
    cluster = connect(root)
    cluster.create_topic("t", 1, {"retention.ms": "1", **AT_ONCE})
    log = open_log(cluster)
    for number in range(8):
        log.append(batch(f"v{number}"))
    set_property(root, "delta.appendOnly", "true")
    log.append(batch("v8"))

    report = maintain(connect(root), clock=SYSTEM_CLOCK)

    (topic,) = report.topics
    assert topic.status == "failed"
    assert "delta.appendOnly=true forbids" in topic.problems[0]
    assert all_records(root)[0] == [(number, f"v{number}") for number in range(9)]
    assert any("delta.appendOnly" in error for error in errors_of(root))
    with pytest.raises(PolicyViolationError, match=r"delta\.appendOnly"):
        log.check_removable()


@pytest.mark.parametrize(
    ("schema", "properties", "named"),
    [
        (
            with_rule("offset", **{"delta.invariants": '{"expression":{"expression":"offset < 3"}}'}),
            {},
            "column offset",
        ),
        (with_rule("value", **{"delta.generationExpression": "key"}), {}, "column value has a generated value"),
        (TOPIC_SCHEMA, {"delta.constraints.small": "offset < 3"}, r"CHECK constraints \(small\)"),
    ],
)
def test_a_table_with_rules_for_its_columns_is_not_appended_to(
    root: str, log: TopicLog, schema: dict[str, Any], properties: dict[str, str], named: str
) -> None:
    """What Delta asks a writer to check, and we do not."""
    new_metadata(log, schema, **properties)

    for attempt in (log, open_log(connect(root))):
        with pytest.raises(UnsupportedVersionError, match=named):
            attempt.append(batch("b"))

    assert all_records(root) == {0: [(0, "a")], 1: []}
    assert any("foreign-rule" in error for error in errors_of(root))


def test_a_rule_inside_a_header_is_seen(root: str, log: TopicLog) -> None:
    """Columns have columns."""
    schema = json.loads(json.dumps(TOPIC_SCHEMA))
    headers = next(f for f in schema["fields"] if f["name"] == "headers")
    headers["type"]["elementType"]["fields"][0]["metadata"] = {"delta.invariants": "{}"}
    new_metadata(log, schema)

    with pytest.raises(UnsupportedVersionError, match=r"column headers\.key"):
        log.append(batch("b"))
