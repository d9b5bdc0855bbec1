"""Verify: segments, columns and commits in, findings out; the rules of a sound log, without any reading.

Each rule says what is wrong and where. A finding is an error when the log breaks its promise, and a warning when
it may well be as the user wants it, such as a record in another partition than the one its key hashes to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from kafkalike.model.group_state import MEMBER, GroupRow, GroupsState
from kafkalike.model.offsets import Gap, gaps_and_overlaps
from kafkalike.model.segments import Segment
from kafkalike.partitioner.murmur2 import partitions_for_keys

if TYPE_CHECKING:
    from kafkalike.log.inspect.commits import CommitInfo

Longs = npt.NDArray[np.int64]

OWN_OPERATIONS: Final = frozenset({"CREATE TABLE", "VACUUM START", "VACUUM END"})
"""Table operations that are harmless whoever did them."""

MAINTENANCE_OPERATIONS: Final = frozenset({"DELETE", "OPTIMIZE", "SET TBLPROPERTIES"})
"""Table operations that maintenance makes; without its mark they are a warning."""


ORDER_KINDS: Final = frozenset({"unsorted", "hole-in-file", "offset-statistics"})
"""Findings that a file whose rows are all there, but not in order, gives rise to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not as it should be."""

    kind: str
    """Short name of the rule, for filters: `gap`, `overlap`, `missing-file` …"""
    message: str
    topic: str | None = None
    partition: int | None = None
    offsets: range | None = None
    """The offsets concerned, half-open; None when it is not about offsets."""
    warning: bool = False
    """True when the log may be sound all the same."""

    def __str__(self) -> str:
        """One line: severity, place, offsets, kind and message."""
        place = self.topic or "cluster"
        if self.partition is not None:
            place += f"-{self.partition}"
        if self.offsets is not None:
            place += f" [{self.offsets.start}, {self.offsets.stop})"
        return f"{'WARNING' if self.warning else 'ERROR'} {place}: {self.kind}: {self.message}"

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON; `offsets` is `[start, stop]`."""
        return {
            "severity": "warning" if self.warning else "error",
            "kind": self.kind,
            "topic": self.topic,
            "partition": self.partition,
            "offsets": None if self.offsets is None else [self.offsets.start, self.offsets.stop],
            "message": self.message,
        }


def check_coverage(
    topic: str, partition: int, segments: Sequence[Segment], live: range, *, holes_below: int
) -> list[Finding]:
    """The files of a partition must hold every offset from log start to log end once.

    Args:
        topic: for the findings.
        partition: for the findings.
        segments: its live files.
        live: `range(log_start, log_end)`.
        holes_below: offset below which holes are no loss; see `TopicLog.holes_below`.
    """
    # An empty run at the log end makes a missing tail a gap like any other.
    runs = [*(segment.offsets for segment in segments), range(live.stop, live.stop + 1)]
    found: list[Finding] = []
    for flaw in gaps_and_overlaps(partition, runs, live.start):
        if isinstance(flaw, Gap):
            if flaw.missing.stop > holes_below:
                message = "no file holds these offsets: their records are lost"
                found.append(_finding("gap", message, topic, partition, flaw.missing))
        elif flaw.doubled.start >= live.stop:
            message = "a file holds offsets above the log end"
            found.append(_finding("beyond-log-end", message, topic, partition, flaw.doubled))
        else:
            message = "two files hold these offsets"
            found.append(_finding("overlap", message, topic, partition, flaw.doubled))
    return found


def check_partitions(topic: str, partitions: Iterable[int], num_partitions: int) -> list[Finding]:
    """A table must have files of the topic's partitions only; readers would never look at others."""
    message = f"its table has files of a partition that the topic does not have ({num_partitions} partitions)"
    return [
        _finding("unknown-partition", message, topic, partition, None)
        for partition in sorted(partitions)
        if not 0 <= partition < num_partitions
    ]


def check_place(topic: str, segment: Segment) -> list[Finding]:
    """A file must lie in the folder of its partition."""
    folder = segment.path.rpartition("/")[0].rpartition("/")[2]
    if folder.startswith("partition=") and folder != f"partition={segment.partition}":
        message = f"{segment.path} is registered for partition {segment.partition}"
        return [_finding("wrong-partition", message, topic, segment.partition, segment.offsets)]
    return []


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
                where = range(offset - int(steps[at]) + 1, offset) if kind == "hole-in-file" else _one(offset)
                self._add(kind, message, where)

    def _keys(self, offsets: Longs, keys: Sequence[bytes | None]) -> None:
        wanted = partitions_for_keys(keys, self._num_partitions)
        here = self._segment.partition
        wrong = [row for row, partition in enumerate(wanted) if partition is not None and partition != here]
        if wrong and self.first_misplaced is None:
            self.first_misplaced = int(offsets[wrong[0]])
        self.misplaced += len(wrong)

    def _add(self, kind: str, message: str, offsets: range) -> None:
        """Keep the first finding of a kind: a damaged file breaks a rule at every record."""
        if kind not in self._found:
            segment = self._segment
            self._found[kind] = _finding(kind, f"{segment.path}: {message}", self._topic, segment.partition, offsets)

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
    return [_finding("key-partition", message, topic, partition, None, warning=True)]


