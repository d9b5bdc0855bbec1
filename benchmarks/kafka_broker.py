"""A real Kafka broker for benchmarks: nothing in, the address of a single node in KRaft mode on 127.0.0.1 out.

Its jars come from Maven Central through Spark's own resolver, into a folder of their own in the user's home.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from zipfile import is_zipfile

import pyspark

from kafkalike.cli.jobs.kafka_jars import resolve

KAFKA = "org.apache.kafka:kafka_2.13:4.3.1"
HOME = Path.home() / ".cache" / "kafkalike-bench" / "kafka-4.3.1"

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.consumer.assignor.offload.enable=false
group.share.assignor.offload.enable=false
auto.create.topics.enable=true
"""

LOG4J = """
status = error
appender.file.type = Console
appender.file.name = console
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %m%n
rootLogger.level = warn
rootLogger.appenderRef.file.ref = console
"""


def jars() -> str:
    """Class path of the broker; fetched when it is not there."""
    done = HOME / "fetched"
    if not done.exists():
        resolve({"spark.jars.packages": KAFKA}, HOME)
        done.touch()
    # Spark's resolver leaves out what Spark has itself.
    scala = next(Path(pyspark.__file__).parent.glob("jars/scala-library-*.jar"))
    return f"{HOME / 'jars' / '*'}:{scala}"


AVRO = "org.apache.spark:spark-avro_2.13:4.1.1"
"""Spark's Avro functions. Maven Central has none of 4.2.0; this one works with it."""


def avro_jar() -> str:
    """The jar of Spark's Avro functions; fetched when it is not there."""
    folder = HOME.parent / AVRO.rpartition(":")[0].rpartition(":")[2]
    jar = folder / "jars" / f"{AVRO.replace(':', '_', 1).replace(':', '-', 1)}.jar"
    if not is_zipfile(jar):
        resolve({"spark.jars.packages": AVRO}, folder)
    return str(jar)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(port: int, broker: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if broker.poll() is not None or time.monotonic() > deadline:
            message = f"the broker did not start: {log.read_text()[-2000:]}"
            raise RuntimeError(message)
        time.sleep(0.2)


@contextlib.contextmanager
def broker() -> Iterator[tuple[str, Path]]:
    """A broker as long as the block lasts.

    Yields:
        Its `bootstrap.servers`, and the folder of its logs.
    """
    classes = jars()
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder:
        port, controller = _free_port(), _free_port()
        settings, logging = Path(folder, "server.properties"), Path(folder, "log4j2.properties")
        settings.write_text(PROPERTIES.format(port=port, controller=controller, folder=folder))
        logging.write_text(LOG4J)
        run = [_java(), "-Xmx1g", f"-Dlog4j2.configurationFile={logging}", "-cp", classes]
        cluster = "q1Sh-9_ISia_zwGINzRvyQ"
        subprocess.run(
            [*run, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        log = Path(folder, "broker.log")
        with log.open("wb") as output:
            process = subprocess.Popen([*run, "kafka.Kafka", str(settings)], stdout=output, stderr=output)
            try:
                _wait(port, process, log)
                yield f"127.0.0.1:{port}", Path(folder, "logs")
            finally:
                process.terminate()
                process.wait(timeout=60)


def log_bytes(logs: Path, topic: str) -> int:
    """Bytes of a topic's records on the broker's disk."""
    return sum(f.stat().st_size for f in logs.glob(f"{topic}-*/*.log"))
