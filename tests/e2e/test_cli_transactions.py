"""`kafkalike transactions` and the copier as processes: what is killed hangs, is seen, and is aborted."""

import json
import signal
import subprocess

from kafkalike.admin import KafkaAdminClient
from kafkalike.model.structs import TopicPartition
from tests.e2e.conftest import Fill, Run
from tests.tools import warm


def start(environ: dict[str, str], *args: str) -> "subprocess.Popen[str]":
    """A command that goes on until it is told to end."""
    return warm.start("kafkalike", *args, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_producer_that_is_killed_leaves_a_transaction_that_can_be_aborted(
    kafkalike: Run, environ: dict[str, str], root: str
) -> None:
    """A record is staged, and its producer dies: the transaction is listed, and gone after `abort`."""
    KafkaAdminClient(bootstrap_servers=root).create_topics({"t": {"num_partitions": 1}})
    producer = start(
        environ, "verifiable-producer", "--topic", "t", "--transactional-id", "v", "--throughput", "100",
        "--transaction-size", "100000",
    )  # fmt: skip
    assert producer.stdout is not None
    assert json.loads(producer.stdout.readline())["name"] == "startup_complete"
    while "Ongoing" not in kafkalike("transactions", "list").stdout:
        assert producer.poll() is None
    producer.kill()
    producer.communicate(timeout=60)

    described = kafkalike("transactions", "describe", "--transactional-id", "v")
    aborted = kafkalike("transactions", "abort", "--transactional-id", "v")
    listed = kafkalike("kafka-transactions.sh", "--bootstrap-server", root, "list", "--state", "CompleteAbort")
    read = kafkalike("get-offsets", "--topic", "t")

    assert "t-0" in described.stdout
    assert (aborted.returncode, aborted.stdout, aborted.stderr) == (0, "", "")
    assert [line.split() for line in listed.stdout.splitlines()][1][0] == "v"
    assert read.stdout == "t:0:0\n"


def test_a_signal_ends_a_copier_between_two_transactions(
    kafkalike: Run, environ: dict[str, str], root: str, fill: Fill
) -> None:
    """What it has copied has its offsets; a second one copies the rest, once."""
    fill("in", [(None, str(n).encode(), 1_000 + n) for n in range(300)])
    kafkalike("topics", "--create", "--topic", "out", "--partitions", "1")
    args = [
        "transactional-message-copier", "--input-topic", "in", "--output-topic", "out", "--input-partition", "0",
        "--transactional-id", "c", "--consumer-group", "g", "--use-group-metadata",
    ]  # fmt: skip
    first = start(environ, *args, "--transaction-size", "1")
    assert first.stdout is not None
    while json.loads(first.stdout.readline())["totalProcessed"] < 3:
        pass
    first.send_signal(signal.SIGTERM)
    out, err = first.communicate(timeout=60)
    second = kafkalike(*args)

    last = json.loads(out.splitlines()[-1])
    assert (first.returncode, err, last["stage"]) == (0, "", "ShutdownComplete")
    assert second.returncode == 0, second.stderr
    rest = json.loads(second.stdout.splitlines()[-1])
    assert (rest["remaining"], rest["totalProcessed"]) == (0, 300 - last["totalProcessed"])
    admin = KafkaAdminClient(bootstrap_servers=root)
    assert admin.list_consumer_group_offsets("g")[TopicPartition("in", 0)].offset == 300
    copied = kafkalike("console-consumer", "--topic", "out", "--from-beginning", "--max-messages", "301",
                       "--timeout-ms", "2000").stdout.split()  # fmt: skip
    assert copied == [str(n) for n in range(300)]
