"""ServerConfig: the defaults of a cluster, from a `server.properties` file with Kafka's names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafkalike.config.properties import INT_MAX, Property, PropertySet, Value, boolean, whole
from kafkalike.config.topic import FOREIGN_WRITES, TOPIC_PROPERTIES
from kafkalike.errors import InvalidConfigurationError


def voters(text: str) -> str:
    """Ids of brokers that vote; Kafka's form `1@host:port,2@host:port` will do.

    Raises:
        ValueError: they are not one, three or five different ids.
    """
    ids = [part.partition("@")[0].strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() for part in ids) or len(set(ids)) != len(ids) or len(ids) not in {0, 1, 3, 5}:
        message = f"one, three or five different ids of brokers, such as 1,2,3; not {text!r}"
        raise ValueError(message)
    return ",".join(ids)


SERVER_PROPERTIES_VARIABLE: Final = "KAFKALIKE_SERVER_PROPERTIES"
"""Environment variable that names the file of server defaults."""

SERVER_PROPERTIES_FILE: Final = "server.properties"
"""File of server defaults inside a cluster's root; it wins over the environment variable."""

MAX_PARTITIONS: Final = 10_000
"""Most partitions a topic may have: every partition is a folder of files that each append and listing pays for."""

TOPIC_DEFAULTS: Final[Mapping[str, tuple[str, ...]]] = {
    "cleanup.policy": ("log.cleanup.policy",),
    "compression.type": ("compression.type",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    **{
        name: (f"log.{name}",)
        for name in (
            "kafkalike.flush",
            FOREIGN_WRITES,
            "kafkalike.key.schema.validation",
            "kafkalike.key.subject.name.strategy",
            "kafkalike.merge.bytes",
            "kafkalike.merge.min.age.ms",
            "kafkalike.replaced.file.delay.ms",
            "kafkalike.retention.clock",
            "kafkalike.retention.wait.groups",
            "kafkalike.retention.wait.max.bytes",
            "kafkalike.retention.wait.max.ms",
            "kafkalike.value.schema.validation",
            "kafkalike.value.subject.name.strategy",
        )
    },
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.message.bytes": ("message.max.bytes",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
}
"""Which server setting gives a topic setting its default; the first one that is set wins. Source: Kafka's
documentation of topic configs, row "Server Default Property"; settings that Kafka does not have are named alike."""

_BESIDES: Final = {"log.kafkalike.flush": " It also holds for committed offsets, which have no topic of a user's."}
"""What else some of these settings do."""

_UNIT_MS: Final = {"minutes": 60_000, "hours": 3_600_000}


def _topic_default(server_name: str, topic_name: str) -> Property:
    topic = TOPIC_PROPERTIES.properties[topic_name]
    unit = _UNIT_MS.get(server_name.rsplit(".", 1)[-1])
    parse = topic.parse if unit is None else _in_unit(topic.parse, unit)
    return Property(
        name=server_name,
        parse=parse,
        default=topic.default if unit is None else str(int(topic.default) // unit),
        doc=f"Default of the topic setting {topic_name}." + _BESIDES.get(server_name, ""),
    )


def _in_unit(parse_ms: Callable[[str], Value], unit_ms: int) -> Callable[[str], int]:
    """Parser of a number of minutes or hours whose ms the topic setting would take; -1 stays -1."""

    def parse(text: str) -> int:
        number = whole(-1, INT_MAX)(text)
        parse_ms(str(number * unit_ms if number > 0 else number))
        return number

    return parse


def _one_table(text: str) -> int:
    """Parser of what can only be 1."""
    if whole(1, INT_MAX)(text) > 1:
        raise ValueError(
            f"{text} is not possible: the offsets of all groups are in one table, so that a commit of several groups "
            "is one table commit; leave the setting out"
        )
    return 1


SERVER_PROPERTIES: Final = PropertySet(
    "server",
    [
        Property(
            name="num.partitions",
            parse=whole(1, MAX_PARTITIONS),
            default="1",
            doc="Partitions of a topic that is created without a count.",
        ),
        Property(
            name="default.replication.factor",
            parse=whole(1, INT_MAX),
            default="1",
            doc="Replicas of a topic that is created without a factor, each on a root of its own.",
        ),
        Property(
            name="offsets.topic.replication.factor",
            parse=whole(1, INT_MAX),
            default="3",
            doc="Replicas of committed offsets and of schemas; as many as there are roots, if those are fewer.",
        ),
        Property(
            name="controller.quorum.voters",
            parse=voters,
            default="",
            doc="Brokers whose roots decide about topics, leaders and brokers when a cluster of several roots is made: "
            "one, three or five ids, such as `1,2,3`. By default the first three, and the first one where there are "
            "fewer.",
        ),
        Property(
            name="broker.rack",
            parse=str,
            default="",
            doc="Rack of the root that has this file, as of the moment in which it becomes a broker: replicas of a "
            "topic go to different racks, and consumers with the same `client_rack` read from it.",
        ),
        Property(
            name="replica.lag.time.max.ms",
            parse=whole(0, INT_MAX),
            default="30000",
            doc="For how long (ms) a root may give no answer before its replicas are taken for out of sync.",
        ),
        Property(
            name="auto.leader.rebalance.enable",
            parse=boolean,
            default="true",
            doc="Whether `kafkalike replicate` and maintenance move leaders back to the preferred replicas.",
        ),
        Property(
            name="auto.create.topics.enable",
            parse=boolean,
            default="true",
            doc="Whether producing to a topic that does not exist creates it.",
        ),
        Property(
            name="delete.topic.enable",
            parse=boolean,
            default="true",
            doc="Whether topics may be deleted.",
        ),
        Property(
            name="offset.metadata.max.bytes",
            parse=whole(0, INT_MAX),
            default="4096",
            doc="Longest metadata string (bytes) of a committed offset.",
        ),
        Property(
            name="offsets.retention.minutes",
            parse=whole(1, INT_MAX),
            default="10080",
            doc="How long (minutes) the offsets of an empty group are kept.",
        ),
        Property(
            name="transaction.max.timeout.ms",
            parse=whole(1, INT_MAX),
            default="900000",
            doc="Longest transaction_timeout_ms that a producer may ask for.",
        ),
        Property(
            name="transactional.id.expiration.ms",
            parse=whole(1, INT_MAX),
            default="604800000",
            doc="How long (ms) a transactional id that is not used is remembered.",
        ),
        Property(
            name="offsets.topic.num.partitions",
            parse=_one_table,
            default="1",
            doc="Tables of committed offsets: one, for all groups.",
        ),
        Property(
            name="log.cleaner.dedupe.buffer.size",
            parse=whole(1_048_576, INT_MAX),
            default="134217728",
            doc="Memory (bytes) for the keys of one compaction pass; a partition with more keys takes several runs.",
        ),
        Property(
            name="log.retention.check.interval.ms",
            parse=whole(1),
            default="300000",
            doc="How often (ms) an embedded maintenance scheduler looks.",
        ),
        *(_topic_default(server, topic) for topic, names in TOPIC_DEFAULTS.items() for server in names),
    ],
    meaningless={
        **dict.fromkeys(
            (
                "advertised.listeners",
                "broker.id",
                "listeners",
                "log.dir",
                "log.dirs",
                "node.id",
                "num.io.threads",
                "num.network.threads",
                "process.roles",
                "zookeeper.connect",
            ),
            "there is no broker process",
        ),
        **dict.fromkeys(
            (
                "transaction.abort.timed.out.transaction.cleanup.interval.ms",
                "transaction.remove.expired.transaction.cleanup.interval.ms",
            ),
            "maintenance does it, as often as it runs: see 'kafkalike maintain --every'",
        ),
        **dict.fromkeys(
            (
                "transaction.state.log.load.buffer.size",
                "transaction.state.log.min.isr",
                "transaction.state.log.num.partitions",
                "transaction.state.log.replication.factor",
                "transaction.state.log.segment.bytes",
            ),
            "transactions stand in __consumer_offsets",
        ),
        "producer.id.expiration.ms": "nothing is kept of a producer without a transactional id",
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Defaults of a cluster."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Only what was set, by Kafka's dotted names, in text form."""

    @classmethod
    def from_properties(cls, settings: Mapping[str, str]) -> ServerConfig:
        """Check and take settings in text form.

        Raises:
            InvalidConfigurationError: for an unknown or bad one.
        """
        return cls(settings=SERVER_PROPERTIES.check_all(settings))

    @classmethod
    def load(cls, root: str | None = None, environ: Mapping[str, str] | None = None) -> ServerConfig:
        """Read the defaults of a cluster.

        The file `server.properties` in a local root wins, else the file that the environment variable
        `KAFKALIKE_SERVER_PROPERTIES` names, else Kafka's own defaults hold.

        Raises:
            InvalidConfigurationError: when the named file is missing or holds a bad setting.
        """
        environ = os.environ if environ is None else environ
        if root is not None:
            path = Path(root) / SERVER_PROPERTIES_FILE
            if path.is_file():
                return cls.from_file(path)
        named = environ.get(SERVER_PROPERTIES_VARIABLE)
        return cls.from_file(Path(named)) if named else cls()

    @classmethod
    def from_file(cls, path: Path) -> ServerConfig:
        """Read one `.properties` file."""
        import javaproperties  # 65 ms, which a cluster without such a file need not pay

        try:
            with path.open("rb") as stream:
                settings = javaproperties.load(stream)
        except OSError as cause:
            message = f"server settings {str(path)!r} cannot be read: {cause.strerror}"
            raise InvalidConfigurationError(message) from cause
        try:
            return cls.from_properties(settings)
        except InvalidConfigurationError as cause:
            message = f"{path}: {cause}"
            raise InvalidConfigurationError(message) from cause

    def get(self, name: str) -> str:
        """A server setting in effect, in text form."""
        return self.settings.get(name, SERVER_PROPERTIES.properties[name].default)

    @property
    def num_partitions(self) -> int:
        """Partitions of a topic created without a count."""
        return int(self.get("num.partitions"))

    @property
    def flush(self) -> bool:
        """Whether what is written is forced to the disk, committed offsets too, where no topic says otherwise."""
        return boolean(self.topic_default("kafkalike.flush")[0])

    @property
    def auto_create_topics(self) -> bool:
        """Whether producing creates missing topics."""
        return boolean(self.get("auto.create.topics.enable"))

    def is_closed(self, topic_configs: Mapping[str, str]) -> bool:
        """Whether a topic with these settings of its own has a table that is closed to foreign writers."""
        return (topic_configs.get(FOREIGN_WRITES) or self.topic_default(FOREIGN_WRITES)[0]) == "reject"

    def topic_default(self, name: str) -> tuple[str, bool]:
        """Default of a topic setting: its text, and whether this server set it (else it is Kafka's own)."""
        for server_name in TOPIC_DEFAULTS[name]:
            if server_name in self.settings:
                text = self.settings[server_name]
                unit = _UNIT_MS.get(server_name.rsplit(".", 1)[-1])
                if unit is not None and int(text) >= 0:
                    text = str(int(text) * unit)
                return text, True
        return TOPIC_PROPERTIES.properties[name].default, False

    def effective(self, topic_configs: Mapping[str, str]) -> dict[str, str]:
        """Every topic setting in effect: the topic's own, else this server's, else Kafka's default."""
        return {
            name: topic_configs[name] if name in topic_configs else self.topic_default(name)[0]
            for name in TOPIC_PROPERTIES.properties
        }
