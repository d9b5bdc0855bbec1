"""File rules: the records of a data file in, findings out; nothing is read here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalike.maintenance.verify.findings import Finding, finding, one
from kafkalike.model.partitioner.murmur2 import partitions_for_keys
from kafkalike.model.segments import Segment

Longs = npt.NDArray[np.int64]


ORDER_KINDS: Final = frozenset({"unsorted", "hole-in-file", "offset-statistics"})
"""Findings that a file whose rows are all there, but not in order, gives rise to."""


class SegmentCheck:
    """Checks the records of one file against what the log says of it, batch by batch in bounded memory.

    Args:
        topic: for the findings.
        segment: what the log says.
        num_partitions: of the topic, for the hash of the keys.
        holes_below: offset below which holes are no loss; see `TopicLog.holes_below`.
    """

    def __init__(self, topic: str, segment: Segment, num_partitions: int, *, holes_below: int) -> None:
        self.records = 0
        self.misplaced = 0
        """Records in another partition than the one their key hashes to."""
        self.first_misplaced: int | None = None
        self._topic = topic
        self._segment = segment
        self._num_partitions = num_partitions
        self._holes_below = holes_below
        self._first: int | None = None
        self._last: int | None = None
        self._times: tuple[int, int] | None = None
        self._found: dict[str, Finding] = {}

    def feed(self, offsets: Longs, times_ms: Longs, keys: Sequence[bytes | None]) -> None:
        """Take in the next records of the file, in file order."""
        if not len(offsets):
            return
        self._order(offsets)
        self.records += len(offsets)
        low, high = int(times_ms.min()), int(times_ms.max())
        self._times = (low, high) if self._times is None else (min(self._times[0], low), max(self._times[1], high))
        self._keys(offsets, keys)

    def _order(self, offsets: Longs) -> None:
        before = offsets[:1] - 1 if self._last is None else np.array([self._last], np.int64)
        steps = np.diff(np.concatenate([before, offsets]))
        if self._first is None:
            self._first = int(offsets[0])
        self._last = int(offsets[-1])
        if (steps == 1).all():
            return
        for kind, wrong, message in (
            ("duplicate-offset", steps == 0, "an offset is there twice in a row"),
            ("unsorted", steps < 0, "offsets go back"),
            (
                "hole-in-file",
                (steps > 1) & (offsets > self._holes_below),
                "offsets are missing inside the file: their records are lost",
            ),
        ):
            if wrong.any():
                at = int(wrong.argmax())
                offset = int(offsets[at])
                where = range(offset - int(steps[at]) + 1, offset) if kind == "hole-in-file" else one(offset)
                self._add(kind, message, where)

    def _keys(self, offsets: Longs, keys: Sequence[bytes | None]) -> None:
        wanted = partitions_for_keys(keys, self._num_partitions)
        here = self._segment.partition
        wrong = [row for row, partition in enumerate(wanted) if partition is not None and partition != here]
        if wrong and self.first_misplaced is None:
            self.first_misplaced = int(offsets[wrong[0]])
        self.misplaced += len(wrong)

    def header_key(self, offset: int, what: str) -> None:
        """Take in what a record has: a header whose key is no text."""
        self._add("header-key", f"a record has {what}", one(offset))

    def _add(self, kind: str, message: str, offsets: range) -> None:
        """Keep the first finding of a kind: a damaged file breaks a rule at every record."""
        if kind not in self._found:
            segment = self._segment
            self._found[kind] = finding(kind, f"{segment.path}: {message}", self._topic, segment.partition, offsets)

    def finish(self) -> list[Finding]:
        """The findings, after the last batch."""
        segment = self._segment
        if self.records != segment.num_records:
            message = f"it has {self.records} records, the log says {segment.num_records}"
            self._add("record-count", message, segment.offsets)
        if self._first is None or self._last is None or self._times is None:
            return list(self._found.values())
        if self._first != segment.start or self._last + 1 != segment.stop:
            message = (
                f"it holds offsets [{self._first}, {self._last + 1}), the log says [{segment.start}, {segment.stop})"
            )
            self._add("offset-statistics", message, segment.offsets)
        low, high = self._times
        if low < segment.min_timestamp or high > segment.max_timestamp:
            message = (
                f"its timestamps [{low}, {high}] ms are not within the log's "
                f"[{segment.min_timestamp}, {segment.max_timestamp}]: look-ups by time may miss records"
            )
            self._add("time-statistics", message, segment.offsets)
        return list(self._found.values())


def misplaced_keys(topic: str, partition: int, checks: Iterable[SegmentCheck]) -> list[Finding]:
    """One warning per partition whose records have keys that hash to other partitions."""
    wrong = [check for check in checks if check.misplaced]
    if not wrong:
        return []
    count = sum(check.misplaced for check in wrong)
    first = min(check.first_misplaced for check in wrong if check.first_misplaced is not None)
    message = (
        f"{count} records have keys that hash to other partitions, the first at offset {first}: sent with an explicit "
        "partition or another partitioner, or before partitions were added"
    )
    return [finding("key-partition", message, topic, partition, None, warning=True)]
