"""The verifiable clients as processes: a signal ends them in order."""

import json
import signal
import subprocess
from typing import Any

import pytest

from kafkalike.admin import KafkaAdminClient
from kafkalike.model.structs import TopicPartition
from tests.tools import warm


def test_a_signal_ends_both_without_losing_a_record(root: str, environ: dict[str, str]) -> None:
    """What was acknowledged is in the log, what was read is committed, and both say that they are done."""
    KafkaAdminClient(bootstrap_servers=root).create_topics({"t": {"num_partitions": 2}})
    producer = _start(environ, "verifiable-producer", "--topic", "t", "--throughput", "100")
    consumer = _start(environ, "verifiable-consumer", "--topic", "t", "--group-id", "g")
    _wait_for(consumer, "offsets_committed")

    sent = _end(producer, signal.SIGINT)
    read = _end(consumer, signal.SIGTERM)

    ends = KafkaAdminClient(bootstrap_servers=root).list_partition_offsets({TopicPartition("t", p): -1 for p in (0, 1)})
    acked = [line for line in sent if line["name"] == "producer_send_success"]
    assert sum(end.offset for end in ends.values()) >= len(acked) == sent[-1]["acked"]
    assert [line["name"] for line in sent[-2:]] == ["shutdown_complete", "tool_data"]
    assert [line["name"] for line in read[-2:]] == ["partitions_revoked", "shutdown_complete"]
    committed = KafkaAdminClient(bootstrap_servers=root).list_consumer_group_offsets("g")
    last = {
        TopicPartition(run["topic"], run["partition"]): run["maxOffset"] + 1
        for line in read
        if line["name"] == "records_consumed"
        for run in line["partitions"]
    }
    assert {tp: committed[tp].offset for tp in last} == last


def _start(environ: dict[str, str], *args: str) -> "subprocess.Popen[str]":
    return warm.start("kafkalike", *args, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _wait_for(process: "subprocess.Popen[str]", name: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["name"] == name:
            return
    pytest.fail(f"it ended before {name}")


def _end(process: "subprocess.Popen[str]", ending: signal.Signals) -> list[dict[str, Any]]:
    process.send_signal(ending)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]
