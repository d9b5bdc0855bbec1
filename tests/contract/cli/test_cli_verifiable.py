"""The verifiable clients: what they print is what happened, in the words of Kafka's system tests."""

import json
from typing import Any

import pytest

from kafkalike.admin import KafkaAdminClient
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from tests.tools.cli import call


def events(cluster: Cluster, *args: str, code: int = 0) -> list[dict[str, Any]]:
    """The lines of a command, without their times."""
    done = call(cluster, *args)
    assert done.code == code, done.err
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert all(list(line)[:2] == ["timestamp", "name"] for line in lines)
    return [{name: value for name, value in line.items() if name != "timestamp"} for line in lines]


@pytest.fixture
def orders(cluster: Cluster) -> None:
    """A topic of one partition."""
    cluster.create_topic("orders", 1, {})


@pytest.mark.usefixtures("orders")
def test_every_number_that_is_sent_gets_a_line(cluster: Cluster) -> None:
    """Keys begin again after --repeating-keys; the last line counts."""
    found = events(
        cluster, "verifiable-producer", "--topic", "orders", "--max-messages", "3", "--repeating-keys", "2"
    )  # fmt: skip

    last = found.pop()
    assert found == [
        {"name": "startup_complete"},
        *(
            {
                "name": "producer_send_success",
                "key": key,
                "value": value,
                "topic": "orders",
                "partition": 0,
                "offset": n,
            }
            for n, (key, value) in enumerate([("0", "0"), ("1", "1"), ("0", "2")])
        ),
        {"name": "shutdown_complete"},
    ]
    assert {**last, "avg_throughput": 0} == {
        "name": "tool_data",
        "sent": 3,
        "acked": 3,
        "target_throughput": -1,
        "avg_throughput": 0,
    }


def test_a_record_that_is_refused_gets_a_line_too(cluster: Cluster) -> None:
    """Whether the refusal comes at once or from the log."""
    cluster.create_topic("small", 1, {"max.message.bytes": "1"})

    found = events(cluster, "verifiable-producer", "--topic", "small", "--max-messages", "1", "--value-prefix", "9")

    assert [event["name"] for event in found] == [
        "startup_complete",
        "producer_send_error",
        "shutdown_complete",
        "tool_data",
    ]
    assert {**found[1], "message": ""} == {
        "name": "producer_send_error",
        "exception": "MessageSizeTooLargeError",
        "message": "",
        "topic": "small",
        "key": None,
        "value": "9.0",
    }
    assert (found[3]["sent"], found[3]["acked"]) == (1, 0)


def test_times_begin_where_they_are_told_to(cluster: Cluster) -> None:
    """--message-create-time is the time of the first record."""
    cluster.create_topic("t", 1, {})

    events(cluster, "verifiable-producer", "--topic", "t", "--max-messages", "1", "--message-create-time", "5000")

    newest = cluster.log("t").max_timestamp(0)
    assert newest is not None
    assert 5000 <= newest.timestamp < 15_000


@pytest.mark.usefixtures("orders")
def test_a_member_tells_what_it_was_given_read_and_committed(cluster: Cluster) -> None:
    """In the order in which it happens."""
    events(cluster, "verifiable-producer", "--topic", "orders", "--max-messages", "2")

    found = events(
        cluster, "verifiable-consumer", "--topic", "orders", "--group-id", "g", "--max-messages", "2", "--verbose"
    )  # fmt: skip

    where = {"topic": "orders", "partition": 0}
    begun = [event for event in found if event != {"name": "partitions_revoked", "partitions": []}]
    assert begun == [
        {"name": "startup_complete"},
        {"name": "partitions_assigned", "partitions": [where]},
        {"name": "record_data", "key": None, "value": "0", **where, "offset": 0},
        {"name": "record_data", "key": None, "value": "1", **where, "offset": 1},
        {"name": "records_consumed", "count": 2, "partitions": [{**where, "count": 2, "minOffset": 0, "maxOffset": 1}]},
        {"name": "offsets_committed", "offsets": [{**where, "offset": 2}], "success": True},
        {"name": "partitions_revoked", "partitions": [where]},
        {"name": "shutdown_complete"},
    ]
    admin = KafkaAdminClient(bootstrap_servers=cluster)
    assert admin.list_consumer_group_offsets("g") == {TopicPartition("orders", 0): OffsetAndMetadata(2)}


@pytest.mark.usefixtures("orders")
def test_the_consumer_commits_by_itself_when_it_is_told_to(cluster: Cluster) -> None:
    """--enable-autocommit: no line, but an offset."""
    events(cluster, "verifiable-producer", "--topic", "orders", "--max-messages", "2")

    found = events(
        cluster, "verifiable-consumer", "--topic", "orders", "--group-id", "g", "--max-messages", "1",
        "--enable-autocommit",
    )  # fmt: skip

    assert "offsets_committed" not in {event["name"] for event in found}
    admin = KafkaAdminClient(bootstrap_servers=cluster)
    assert admin.list_consumer_group_offsets("g") == {TopicPartition("orders", 0): OffsetAndMetadata(1)}


@pytest.mark.parametrize("args", ["verifiable-producer", "verifiable-consumer --topic t", "verifiable-consumer"])
def test_topic_and_group_must_be_named(cluster: Cluster, args: str) -> None:
    """Exit code 2, one line."""
    done = call(cluster, *args.split())

    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
