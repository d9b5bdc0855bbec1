"""`kafkalike consumer-groups` beside a real member of the group: alive, and killed."""

import subprocess
import sys
import time
from collections.abc import Callable

from kafkalike.admin import KafkaAdminClient
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition

Run = Callable[..., subprocess.CompletedProcess[str]]
Fill = Callable[..., None]

CONSUMER = """
from kafkalike import KafkaConsumer
settings = {"session_timeout_ms": 2000, "heartbeat_interval_ms": 300, "auto_offset_reset": "earliest"}
consumer = KafkaConsumer("t", group_id="g", client_id="reader", **settings)
while not consumer.poll(1000):
    pass
consumer.commit()
print("committed", flush=True)
while True:
    consumer.poll(1000)
"""

RESET = ("consumer-groups", "--reset-offsets", "--group", "g", "--topic", "t", "--to-earliest", "--execute")


def test_a_group_is_left_alone_until_its_last_member_is_dead(
    root: str, environ: dict[str, str], kafkalike: Run, fill: Fill
) -> None:
    """A live member is shown and protects its offsets; a killed one is shown and counts until its session is over."""
    fill("t", [(b"k", b"v", 1), (b"k", b"v", 2)])
    consumer = subprocess.Popen([sys.executable, "-c", CONSUMER], env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == "committed\n"

        members = kafkalike("consumer-groups", "--describe", "--group", "g", "--members", "--verbose")
        refused = kafkalike(*RESET)
    finally:
        consumer.kill()
        consumer.communicate(timeout=60)
    row = members.stdout.splitlines()[-1].split()
    assert (row[0], row[3:5], row[6], members.stderr) == ("g", ["reader", "1"], "t:0", "")
    state = "but the current state is Stable."
    assert refused.stderr == f"Error: Assignments can only be reset if the group 'g' is inactive, {state}\n"
    assert refused.returncode == 1

    admin = KafkaAdminClient(bootstrap_servers=root)
    deadline = time.monotonic() + 60
    while admin.describe_groups(["g"])["g"]["group_state"] != "Empty":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    done = kafkalike(*RESET)
    assert (done.returncode, done.stderr) == (0, "")
    assert admin.list_consumer_group_offsets("g") == {TopicPartition("t", 0): OffsetAndMetadata(0)}
