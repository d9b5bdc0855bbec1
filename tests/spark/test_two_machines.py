"""A job of a local Spark and a producer on another machine share a topic in a bucket, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.spark.workers import two_machines
from tests.tools.children import REPOSITORY
from tests.tools.machines import APART, check_permitted
from tests.tools.object_servers import S3, check_fetched


@pytest.mark.objects
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_local_job_and_a_producer_on_another_machine_share_a_topic() -> None:
    """Each is a network namespace: they have no folder that both use, no process, and no address but the wire's."""
    check_permitted(wire=True)
    check_fetched(S3)

    done = subprocess.run(
        [*APART, sys.executable, "-m", two_machines.__name__],
        cwd=REPOSITORY,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=350,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    written = [f"here-{nth}-{n}" for nth in range(two_machines.WRITES) for n in range(two_machines.ROWS)]
    written += [f"other-{n}" for n in range(two_machines.SENDS)]
    assert sorted(value for _, _, value in told["here"]) == told["there"] == sorted(written)
    for partition in (0, 1):
        offsets = sorted(offset for p, offset, _ in told["here"] if p == partition)
        assert offsets == list(range(len(offsets)))
    # What a producer was told of a record holds.
    at = {(p, offset): value for p, offset, value in told["here"]}
    assert [at[p, offset] for p, offset in told["sent"]] == [f"other-{n}" for n in range(two_machines.SENDS)]
    assert told["asked"] > two_machines.SENDS
