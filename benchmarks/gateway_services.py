"""Judges of the gateway that run for a while: Kafka Connect, MirrorMaker 2, Kafka Streams and Flink."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.foreign_programs import (
    LOG4J,
    Place,
    Verdict,
    eventually,
    fetched,
    java,
    properties,
    run,
    running,
    verdict_of,
)
from kafkalike import KafkaConsumer, KafkaProducer, TopicPartition
from kafkalike.connect import connect
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.log.cluster.cluster import Cluster

KAFKA: Final = "org.apache.kafka"

FILE_SOURCE: Final = f"{KAFKA}.connect.file.FileStreamSourceConnector"
FILE_SINK: Final = f"{KAFKA}.connect.file.FileStreamSinkConnector"

STRINGS: Final = {
    "key.converter": f"{KAFKA}.connect.storage.StringConverter",
    "value.converter": f"{KAFKA}.connect.storage.StringConverter",
}

BYTES: Final = dict.fromkeys(("key.converter", "value.converter"), f"{KAFKA}.connect.converters.ByteArrayConverter")

WORDS: Final = "all streams lead to kafka\nhello kafka streams\njoin kafka summit\n"


def _program(place: Place, *, heap: str = "256m") -> list[str]:
    log4j = place.folder / "log4j2.properties"
    log4j.write_text(LOG4J)
    names = ("connect-runtime", "connect-file", "connect-mirror")
    jars = fetched("kafka-connect-4.3.1", *(f"{KAFKA}:{name}:4.3.1" for name in names))
    return java(jars, heap=heap, log4j=log4j)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _append(path: Path, first: int, count: int) -> None:
    with path.open("a") as file:
        file.writelines(f"line {number}\n" for number in range(first, first + count))


def _told(place: Place) -> None:
    """Write the end of each log to standard error."""
    for log in sorted(place.folder.glob("*.log")):
        print(f"{log.name}: {log.read_text(errors='replace')[-3000:]}", file=sys.stderr)


def standalone(place: Place) -> Verdict:
    """Copy a file through a topic by a standalone Connect worker, which is stopped and started again."""
    source, sink = place.folder / "in.txt", place.folder / "out.txt"
    place.cluster.create_topic("lines", 1, {})
    worker = properties(
        place.folder / "worker.properties",
        {
            "bootstrap.servers": place.address,
            "offset.storage.file.filename": place.folder / "offsets",
            "offset.flush.interval.ms": 500,
            "listeners": f"http://127.0.0.1:{_free_port()}",
            **STRINGS,
        },
    )
    reads = {"name": "source", "connector.class": FILE_SOURCE, "file": source, "topic": "lines"}
    writes = {"name": "sink", "connector.class": FILE_SINK, "file": sink, "topics": "lines"}
    command = [*_program(place), f"{KAFKA}.connect.cli.ConnectStandalone", str(worker)]
    command += [str(properties(place.folder / f"{one['name']}.properties", one)) for one in (reads, writes)]
    checks = {}
    _append(source, 0, 100)
    with running(command, place.folder / "first.log"):
        checks["copied"] = eventually(lambda: len(_lines(sink)) >= 100)
    _append(source, 100, 50)
    with running(command, place.folder / "second.log"):
        checks["continued"] = eventually(lambda: len(_lines(sink)) >= 150)
    checks["each line once, in order"] = _lines(sink) == [f"line {number}" for number in range(150)]
    if not all(checks.values()):
        _told(place)
    return verdict_of(checks)


def _rest(port: int, path: str, body: Mapping[str, object] | None = None) -> Any:  # noqa: ANN401 - any JSON
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        method="GET" if body is None else "PUT",
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - the loopback
        return json.load(answer)


def _answers(port: int) -> bool:
    return bool(_rest(port, "/connectors") == [])


def _runs(port: int, name: str) -> str:
    """Return the worker that runs the only task of a connector; empty if none does."""
    try:
        tasks = _rest(port, f"/connectors/{name}/status")["tasks"]
    except (OSError, urllib.error.HTTPError):
        return ""
    return str(tasks[0]["worker_id"]) if tasks and tasks[0]["state"] == "RUNNING" else ""


def distributed(place: Place) -> Verdict:
    """Copy a file by two distributed Connect workers, of which the one with the sink is killed."""
    source, sink = place.folder / "in.txt", place.folder / "out.txt"
    place.cluster.create_topic("lines", 1, {})
    common: dict[str, object] = {
        "bootstrap.servers": place.address,
        "group.id": "workers",
        **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.replication.factor": 1 for kind in ("config", "offset", "status")},
        "offset.storage.partitions": 2,
        "status.storage.partitions": 2,
        "offset.flush.interval.ms": 500,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "scheduled.rebalance.max.delay.ms": 1000,
        **STRINGS,
    }
    checks = {}
    _append(source, 0, 100)
    with ExitStack() as stack:
        workers = {}
        for name in ("one", "two"):
            port = _free_port()
            own = properties(place.folder / f"{name}.properties", {**common, "listeners": f"http://127.0.0.1:{port}"})
            command = [*_program(place), f"{KAFKA}.connect.cli.ConnectDistributed", str(own)]
            workers[port] = stack.enter_context(running(command, place.folder / f"{name}.log"))
            # Both create the topics if they start together, and one finds them there.
            checks[f"worker {name} answers"] = eventually(partial(_answers, port))
        ports = list(workers)
        reads = {"connector.class": FILE_SOURCE, "file": str(source), "topic": "lines", "tasks.max": "1"}
        writes = {"connector.class": FILE_SINK, "file": str(sink), "topics": "lines", "tasks.max": "1"}
        for name, config in (("source", reads), ("sink", writes)):
            create = partial(_rest, ports[0], f"/connectors/{name}/config", config)
            checks[f"{name} created"] = eventually(create)
        checks["copied"] = eventually(lambda: len(_lines(sink)) >= 100)
        runs = _runs(ports[0], "sink")
        killed = next((port for port in ports if runs.endswith(f":{port}")), ports[0])
        survivor = next(port for port in ports if port != killed)
        os.kill(workers[killed].pid, signal.SIGKILL)
        _append(source, 100, 50)
        checks["other worker takes over"] = eventually(lambda: _runs(survivor, "sink").endswith(f":{survivor}"))
        wanted = {f"line {number}" for number in range(150)}
        checks["every line arrives"] = eventually(lambda: set(_lines(sink)) == wanted)
    for kind in ("config", "offset", "status"):
        configs = place.cluster.topic(f"connect-{kind}").configs
        checks[f"topic of {kind} is compacted"] = configs.get("cleanup.policy") == "compact"
    if not all(checks.values()):
        _told(place)
    return verdict_of(checks)


def _values(cluster: Cluster, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values of a topic, read by a native consumer."""
    if topic not in cluster.topics():
        return []
    with KafkaConsumer(bootstrap_servers=cluster, auto_offset_reset="earliest", consumer_timeout_ms=300) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in cluster.topic(topic).partitions])
        return [(record.key, record.value) for record in consumer]


