"""Judges of the gateway: programs of Kafka's world, unchanged, against a gateway of this machine.

    python -m benchmarks.gateway_judges                # all judges
    python -m benchmarks.gateway_judges kcat java-4.4.0   # some of them

Each judge comes from a package registry by its ordinary client: kafka-python's integration tests from its source
package, Kafka's Java tools from Maven by Spark's resolver, kcat from the system's packages. A judge that is not there
is skipped and says what to install.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import kafka as kafka_library
from prometheus_client import CollectorRegistry

from benchmarks.foreign_programs import HOME, Place, Verdict, eventually, run, running, verdict_of
from benchmarks.gateway_services import distributed, flink, mirror_maker, standalone, streams
from benchmarks.java_tools import VERSIONS, java_tools, share_tools
from benchmarks.kafka_broker import broker
from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.cli.jobs.kafka_jars import ROUNDS, resolve
from kafkalike.connect import connect
from kafkalike.gateway.gateway_server import GatewayServer
from tests.tools.wire_group_cases import EVERY_CASE
from tests.tools.wire_transcript import accepted, differences, record, transcripts, unexpected

REAL_TIME_RECORDS: Final = 60

SPARK_CONNECTOR: Final = "spark-sql-kafka-0-10_2.13-4.2.0"

SERVICE: Final = '''
class ExternalService:
    """A broker that runs already."""
    def __init__(self, host, port):
        self.host, self.port = host, port
    def open(self): pass
    def close(self): pass
    def stop(self): pass
class SpawnedService:
    """A broker that a test starts; there is none."""
'''
"""Module of kafka-python's tests that its source package lacks: all brokers are external here."""

NOT_EXPECTED: Final = {
    "test_create_describe_delete_acls": "no ACLs",
    "test_describe_configs_broker_resource_returns_configs": "gateways have no setting advertised.listeners",
    "test_create_partitions": "assigns replicas to brokers; gateways hold none",
    "test_alter_replica_log_dirs": "one log directory",
    "test_describe_metadata_quorum": "no quorum of brokers",
    "test_alter_partition_reassignments": "gateways hold no replicas",
    "test_kafka_version_infer": "expects the list of requests of Kafka 4.1",
    "test_kafka_consumer_unsupported_encoding": "expects that the broker keeps the producer's codec",
}
"""Tests of kafka-python that need more than a gateway has, with the reason."""


def kafka_python(place: Place) -> Verdict:
    """Run kafka-python's own integration tests."""
    # The tests expect the partitions that their own broker gives a topic.
    place.cluster.edit_defaults(lambda now: {**now, "num.partitions": "4"})
    version = kafka_library.__version__
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    run([*pip, f"kafka-python=={version}", "--dest", str(place.folder)])
    archives = list(place.folder.glob("kafka_python-*.tar.gz"))
    if not archives:
        return Verdict(0, (), "its source package cannot be fetched")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(place.folder, filter="data")
    tests = place.folder / f"kafka_python-{version}"
    (tests / "test" / "__init__.py").touch()
    (tests / "test" / "service.py").write_text(SERVICE)
    (tests / "servers" / "4.1.0" / "kafka-bin").mkdir(parents=True)
    names = ("producer", "consumer", "admin")
    files = [f"test/integration/test_{name}_integration.py" for name in names]
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-q", "--no-header", "-rA", "--timeout=60", *files]
    told = run(["env", "-C", str(tests), *command], KAFKA_URI=f"kafka://{place.address}", KAFKA_VERSION="4.1.0")
    passed = set(re.findall(r"^PASSED \S+::(\w+)", told, re.MULTILINE))
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S+::(\w+)", told, re.MULTILINE))
    wrong = [f"failed: {name}" for name in sorted(failed - NOT_EXPECTED.keys())]
    wrong += [f"passed although listed: {name}" for name in sorted((passed - failed) & NOT_EXPECTED.keys())]
    return Verdict(len(passed - failed), wrong if passed else [told[-2000:]])


def kcat(place: Place) -> Verdict:
    """Produce, read, list and look up offsets by kcat."""
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        return Verdict(0, (), "install kcat")
    base = [program, "-b", place.address]
    lines = "".join(f"{number}\n" for number in range(1000))
    run([*base, "-P", "-t", "kcat", "-z", "lz4"], given=lines)
    checks = {
        "read all": (run([*base, "-C", "-t", "kcat", "-e", "-q", "-o", "beginning"]) == lines),
        "list": 'topic "kcat" with 1 partitions' in run([*base, "-L", "-t", "kcat"]),
        "offset": "kcat [0] offset 1000" in run([*base, "-Q", "-t", "kcat:0:-1"]),
        "group": run([*base, "-q", "-o", "beginning", "-c", "3", "-G", "kcat-group", "kcat"]) == "0\n1\n2\n",
    }
    return verdict_of(checks)


SPARK: Final = """
import sys, tempfile
from pyspark.sql import SparkSession
address, jars = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
spark = builder.config("spark.ui.enabled", "false").getOrCreate()
options = {"kafka.bootstrap.servers": address}
rows = spark.range(20000).selectExpr("cast(id as string) key", "cast(id as string) value")
rows.write.format("kafka").options(**options, topic="spark").save()
read = spark.read.format("kafka").options(**options, subscribe="spark").load()
print("batch", read.count(), read.selectExpr("cast(value as string) v").distinct().count())
stream = spark.readStream.format("kafka").options(**options, subscribe="spark", startingOffsets="earliest").load()
query = stream.select("key", "value").writeStream.format("kafka").options(**options, topic="spark-copy")
query = query.option("checkpointLocation", tempfile.mkdtemp()).trigger(availableNow=True)
query.start().awaitTermination()
copied = spark.read.format("kafka").options(**options, subscribe="spark-copy").load()
print("stream", copied.select("value").distinct().count())
"""

