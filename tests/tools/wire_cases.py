"""Cases of the transcripts: requests about records, offsets, topics and settings, valid and invalid ones."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crc32c import crc32c

from kafkalike.gateway import api_versions as keys
from tests.tools.wire_transcript import Transcript, batch, produced

NOBODY = "case-nobody"
"""A topic, group or transactional id that does not exist."""

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

TOPIC, BROKER, GROUP = 2, 4, 32
"""Types of resources with settings."""

SET, DELETE, APPEND, SUBTRACT = range(4)


def versions(to: Transcript) -> None:
    """Unknown versions and requests."""
    to.ask("unknown version", keys.API_VERSIONS, 4, {"client_software_name": "a", "client_software_version": "1"})
    del to.answers["unknown version"]["api_keys"]
    to.ask("bad software name", keys.API_VERSIONS, 3, {"client_software_name": "a b", "client_software_version": "1"})
    del to.answers["bad software name"]["api_keys"]
    to.answers["newer ApiVersions"] = _raw(to, struct.pack(">hhih", 18, 99, 7, -1) + b"\0")[:6].hex()
    to.answers["unknown request"] = _raw(to, struct.pack(">hhih", 999, 0, 7, -1)).hex()
    to.answers["newer Metadata"] = _raw(to, struct.pack(">hhih", 3, 99, 7, -1)).hex()
    to.answers["old Produce"] = _raw(to, struct.pack(">hhih", 0, 0, 7, -1) + bytes(10)).hex()
    to.answers["cut off"] = _raw(to, struct.pack(">hhih", 3, 4, 7, -1) + b"\0\0\0\5").hex()


def _raw(to: Transcript, frame: bytes) -> bytes:
    """Send a frame over a connection of its own; return the correlation id and the begin of the answer, or nothing."""
    sent = to.other().socket
    sent.sendall(struct.pack(">i", len(frame)) + frame)
    try:
        head = sent.recv(4)
        return sent.recv(6) if len(head) == 4 else b""
    except ConnectionError:
        return b""


def metadata(to: Transcript) -> None:
    """Metadata of known and unknown topics."""
    topic = to.topic(2)

    def asked(*names: str, create: bool = False) -> dict[str, Any]:
        return {"topics": [{"topic_id": None, "name": n} for n in names], "allow_auto_topic_creation": create}

    to.ask("known", keys.METADATA, 12, asked(topic))
    to.ask("twice", keys.METADATA, 12, asked(topic, topic))
    to.ask("unknown", keys.METADATA, 12, asked(NOBODY))
    to.ask("invalid name", keys.METADATA, 12, asked("case/bad", create=True))
    to.ask("unknown id", keys.METADATA, 12, {"topics": [{"topic_id": uuid.UUID(int=7), "name": None}]})
    to.ask("none", keys.METADATA, 12, {"topics": []})
    cluster = to.ask("cluster", keys.DESCRIBE_CLUSTER, 2, {"endpoint_type": 1})
    assert cluster.brokers
    to.ask("controllers", keys.DESCRIBE_CLUSTER, 2, {"endpoint_type": 2})
    to.ask("endpoint type", keys.DESCRIBE_CLUSTER, 2, {"endpoint_type": 9})
    for label, kind, names in (
        ("group", 0, [NOBODY]),
        ("transaction", 1, [NOBODY]),
        ("type", 9, [NOBODY]),
        ("empty", 0, [""]),
        ("share", 2, ["no-key"]),
    ):
        to.ask(f"coordinator of {label}", keys.FIND_COORDINATOR, 4, {"key_type": kind, "coordinator_keys": names})
    partitions = {"topics": [{"name": topic}, {"name": NOBODY}], "response_partition_limit": 100, "cursor": None}
    to.ask("topic partitions", keys.DESCRIBE_TOPIC_PARTITIONS, 0, partitions)
    page = {"topics": [{"name": topic}], "response_partition_limit": 1, "cursor": None}
    to.ask("first page", keys.DESCRIBE_TOPIC_PARTITIONS, 0, page)
    dirs = {"topics": [{"topic": topic, "partitions": [0, 7]}]}
    to.ask("log dirs", keys.DESCRIBE_LOG_DIRS, 4, dirs)


def topics(to: Transcript) -> None:  # noqa: PLR0915 - one story
    """Creation, growth and deletion of topics."""
    taken = to.topic(2)

    def create(label: str, name: str, partitions: int = 1, factor: int = 1, check: bool = False, **more: Any) -> None:  # noqa: FBT001, FBT002
        wanted: dict[str, Any] = {"name": name, "num_partitions": partitions, "replication_factor": factor, **more}
        to.ask(label, keys.CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 5000, "validate_only": check})
        # The settings of a new topic are those of DescribeConfigs.
        del to.answers[label]["topics"][0]["configs"]

    create("taken", taken)
    create("taken, checked", taken, check=True)
    create("checked", f"{to.name}-checked", 3, check=True)
    create("defaults", f"{to.name}-defaults", -1, -1)
    create("partitions 0", f"{to.name}-0", 0)
    create("partitions -5", f"{to.name}-5", -5)
    create("factor 0", f"{to.name}-f0", 1, 0)
    create("factor 9", f"{to.name}-f9", 1, 9)
    create("slash", "case/bad")
    create("dot", ".")
    create("empty", "")
    create("long", "x" * 250)
    create("longest", "x" * 249, check=True)
    create("unknown setting", f"{to.name}-u", configs=[{"name": "no.such", "value": "1"}])
    create("bad value", f"{to.name}-b", configs=[{"name": "retention.ms", "value": "soon"}])
    create("bad policy", f"{to.name}-p", configs=[{"name": "cleanup.policy", "value": "shred"}])
    create("null value", f"{to.name}-n", configs=[{"name": "retention.ms", "value": None}])
    create("assigned and counted", f"{to.name}-a", 1, 1, assignments=[{"partition_index": 0, "broker_ids": [0]}])
    create("assigned to nobody", f"{to.name}-a", -1, -1, assignments=[{"partition_index": 0, "broker_ids": [77]}])
    twice = [{"name": f"{to.name}-t", "num_partitions": 1, "replication_factor": 1}] * 2
    to.ask("twice", keys.CREATE_TOPICS, 7, {"topics": twice, "timeout": 5000})
    to.topic(1, "_a.b")
    create("collides", f"{to.name}_a_b")

    def grow(label: str, name: str, count: int, check: bool = False, **more: Any) -> None:  # noqa: FBT001, FBT002
        wanted: dict[str, Any] = {"name": name, "count": count, "assignments": None, **more}
        to.ask(label, keys.CREATE_PARTITIONS, 3, {"topics": [wanted], "timeout": 5000, "validate_only": check})

    grow("grow, checked", taken, 5, check=True)
    grow("grow", taken, 3)
    grow("same", taken, 3)
    grow("shrink", taken, 1)
    grow("zero", taken, 0)
    grow("negative", taken, -1)
    grow("unknown", NOBODY, 3)
    grow("assigned wrongly", taken, 4, assignments=[{"broker_ids": [77]}])
    grow("assigned too many", taken, 4, assignments=[{"broker_ids": [0]}, {"broker_ids": [0]}])
    twice = [{"name": taken, "count": 7, "assignments": None}] * 2
    to.ask("grow twice", keys.CREATE_PARTITIONS, 3, {"topics": twice, "timeout": 5000})

    def drop(label: str, *items: Mapping[str, Any]) -> None:
        to.ask(label, keys.DELETE_TOPICS, 6, {"topics": items, "timeout": 5000})

    drop("delete unknown", {"name": NOBODY, "topic_id": None})
    drop("delete unknown id", {"name": None, "topic_id": uuid.UUID(int=7)})
    drop("delete without name", {"name": None, "topic_id": None})
    drop("delete by both", {"name": taken, "topic_id": uuid.UUID(int=7)})
    drop("delete twice", {"name": taken, "topic_id": None}, {"name": taken, "topic_id": None})
    drop("delete", {"name": taken, "topic_id": None})
    drop("delete again", {"name": taken, "topic_id": None})


def produce(to: Transcript) -> None:  # noqa: PLR0915 - one story
    """Records: acks, codecs, damage and limits."""
    topic = to.topic(2, max_message_bytes="2000")

    def send(label: str, records: bytes, partition: int = 0, **more: Any) -> None:
        to.ask(label, keys.PRODUCE, 12, produced(more.pop("topic", topic), partition, records, **more))

    send("acks all", batch(b"a"))
    send("acks 1", batch(b"b", b"c"), acks=1)
    send("acks 7", batch(b"x"), acks=7)
    for codec, name in ((GZIP, "gzip"), (SNAPPY, "snappy"), (LZ4, "lz4"), (ZSTD, "zstd")):
        send(name, batch(b"v" * 100, codec=codec), 1)
    send("two batches", batch(b"x") + batch(b"y"))
    send("no partition", batch(b"x"), 9)
    send("negative partition", batch(b"x"), -1)
    send("unknown topic", batch(b"x"), topic=NOBODY)
    send("invalid topic", batch(b"x"), topic="case/bad")
    send("too large", batch(b"x" * 3000))
    send("empty", b"")
    damaged = bytearray(batch(b"value"))
    damaged[-2] ^= 1
    send("bad crc", bytes(damaged))
    magic = bytearray(batch(b"value"))
    magic[16] = 7
    send("bad magic", bytes(magic))
    magic[16] = 1
    send("magic 1", bytes(magic))
    send("cut off", batch(b"value")[:-3])
    send("noise", b"noise")
    control = bytearray(batch(b"value"))
    control[22] |= 0x20
    send("control", _summed(control))
    holes = bytearray(batch(b"a", b"b"))
    holes[26] = 9  # last offset delta
    send("last offset delta", _summed(holes))
    unpacked = bytearray(batch(b"value"))
    unpacked[22] |= 7
    send("unknown codec", _summed(unpacked))
    send("early", batch(b"x", time_ms=1))
    send("far future", batch(b"x", time_ms=1 << 44))
    send("without time", batch(b"x", time_ms=-1))
    compacted = to.topic(1, "-compacted", cleanup_policy="compact")
    keyless = bytearray(batch(b"x"))
    # Length 12 to 11, key length 1 to null: as zig-zag varints.
    body = bytes(keyless[61:])
    assert body[4] == 2
    assert body[5:6] == b"k"
    record = bytes([body[0] - 2]) + body[1:4] + b"\1" + body[6:]
    keyless[61:] = record
    keyless[8:12] = struct.pack(">i", len(keyless) - 12)
    send("null key, compacted", _summed(keyless), topic=compacted)
    send("no topic id", batch(b"x"))
    by_id: dict[str, Any] = {"topic_id": uuid.UUID(int=7), "partition_data": [{"index": 0, "records": batch(b"x")}]}
    unknown = {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": [by_id]}
    to.ask("unknown id", keys.PRODUCE, 13, unknown)
    to.closed("acks 0, refused", keys.PRODUCE, 9, produced(topic, 9, batch(b"x"), acks=0))


def _summed(data: bytearray) -> bytes:
    """Return a batch with the crc of what it has."""
    data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
    return bytes(data)


def idempotence(to: Transcript) -> None:
    """Sequences and epochs of idempotent producers."""
    topic = to.topic(2)
    producer, epoch = to.producer()

    def send(label: str, sequence: int, *values: bytes, epoch: int = epoch, owner: int = producer, **more: Any) -> None:
        records = batch(*values, producer=(owner, epoch), sequence=sequence)
        to.ask(label, keys.PRODUCE, 12, produced(topic, more.get("partition", 0), records))

    send("first", 0, b"a", b"b")
    send("next", 2, b"c")
    send("duplicate of the last", 2, b"c")
    send("duplicate of the first", 0, b"a", b"b")
    send("overlaps", 1, b"x", b"y")
    send("gap", 5, b"x")
    for number in range(3, 8):
        to.quietly(keys.PRODUCE, 12, produced(topic, 0, batch(b"z", producer=(producer, epoch), sequence=number)))
    send("older than five batches", 0, b"a", b"b")
    send("other partition begins at 3", 3, b"x", partition=1)
    send("unknown producer begins at 5", 5, b"x", owner=producer + 7000)
    send("negative sequence", -5, b"x")
    send("new epoch at 4", 4, b"x", epoch=epoch + 1)
    send("new epoch at 0", 0, b"x", epoch=epoch + 1)
    send("old epoch", 8, b"x")
    twice = batch(b"x", producer=(producer, epoch + 1), sequence=1) + batch(
        b"y", producer=(producer, epoch + 1), sequence=2
    )
    to.ask("two batches", keys.PRODUCE, 12, produced(topic, 0, twice))
    bump = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": producer, "producer_epoch": epoch}
    to.ask("next epoch", keys.INIT_PRODUCER_ID, 5, bump)
    to.ask("negative id", keys.INIT_PRODUCER_ID, 5, {**bump, "producer_id": -7})
    to.ask("id without epoch", keys.INIT_PRODUCER_ID, 5, {**bump, "producer_epoch": -1})
    to.ask("empty id", keys.INIT_PRODUCER_ID, 5, {**bump, "transactional_id": ""})
    new = {"transactional_id": to.name, "producer_id": -1, "producer_epoch": -1}
    to.ask(
        "long timeout",
        keys.INIT_PRODUCER_ID,
        5,
        {**new, "transaction_timeout": 2**31 - 1},
    )
    to.ask("no timeout", keys.INIT_PRODUCER_ID, 5, {**new, "transaction_timeout": 0})
    listed = {"topics": [{"name": topic, "partition_indexes": [0, 9]}, {"name": NOBODY, "partition_indexes": [0]}]}
    to.ask("producers", keys.DESCRIBE_PRODUCERS, 0, listed)


def fetch(to: Transcript) -> None:
    """Fetches: positions, sizes, sessions, isolation."""
    topic = to.topic(2)
    to.fill(topic, 3)

    def read(label: str, offset: int, partition: int = 0, **more: Any) -> Any:
        wanted: dict[str, Any] = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 10_000}
        wanted |= {"current_leader_epoch": more.pop("leader", -1), "last_fetched_epoch": -1, "log_start_offset": -1}
        named = {"topic": more.pop("topic", topic), "partitions": [{**wanted, **more.pop("part", {})}]}
        body: dict[str, Any] = {
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 100_000,
            "isolation_level": 0,
            "session_epoch": -1,
        }
        body |= {"session_id": 0, "rack_id": "", "topics": [named], "forgotten_topics_data": [], "replica_id": -1}
        return to.ask(label, keys.FETCH, 12, {**body, **more})

    read("all", 0)
    read("read committed", 1, isolation_level=1)
    read("unknown isolation", 1, isolation_level=9)
    read("end", 3)
    read("beyond", 4)
    read("negative", -1)
    read("empty partition", 0, 1)
    read("no partition", 0, 9)
    read("unknown topic", 0, topic=NOBODY)
    read("one byte", 0, part={"partition_max_bytes": 1})
    read("no byte", 0, part={"partition_max_bytes": 0})
    read("one byte in all", 0, max_bytes=1)
    read("current epoch", 0, leader=0)
    read("future epoch", 0, leader=7)
    read("diverging epoch", 3, part={"last_fetched_epoch": 0})
    opened = read("new session", 0, session_epoch=0)
    read("unknown session", 0, session_id=77, session_epoch=1)
    read("wrong session epoch", 0, session_id=int(opened.session_id), session_epoch=9)
    read("session that is none", 0, session_id=0, session_epoch=3)
    part: dict[str, Any] = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10_000}
    part |= {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
    by_id: dict[str, Any] = {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1000,
        "isolation_level": 0,
        "session_id": 0,
        "rack_id": "",
    }
    by_id |= {"session_epoch": -1, "topics": [{"topic_id": uuid.UUID(int=7), "partitions": [part]}]}
    to.ask("unknown id", keys.FETCH, 16, {**by_id, "forgotten_topics_data": []})


def offsets(to: Transcript) -> None:
    """Offsets by time, ends of epochs, deletion of records."""
    topic = to.topic(2)
    for number in range(3):
        records = batch(b"x", time_ms=1_700_000_000_000 + 1000 * number)
        to.quietly(keys.PRODUCE, 12, produced(topic, 0, records))

    def listed(label: str, time_ms: int, partition: int = 0, name: str = topic, **more: Any) -> None:
        item = {"partition_index": partition, "current_leader_epoch": more.pop("leader", -1), "timestamp": time_ms}
        body: dict[str, Any] = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": name, "partitions": [item]}],
            "timeout": 1000,
        }
        to.ask(label, keys.LIST_OFFSETS, more.pop("version", 10), {**body, **more})

    for special in (-1, -2, -3, -4, -5, -6, -7):
        listed(f"special {special}", special, version=11)
        listed(f"special {special}, empty", special, 1, version=11)
    listed("first", 0)
    listed("exact", 1_700_000_001_000)
    listed("between", 1_700_000_001_001)
    listed("after", 1_800_000_000_000)
    listed("after, empty", 1_800_000_000_000, 1)
    listed("committed", -1, isolation_level=1)
    listed("no partition", -1, 9)
    listed("unknown topic", -1, name=NOBODY)
    listed("current epoch", -1, leader=0)
    listed("future epoch", -1, leader=7)
    twice = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}] * 2
    body: dict[str, Any] = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": twice}],
        "timeout": 1000,
    }
    to.ask("twice", keys.LIST_OFFSETS, 10, body)

    def ended(label: str, epoch: int, partition: int = 0, name: str = topic, current: int = -1) -> None:
        item = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        asked = {"replica_id": -1, "topics": [{"topic": name, "partitions": [item]}]}
        to.ask(f"epoch {label}", keys.OFFSET_FOR_LEADER_EPOCH, 4, asked)

    ended("current", 0)
    ended("future", 9)
    ended("undefined", -1)
    ended("future leader", 0, current=9)
    ended("no partition", 0, 9)
    ended("unknown topic", 0, 0, NOBODY)

    def deleted(label: str, offset: int, partition: int = 0, name: str = topic) -> None:
        item = {"partition_index": partition, "offset": offset}
        asked = {"topics": [{"name": name, "partitions": [item]}], "timeout": 5000}
        to.ask(f"delete {label}", keys.DELETE_RECORDS, 2, asked)

    deleted("some", 2)
    deleted("fewer", 1)
    deleted("beyond", 9)
    deleted("bad", -5)
    deleted("all", -1)
    deleted("empty", -1, 1)
    deleted("no partition", 1, 9)
    deleted("unknown topic", 1, 0, NOBODY)
    listed("start after deletion", -2)


def settings(to: Transcript) -> None:
    """Settings of topics and brokers."""
    topic = to.topic(1, retention_ms="100000")

    def described(label: str, kind: int, name: str, names: Sequence[str] | None, **more: Any) -> None:
        item = {"resource_type": kind, "resource_name": name, "configuration_keys": names}
        to.ask(label, keys.DESCRIBE_CONFIGS, 4, {"resources": [item], **more})

    def altered(label: str, configs: Sequence[tuple[str, int, str | None]], **more: Any) -> None:
        changes = [{"name": n, "config_operation": o, "value": v} for n, o, v in configs]
        item = {"resource_type": more.pop("kind", TOPIC), "resource_name": more.pop("name", topic), "configs": changes}
        to.ask(label, keys.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [item], "validate_only": False, **more})

    described("own", TOPIC, topic, ["retention.ms"])
    described("default", TOPIC, topic, ["cleanup.policy", "max.message.bytes", "min.insync.replicas"])
    described("unknown setting", TOPIC, topic, ["no.such"])
    described("unknown topic", TOPIC, NOBODY, None)
    described("invalid topic", TOPIC, "case/bad", None)
    described("unknown broker", BROKER, "77", [])
    described("broker that is no number", BROKER, "x", [])
    described("unknown type", 99, topic, [])
    described("synonyms", TOPIC, topic, ["retention.ms"], include_synonyms=True)
    altered("set", [("retention.ms", SET, "5000")])
    altered("append", [("cleanup.policy", APPEND, "compact")])
    altered("subtract", [("cleanup.policy", SUBTRACT, "compact")])
    altered("append to a number", [("retention.ms", APPEND, "5")])
    altered("delete", [("retention.ms", DELETE, None)])
    altered("delete what is not set", [("segment.bytes", DELETE, None)])
    altered("checked", [("retention.ms", SET, "77")], validate_only=True)
    altered("bad number", [("retention.ms", SET, "x")])
    altered("negative", [("retention.ms", SET, "-7")])
    altered("set unknown setting", [("no.such", SET, "1")])
    altered("null", [("retention.ms", SET, None)])
    altered("twice", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")])
    altered("unknown operation", [("retention.ms", 9, "1")])
    altered("set of unknown topic", [("retention.ms", SET, "1")], name=NOBODY)
    altered("set of unknown broker", [("log.retention.ms", SET, "1")], kind=BROKER, name="77")
    altered("set of unknown type", [("retention.ms", SET, "1")], kind=99)
    described("after all", TOPIC, topic, ["retention.ms", "cleanup.policy"])
    replaced = {"resource_type": TOPIC, "resource_name": topic, "configs": [{"name": "segment.ms", "value": "70000"}]}
    to.ask("replace", keys.ALTER_CONFIGS, 2, {"resources": [replaced], "validate_only": False})
    described("after replacement", TOPIC, topic, ["retention.ms", "segment.ms"])
    twice = {"resource_type": TOPIC, "resource_name": topic, "configs": []}
    to.ask("resource twice", keys.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [twice, twice], "validate_only": False})


CASES: Mapping[str, Callable[[Transcript], None]] = {
    case.__name__: case for case in (versions, metadata, topics, produce, idempotence, fetch, offsets, settings)
}
