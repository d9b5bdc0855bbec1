"""`--output json`: an object in a line for each row, with the table's columns as names, of every command with rows."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
import pytest

from kafkalike.admin import KafkaAdminClient
from kafkalike.admin.testing import MemoryCluster
from kafkalike.cli.app import COMMANDS, app
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from tests.tools.cli import call


@pytest.fixture
def orders() -> MemoryCluster:
    """Two records in partition 0, one with a header and bytes that are not UTF-8; group `g` has read one of them."""
    cluster = MemoryCluster()
    cluster.create_topic("orders", 2, {"retention.ms": "1000000000"})
    batch = RecordBatch()
    batch.add(0, b"k", b'{"a": 1}', 1_000)
    batch.add(0, None, b"\xff", 2_000, [("h", b"x")])
    cluster.log("orders").append(batch)
    KafkaAdminClient(bootstrap_servers=cluster).alter_group_offsets(
        "g", {TopicPartition("orders", 0): OffsetAndMetadata(1)}
    )
    return cluster


def rows(cluster: MemoryCluster, text: str, code: int = 0) -> list[dict[str, Any]]:
    """The lines of a command with JSON."""
    done = call(cluster, *text.split(), "--output", "json")
    assert done.code == code, done.err
    return [json.loads(line) for line in done.out.splitlines()]


ROWS: Final[Mapping[str, list[dict[str, Any]]]] = {
    "topics --list": [{"topic": "orders"}],
    "get-offsets --topic orders": [
        {"topic": "orders", "partition": 0, "offset": 2},
        {"topic": "orders", "partition": 1, "offset": 0},
    ],
    "console-consumer --topic orders --from-beginning --max-messages 2": [
        {
            "topic": "orders",
            "partition": 0,
            "offset": 0,
            "timestamp": 1000,
            "key": "k",
            "value": '{"a": 1}',
            "headers": [],
        },
        {
            "topic": "orders",
            "partition": 0,
            "offset": 1,
            "timestamp": 2000,
            "key": None,
            "value": "\\xff",
            "headers": [["h", "x"]],
        },
    ],
    "consumer-groups --list": [{"group": "g", "type": "classic", "state": "Empty"}],
    "consumer-groups --describe --group g": [
        {
            "group": "g",
            "topic": "orders",
            "partition": 0,
            "leader_epoch": None,
            "current_offset": 1,
            "log_end_offset": 2,
            "lag": 1,
            "consumer_id": None,
            "host": None,
            "client_id": None,
        }
    ],
    "consumer-groups --describe --group g --members": [],
    "consumer-groups --reset-offsets --group g --topic orders:0 --to-latest --dry-run": [
        {"group": "g", "topic": "orders", "partition": 0, "new_offset": 2}
    ],
    "consumer-groups --delete-offsets --group g --topic orders:0": [
        {"topic": "orders", "partition": 0, "status": "Successful"}
    ],
    "transactions list": [],
    "transactions find-hanging": [],
    "dlq list --topic orders": [
        {"topic": "orders", "letters": 2, "waiting": 2, "classes": {"": 2}, "sources": {"": 2}}
    ],
}


@pytest.mark.parametrize("command", ROWS)
def test_command_prints_a_line_for_each_row(orders: MemoryCluster, command: str) -> None:
    assert rows(orders, command) == ROWS[command]


def test_state_of_a_group_is_a_row_with_numbers(orders: MemoryCluster) -> None:
    (found,) = rows(orders, "consumer-groups --describe --group g --state")

    assert found.pop("coordinator_id") == f"{orders.root} (1)"
    assert found == {
        "group": "g",
        "assignment_strategy": None,
        "state": "Empty",
        "group_epoch": 0,
        "target_assignment_epoch": 0,
        "members": 0,
    }


def test_described_topic_has_its_settings_and_partitions(orders: MemoryCluster) -> None:
    (found,) = rows(orders, "topics --describe --topic orders")

    del found["topic_id"]
    assert found == {
        "topic": "orders",
        "partition_count": 2,
        "replication_factor": 1,
        "configs": {"retention.ms": "1000000000"},
        "partitions": [
            {"partition": 0, "leader": 1, "replicas": [1], "isr": [1]},
            {"partition": 1, "leader": 1, "replicas": [1], "isr": [1]},
        ],
    }


def test_topics_of_a_report_about_partitions_are_left_out_without_one(orders: MemoryCluster) -> None:
    assert rows(orders, "topics --describe --under-replicated-partitions") == []


def test_described_settings_are_rows(orders: MemoryCluster) -> None:
    (found,) = rows(orders, "configs --describe --topic orders")

    assert (found["entity_type"], found["entity_name"], found["name"]) == ("topic", "orders", "retention.ms")
    assert (found["value"], found["is_default"]) == ("1000000000", False)


def test_sizes_are_rows(orders: MemoryCluster) -> None:
    found = rows(orders, "log-dirs --describe")

    assert [(row["broker"], row["topic"], row["partition"], row["size"] > 0) for row in found] == [
        (1, "orders", 0, True),
        (1, "orders", 1, False),
    ]


def test_failed_deletion_has_its_error_in_its_row(orders: MemoryCluster, tmp_path: Path) -> None:
    partitions = [{"topic": "orders", "partition": p, "offset": offset} for p, offset in ((0, 1), (1, 9))]
    (tmp_path / "offsets.json").write_text(json.dumps({"partitions": partitions}))

    done, failed = rows(orders, f"delete-records --offset-json-file {tmp_path / 'offsets.json'}", code=1)

    assert done == {"topic": "orders", "partition": 0, "low_watermark": 1, "error": None}
    assert (failed["partition"], failed["low_watermark"]) == (1, None)
    assert "OffsetOutOfRange" in failed["error"] or "9" in failed["error"]


def test_transaction_is_a_row_with_numbers_and_a_list_of_partitions(orders: MemoryCluster) -> None:
    producer = KafkaProducer(bootstrap_servers=orders, transactional_id="t")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"x", partition=1)
    producer.commit_transaction()
    producer.close()

    (listed,) = rows(orders, "transactions list")
    (described,) = rows(orders, "transactions describe --transactional-id t")

    assert (listed["transactional_id"], listed["transaction_state"]) == ("t", "CompleteCommit")
    assert (described["producer_epoch"], described["current_transaction_start_time_ms"]) == (0, None)
    assert described["topic_partitions"] == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("topics --create --topic t", 'Option "[output]" can\'t be used with option "[create]"'),
        ("consumer-groups --delete --group g", 'Option "[output]" can\'t be used with option "[delete]"'),
        ("configs --alter --topic orders --add-config a=b", "--output json needs --describe"),
        ("console-consumer --topic orders --formatter-property print.key=true", "leave --formatter"),
        ("verify --repair", "leave --output json out"),
    ],
    ids=["topics", "groups", "configs", "consumer", "verify"],
)
def test_action_without_rows_refuses_json(orders: MemoryCluster, command: str, message: str) -> None:
    done = call(orders, *command.split(), "--output", "json")

    assert done.code in {1, 2}
    assert message in done.err


def test_short_form_is_the_same(orders: MemoryCluster) -> None:
    assert call(orders, "topics", "--list", "--json").out == '{"topic": "orders"}\n'


READS: Final = ("list", "describe", "show", "find")


def test_every_command_that_lists_or_describes_has_the_option() -> None:
    """By the names of subcommands and flags; the reassignments of replicas are Kafka's own JSON."""
    lacking = []
    for name in COMMANDS.keys() - {"reassign-partitions"}:
        command = app.get_command(click.Context(app), name)
        assert command is not None
        parts = getattr(command, "commands", {}) or {"": command}
        for part, one in parts.items():
            options = {option for parameter in one.params for option in parameter.opts}
            reads = part.startswith(READS) or options & {"--list", "--describe"}
            if reads and "--output" not in options:
                lacking.append(f"{name} {part}")

    assert lacking == []
