"""Group rules: committed offsets and rows of the offsets table in, findings out; nothing is read here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalike.maintenance.verify.findings import Finding, finding, one
from kafkalike.model.group_state import MEMBER, TRANSACTION, GroupRow, GroupsState


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
                found.append(finding("committed-unknown-partition", message, topic, where.partition, one(offset)))
            elif offset > log.stop:
                message = f"group {group_id!r} has committed offset {offset}, the log ends at {log.stop}"
                found.append(finding("committed-beyond-end", message, topic, where.partition, one(offset)))
            elif offset < log.start:
                message = (
                    f"group {group_id!r} has committed offset {offset}, the log starts at {log.start}: "
                    f"it never read {log.start - offset} records"
                )
                lost = range(offset, log.start)
                found.append(finding("committed-below-start", message, topic, where.partition, lost, warning=True))
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
