"""Kafka's own command-line tools as judges of the gateway: the usual ones, and those of share groups."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.foreign_programs import Place, Verdict, eventually, fetched, java, run, running
from kafkalike import KafkaAdminClient, KafkaProducer, TopicPartition
from kafkalike.admin.share_group_operations import SharePartitionReport

VERSIONS: Final = ("4.3.1", "4.4.0")

PACKAGE: Final = "org.apache.kafka.tools"

COPIED: Final = 100
"""Records for the copier, whose partition a producer of Java may not have chosen."""


class JavaTools:
    """Runs tools of one release, and notes which of them say what is expected.

    Args:
        place: the gateway.
        version: of Kafka.
    """

    def __init__(self, place: Place, version: str) -> None:
        self._version = version
        self._server = ("--bootstrap-server", place.address)
        self._right = 0
        self._wrong: list[str] = []

    @property
    def verdict(self) -> Verdict:
        """What was noted."""
        return Verdict(self._right, self._wrong)

    def command(self, name: str, *arguments: str, server: Sequence[str] | None = None) -> list[str]:
        """Return the command line of a tool; `server` replaces --bootstrap-server."""
        tools = fetched(f"kafka-tools-{self._version}", f"org.apache.kafka:kafka-tools:{self._version}")
        return [*java(tools), f"{PACKAGE}.{name}", *(self._server if server is None else server), *arguments]

    def expect(
        self, pattern: str, name: str, *arguments: str, given: str = "", server: Sequence[str] | None = None
    ) -> None:
        """Run a tool; its output must match the pattern."""
        self._judge(pattern, run(self.command(name, *arguments, server=server), given=given), name, *arguments)

    def expect_config(self, pattern: str, *arguments: str) -> None:
        """Run ConfigCommand, which is in the broker's jar up to Kafka 4.3."""
        if self._version != "4.3.1":
            self.expect(pattern, "ConfigCommand", *arguments)
            return
        jars = fetched(f"kafka-{self._version}", f"org.apache.kafka:kafka_2.13:{self._version}")
        command = [*java(jars), "kafka.admin.ConfigCommand", *self._server, *arguments]
        self._judge(pattern, run(command), "ConfigCommand", *arguments)

    def note(self, good: bool, name: str, told: object = "") -> None:  # noqa: FBT001
        """Note a fact, and show what explains that it is wrong."""
        if good:
            self._right += 1
            return
        self._wrong.append(f"failed: {name}")
        print(f"{name}: {str(told)[-1500:]}", file=sys.stderr)

    def _judge(self, pattern: str, told: str, *name: str) -> None:
        self.note(re.search(pattern, told, re.DOTALL) is not None, " ".join(name), told)


def _requests(place: Place, name: str) -> dict[int, int]:
    """Return how many requests of an API the gateway got, by version."""
    return {
        int(sample.labels["version"]): int(sample.value)
        for family in place.registry.collect()
        for sample in family.samples
        if sample.name == "kafkalike_gateway_requests_total" and sample.labels["request"] == name
    }


