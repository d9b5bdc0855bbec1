"""Structs: the tuples and enums of the public API, with kafka-python's names, field order and defaults."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, StrEnum
from typing import Any, Final, NamedTuple, NoReturn, Protocol, Self


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class _NoHeaders(list[tuple[str, bytes | None]]):
    """An empty list that cannot be changed, because all records without headers share it."""

    __slots__ = ()

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError("records without headers share this empty list: change that of record.headers")

    append = extend = insert = __setitem__ = __iadd__ = _refuse


NO_HEADERS: Final = _NoHeaders()
"""Value of `headers` in a `ConsumerRecord` without headers."""


class _ConsumerRecordFields(NamedTuple):
    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


_HEADERS: Final = _ConsumerRecordFields._fields.index("headers")


class ConsumerRecord(_ConsumerRecordFields):
    """A record as a consumer receives it. `timestamp` is ms since the epoch; sizes are bytes, -1 for missing parts.

    A record without headers creates its own empty list on first access. If the lists were created in advance, Python's
    garbage collector would visit twice as many objects, and polls would take 1.5 times as long.
    """

    # No `__slots__`: a tuple cannot have any.

    @property
    def delivery_count(self) -> int | None:
        """How often a share group has delivered the record, from 1 on; None outside share groups."""
        found: int | None = self.__dict__.get("_delivery_count")
        return found

    def delivered(self, times: int) -> Self:
        """Return this record with a delivery count. Caller: share consumer."""
        self.__dict__["_delivery_count"] = times
        return self

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """Names and values, in the producer's order; the list belongs to this record alone."""
        found: Any = super().__getitem__(_HEADERS)
        own: list[tuple[str, bytes | None]] = found
        return self.__dict__.setdefault("_headers", []) if found is NO_HEADERS else own

    def _values(self) -> tuple[Any, ...]:
        values: tuple[Any, ...] = super().__getitem__(slice(None))
        return (*values[:_HEADERS], self.headers, *values[_HEADERS + 1 :])

    # These methods return the record's own list, which the tuple itself does not have.

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values())

    def __getitem__(self, at: Any) -> Any:  # noqa: ANN401 - a tuple's
        return self._values()[at]

    def __eq__(self, other: object) -> bool:
        return self._values() == other

    def __ne__(self, other: object) -> bool:
        return self._values() != other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        named = zip(self._fields, self._values(), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in named)})"


class RecordMetadata(NamedTuple):
    """Location of a sent record. `offset` is -1 for `acks=0`; `timestamp` is ms since the epoch."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read, and a note of the application."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class CommittedOffset(NamedTuple):
    """A committed offset and the member that committed it. Pass the values by name."""

    position: OffsetAndMetadata
    topic_id: str
    time_ms: int
    member_id: str
    client_id: str
    generation: int = -1
    """The group's generation at the commit; -1 from outside the group."""


class OffsetAndTimestamp(NamedTuple):
    """Result of `offsets_for_times`: the offset found and its record's time in ms."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class AcknowledgeType(IntEnum):
    """Verdicts of a share consumer on a record, with Kafka's ids."""

    ACCEPT = 1
    """Processed."""
    RELEASE = 2
    """Not processed: deliver it again, to any member."""
    REJECT = 3
    """Cannot be processed: never deliver it again."""
    RENEW = 4
    """Still being processed: prolong the lock."""


class ShareGroupMetadata(NamedTuple):
    """A share consumer's membership, which a transactional producer needs to acknowledge its records."""

    group_id: str
    member_id: str
    delivery_count_limit: int = 5
    """Deliveries after which a released record is archived."""


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership in its group, which a transactional producer needs to commit the consumer's offsets."""

    group_id: str | None = None
    """None for a consumer without a group."""
    generation_id: int = -1
    """-1 outside the group."""
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = "<unjoined>"
    """kafka-python's `MemberState`: `<unjoined>`, `<rebalancing>` or `<stable>`."""


class NewTopic:
    """A topic to create.

    Args:
        name: the topic's name.
        num_partitions: -1 for the server's `num.partitions`.
        replication_factor: -1 for the server's `default.replication.factor`.
        replica_assignments: broker ids of each partition, the preferred leader first; the same for all partitions.
        topic_configs: topic settings by Kafka's dotted names.
    """

    __slots__ = ("name", "num_partitions", "replica_assignments", "replication_factor", "topic_configs")

    def __init__(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignments: dict[int, list[int]] | None = None,
        topic_configs: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs or {}

    def __repr__(self) -> str:
        return (
            f"NewTopic(name={self.name!r}, num_partitions={self.num_partitions}, "
            f"replication_factor={self.replication_factor}, topic_configs={self.topic_configs!r})"
        )


class NewPartitions:
    """The new number of partitions of a topic. `new_assignments` is rejected: they use the topic's replicas."""

    __slots__ = ("new_assignments", "total_count")

    def __init__(self, total_count: int, new_assignments: list[list[int]] | None = None) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments


class OffsetSpec(IntEnum):
    """Special times in offset lookups."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class OffsetTimestamp(int):
    """A time in ms since the epoch in place of an offset; it stands for the first record at or after that time."""

    __slots__ = ()


class MemberToRemove(NamedTuple):
    """A member to remove from its group, by its id or its static name."""

    member_id: str | None = None
    group_instance_id: str | None = None
    reason: str | None = None


class IsolationLevel(IntEnum):
    """Visibility of records of open and aborted transactions."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class TimestampType(IntEnum):
    """Clock that set a record's timestamp: the producer's or the log's."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class GroupState(StrEnum):
    """State of a consumer group."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(StrEnum):
    """Protocol of a group."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class ConfigResourceType(IntEnum):
    """Type of the object that has a setting; Kafka's codes."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterConfigOp(IntEnum):
    """Change of a setting; Kafka's codes."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource:
    """A topic or broker whose settings to describe or change.

    Args:
        resource_type: a `ConfigResourceType` or its name.
        name: the topic's name, or the broker's id as text.
        configs: to describe: names, or None for all; to change: `{name: value}` or `{name: (AlterConfigOp, value)}`.
    """

    __slots__ = ("configs", "name", "resource_type")

    def __init__(self, resource_type: ConfigResourceType | str, name: str, configs: Any = None) -> None:  # noqa: ANN401
        if isinstance(resource_type, str):
            resource_type = ConfigResourceType[resource_type.upper()]
        self.resource_type = ConfigResourceType(resource_type)
        self.name = name
        self.configs = configs

    def __repr__(self) -> str:
        return f"ConfigResource({self.resource_type.name}, {self.name!r}, {self.configs!r})"

    def __hash__(self) -> int:
        return hash((self.resource_type, self.name))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ConfigResource)
            and (self.resource_type, self.name) == (other.resource_type, other.name)
            and self.configs == other.configs
        )


class SettableFuture(Protocol):
    """The future that `chain` of another future completes, with kafka-python's methods."""

    def success(self, value: Any) -> object:  # noqa: ANN401
        """Complete the future with a value."""
        ...

    def failure(self, e: Exception) -> object:
        """Complete the future with an error."""
        ...