def mirror_maker(place: Place) -> Verdict:
    """Mirror a topic, and the offsets of a group, from the gateway's cluster to that of another gateway."""
    other = connect(f"{place.folder}/other")
    server = GatewayServer(other)
    server.start()
    place.cluster.create_topic("orders", 2, {"retention.ms": "7200000"})
    with KafkaProducer(bootstrap_servers=place.cluster) as producer:
        for number in range(200):
            producer.send("orders", f"v{number}".encode(), key=str(number % 7).encode())
    with KafkaConsumer(
        "orders", bootstrap_servers=place.cluster, group_id="readers", auto_offset_reset="earliest",
        consumer_timeout_ms=500,
    ) as consumer:  # fmt: skip
        read = len(list(consumer))
        consumer.commit()
    clusters: dict[str, object] = {
        "source.cluster.alias": "here",
        "target.cluster.alias": "there",
        "source.cluster.bootstrap.servers": place.address,
        "target.cluster.bootstrap.servers": server.bootstrap_servers,
        "tasks.max": 1,
        **BYTES,
    }
    mirror = f"{KAFKA}.connect.mirror"
    connectors: dict[str, dict[str, object]] = {
        "source": {
            "topics": "orders",
            "replication.factor": 1,
            "offset-syncs.topic.replication.factor": 1,
            "refresh.topics.interval.seconds": 2,
            "sync.topic.configs.interval.seconds": 2,
            "sync.topic.acls.enabled": "false",
            "offset.lag.max": 0,
        },
        "checkpoint": {
            "groups": "readers",
            "checkpoints.topic.replication.factor": 1,
            "emit.checkpoints.interval.seconds": 1,
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": 1,
            "refresh.groups.interval.seconds": 2,
        },
        "heartbeat": {"heartbeats.topic.replication.factor": 1, "emit.heartbeats.interval.seconds": 1},
    }
    worker = properties(
        place.folder / "worker.properties",
        {
            "bootstrap.servers": server.bootstrap_servers,
            "offset.storage.file.filename": place.folder / "offsets",
            "offset.flush.interval.ms": 500,
            "listeners": f"http://127.0.0.1:{_free_port()}",
            **BYTES,
        },
    )
    command = [*_program(place), f"{KAFKA}.connect.cli.ConnectStandalone", str(worker)]
    for name, config in connectors.items():
        kind = {"name": name, "connector.class": f"{mirror}.Mirror{name.title()}Connector"}
        command.append(str(properties(place.folder / f"{name}.properties", {**kind, **clusters, **config})))
    checks = {"source is read": read == 200}
    try:
        with running(command, place.folder / "mirror.log"):
            checks["records"] = eventually(lambda: len(_values(other, "here.orders")) == 200, 90)
            checks["heartbeats"] = eventually(lambda: len(_values(other, "heartbeats")) > 0)
            checks["offsets of the group"] = eventually(lambda: _committed(other, "readers", "here.orders") == 200, 90)
        checks["the same records"] = sorted(_values(other, "here.orders")) == sorted(_values(place.cluster, "orders"))
        checks["partitions"] = other.topic("here.orders").num_partitions == 2
        checks["settings"] = other.topic("here.orders").configs.get("retention.ms") == "7200000"
    finally:
        server.stop()
    if not all(checks.values()):
        _told(place)
    return verdict_of(checks)


