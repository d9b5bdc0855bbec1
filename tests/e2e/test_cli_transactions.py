"""`kafkalike transactions` beside a producer that is killed: its transaction hangs, is seen, and is aborted."""

import subprocess
import sys

from kafkalike.admin import KafkaAdminClient
from tests.e2e.conftest import Run

PRODUCER = """
import time
from kafkalike import KafkaProducer
producer = KafkaProducer(transactional_id="v", linger_ms=0)
producer.init_transactions()
producer.begin_transaction()
producer.send("t", b"staged")
producer.flush()
print("staged", flush=True)
time.sleep(600)
"""


def test_a_producer_that_is_killed_leaves_a_transaction_that_can_be_aborted(
    kafkalike: Run, environ: dict[str, str], root: str
) -> None:
    """A record is staged, and its producer dies: the transaction is listed, and gone after `abort`."""
    KafkaAdminClient(bootstrap_servers=root).create_topics({"t": {"num_partitions": 1}})
    producer = subprocess.Popen([sys.executable, "-c", PRODUCER], env=environ, stdout=subprocess.PIPE, text=True)
    assert producer.stdout is not None
    assert producer.stdout.readline() == "staged\n"
    assert "Ongoing" in kafkalike("transactions", "list").stdout
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
