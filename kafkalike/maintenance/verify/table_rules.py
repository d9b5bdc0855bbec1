"""Table rules: the files, columns and commits of a topic's table in, findings out; nothing is read here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkalike.maintenance.verify.findings import Finding, finding
from kafkalike.model.offsets import Gap, gaps_and_overlaps
from kafkalike.model.segments import Segment

if TYPE_CHECKING:
    from kafkalike.maintenance.verify.commits import CommitInfo


OWN_OPERATIONS: Final = frozenset({"CREATE TABLE", "VACUUM START", "VACUUM END"})
"""Table operations that are harmless, whichever program did them."""


MAINTENANCE_OPERATIONS: Final = frozenset({"DELETE", "OPTIMIZE", "SET TBLPROPERTIES"})
"""Table operations that maintenance makes; without its mark they are a warning."""


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
                found.append(finding("gap", message, topic, partition, flaw.missing))
        elif flaw.doubled.start >= live.stop:
            message = "a file holds offsets above the log end"
            found.append(finding("beyond-log-end", message, topic, partition, flaw.doubled))
        else:
            message = "two files hold these offsets"
            found.append(finding("overlap", message, topic, partition, flaw.doubled))
    return found


def check_partitions(topic: str, partitions: Iterable[int], num_partitions: int) -> list[Finding]:
    """A table must have files of the topic's partitions only; readers would never look at others."""
    message = f"its table has files of a partition that the topic does not have ({num_partitions} partitions)"
    return [
        finding("unknown-partition", message, topic, partition, None)
        for partition in sorted(partitions)
        if not 0 <= partition < num_partitions
    ]


def check_place(topic: str, segment: Segment) -> list[Finding]:
    """A file must lie in the folder of its partition."""
    folder = segment.path.rpartition("/")[0].rpartition("/")[2]
    if folder.startswith("partition=") and folder != f"partition={segment.partition}":
        message = f"{segment.path} is registered for partition {segment.partition}"
        return [finding("wrong-partition", message, topic, segment.partition, segment.offsets)]
    return []


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
    return [finding("schema", f"{what}: {'; '.join(found_kinds)}", topic, partition, None)]


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
        found.append(finding("foreign-commit", where, topic, None, None, warning=maintenance))
    return found