def _committed(cluster: Cluster, group: str, topic: str) -> int:
    """Return the sum of a group's committed offsets."""
    offsets = cluster.groups.refresh().group(group).offsets
    return sum(at.position.offset for tp, at in offsets.items() if tp.topic == topic)


def streams(place: Place) -> Verdict:
    """Count words by Kafka Streams' example, which is killed and started again; reject its newer group protocol."""
    jars = fetched("kafka-streams-4.3.1", f"{KAFKA}:kafka-streams:4.3.1", f"{KAFKA}:kafka-streams-examples:4.3.1")
    log4j = place.folder / "log4j2.properties"
    log4j.write_text(LOG4J)
    for name in ("streams-plaintext-input", "streams-wordcount-output"):
        place.cluster.create_topic(name, 2, {})
    settings: dict[str, object] = {
        "bootstrap.servers": place.address,
        "state.dir": place.folder / "state",
        "commit.interval.ms": 200,
        "consumer.session.timeout.ms": 6000,
    }

    def command(name: str, **more: str) -> list[str]:
        own = properties(place.folder / f"{name}.properties", {**settings, **more})
        return [*java(jars, log4j=log4j), f"{KAFKA}.streams.examples.wordcount.WordCountDemo", str(own)]

    def send() -> None:
        with KafkaProducer(bootstrap_servers=place.cluster) as producer:
            for line in WORDS.splitlines():
                producer.send("streams-plaintext-input", line.encode())

    def counted() -> dict[str, int]:
        found = _values(place.cluster, "streams-wordcount-output")
        return {str(key, "utf-8"): int.from_bytes(value, "big") for key, value in found if key and value}

    once = Counter(WORDS.split())
    checks = {}
    send()
    with running(command("first"), place.folder / "first.log") as process:
        checks["counts"] = eventually(lambda: counted() == once)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    send()
    twice = {word: 2 * count for word, count in once.items()}
    with running(command("second"), place.folder / "second.log"):
        checks["counts continue after a kill"] = eventually(lambda: counted() == twice, 90)
    changelogs = [name for name in place.cluster.topics() if name.endswith("-changelog")]
    checks["changelog is compacted"] = bool(changelogs) and all(
        "compact" in place.cluster.topic(name).configs.get("cleanup.policy", "") for name in changelogs
    )
    with running(command("newer", **{"group.protocol": "streams"}), place.folder / "newer.log"):
        checks["group.protocol=streams is refused"] = eventually(
            lambda: "does not support" in (place.folder / "newer.log").read_text(errors="replace")
        )
    if not all(checks.values()):
        _told(place)
    return verdict_of(checks)