def java_tools(place: Place, version: str) -> Verdict:
    """Run the tools for topics, records, consumer groups and transactions."""
    tools = JavaTools(place, version)
    expect, groups = tools.expect, "consumer.group.ConsumerGroupCommand"
    expect(r"Created topic java", "TopicCommand", "--create", "--topic", "java", "--partitions", "4")
    expect(r"PartitionCount: 4", "TopicCommand", "--describe", "--topic", "java")
    expect(r'"sent":500,"acked":500', "VerifiableProducer", "--topic", "java", "--max-messages", "500")
    for protocol in ("classic", "consumer"):
        expect(
            r'"offsets_committed".*"success":true', "VerifiableConsumer", "--topic", "java", "--group-id",
            f"java-{protocol}", "--max-messages", "500", "--group-protocol", protocol,
        )  # fmt: skip
    expect(r"java-classic\s+java\s+\d\s+\d+\s+\d+\s+0\b", groups, "--describe", "--group", "java-classic")
    expect(r"java-consumer", groups, "--list")
    expect(r"java:0:\d+", "GetOffsetShell", "--topic", "java")
    expect(r"^(?!.*ERROR)", "ConsoleProducer", "--topic", "console", given="hello\n")
    read = ("--topic", "console", "--from-beginning", "--max-messages", "1")
    expect(r"hello", "consumer.ConsoleConsumer", *read)
    tools.expect_config(
        r"Completed updating config for topic java",
        "--alter", "--topic", "java", "--add-config", "retention.ms=100000",
    )  # fmt: skip
    expect(
        r"50000 records sent", "ProducerPerformance", "--topic", "perf", "--num-records", "50000", "--record-size",
        "100", "--throughput", "-1",
    )  # fmt: skip
    expect(r"\b50\d{3}\b", "ConsumerPerformance", "--topic", "perf", "--num-records", "50000")
    deleted = place.folder / "deleted.json"
    deleted.write_text('{"version": 1, "partitions": [{"topic": "perf", "partition": 0, "offset": 5}]}')
    expect(r"perf-0\s+low_watermark: 5", "DeleteRecordsCommand", "--offset-json-file", str(deleted))
    expect(r"perf:0:5", "GetOffsetShell", "--topic", "perf", "--time", "earliest")
    reset = ("--reset-offsets", "--to-earliest", "--execute")
    expect(r"java-classic\s+java\s+\d\s+0\b", groups, "--group", "java-classic", "--topic", "java", *reset)
    expect(
        r"Deletion of requested consumer groups \('java-consumer'\) was successful",
        groups, "--delete", "--group", "java-consumer",
    )  # fmt: skip
    with KafkaProducer(bootstrap_servers=place.cluster) as producer:
        for number in range(COPIED):
            producer.send("java", b"%d" % number, partition=0)
    expect(
        r'"remaining":0.*"stage":"ShutdownComplete"|"stage":"ShutdownComplete".*"remaining":0',
        "TransactionalMessageCopier", "--input-topic", "java", "--input-partition", "0", "--output-topic", "copied",
        "--max-messages", "-1", "--consumer-group", "copier", "--transaction-size", "20", "--transactional-id",
        "copier", server=("--broker-list", place.address),
    )  # fmt: skip
    ends = _requests(place, "end_txn")
    tools.note(
        ends.keys() == {5} and ends[5] >= COPIED // 20, "Java's producer ends transactions by EndTxn of version 5", ends
    )
    ended = r"copier\s+\d+\s+\d+\s+(Empty|CompleteCommit)"
    expect(ended, "TransactionsCommand", "list")
    expect(ended, "TransactionsCommand", "describe", "--transactional-id", "copier")
    expect(r"LastSequence", "TransactionsCommand", "describe-producers", "--topic", "java", "--partition", "0")
    expect(r"ProducerEpoch", "TransactionsCommand", "find-hanging", "--broker-id", "0")
    expect(
        r"Valid replica already elected for partitions java-0",
        "LeaderElectionCommand", "--election-type", "preferred", "--topic", "java", "--partition", "0",
    )  # fmt: skip
    expect(r"No partition reassignments found", "reassign.ReassignPartitionsCommand", "--list")
    expect(
        r"Avg latency: .* ms", "EndToEndLatency", "--topic", "latency", "--num-records", "200", "--producer-acks",
        "all", "--record-size", "100",
    )  # fmt: skip
    expect(r"^(?!.*Error)", "TopicCommand", "--delete", "--topic", "java")
    tools.note("java" not in place.cluster.topics(), "topic java is gone")
    return tools.verdict


