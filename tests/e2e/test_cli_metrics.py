"""`kafkalike metrics --port` as a process that Prometheus scrapes."""

import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable

from tests.e2e.conftest import MAIN

Fill = Callable[..., None]


def test_metrics_are_served_until_a_signal(root: str, environ: dict[str, str], fill: Fill) -> None:
    """Each scrape looks anew; a cluster that cannot be read is down, not an error of the server."""
    fill("t", [(b"k", b"v", 1)])
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "metrics", "--port", "0"], env=environ, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/metrics", process.stderr.readline())
        assert found is not None

        assert 'kafka_topic_partition_current_offset{partition="0",topic="t"} 1.0' in _get(found[0])
        fill("t", [(b"k", b"v", 2), (b"k", b"v", 3)])
        assert 'kafka_topic_partition_current_offset{partition="0",topic="t"} 3.0' in _get(found[0])
        shutil.rmtree(root)
        assert "kafkalike_up 0.0" in _get(found[0]).splitlines()
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in err


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - this machine
        content: bytes = answer.read()
        return content.decode()