FLINK: Final = """
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.*;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class FlinkCopy {
    public static void main(String[] given) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1);
        env.enableCheckpointing(500);
        KafkaSource<String> source = KafkaSource.<String>builder().setBootstrapServers(given[0]).setTopics(given[1])
            .setGroupId("flink").setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest()).setValueOnlyDeserializer(new SimpleStringSchema()).build();
        KafkaSink<String> sink = KafkaSink.<String>builder().setBootstrapServers(given[0])
            .setRecordSerializer(KafkaRecordSerializationSchema.builder().setTopic(given[2])
                .setValueSerializationSchema(new SimpleStringSchema()).build())
            .setDeliveryGuarantee(DeliveryGuarantee.valueOf(given[3])).setTransactionalIdPrefix("flink-" + given[2])
            .setProperty("transaction.timeout.ms", "60000").build();
        env.fromSource(source, WatermarkStrategy.noWatermarks(), "source").sinkTo(sink);
        env.execute();
    }
}
"""


def flink(place: Place) -> Verdict:
    """Copy a topic by Flink's source and sink, with and without transactions."""
    flink = "org.apache.flink"
    jars = fetched(
        "flink-2.2.0", f"{flink}:flink-connector-kafka:5.0.0-2.2", f"{flink}:flink-clients:2.2.0",
        f"{flink}:flink-connector-base:2.2.0",
    )  # fmt: skip
    if not list(jars.glob("*flink-connector-base*")):
        return Verdict(0, (), "its packages cannot be fetched")
    program = place.folder / "FlinkCopy.java"
    program.write_text(FLINK)
    command = java(jars, heap="512m")
    compiled = run([command[0] + "c", "-cp", command[-1], "-d", str(place.folder), str(program)])
    if not (place.folder / "FlinkCopy.class").exists():
        return Verdict(0, (), f"install a JDK: {compiled[-300:]}")
    for name in ("flink-in", "flink-once", "flink-twice"):
        place.cluster.create_topic(name, 2, {})
    with KafkaProducer(bootstrap_servers=place.cluster) as producer:
        for number in range(1000):
            producer.send("flink-in", str(number).encode())
    command[-1] += f":{place.folder}"
    checks = {}
    for guarantee, topic in (("AT_LEAST_ONCE", "flink-once"), ("EXACTLY_ONCE", "flink-twice")):
        told = run([*command, "FlinkCopy", place.address, "flink-in", topic, guarantee])
        found = sorted(int(value or b"") for _, value in _values(place.cluster, topic))
        checks[guarantee] = found == list(range(1000))
        if not checks[guarantee]:
            print(told[-4000:], len(found), file=sys.stderr)
    checks["offsets of its group"] = _committed(place.cluster, "flink", "flink-in") == 1000
    return verdict_of(checks)