def _events(log: Path, name: str) -> list[dict[str, object]]:
    """Return the events of one kind that a verifiable tool has told."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [event for event in found if event.get("name") == name]


def _offsets(place: Place, group: str) -> dict[TopicPartition, SharePartitionReport]:
    with KafkaAdminClient(bootstrap_servers=place.cluster) as admin:
        return admin.list_share_group_offsets([group])[group]


def share_tools(place: Place, version: str) -> Verdict:
    """Work through queues by Java's share consumers, and administer their groups."""
    tools = JavaTools(place, version)
    expect, groups = tools.expect, "consumer.group.ShareGroupCommand"
    console = ("consumer.ConsoleShareConsumer", "--topic", "jobs", "--group", "console", "--timeout-ms", "30000")
    place.cluster.create_topic("jobs", 2, {})

    def start(group: str) -> None:
        told = rf"{group}\s+jobs\s+0\s+0\s.*{group}\s+jobs\s+1\s+0\s"
        expect(told, groups, "--reset-offsets", "--group", group, "--topic", "jobs", "--to-earliest", "--execute")

    expect(r'"sent":300,"acked":300', "VerifiableProducer", "--topic", "jobs", "--max-messages", "300")
    start("console")
    expect(r"Processed a total of 100 messages", *console, "--max-messages", "100")
    expect(r"Processed a total of 20 messages", *console, "--max-messages", "20", "--reject")
    expect(r"Processed a total of 10 messages", *console, "--max-messages", "10", "--release")
    shows = ("--formatter-property", "print.delivery=true")
    # A consumer that ends gives back what it has fetched, so that this is the fourth delivery of each job, as in Kafka.
    expect(r"Delivery:4.*Processed a total of 180 messages", *console, "--max-messages", "180", *shows)
    left = {tp.partition: report.lag for tp, report in _offsets(place, "console").items()}
    tools.note(left == {0: 0, 1: 0}, "every job is accepted or rejected once", left)

    for mode in ("auto", "sync", "async"):
        start(mode)
        verifiable = ("--topic", "jobs", "--group-id", mode, "--max-messages", "300", "--acknowledgement-mode", mode)
        expect(r'"offsets_acknowledged".*"success":true', "VerifiableShareConsumer", *verifiable)
        left = {tp.partition: report.lag for tp, report in _offsets(place, mode).items()}
        tools.note(left == {0: 0, 1: 0}, f"{mode}: every job is acknowledged", left)

    start("several")
    with ExitStack() as stack:
        logs = [place.folder / f"share-{number}.log" for number in range(3)]
        command = tools.command("VerifiableShareConsumer", "--topic", "jobs", "--group-id", "several", "--verbose")
        for log in logs:
            stack.enter_context(running(command, log))
        tools.note(
            eventually(lambda: sum(report.lag for report in _offsets(place, "several").values()) == 0),
            "three consumers, more than partitions, work through a queue",
            [log.read_text()[-700:] for log in logs],
        )
        expect(r"several\s+jobs\s+0\s+\d+", groups, "--describe", "--group", "several")
        members = r"(several\s+\S+\s+\S+\s+\S+\s+2\s+\d+\s+jobs:0,1\s+){3}"
        expect(members, groups, "--describe", "--group", "several", "--members", "--verbose")
        expect(
            r"several\s+\S+\s+\(0\)\s+Stable\s+\d+\s+\d+\s+3",
            groups,
            "--describe",
            "--group",
            "several",
            "--state",
            "--verbose",
        )
        expect(r"several\s+Stable", groups, "--list", "--state", "stable")
        busy = r"Share group 'several' is not empty"
        expect(busy, groups, "--reset-offsets", "--group", "several", "--topic", "jobs", "--to-latest", "--execute")
        expect(r"not be deleted.*several", groups, "--delete", "--group", "several")
    seen = [(r["partition"], r["offset"]) for log in logs for r in _events(log, "record_data")]
    tools.note(len(seen) == len(set(seen)) == 300, "each job went to one of them", len(seen))

    expect(r"(console\s.*several|several\s.*console)", groups, "--list")
    expect(r"console\s+Share\s+share", "GroupsCommand", "--list", "--share")
    expect(
        r"console\s+jobs\s+0\s+\d+", groups, "--reset-offsets", "--group", "console", "--all-topics",
        "--to-datetime", "2020-01-01T00:00:00.000", "--dry-run",
    )  # fmt: skip
    expect(r"jobs\s+Successful", groups, "--delete-offsets", "--group", "auto", "--topic", "jobs")
    # A share group without members and offsets does not exist; Kafka keeps its name.
    expect(r"'auto' does not exist", groups, "--describe", "--group", "auto")
    expect(r"\('sync'\) was successful", groups, "--delete", "--group", "sync")
    expect(r"does not exist|GroupIdNotFound", groups, "--describe", "--group", "sync")
    start("perf")
    expect(
        r"\b300\b", "ShareConsumerPerformance", "--topic", "jobs", "--group", "perf", "--num-records", "300",
        "--timeout", "30000",
    )  # fmt: skip
    return tools.verdict
