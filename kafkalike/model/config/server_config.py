"""ServerConfig: server settings with Kafka's names, from a cluster's metadata or a `server.properties` file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafkalike.errors import InvalidConfigurationError
from kafkalike.model.config.properties import INT_MAX, Property, PropertySet, Value, boolean, whole
from kafkalike.model.config.topic_config import FOREIGN_WRITES, MAX_PARTITIONS, TOPIC_PROPERTIES


def voters(text: str) -> str:
    """Parse the ids of voting brokers; Kafka's form `1@host:port,2@host:port` is accepted.

    Raises:
        ValueError: they are not one, three or five different ids.
    """
    ids = [part.partition("@")[0].strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() for part in ids) or len(set(ids)) != len(ids) or len(ids) not in {0, 1, 3, 5}:
        raise ValueError(f"one, three or five different ids of brokers, such as 1,2,3; not {text!r}")
    return ",".join(ids)


SERVER_PROPERTIES_VARIABLE: Final = "KAFKALIKE_SERVER_PROPERTIES"
"""Environment variable with the path of a file of server defaults."""

SERVER_PROPERTIES_FILE: Final = "server.properties"
"""File of server defaults inside a cluster's root; it takes precedence over the environment variable."""

PER_ROOT: Final = frozenset({"broker.rack", "controller.quorum.voters"})
"""Settings of a single root, or of the creation of a cluster, which are not defaults of a cluster."""

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
"""Server settings that give a topic setting its default; the first setting with a value wins. Source: Kafka's
documentation of topic configs, row "Server Default Property"; settings that Kafka does not have are named alike."""

_BESIDES: Final = {"log.kafkalike.flush": " It also applies to committed offsets, which are not in a user's topic."}
"""Additional effects of some of these settings."""

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
        is_list=topic.is_list,
    )


def _in_unit(parse_ms: Callable[[str], Value], unit_ms: int) -> Callable[[str], int]:
    """Return a parser of minutes or hours that checks the resulting ms as the topic setting does; -1 stays -1."""

    def parse(text: str) -> int:
        number = whole(-1, INT_MAX)(text)
        parse_ms(str(number * unit_ms if number > 0 else number))
        return number

    return parse


def _one_table(text: str) -> int:
    """Parse a setting that can only be 1."""
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
            doc="Number of partitions of a topic that is created without one.",
        ),
        Property(
            name="default.replication.factor",
            parse=whole(1, INT_MAX),
            default="1",
            doc="Number of replicas of a topic that is created without a replication factor, each on its own root.",
        ),
        Property(
            name="offsets.topic.replication.factor",
            parse=whole(1, INT_MAX),
            default="3",
            doc="Number of replicas of committed offsets and of schemas; at most one for each root.",
        ),
        Property(
            name="controller.quorum.voters",
            parse=voters,
            default="",
            doc="Brokers whose roots vote on topics, leaders and brokers when a cluster of several roots is created: "
            "one, three or five ids, such as `1,2,3`. By default the first three, or the first one if there are "
            "fewer.",
        ),
        Property(
            name="broker.rack",
            parse=str,
            default="",
            doc="Rack of the root that has this file, read when the root becomes a broker: replicas of a "
            "topic go to different racks, and consumers with the same `client_rack` read from it.",
        ),
        Property(
            name="replica.lag.time.max.ms",
            parse=whole(0, INT_MAX),
            default="30000",
            doc="Time (ms) without an answer of a root after which its replicas count as out of sync.",
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
            doc="Whether producers create missing topics.",
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
            name="group.share.delivery.count.limit",
            parse=whole(1, INT_MAX),
            default="5",
            doc="Most deliveries of a record to a share group; after them it is archived.",
        ),
        Property(
            name="group.share.partition.max.record.locks",
            parse=whole(1, INT_MAX),
            default="100000",
            doc="Most records of a partition that a share group has in flight. Kafka's default is 2,000, because its "
            "broker keeps each of them in memory; here they are a few ranges.",
        ),
        Property(
            name="group.share.record.lock.duration.ms",
            parse=whole(1, INT_MAX),
            default="30000",
            doc="How long (ms) a member of a share group locks the records that it has acquired.",
        ),
        Property(
            name="transaction.max.timeout.ms",
            parse=whole(1, INT_MAX),
            default="900000",
            doc="Longest transaction_timeout_ms of a producer.",
        ),
        Property(
            name="transactional.id.expiration.ms",
            parse=whole(1, INT_MAX),
            default="604800000",
            doc="Time (ms) after which an unused transactional id expires.",
        ),
        Property(
            name="offsets.topic.num.partitions",
            parse=_one_table,
            default="1",
            doc="Number of tables of committed offsets: one, for all groups.",
        ),
        Property(
            name="log.cleaner.dedupe.buffer.size",
            parse=whole(1_048_576, INT_MAX),
            default="134217728",
            doc="Memory (bytes) for the keys of one compaction pass; a partition with more keys needs several passes.",
        ),
        Property(
            name="log.retention.check.interval.ms",
            parse=whole(1),
            default="300000",
            doc="Interval (ms) of an embedded maintenance scheduler.",
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
            "kafkalike has no broker process",
        ),
        **dict.fromkeys(
            (
                "transaction.abort.timed.out.transaction.cleanup.interval.ms",
                "transaction.remove.expired.transaction.cleanup.interval.ms",
            ),
            "each maintenance run does it: see 'kafkalike maintain --every'",
        ),
        **dict.fromkeys(
            (
                "transaction.state.log.load.buffer.size",
                "transaction.state.log.min.isr",
                "transaction.state.log.num.partitions",
                "transaction.state.log.replication.factor",
                "transaction.state.log.segment.bytes",
            ),
            "transactions are in __consumer_offsets",
        ),
        "producer.id.expiration.ms": "producers without a transactional id have no stored state",
    },
)


