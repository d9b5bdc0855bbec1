"""Transcripts of conversations in Kafka's wire protocol, without what differs between any two brokers.

The same requests go to a Kafka broker, whose answers are recorded in `tests/data/kafka_answers.json`, and to a gateway.
"""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.tools.wire_client import WireClient

RECORDED = Path(__file__).parents[1] / "data" / "kafka_answers.json"
"""Answers of a Kafka broker by case, question and field."""

RETRIED = {5, 6, 14, 15, 16, 51}
"""Codes at which clients ask again: a leader or a coordinator starts, or has not finished."""

SECONDS = 20

CREATE_TOPICS, METADATA, PRODUCE, INIT_PRODUCER_ID = 19, 3, 0, 22

OWN = {
    "throttle_time", "error_message", "batch_index_error_message", "acknowledge_error_message",
    "cluster_id", "host", "port", "rack", "node_id", "broker_id", "controller_id",
    "leader_id", "leader", "replica_nodes", "isr_nodes", "node_endpoints", "log_dir", "total_bytes", "usable_bytes",
    "is_cordoned",
}  # fmt: skip
"""Fields that two brokers do not share."""

SIGNED = {
    "log_append_time", "log_append_time_ms", "producer_id", "session_id", "heartbeat_interval", "last_timestamp",
    "transaction_start_time", "coordinator_epoch", "size", "member_epoch", "group_epoch", "assignment_epoch",
    "finalized_features_epoch",
}  # fmt: skip
"""Fields of which the transcript keeps whether they are set."""

NAMED = {"member_id", "leader_member", "topic_id", "client_id", "client_host"}
"""Fields of which the transcript keeps whether they are empty."""


def batch(
    *values: bytes,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    transactional: bool = False,
    codec: int = 0,
    time_ms: int = 1_700_000_000_000,
) -> bytes:
    """Return a record batch with one record for each value."""
    builder = DefaultRecordBatchBuilder(2, codec, transactional, *producer, sequence, 1 << 20)
    for number, value in enumerate(values):
        builder.append(number, time_ms + number, b"k", value, [])
    return bytes(builder.build())


def produced(
    topic: str, partition: int, records: bytes | None, acks: int = -1, tid: str | None = None
) -> dict[str, Any]:
    """Return the fields of a Produce request with one batch."""
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    return {"transactional_id": tid, "acks": acks, "timeout": 5000, "topic_data": data}


class Transcript:
    """Asks a broker, and notes its answers.

    Args:
        address: host and port.
        case: name of the case, which begins the names of its topics and groups.
    """

    def __init__(self, address: str, case: str) -> None:
        self.name = f"case-{case}"
        self.answers: dict[str, Any] = {}
        self._address = address
        self._clients = [WireClient(address)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        for client in self._clients:
            client.socket.close()

    def other(self) -> WireClient:
        """Return a further connection."""
        self._clients.append(WireClient(self._address))
        return self._clients[-1]

    def ask(self, label: str, key: int, version: int, body: Mapping[str, Any]) -> Any:
        """Send a request, note its answer under a label, and return it."""
        answer = self.quietly(key, version, body)
        self.note(label, answer)
        return answer

    def note(self, label: str, answer: Any) -> None:
        """Note an answer."""
        assert label not in self.answers
        self.answers[label] = normal(answer)

    def quietly(self, key: int, version: int, body: Mapping[str, Any]) -> Any:
        """Send a request, and return its answer without a note."""
        end = time.monotonic() + SECONDS
        while True:
            answer = self._clients[0].ask(key, version, body)
            if time.monotonic() > end or not RETRIED & set(codes(answer)):
                return answer
            time.sleep(0.05)

    def closed(self, label: str, key: int, version: int, body: Mapping[str, Any]) -> None:
        """Send a request over a connection of its own, and note whether the broker ends it."""
        client = self.other()
        client.send(key, version, body)
        try:
            client.receive(key, version)
        except ConnectionError:
            self.answers[label] = "closed"
        else:
            self.answers[label] = "answered"

    def topic(self, partitions: int = 1, suffix: str = "", **configs: str) -> str:
        """Create a topic, and return its name when the broker serves it."""
        name = f"{self.name}{suffix}"
        settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        wanted = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        made = self.quietly(CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 5000})
        assert made.topics[0].error_code == 0, made
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            asked = {"topics": [{"topic_id": None, "name": name}], "allow_auto_topic_creation": False}
            seen = self.quietly(METADATA, 12, asked).topics[0]
            if not seen.error_code and len(seen.partitions) == partitions and not any(codes(seen)):
                return name
            time.sleep(0.02)
        raise AssertionError(f"{name} is not served")

    def fill(self, topic: str, count: int, partition: int = 0) -> None:
        """Append so many records, one batch each."""
        for number in range(count):
            answer = self.quietly(PRODUCE, 9, produced(topic, partition, batch(b"v%d" % number)))
            assert not any(codes(answer)), answer

    def producer(self, tid: str | None = None, timeout: int = 60_000) -> tuple[int, int]:
        """Return a producer id and its epoch."""
        body = {"transactional_id": tid, "transaction_timeout": timeout, "producer_id": -1, "producer_epoch": -1}
        made = self.quietly(INIT_PRODUCER_ID, 5, body)
        assert made.error_code == 0, made
        return int(made.producer_id), int(made.producer_epoch)


