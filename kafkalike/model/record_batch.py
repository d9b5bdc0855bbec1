"""RecordBatch: the records of one append, as columns of equal length; how a write is named, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkalike.errors import IllegalArgumentError

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True, kw_only=True)
class RecordBatch:
    """Records on their way into one topic, in the order in which they were sent.

    A column per field instead of an object per record: Arrow takes columns, and a producer builds them once.
    `timestamps` are ms since the epoch; `headers` are `None` where a record has none.
    """

    partitions: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    headers: list[Headers | None] = field(default_factory=list)

    def add(
        self, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers | None = None
    ) -> None:
        """Append one record to the columns."""
        self.partitions.append(partition)
        self.keys.append(key)
        self.values.append(value)
        self.timestamps.append(timestamp_ms)
        self.headers.append(headers or None)

    def extend(self, other: RecordBatch) -> None:
        """Append all records of another batch."""
        self.partitions += other.partitions
        self.keys += other.keys
        self.values += other.values
        self.timestamps += other.timestamps
        self.headers += other.headers

    def __len__(self) -> int:
        """Records in the batch."""
        return len(self.partitions)


RESERVED_APPS: Final = "kafkalike."
"""How names of Delta applications begin under which a topic's table keeps facts about itself."""


TRANSACTIONS: Final = f"{RESERVED_APPS}transactions"
"""Delta application whose version is the number of the last decision that a topic has: it has all before it."""


@dataclass(frozen=True, slots=True)
class TxnId:
    """Names a write across restarts: a write whose version is not above the application's last one is a rerun."""

    app_id: str
    version: int
    after: int | None = None
    """The application's latest version as its writer has seen it, -1 for none: a higher one below `version`, which
    somebody else wrote meanwhile, is an error. None takes any."""
    own: bool = False
    """Whether it is a name of kafkalike's own: a higher version then shows that this one is there."""
    also: tuple[str, int] | None = None
    """Another application, and its version, as which the write is known too."""

    def __post_init__(self) -> None:
        """Keep users' ids apart from those under which a table keeps facts about itself."""
        if self.app_id.startswith(RESERVED_APPS) and not self.own:
            raise IllegalArgumentError(
                f"txn_id must not begin with {RESERVED_APPS!r}, which is kafkalike's own, as {self.app_id!r} does"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """A finished append."""

    version: int
    """Table version that holds the records."""
    ranges: Mapping[int, range]
    """Offsets written, by partition."""
    append_time_ms: int
    """Time of the append, ms; the records' timestamp in a topic with LogAppendTime."""
    duplicate: bool = False
    """True when a `TxnId` showed that the records were in the log already, at `ranges`; nothing was written."""
