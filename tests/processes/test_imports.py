"""What a process imports, which takes its time before the first record."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["pandas", "deltalake", "pyspark"])
def test_a_process_that_sends_one_record_does_not_import(root: str, package: str) -> None:
    """pandas takes half a second of its own; deltalake brings a runtime with threads that a fork does not survive."""
    code = """
import sys
from kafkalike import KafkaProducer
with KafkaProducer(bootstrap_servers=sys.argv[1]) as producer:
    producer.send("orders", b"v").get(60)
sys.exit(sys.argv[2] in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, root, package], check=True, timeout=120)
