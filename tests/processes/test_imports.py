"""What a process imports, which takes its time before the first record."""

import subprocess
import sys


def test_a_process_that_sends_one_record_does_not_import_pandas(root: str) -> None:
    """Which takes half a second of its own."""
    code = """
import sys
from kafkalike import KafkaProducer
with KafkaProducer(bootstrap_servers=sys.argv[1]) as producer:
    producer.send("orders", b"v").get(60)
sys.exit("pandas" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, root], check=True, timeout=120)
