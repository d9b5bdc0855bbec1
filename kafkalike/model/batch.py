"""RecordBatch: the records one append carries, as columns of equal length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