REAL_TIME: Final = """
import sys, tempfile
from pyspark.sql import SparkSession
address, jars = sys.argv[1:]
builder = SparkSession.builder.master("local[4]").config("spark.jars", jars).config("spark.driver.memory", "1g")
builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
options = {"kafka.bootstrap.servers": address}
stream = spark.readStream.format("kafka").options(**options, subscribe="live", startingOffsets="earliest").load()
query = stream.select("key", "value").writeStream.format("kafka").options(**options, topic="live-copy")
query = query.option("checkpointLocation", tempfile.mkdtemp()).outputMode("update").trigger(realTime="20 seconds")
started = query.start()
print("started", flush=True)
started.awaitTermination(70)
print("exception", started.exception(), flush=True)
started.stop()
"""
"""Copies records while its batch runs."""


def _connector() -> str:
    """Return the jars of Spark's Kafka connector, which takes two rounds to fetch."""
    folder = HOME / SPARK_CONNECTOR
    if not (folder / "fetched").exists():
        for conf in ROUNDS:
            resolve(conf, folder)
        (folder / "fetched").touch()
    return ",".join(str(jar) for jar in (folder / "jars").glob("*.jar"))


def spark(place: Place) -> Verdict:
    """Write, read and stream by Spark's own Kafka connector."""
    place.cluster.create_topic("spark", 4, {})
    place.cluster.create_topic("spark-copy", 4, {})
    told = run([sys.executable, "-c", SPARK, place.address, _connector()])
    checks = {"batch": "batch 20000 20000" in told, "stream": "stream 20000" in told}
    if not all(checks.values()):
        print(told[-3000:], file=sys.stderr)
    return verdict_of(checks)


def kafka(place: Place) -> Verdict:
    """Ask a Kafka broker and the gateway the same, and record the broker's answers for `make test`."""
    with broker() as (address, _):
        expected = transcripts(address, EVERY_CASE)
    record(expected)
    found = list(differences(expected, transcripts(place.address, EVERY_CASE)))
    wrong, used = unexpected(found)
    wrong += [f"no longer different: {pattern}" for pattern, count in used.items() if not count]
    reasons = Counter[str]()
    for pattern, reason in accepted().items():
        reasons[reason] += used[pattern]
    for reason, count in reasons.items():
        print(f"  {count:3d} fields differ: {reason}")
    return Verdict(sum(map(len, expected.values())), wrong)


def real_time(place: Place) -> Verdict:
    """Copy records by Spark's real-time mode: they arrive long before the batch that copies them ends."""
    place.cluster.create_topic("live", 2, {})
    place.cluster.create_topic("live-copy", 2, {})
    with (
        running([sys.executable, "-c", REAL_TIME, place.address, _connector()], place.folder / "spark.log"),
        KafkaProducer(bootstrap_servers=place.cluster) as producer,
        KafkaConsumer("live-copy", bootstrap_servers=place.cluster, auto_offset_reset="earliest") as consumer,
    ):
        sent: dict[bytes, float] = {}
        delays: list[float] = []

        def copied() -> bool:
            # The first record arrives when the query has started.
            if len(sent) < (REAL_TIME_RECORDS if delays else 1):
                value = str(len(sent)).encode()
                sent[value] = time.monotonic()
                producer.send("live", value).get()
            polled = [record for records in consumer.poll(100).values() for record in records]
            delays.extend(time.monotonic() - sent[record.value or b""] for record in polled)
            return len(delays) >= REAL_TIME_RECORDS

        complete = eventually(copied, 150)
    if not complete:
        print((place.folder / "spark.log").read_text()[-4000:], file=sys.stderr)
    print(f"  {len(delays)} records, median delay {statistics.median(delays or [0]) * 1000:.0f} ms")
    return verdict_of({f"{REAL_TIME_RECORDS} records": complete})


JUDGES: Final[dict[str, Callable[[Place], Verdict]]] = {
    "kafka": kafka,
    "kafka-python": kafka_python,
    "kcat": kcat,
    **{f"java-{version}": partial(java_tools, version=version) for version in VERSIONS},
    **{f"java-share-{version}": partial(share_tools, version=version) for version in VERSIONS},
    "spark": spark,
    "spark-real-time": real_time,
    "connect": standalone,
    "connect-distributed": distributed,
    "mirror-maker": mirror_maker,
    "streams": streams,
    "flink": flink,
}


def main() -> int:
    """Run the judges, print a line for each, and return 1 if one of them is not satisfied."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("judges", nargs="*", help=f"some of {', '.join(JUDGES)}; default: all")
    wanted = parser.parse_args().judges or list(JUDGES)
    if unknown := set(wanted) - JUDGES.keys():
        parser.error(f"unknown judges: {', '.join(sorted(unknown))}")
    satisfied = True
    for name in wanted:
        with tempfile.TemporaryDirectory(prefix="judge-") as folder:
            cluster = connect(f"{folder}/root")
            registry = CollectorRegistry()
            server = GatewayServer(cluster, registry=registry)
            server.start()
            try:
                verdict = JUDGES[name](Place(cluster, server.bootstrap_servers, Path(folder), registry))
            finally:
                server.stop()
        satisfied &= not verdict.wrong
        outcome = verdict.skipped and f"skipped: {verdict.skipped}"
        print(f"{name}: {outcome or f'{verdict.right} right, {len(verdict.wrong)} wrong'}", *verdict.wrong, sep="\n  ")
    return 0 if satisfied else 1


if __name__ == "__main__":
    sys.exit(main())