def unreadable(name: str, cause: OSError) -> InvalidConfigurationError:
    """Return the error for a file of server settings that is there and cannot be read."""
    return InvalidConfigurationError(f"server settings {name!r} cannot be read: {cause.strerror or cause}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProperties:
    """Defaults of a cluster."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Explicit settings only, by Kafka's dotted names, in text form."""

    @classmethod
    def from_properties(cls, settings: Mapping[str, str]) -> ServerProperties:
        """Check settings in text form.

        Raises:
            InvalidConfigurationError: an unknown setting or a bad value.
        """
        return cls(settings=SERVER_PROPERTIES.check_all(settings))

    @classmethod
    def load(cls, root: str | None = None, environ: Mapping[str, str] | None = None) -> ServerProperties:
        """Read the file `server.properties` in a folder, or else the file in `KAFKALIKE_SERVER_PROPERTIES`.

        Raises:
            InvalidConfigurationError: the file is missing, cannot be read, or has a bad setting.
            OSError: the folder does not answer.
        """
        own = None if root is None else cls.in_folder(root)
        if own is not None:
            return own
        named = cls.from_environment(environ)
        return cls() if named is None else named[1]

    @classmethod
    def in_folder(cls, root: str) -> ServerProperties | None:
        """Read the file `server.properties` in a folder; None if there is none.

        Raises:
            InvalidConfigurationError: it cannot be read, or has a bad setting. An unreadable file is never treated as
                missing.
            OSError: the folder does not answer.
        """
        path = Path(root) / SERVER_PROPERTIES_FILE
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError) as cause:
            if path.is_symlink():
                raise unreadable(str(path), cause) from cause
            return None
        except (PermissionError, IsADirectoryError) as cause:
            raise unreadable(str(path), cause) from cause
        return cls.from_content(content, str(path))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> tuple[str, ServerProperties] | None:
        """Read the file that the environment variable `KAFKALIKE_SERVER_PROPERTIES` names.

        Args:
            environ: environment variables; None takes the process's own.

        Returns:
            The file's name and its settings; None if the variable is not set.

        Raises:
            InvalidConfigurationError: the file is missing, cannot be read, or holds a bad setting.
        """
        named = (os.environ if environ is None else environ).get(SERVER_PROPERTIES_VARIABLE)
        return (named, cls.from_file(Path(named))) if named else None

    @classmethod
    def from_file(cls, path: Path) -> ServerProperties:
        """Read one `.properties` file."""
        try:
            content = path.read_bytes()
        except OSError as cause:
            raise unreadable(str(path), cause) from cause
        return cls.from_content(content, str(path))

    @classmethod
    def from_content(cls, content: bytes, name: str) -> ServerProperties:
        """Parse a `.properties` file.

        Args:
            content: its bytes.
            name: its name, for errors.

        Raises:
            InvalidConfigurationError: it is not a `.properties` file, or has a bad setting.
        """
        import javaproperties  # importing it takes 65 ms, which clusters without such a file are spared

        try:
            return cls.from_properties(javaproperties.loads(content))
        except (InvalidConfigurationError, ValueError) as cause:
            raise InvalidConfigurationError(f"{name}: {cause}") from cause

    @property
    def cluster_wide(self) -> dict[str, str]:
        """The settings that apply to the whole cluster, without those in `PER_ROOT`."""
        return {name: text for name, text in self.settings.items() if name not in PER_ROOT}

    def contradictions(self, *others: ServerProperties) -> list[str]:
        """Return the cluster-wide settings of this file whose effect differs from that in all other files."""
        return [
            name
            for name in self.cluster_wide
            if all(self._effect(name) != other._effect(name) for other in others)  # noqa: SLF001 - of this class
        ]

    def conflicts(self, other: ServerProperties) -> list[str]:
        """Return the settings that both files set with different effects; each root has its own rack."""
        return [
            name
            for name in self.settings
            if name != "broker.rack" and other._sets(name) and self._effect(name) != other._effect(name)
        ]

    def _sets(self, name: str) -> bool:
        """Return whether a setting is set, in any unit."""
        group = next((names for names in TOPIC_DEFAULTS.values() if name in names), (name,))
        return any(each in self.settings for each in group)

    def _effect(self, name: str) -> object:
        """Return the effective value of a setting: if hours and ms are both set, ms win."""
        for topic_name, names in TOPIC_DEFAULTS.items():
            if name in names:
                return TOPIC_PROPERTIES.check(topic_name, self.topic_default(topic_name)[0])
        return SERVER_PROPERTIES.check(name, self.get(name))

    def get(self, name: str) -> str:
        """Return a server setting in effect, in text form."""
        return self.settings.get(name, SERVER_PROPERTIES.properties[name].default)

    @property
    def num_partitions(self) -> int:
        """Number of partitions of a topic that is created without one."""
        return int(self.get("num.partitions"))

    @property
    def flush(self) -> bool:
        """True if writes, including committed offsets, are flushed to disk unless a topic sets otherwise."""
        return boolean(self.topic_default("kafkalike.flush")[0])

    @property
    def auto_create_topics(self) -> bool:
        """True if producers create missing topics."""
        return boolean(self.get("auto.create.topics.enable"))

    def is_closed(self, topic_configs: Mapping[str, str]) -> bool:
        """Return whether the table of a topic with these settings rejects foreign writers."""
        return (topic_configs.get(FOREIGN_WRITES) or self.topic_default(FOREIGN_WRITES)[0]) == "reject"

    def topic_default(self, name: str) -> tuple[str, bool]:
        """Return the default of a topic setting, and whether this server has set it (otherwise it is Kafka's)."""
        for server_name in TOPIC_DEFAULTS[name]:
            if server_name in self.settings:
                text = self.settings[server_name]
                unit = _UNIT_MS.get(server_name.rsplit(".", 1)[-1])
                if unit is not None and int(text) >= 0:
                    text = str(int(text) * unit)
                return text, True
        return TOPIC_PROPERTIES.properties[name].default, False

    def effective(self, topic_configs: Mapping[str, str]) -> dict[str, str]:
        """Return every topic setting in effect: the topic's own, otherwise this server's, otherwise Kafka's default."""
        found = {name: prop.default for name, prop in TOPIC_PROPERTIES.properties.items()}
        if self.settings:
            found |= {name: self.topic_default(name)[0] for name in found}
        return found | {name: topic_configs[name] for name in found if name in topic_configs}
