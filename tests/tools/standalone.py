"""Standalone: addresses in, a cluster of Spark's own cluster manager out, a process for the master and each worker."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyspark

PATIENCE = 60.0
MASTER = "127.0.0.1"


@contextlib.contextmanager
def standalone(scratch: Path, hosts: Sequence[str] = (MASTER, MASTER), cores: int = 1) -> Iterator[str]:
    """A master and its workers; the address of the master.

    Args:
        scratch: where they put their logs and files.
        hosts: an address of this machine for each worker; Spark takes two of them for two machines.
        cores: how many tasks a worker runs at a time.
    """
    with socket.socket() as probe:
        probe.bind((MASTER, 0))
        port = probe.getsockname()[1]
    master = f"spark://{MASTER}:{port}"
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
    deploy = "org.apache.spark.deploy"
    commands = [
        [f"{deploy}.master.Master", "--host", MASTER, "--port", str(port), "--webui-port", "0"],
        *(
            [
                *(f"{deploy}.worker.Worker", "--host", host, "--webui-port", "0", "--cores", str(cores)),
                *("--memory", "1g", "--work-dir", str(scratch / f"worker-{number}"), master),
            ]
            for number, host in enumerate(hosts)
        ),
    ]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            with Path(scratch, f"daemon-{number}.log").open("wb") as log:
                # `exec`: the shell script becomes Java itself, so that ending the process ends it.
                started = [str(home / "bin" / "spark-class"), *command]
                processes.append(subprocess.Popen(started, env=environment, stdout=log, stderr=log))
            if number == 0:
                _wait_for_port(port)
        yield master
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(PATIENCE)


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError), socket.create_connection((MASTER, port), 1):
            return
        assert time.monotonic() < deadline, "the master does not listen"
        time.sleep(0.1)