def transcripts(address: str, cases: Mapping[str, Callable[[Transcript], None]]) -> dict[str, dict[str, Any]]:
    """Go through cases with a broker, and return its answers by case and label."""
    found = {}
    for name, case in cases.items():
        with Transcript(address, name) as transcript:
            case(transcript)
        found[name] = transcript.answers
    return found


def record(found: Mapping[str, Mapping[str, Any]]) -> None:
    """Record the answers of a broker, one line for each."""
    cases = []
    for case, answers in found.items():
        lines = [f"{json.dumps(label)}: {json.dumps(answer, sort_keys=True)}" for label, answer in answers.items()]
        cases.append(f"{json.dumps(case)}: {{\n" + ",\n".join(lines) + "\n}")
    RECORDED.write_text("{\n" + ",\n".join(cases) + "\n}\n")


def codes(answer: Any) -> Iterator[int]:
    """Return all error codes of an answer."""
    if isinstance(answer, tuple):
        for one in answer:
            yield from codes(one)
    elif is_dataclass(answer):
        for field in fields(answer):
            value = getattr(answer, field.name)
            if field.name.endswith("error_code"):
                yield int(value)
            else:
                yield from codes(value)


def normal(value: Any, name: str = "") -> Any:
    """Return an answer as JSON, without what differs between two brokers."""
    if is_dataclass(value):
        return {
            field.name: normal(getattr(value, field.name), field.name)
            for field in fields(value)
            if field.name not in OWN
        }
    if isinstance(value, tuple):
        found = [normal(one, name) for one in value]
        return (
            sorted(found, key=json.dumps)
            if name in {"topics", "groups", "resources", "configs", "active_producers"}
            else found
        )
    if isinstance(value, dt.timedelta):
        value = value // dt.timedelta(milliseconds=1)
    elif isinstance(value, dt.datetime):
        value = int(value.timestamp() * 1000)
    if name in SIGNED:
        return "set" if value is not None and int(value) >= 0 else "unset"
    if name in NAMED or isinstance(value, uuid.UUID):
        return "set" if value else "empty"
    if isinstance(value, bytes | memoryview):
        return _records(bytes(value)) if name == "records" else bytes(value).hex()
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _records(data: bytes) -> list[Any]:
    """Return offset, key and value of each record; "marker" for the end of a transaction."""
    found: list[Any] = []
    batches = MemoryRecords(data)
    while (one := batches.next_batch()) is not None:
        found += [
            [record.offset, "marker"] if one.is_control_batch else [record.offset, record.value.decode()]
            for record in one
        ]
    return found


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Return path, expected and actual value where two transcripts differ."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for key in [*expected, *(actual.keys() - expected.keys())]:
            yield from differences(expected.get(key, "absent"), actual.get(key, "absent"), f"{path}/{key}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(one, other, f"{path}/{number}")
    elif expected != actual:
        yield path, expected, actual


def accepted() -> dict[str, str]:
    """Return the differences from Kafka that stay: patterns of paths, each with its reason."""
    reasons: dict[str, list[str]] = json.loads((RECORDED.parent / "gateway_differences.json").read_text())
    return {pattern: reason for reason, patterns in reasons.items() for pattern in patterns}


def unexpected(found: Iterable[tuple[str, Any, Any]]) -> tuple[list[str], Counter[str]]:
    """Return the differences that no pattern accepts, and how many each pattern accepts."""
    patterns = accepted()
    used, wrong = Counter(dict.fromkeys(patterns, 0)), list[str]()
    for path, expected, actual in found:
        pattern = next((one for one in patterns if fnmatchcase(path, one)), None)
        if pattern is None:
            wrong.append(f"{path}: Kafka {expected!r}, gateway {actual!r}")
        else:
            used[pattern] += 1
    return wrong, used
