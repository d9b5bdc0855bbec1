"""RecordBatch: the records of one append as columns of equal length; ids of writes and results of appends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.groups.partition_split import split_rows

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True, kw_only=True)
class RecordBatch:
    """Records to be appended to one topic, in the order in which they were sent.

    Each field is a column instead of an attribute of a record object, because Arrow takes columns and a producer
    builds them once. `timestamps` are ms since the epoch; `headers` are None for a record without headers.
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

    def split(self, before: int, after: int) -> None:
        """Move the records to the partitions of their families; see `kafkalike.model.groups.partition_split`."""
        self.partitions = split_rows(self.keys, self.partitions, before, after)

    def __len__(self) -> int:
        """Number of records in the batch."""
        return len(self.partitions)


RESERVED_APPS: Final = "kafkalike."
"""Prefix of the names of Delta applications in which a topic's table records facts about itself."""


TRANSACTIONS: Final = f"{RESERVED_APPS}transactions"
"""Delta application whose version is the number of the topic's last decision; the topic has all decisions before it."""


SEALED: Final = f"{RESERVED_APPS}sealed"
"""Delta application that a topic's table has once its repartition has ended all appends to it."""

CLEANER_APP: Final = "kafkalike.cleaner"
"""Delta application in which the cleaner records its progress in a topic's table. A table with a version of it has been
compacted at least once."""

HOLES: Final = "holes"
"""Name in `cleaner_app` of the offset below which a pass, finished or not, may have removed records."""

CORRECTIONS: Final = f"{RESERVED_APPS}corrections"
"""Delta application whose version is the number of commits of a topic by which keys were forgotten or writes undone."""


def cleaner_app(partition: int, what: str) -> str:
    """Return the Delta application whose version is a fact about one partition: a field of `Cleaned`, or `HOLES`."""
    return f"{CLEANER_APP}/{partition}/{what}"


@dataclass(frozen=True, slots=True)
class TxnId:
    """Identifies a write across restarts. A version that is not above the application's last one is a rerun."""

    app_id: str
    version: int
    after: int | None = None
    """The application's latest version that the writer has seen, -1 for none. A higher version below `version`, written
    by another process meanwhile, is an error. None skips the check."""
    own: bool = False
    """True for kafkalike's own application ids, for which a higher version proves that this one is there."""
    also: tuple[str, int] | None = None
    """Another application and its version that the same write also records."""

    def __post_init__(self) -> None:
        """Reject a user's id with the prefix of kafkalike's own ids."""
        if self.app_id.startswith(RESERVED_APPS) and not self.own:
            raise IllegalArgumentError(
                f"txn_id must not begin with {RESERVED_APPS!r}, which is kafkalike's own, as {self.app_id!r} does"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Result of a finished append."""

    version: int
    """Table version with the records."""
    ranges: Mapping[int, range]
    """Written offsets by partition."""
    append_time_ms: int
    """Time of the append, ms; the records' timestamp in a topic with LogAppendTime."""
    duplicate: bool = False
    """True if a `TxnId` showed that the records were already in the log, at `ranges`; nothing was written."""


DELIVER_AT: Final = "deliver_at"
"""Header with the time from which on a record may be delivered: ms since the epoch, as decimal text."""


def due_ms(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Return the time from which on a record may be delivered, ms since the epoch; 0 without a valid header."""
    for name, value in headers:
        if name == DELIVER_AT and value is not None and value.isdigit() and len(value) < 16:  # noqa: PLR2004
            return int(value)
    return 0
