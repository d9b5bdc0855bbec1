"""Log rules: find violations in tables, groups, schemas and transactions that were already read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkalike.maintenance.verify.verify_report import Finding, finding, one
from kafkalike.model.group_rows import MEMBER, TRANSACTION, GroupRow, standing_of
from kafkalike.model.group_state import GroupsState
from kafkalike.model.schemas.registry_state import RegistryState
from kafkalike.model.schemas.schema_rows import SchemaRow
from kafkalike.model.segments import Gap, Segment, gaps_and_overlaps
from kafkalike.model.transactions.transaction_views import LostPart
from kafkalike.model.transactions.transactional_id import TransactionalIdState

if TYPE_CHECKING:
    from kafkalike.maintenance.verify.topic_history import CommitInfo


OWN_OPERATIONS: Final = frozenset({"CREATE TABLE", "VACUUM START", "VACUUM END"})
"""Table operations that are harmless from any program."""


MAINTENANCE_OPERATIONS: Final = frozenset({"DELETE", "OPTIMIZE", "SET TBLPROPERTIES"})
"""Table operations of maintenance; without its mark they are a warning."""


def check_coverage(
    topic: str, partition: int, segments: Sequence[Segment], live: range, *, holes_below: int
) -> list[Finding]:
    """Check that the files of a partition hold every offset from log start to log end once.

    Args:
        topic: for the findings.
        partition: for the findings.
        segments: its live files.
        live: `range(log_start, log_end)`.
        holes_below: offset below which gaps are legitimate; see `TopicLog.holes_below`.
    """
    # A run at the log end makes a missing tail a gap like any other.
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
    """Check that a table has only files of the topic's partitions; readers ignore others."""
    message = f"its table has files of a partition that the topic does not have (partitions: {num_partitions})"
    return [
        finding("unknown-partition", message, topic, partition, None)
        for partition in sorted(partitions)
        if not 0 <= partition < num_partitions
    ]


def check_place(topic: str, segment: Segment) -> list[Finding]:
    """Check that a file lies in the folder of its partition."""
    folder = segment.path.rpartition("/")[0].rpartition("/")[2]
    if folder.startswith("partition=") and folder != f"partition={segment.partition}":
        message = f"{segment.path} is registered for partition {segment.partition}"
        return [finding("wrong-partition", message, topic, segment.partition, segment.offsets)]
    return []


def check_schema(
    topic: str, what: str, found: Mapping[str, str], wanted: Mapping[str, str], partition: int | None = None
) -> list[Finding]:
    """Check that a table or file has the topic's columns.

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
    """Check that table commits are kafkalike's own: commits that change records carry an append id.

    An unmarked DELETE or OPTIMIZE is only a warning; the other rules find its effects on offsets.
    """
    found = []
    for commit in commits:
        if commit.append_id is not None or commit.operation in OWN_OPERATIONS:
            continue
        where = f"table version {commit.version}: {commit.operation} by {commit.engine} without kafkalike's mark"
        maintenance = commit.operation in MAINTENANCE_OPERATIONS
        found.append(finding("foreign-commit", where, topic, None, None, warning=maintenance))
    return found


def check_committed(groups: GroupsState, topic: str, topic_id: str, live: Mapping[int, range]) -> list[Finding]:
    """Check that committed offsets lie within the log; below its start, a group has lost records to retention.

    Args:
        groups: all groups.
        topic: the topic to check.
        topic_id: offsets of a former topic of this name are ignored.
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
                found.append(finding("committed-unknown-partition", message, topic, where.partition, one(offset)))
            elif offset > log.stop:
                message = f"group {group_id!r} has committed offset {offset}, the log ends at {log.stop}"
                found.append(finding("committed-beyond-end", message, topic, where.partition, one(offset)))
            elif offset < log.start:
                message = (
                    f"group {group_id!r} has committed offset {offset}, the log starts at {log.start}: "
                    f"records that it never read: {log.start - offset}"
                )
                lost = range(offset, log.start)
                found.append(finding("committed-below-start", message, topic, where.partition, lost, warning=True))
    return found


def check_group_rows(rows: Iterable[GroupRow]) -> list[Finding]:
    """Check rows of the offsets table: unique numbers, rising generations, no commit of an old generation.

    Args:
        rows: the existing rows, in `seq` order.
    """
    found = []
    last_seq = 0
    generations: dict[str, int] = {}
    for row in rows:
        if row.seq <= last_seq:
            message = f"row {row.seq} of the offsets table follows row {last_seq}: two writers did not see each other"
            found.append(Finding(kind="group-sequence", message=message))
        last_seq = max(last_seq, row.seq)
        if row.kind == TRANSACTION:
            continue
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


def check_schema_rows(rows: Iterable[SchemaRow]) -> list[Finding]:
    """Check rows of the schemas' table: unique numbers, one schema per id, and no missing references.

    Args:
        rows: the existing rows, in `seq` order.

    Raises:
        UnsupportedVersionError, LogCorruptError: a row cannot be read, or contradicts another one.
    """
    found = []
    last_seq = 0
    rows = list(rows)
    for row in rows:
        if row.seq <= last_seq:
            message = f"row {row.seq} of the schemas' table follows row {last_seq}: two writers did not see each other"
            found.append(Finding(kind="schema-sequence", message=message))
        last_seq = max(last_seq, row.seq)
    state = RegistryState().applied(rows)
    for (subject, version), ids in sorted(state.referrers.items()):
        if state.registered(subject, version, deleted=True) is None:
            numbers = ", ".join(map(str, sorted(ids)))
            message = (
                f"schemas refer to version {version} of subject {subject!r}, which is not there: records with id "
                f"{numbers} cannot be read"
            )
            found.append(Finding(kind="schema-reference", message=message))
    return found


def check_transaction_rows(rows: Iterable[GroupRow]) -> list[Finding]:
    """Check that epochs rise, and that numbers of transactions rise within an epoch.

    Args:
        rows: the existing rows of the groups' table, in `seq` order.

    Raises:
        UnsupportedVersionError, LogCorruptError: a row cannot be read.
    """
    found = []
    known: dict[str, TransactionalIdState] = {}
    for row in rows:
        if row.kind != TRANSACTION:
            continue
        before, now = known.pop(row.group_id, None), standing_of(row)
        if now is None:
            continue
        known[row.group_id] = now
        if before is not None and _place(now) < _place(before):
            message = (
                f"transactional id {row.group_id!r} goes from producer, epoch and number {_place(before)} back to "
                f"{_place(now)} (row {row.seq})"
            )
            found.append(Finding(kind="transaction-back", message=message))
    return found


def _place(standing: TransactionalIdState) -> tuple[int, int, int]:
    return standing.producer_id, standing.epoch, standing.number


def check_ahead(topic: str, last: int, seq: int) -> list[Finding]:
    """Check that a topic has no transaction above the last row of the groups' table.

    Args:
        topic: the topic.
        last: number of its last transaction.
        seq: number of the last row of that table, read later.
    """
    if last <= seq:
        return []
    message = (
        f"it has transaction {last}, and the groups' table ends at row {seq}: that was removed or rewound; "
        "transactions into the topic are refused"
    )
    return [Finding(kind="transaction-ahead", message=message, topic=topic)]


def check_lost(lost: Iterable[LostPart]) -> list[Finding]:
    """Report committed records that cannot be applied to their topics."""
    return [
        Finding(
            kind="transaction-file",
            message=f"transactional id {part.transactional_id!r}: {part.why}",
            topic=part.topic,
        )
        for part in lost
    ]
