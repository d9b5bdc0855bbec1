"""What becomes of a producer that nobody closed when the interpreter exits."""

import subprocess
import sys
from pathlib import Path

import pytest

from kafkalike.log.connect import connect

SENDS_AND_ENDS = """
import sys
from kafkalike import KafkaProducer
producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
for number in range(1000):
    producer.send("orders", b"%d" % number)
{end}
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError('on purpose')", "producer.flush()"])
def test_exit_sends_what_is_queued(tmp_path: Path, end: str) -> None:
    """However the program ends, and without a word on the terminal but its own."""
    root = str(tmp_path / "cluster")

    ended = subprocess.run(
        [sys.executable, "-c", SENDS_AND_ENDS.format(end=end), root],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    log = connect(root).log("orders")
    assert log.log_end(0) == 1000
    assert ended.returncode == {"": 0, "producer.flush()": 0, "sys.exit(3)": 3}.get(end, 1)
    assert "terminate" not in ended.stderr
    assert ended.stderr == "" or "on purpose" in ended.stderr
