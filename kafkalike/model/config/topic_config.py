"""TopicConfig: the settings of one topic, with Kafka's names and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from kafkalike.errors import InvalidPartitionsError
from kafkalike.model.config import properties
from kafkalike.model.config.properties import INT_MAX, LONG_MAX, Property, PropertySet, Value
from kafkalike.model.names import STRATEGIES, TOPIC_NAME, Part

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Values of `compression.type` that name a codec; `producer` keeps the producer's choice."""

MAX_PARTITIONS: Final = 10_000
"""Most partitions of a topic: every partition is a folder that adds cost to each append and listing."""

FOREIGN_WRITES: Final = "kafkalike.foreign.writes"
"""Setting that allows or rejects changes of a topic's table by other Delta writers."""

_NO_BROKER = "kafkalike has no broker process, page cache or index file to tune"
_NO_REPLICA = "writers copy replicas themselves, without a limit of speed"
_NO_TIER = "the storage root itself is the remote tier"


def strategy(text: str) -> str:
    """Parse the name of a subject strategy, with or without the package of Confluent's class."""
    return properties.one_of(*STRATEGIES)(text.removeprefix("io.confluent.kafka.serializers.subject."))


TOPIC_PROPERTIES: Final = PropertySet(
    "topic",
    [
        Property(
            name="cleanup.policy",
            parse=properties.words_of("delete", "compact", empty=True),
            default="delete",
            doc="What maintenance may do with old records: delete, compact, both (`compact,delete`), or nothing (the "
            "empty text).",
            is_list=True,
        ),
        Property(
            name="compression.type",
            parse=properties.one_of("producer", "uncompressed", *CODECS),
            default="producer",
            doc="Codec of the data files; `producer` keeps the producer's codec. `uncompressed`, Kafka's "
            "name for topics, is the same as `none`.",
        ),
        Property(
            name="delete.retention.ms",
            parse=properties.whole(0),
            default="86400000",
            doc="How long (ms) a tombstone stays readable after compaction.",
        ),
        Property(
            name="file.delete.delay.ms",
            parse=properties.whole(0),
            default="60000",
            doc="How long (ms) a deleted segment's file stays on disk for readers that still need it.",
        ),
        Property(
            name="kafkalike.flush",
            parse=properties.one_of("true", "false"),
            default="false",
            doc="Whether records and their table commit are flushed to disk (fsync) before they are acknowledged, "
            "so that they survive a power failure. Like Kafka's, the default does not flush.",
        ),
        Property(
            name=FOREIGN_WRITES,
            parse=properties.one_of("reject", "allow"),
            default="reject",
            doc="Whether Delta writers other than kafkalike may change the topic's table. `reject` gives the table a "
            "writer feature that they do not know, so Spark, delta-rs and others reject INSERT, UPDATE, DELETE, "
            "OPTIMIZE and VACUUM by any path or name. All of them can still read it.",
        ),
        *(
            prop
            for part in ("key", "value")
            for prop in (
                Property(
                    name=f"kafkalike.{part}.schema.validation",
                    parse=properties.one_of("true", "false"),
                    default="false",
                    doc=f"Whether a record's {part} must begin with the magic byte 0 and the id of a schema that the "
                    "registry has under the topic's subject; null passes. Also as "
                    f"confluent.{part}.schema.validation.",
                ),
                Property(
                    name=f"kafkalike.{part}.subject.name.strategy",
                    parse=strategy,
                    default=TOPIC_NAME,
                    doc=f"Strategy that names the subject: {', '.join(STRATEGIES)}. Also as "
                    f"confluent.{part}.subject.name.strategy, and with the package of Confluent's class.",
                ),
            )
        ),
        Property(
            name="kafkalike.merge.bytes",
            parse=properties.whole(14, INT_MAX),
            default="134217728",
            doc="Size (bytes) up to which maintenance merges small files; at most segment.bytes.",
        ),
        Property(
            name="kafkalike.merge.min.age.ms",
            parse=properties.whole(0),
            default="60000",
            doc="Age (ms, since its append) at which a file may be merged, so that the tail of the log is left alone.",
        ),
        Property(
            name="kafkalike.replaced.file.delay.ms",
            parse=properties.whole(0),
            default="86400000",
            doc="How long (ms) a file whose records were merged or compacted into another one stays on disk, for Spark "
            "queries and native Delta streams that still read it.",
        ),
        Property(
            name="kafkalike.retention.clock",
            parse=properties.one_of("record", "append"),
            default="record",
            doc="Start of a segment's age: its newest record's time, but at the latest its append (`record`), or its "
            "append (`append`).",
        ),
        Property(
            name="kafkalike.retention.wait.groups",
            parse=properties.group_ids,
            default="",
            doc="Groups, separated by commas, that must have committed an offset past a record before retention by "
            "time or size may delete it.",
            is_list=True,
        ),
        Property(
            name="kafkalike.retention.wait.max.bytes",
            parse=properties.whole(-1),
            default="-1",
            doc="Size of a partition (bytes) above which retention does not wait for groups; -1 for no limit.",
        ),
        Property(
            name="kafkalike.retention.wait.max.ms",
            parse=properties.whole(1),
            default="2592000000",
            doc="Age (ms) of a segment above which retention does not wait for groups.",
        ),
        Property(
            name="max.compaction.lag.ms",
            parse=properties.whole(1),
            default=str(LONG_MAX),
            doc="Longest time (ms) a record may wait for compaction.",
        ),
        Property(
            name="max.message.bytes",
            parse=properties.whole(0, INT_MAX),
            default="1048588",
            doc="Largest record (bytes of key, value and headers with Kafka's per-record overhead).",
        ),
        Property(
            name="message.timestamp.after.max.ms",
            parse=properties.whole(0),
            default="3600000",
            doc="How far (ms) a record's CreateTime may be after the time of the append.",
        ),
        Property(
            name="message.timestamp.before.max.ms",
            parse=properties.whole(0),
            default=str(LONG_MAX),
            doc="How far (ms) a record's CreateTime may be before the time of the append.",
        ),
        Property(
            name="message.timestamp.type",
            parse=properties.one_of("CreateTime", "LogAppendTime"),
            default="CreateTime",
            doc="Whether a record keeps its producer's time or gets the time of the append.",
        ),
        Property(
            name="min.cleanable.dirty.ratio",
            parse=properties.ratio,
            default="0.5",
            doc="Share of uncompacted bytes above which a partition is compacted.",
        ),
        Property(
            name="min.compaction.lag.ms",
            parse=properties.whole(0),
            default="0",
            doc="Shortest time (ms) before a record may be compacted.",
        ),
        Property(
            name="min.insync.replicas",
            parse=properties.whole(1, INT_MAX),
            default="1",
            doc="Number of replicas in sync that an append requires.",
        ),
        Property(
            name="unclean.leader.election.enable",
            parse=properties.boolean,
            default="false",
            doc="Whether a replica out of sync, which may lack records, may become leader if no other one answers.",
        ),
        Property(
            name="retention.bytes",
            parse=properties.whole(-1),
            default="-1",
            doc="Size of a partition (bytes) above which its oldest segments are deleted; -1 for no limit.",
        ),
        Property(
            name="retention.ms",
            parse=properties.whole(-1),
            default="604800000",
            doc="Age (ms) above which a segment is deleted; -1 keeps it forever.",
        ),
        Property(
            name="segment.bytes",
            parse=properties.whole(14, INT_MAX),
            default="1073741824",
            doc="Size (bytes) up to which maintenance merges small segments.",
        ),
        Property(
            name="segment.ms",
            parse=properties.whole(1),
            default="604800000",
            doc="Age (ms) after which a segment is sealed regardless of its size.",
        ),
    ],
    meaningless={
        "flush.messages": _NO_BROKER,
        "flush.ms": _NO_BROKER,
        "index.interval.bytes": _NO_BROKER,
        "preallocate": _NO_BROKER,
        "segment.index.bytes": _NO_BROKER,
        "segment.jitter.ms": _NO_BROKER,
        "message.downconversion.enable": "a topic stores columns, not messages that would be converted",
        "message.format.version": "a topic stores columns, not messages",
        "message.timestamp.difference.max.ms": "Kafka 4 dropped it; use message.timestamp.before/after.max.ms",
        "follower.replication.throttled.replicas": _NO_REPLICA,
        "leader.replication.throttled.replicas": _NO_REPLICA,
        "remote.storage.enable": _NO_TIER,
        "local.retention.ms": _NO_TIER,
        "local.retention.bytes": _NO_TIER,
        "remote.log.copy.disable": _NO_TIER,
        "remote.log.delete.on.disable": _NO_TIER,
        "compression.gzip.level": "the codec's own default level is used",
        "compression.lz4.level": "the codec's own default level is used",
        "compression.zstd.level": "the codec's own default level is used",
    },
    aliases={
        f"confluent.{part}.{name}": f"kafkalike.{part}.{name}"
        for part in ("key", "value")
        for name in ("schema.validation", "subject.name.strategy")
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChecks:
    """Schemas that the keys and values of a topic's records must have."""

    key: str | None = None
    """Strategy that names the subject of keys; None if keys are not checked."""
    value: str | None = None
    """Strategy that names the subject of values; None if values are not checked."""

    @property
    def parts(self) -> Mapping[Part, str]:
        """Strategies of the checked parts of a record."""
        found: dict[Part, str] = {}
        if self.key is not None:
            found["key"] = self.key
        if self.value is not None:
            found["value"] = self.value
        return found


NO_CHECKS: Final = SchemaChecks()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of one topic that appends need: the topic's own, otherwise the server's."""

    compression_type: str
    """`producer` or a codec; see `CODECS`."""
    max_message_bytes: int
    """Bytes; a larger record is rejected with `MessageSizeTooLargeError`."""
    log_append_time: bool
    """True if records get the time of the append."""
    timestamp_before_max_ms: int
    """ms that a record's time may be in the past."""
    timestamp_after_max_ms: int
    """ms that a record's time may be in the future."""
    cleanup_policy: tuple[str, ...]
    """`delete`, `compact`, both, or neither."""
    flush: bool = False
    """True if appends are flushed to disk before they are acknowledged."""
    schemas: SchemaChecks = NO_CHECKS
    """Schemas that records must have."""
    min_isr: int = 1
    """Number of replicas in sync that an append requires."""
    closed: bool = True
    """True if the topic's table rejects foreign writers."""
    compacted: bool = field(init=False)
    """True if compaction may remove records, so that offsets may have holes and keys are needed."""

    def __post_init__(self) -> None:
        """Derive `compacted`, which each append reads."""
        object.__setattr__(self, "compacted", "compact" in self.cleanup_policy)

    @classmethod
    def from_properties(cls, effective: Mapping[str, str]) -> TopicConfig:
        """Build from the settings in effect, in text form; missing ones have Kafka's default."""

        def get(name: str) -> Value:
            text = effective.get(name, TOPIC_PROPERTIES.properties[name].default)
            return TOPIC_PROPERTIES.check(name, text)

        codec = get("compression.type")
        return cls(
            compression_type="none" if codec == "uncompressed" else cast("str", codec),
            max_message_bytes=cast("int", get("max.message.bytes")),
            log_append_time=get("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms=cast("int", get("message.timestamp.before.max.ms")),
            timestamp_after_max_ms=cast("int", get("message.timestamp.after.max.ms")),
            cleanup_policy=cast("tuple[str, ...]", get("cleanup.policy")),
            flush=get("kafkalike.flush") == "true",
            schemas=_schema_checks(get),
            min_isr=cast("int", get("min.insync.replicas")),
            closed=get(FOREIGN_WRITES) == "reject",
        )


def _schema_checks(get: Callable[[str], Value]) -> SchemaChecks:
    key, value = (
        cast("str", get(f"kafkalike.{part}.subject.name.strategy"))
        if get(f"kafkalike.{part}.schema.validation") == "true"
        else None
        for part in ("key", "value")
    )
    return NO_CHECKS if key is None and value is None else SchemaChecks(key=key, value=value)


def check_partition_count(total: object) -> int:
    """Check a number of partitions.

    Raises:
        InvalidPartitionsError: below 1, above `MAX_PARTITIONS`, or not an int.
    """
    if isinstance(total, bool) or not isinstance(total, int):
        raise InvalidPartitionsError(f"number of partitions must be an int, not {total!r}")
    if not 1 <= total <= MAX_PARTITIONS:
        raise InvalidPartitionsError(f"number of partitions must be from 1 to {MAX_PARTITIONS}, not {total}")
    return total