def check_schema(
    topic: str, what: str, found: Mapping[str, str], wanted: Mapping[str, str], partition: int | None = None
) -> list[Finding]:
    """A table or file must have the topic's columns.

    Args:
        topic: for the findings.
        what: the table or file.
        found: its columns: type by name.
        wanted: the columns of a topic.
        partition: for the findings.
    """
    found_kinds = []
    for name, kind in wanted.items():
        if name not in found:
            found_kinds.append(f"column {name} is missing")
        elif found[name] != kind:
            found_kinds.append(f"column {name} is {found[name]}, not {kind}")
    found_kinds += [f"column {name} is not a topic's" for name in found if name not in wanted]
    if not found_kinds:
        return []
    return [_finding("schema", f"{what}: {'; '.join(found_kinds)}", topic, partition, None)]


def check_commits(topic: str, commits: Iterable[CommitInfo]) -> list[Finding]:
    """Table commits must be kafkalike's own: those that change records carry an append id.

    An unmarked DELETE or OPTIMIZE is a warning only; whatever it did to the offsets, the other rules see.
    """
    found = []
    for commit in commits:
        if commit.append_id is not None or commit.operation in OWN_OPERATIONS:
            continue
        where = f"table version {commit.version}: {commit.operation} by {commit.engine} without kafkalike's mark"
        maintenance = commit.operation in MAINTENANCE_OPERATIONS
        found.append(_finding("outsider-commit", where, topic, None, None, warning=maintenance))
    return found


def check_committed(groups: GroupsState, topic: str, topic_id: str, live: Mapping[int, range]) -> list[Finding]:
    """Committed offsets must lie within the log; below its start a group has lost records, which retention may do.

    Args:
        groups: all groups.
        topic: the topic to check.
        topic_id: offsets of an earlier life of the name are left out.
        live: `range(log_start, log_end)` by partition.
    """
    found = []
    for group_id, group in sorted(groups.groups.items()):
        for where, commit in sorted(group.offsets.items()):
            if where.topic != topic or commit.topic_id not in {"", topic_id}:
                continue
            offset = commit.position.offset
            log = live.get(where.partition)
            if log is None:
                message = f"group {group_id!r} has committed offset {offset} in a partition that does not exist"
                found.append(_finding("committed-unknown-partition", message, topic, where.partition, _one(offset)))
            elif offset > log.stop:
                message = f"group {group_id!r} has committed offset {offset}, the log ends at {log.stop}"
                found.append(_finding("committed-beyond-end", message, topic, where.partition, _one(offset)))
            elif offset < log.start:
                message = (
                    f"group {group_id!r} has committed offset {offset}, the log starts at {log.start}: "
                    f"it never read {log.start - offset} records"
                )
                lost = range(offset, log.start)
                found.append(_finding("committed-below-start", message, topic, where.partition, lost, warning=True))
    return found


def check_group_rows(rows: Iterable[GroupRow]) -> list[Finding]:
    """Rows of the offsets table must be numbered once each, generations only rise, and no old one may commit.

    Args:
        rows: what the table still has, in `seq` order.
    """
    found = []
    last_seq = 0
    generations: dict[str, int] = {}
    for row in rows:
        if row.seq <= last_seq:
            message = f"row {row.seq} of the offsets table follows row {last_seq}: two writers did not see each other"
            found.append(Finding(kind="group-sequence", message=message))
        last_seq = max(last_seq, row.seq)
        known = generations.get(row.group_id)
        if row.kind == MEMBER:
            if known is not None and row.generation < known:
                message = (
                    f"group {row.group_id!r} goes from generation {known} back to {row.generation} (row {row.seq})"
                )
                found.append(Finding(kind="generation-back", message=message))
            generations[row.group_id] = row.generation
        elif known is not None and 0 <= row.generation < known:
            message = (
                f"group {row.group_id!r}: member {row.member_id!r} committed in generation {row.generation} "
                f"when {known} was the current one (row {row.seq})"
            )
            found.append(Finding(kind="zombie-commit", message=message, topic=row.topic, partition=row.partition))
    return found


def _finding(
    kind: str, message: str, topic: str, partition: int | None, offsets: range | None, *, warning: bool = False
) -> Finding:
    return Finding(kind=kind, message=message, topic=topic, partition=partition, offsets=offsets, warning=warning)


def _one(offset: int) -> range:
    return range(offset, offset + 1)
