"""The verifiable clients in transactions, and the copier: their lines are those of Kafka's tools."""

import json
from typing import Any

import pytest

from kafkalike.admin import KafkaAdminClient, TransactionState
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from tests.tools.cli import call
from tests.tools.records import batch
from tests.tools.transactional import values


def lines(cluster: Cluster, *args: str, code: int = 0) -> list[dict[str, Any]]:
    """The lines of a command."""
    done = call(cluster, *args)
    assert done.code == code, done.err
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.fixture
def t(log_cluster: Cluster) -> Cluster:
    """A topic of one partition."""
    log_cluster.create_topic("t", 1, {})
    return log_cluster


# --- verifiable-producer -------------------------------------------------------------------------------


def test_records_of_a_transaction_get_their_lines_and_offsets_after_the_commit(t: Cluster) -> None:
    """The last transaction has what is left."""
    t.log("t").append(batch((0, "before")))

    found = lines(
        t, "verifiable-producer", "--topic", "t", "--max-messages", "5", "--transaction-id", "v",
        "--transaction-size", "2",
    )  # fmt: skip

    assert [line["name"] for line in found] == [
        "startup_complete",
        *["producer_send_success", "producer_send_success", "transaction_committed"] * 2,
        "producer_send_success", "transaction_committed", "shutdown_complete", "tool_data",
    ]  # fmt: skip
    sent = [line for line in found if line["name"] == "producer_send_success"]
    assert [(line["value"], line["offset"]) for line in sent] == [(str(n), n + 1) for n in range(5)]
    assert [line["partitions"] for line in found if line["name"] == "transaction_committed"] == [
        {"0": 2}, {"0": 2}, {"0": 1},
    ]  # fmt: skip
    assert (found[-1]["sent"], found[-1]["acked"]) == (5, 5)
    assert values(t, "t") == [b"before", b"0", b"1", b"2", b"3", b"4"]


def test_a_refused_record_takes_its_transaction_with_it(log_cluster: Cluster) -> None:
    """Each record of it gets a line that says so; the next transaction goes on."""
    log_cluster.create_topic("t", 1, {"max.message.bytes": "80"})

    found = lines(
        log_cluster, "verifiable-producer", "--topic", "t", "--max-messages", "11", "--transactional-id", "v",
        "--transaction-size", "1", "--value-prefix", "1" + "0" * 8,
    )  # fmt: skip

    names = [line["name"] for line in found]
    assert found[-1]["sent"] == 11
    assert found[-1]["acked"] == names.count("transaction_committed") == len(values(log_cluster, "t"))
    assert names.count("producer_send_error") == names.count("transaction_aborted") == 11 - found[-1]["acked"]


def test_the_perf_test_sends_in_transactions(t: Cluster) -> None:
    """Under the id that it is given, or one of its own."""
    common = ["producer-perf-test", "--topic", "t", "--num-records", "20", "--record-size", "5"]
    given = call(t, *common, "--transactional-id", "perf")
    own = call(t, *common, "--transaction-duration-ms", "1")

    assert given.code == own.code == 0, given.err + own.err
    assert "20 records sent" in given.out
    assert len(values(t, "t")) == 40
    (found,) = KafkaAdminClient(bootstrap_servers=t).list_transactions().values()
    states = {one.transactional_id: one.state for one in found}
    assert states["perf"] is TransactionState.COMPLETE_COMMIT
    assert sorted(name.startswith("performance-producer-") for name in states) == [False, True]


# --- the copier ----------------------------------------------------------------------------------------


@pytest.fixture
def pipeline(log_cluster: Cluster) -> Cluster:
    """Ten records in partition 0 of `in`, five in partition 1; `out` is empty."""
    for topic in ("in", "out"):
        log_cluster.create_topic(topic, 2, {})
    log_cluster.log("in").append(batch(*[(0, f"a{n}") for n in range(10)], *[(1, f"b{n}") for n in range(5)]))
    return log_cluster


def copy(cluster: Cluster, *args: str) -> list[dict[str, Any]]:
    """What a copier prints."""
    common = ("--input-topic", "in", "--output-topic", "out", "--transactional-id", "c", "--consumer-group", "g")
    return lines(cluster, "transactional-message-copier", *common, *args)


def test_a_partition_is_copied_to_its_end_with_its_offsets(pipeline: Cluster) -> None:
    """A line before each poll, and one at the end, with Kafka's fields in Kafka's order."""
    found = copy(pipeline, "--input-partition", "0", "--transaction-size", "4", "--use-group-metadata")

    assert list(found[0]) == ["transactionalId", "stage", "time", "totalProcessed", "consumed", "remaining"]
    assert (found[0]["transactionalId"], found[0]["stage"], found[0]["remaining"]) == ("c", "ProcessLoop", 10)
    assert [line["stage"] for line in found[-2:]] == ["ProcessLoop", "ShutdownComplete"]
    assert [found[-1][name] for name in ("totalProcessed", "consumed", "remaining")] == [10, 10, 0]
    assert values(pipeline, "out") == [f"a{n}".encode() for n in range(10)]
    assert values(pipeline, "out", 1) == []
    offsets = KafkaAdminClient(bootstrap_servers=pipeline).list_consumer_group_offsets("g")
    assert offsets == {TopicPartition("in", 0): OffsetAndMetadata(10)}


def test_a_copier_goes_on_where_the_one_before_has_stopped(pipeline: Cluster) -> None:
    """--max-messages ends the first one; random aborts repeat what they undo."""
    first = copy(pipeline, "--input-partition", "0", "--transaction-size", "3", "--max-messages", "3")
    second = copy(pipeline, "--input-partition", "0", "--transaction-size", "1", "--enable-random-aborts")

    assert first[-1]["totalProcessed"] == 3
    assert second[0]["remaining"] == 7
    assert values(pipeline, "out") == [f"a{n}".encode() for n in range(10)]


def test_a_member_of_a_group_copies_what_it_is_given(pipeline: Cluster) -> None:
    """It ends at the end of the input as it was when partitions were assigned."""
    found = copy(pipeline, "--group-mode", "--use-group-metadata")

    assert {"RebalanceComplete", "ProcessLoop", "ShutdownComplete"} == {line["stage"] for line in found}
    (rebalanced,) = (line for line in found if line["stage"] == "RebalanceComplete")
    assert rebalanced["remaining"] == 15
    assert values(pipeline, "out") == [f"a{n}".encode() for n in range(10)]
    assert values(pipeline, "out", 1) == [f"b{n}".encode() for n in range(5)]


def test_the_copier_needs_an_input(pipeline: Cluster) -> None:
    done = call(
        pipeline, "transactional-message-copier", "--input-topic", "in", "--output-topic", "out",
        "--transactional-id", "c",
    )  # fmt: skip

    assert (done.code, done.out) == (1, "")
    assert "--input-partition or --group-mode is needed" in done.err
