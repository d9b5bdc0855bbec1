"""Foreign programs of the gateway's judges: fetched from package registries, and run on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
from prometheus_client import CollectorRegistry

from kafkalike.cli.jobs.kafka_jars import resolve
from kafkalike.log.cluster.cluster import Cluster

HOME: Final = Path.home() / ".cache" / "kafkalike-bench"

TIMEOUT_SECONDS: Final = 300

SPARK_JARS: Final = Path(pyspark.__file__).parent / "jars"

LOG4J: Final = """
status = error
appender.c.type = Console
appender.c.name = c
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.c.ref = c
"""


@dataclass(frozen=True)
class Verdict:
    """What a judge says."""

    right: int
    wrong: Sequence[str]
    skipped: str = ""


@dataclass(frozen=True)
class Place:
    """A running gateway."""

    cluster: Cluster
    address: str
    folder: Path
    registry: CollectorRegistry
    """Metrics of the gateway."""


def run(command: Sequence[str], *, given: str = "", **more: str) -> str:
    """Run a program, and return what it wrote."""
    done = subprocess.run(
        list(command),
        check=False,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        env={**os.environ, **more},
    )
    return done.stdout


def verdict_of(checks: dict[str, bool]) -> Verdict:
    """Return the verdict of named checks."""
    return Verdict(sum(checks.values()), [f"failed: {name}" for name, good in checks.items() if not good])


def fetched(name: str, *packages: str) -> Path:
    """Return the folder with the jars of Maven packages, fetched by Spark's resolver when they are not there."""
    folder = HOME / name
    if not (folder / "fetched").exists():
        resolve({"spark.jars.packages": ",".join(packages)}, folder)
        (folder / "fetched").touch()
    return folder / "jars"


def java(*folders: Path, heap: str = "256m", log4j: Path | None = None) -> list[str]:
    """Return the begin of a command that runs a class of jars in folders."""
    # Spark's come first: the log4j there needs the newer slf4j.
    names = ("slf4j-api-*", "scala-library-*", "log4j-*", "jackson-*")
    own = [str(jar) for name in names for jar in SPARK_JARS.glob(f"{name}.jar")]
    home = os.environ.get("JAVA_HOME")
    # Most of these programs end before the second compiler would pay.
    options = [f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    program = [f"{home}/bin/java" if home else "java", *options]
    program += [] if log4j is None else [f"-Dlog4j2.configurationFile={log4j}"]
    return [*program, "-cp", ":".join([*own, *(str(folder / "*") for folder in folders)])]


@contextlib.contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program as long as the block lasts; its output goes to a file."""
    with log.open("ab") as output:
        process = subprocess.Popen(list(command), stdout=output, stderr=output)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def eventually(found: Callable[[], object], seconds: float = 60.0) -> bool:
    """Return whether a condition becomes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if found():
                return True
        time.sleep(0.2)
    return False


def properties(path: Path, values: Mapping[str, object]) -> Path:
    """Write a file of Java properties."""
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path
