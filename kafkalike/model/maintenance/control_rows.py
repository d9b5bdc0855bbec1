"""Control rows: choose the rows of a control table that compaction keeps.

The kept rows give the same state and the same last number; only the generation of a long-deleted group is dropped.
Recent rows are kept for people, up to a limit: the reason of a moved log start, the history of a group's offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kafkalike.model import cluster_state
from kafkalike.model.brokers import DEFAULTS, REPLICAS, Defaults, ReplicatedTable
from kafkalike.model.group_rows import CONFIG, OFFSET, SHARE, TRANSACTION, GroupRow
from kafkalike.model.group_state import GroupsState
from kafkalike.model.mirror import Mirrored

MERGE_FACTOR: Final = 4
"""A file of a control table is rewritten when the rows after it exceed its own number divided by this factor."""


def files_to_merge(rows: Sequence[int]) -> int:
    """Return the number of last files of a control table to merge into one.

    A file stays while it has more rows than `MERGE_FACTOR` times all rows after it. A row is therefore rewritten only
    after the table has grown by a share, and the number of files is logarithmic in the rows.

    Args:
        rows: number of rows of each file, oldest first.

    Returns:
        At least 2, or 0 if there is nothing to merge.
    """
    after = count = 0
    for number, own in enumerate(reversed(rows), start=1):
        if own <= MERGE_FACTOR * after or number == 1:
            count = number
        after += own
    return count if count > 1 else 0


def kept_metadata_rows(
    rows: Sequence[cluster_state.MetadataRow], since_ms: int, moves_at_most: int | None = None
) -> list[cluster_state.MetadataRow]:
    """Return the rows of `__cluster_metadata` to keep.

    These are the last row of each topic, broker, mirror and replicated table and of the defaults, the highest log
    starts, and recent rows. Log starts, replicas and mirrors of deleted topics are dropped. A row kept only for its
    highest log starts loses its other partitions.

    Args:
        rows: all rows of the table in `seq` order, which alone defines their order.
        since_ms: rows with this time or a later one by their writers' clocks are kept.
        moves_at_most: most moves of a partition's log start to keep only because they are recent, the last ones first;
            None for all.

    Raises:
        UnsupportedVersionError, LogCorruptError: a row cannot be read.
    """
    moved: dict[int, cluster_state.LogStartsMoved] = {}
    last: dict[object, int] = {}
    about: dict[int, object] = {}
    living: dict[str, str] = {}
    moved_before: dict[str, int] = {}
    for row in rows:
        said = cluster_state.parse_row(row)
        if isinstance(said, cluster_state.LogStartsMoved):
            moved[row.seq] = said
            continue
        if isinstance(said, cluster_state.TopicChange):
            living[row.topic] = "" if said.deleted else row.topic_id
            if said.deleted:
                # An id may come back in a mirror of the topic's own mirror, which starts over.
                moved_before[row.topic_id] = row.seq
        about[row.seq] = _subject(row, said)
        last[about[row.seq]] = row.seq
    highest = _highest([row for row in rows if row.seq > moved_before.get(row.topic_id, 0)], moved)
    told = _told(rows, moved, since_ms, moves_at_most)
    kept = []
    for row in rows:
        newest = row.seq in about and last[about[row.seq]] == row.seq
        if newest and row.kind in {REPLICAS, cluster_state.MIRROR} and row.topic_id:
            newest = living.get(row.topic) == row.topic_id
        if row is rows[-1] or row.seq in told or newest:
            kept.append(row)
        elif row.seq not in moved:
            kept += [row] if row.time_ms >= since_ms else []
        elif row.seq in highest and living.get(row.topic) == row.topic_id:
            kept.append(cluster_state.trimmed(row, moved[row.seq], highest[row.seq]))
    return kept


def _subject(
    row: cluster_state.MetadataRow,
    said: cluster_state.TopicChange | cluster_state.BrokerChange | ReplicatedTable | Mirrored | Defaults,
) -> object:
    """Return the subject of a row; the last row of each subject counts."""
    if isinstance(said, cluster_state.TopicChange):
        return row.topic
    if isinstance(said, cluster_state.BrokerChange):
        return said.broker.id
    if isinstance(said, ReplicatedTable):
        return row.topic, row.topic_id, said.location
    if isinstance(said, Defaults):
        # A tuple, because a topic may have that name.
        return DEFAULTS, ""
    return cluster_state.MIRROR, row.topic_id


def _highest(
    rows: Sequence[cluster_state.MetadataRow], moved: Mapping[int, cluster_state.LogStartsMoved]
) -> dict[int, list[int]]:
    """Return by row number the partitions whose highest log start the row records."""
    latest: dict[tuple[str, int], tuple[int, int]] = {}
    for row in rows:
        for partition, move in moved[row.seq].moves.items() if row.seq in moved else ():
            # Log starts never move back, so a row with a lower one has no effect.
            if move.offset > latest.get((row.topic_id, partition), (-1, 0))[0]:
                latest[row.topic_id, partition] = move.offset, row.seq
    found: dict[int, list[int]] = {}
    for (_, partition), (_, seq) in latest.items():
        found.setdefault(seq, []).append(partition)
    return found


def _told(
    rows: Sequence[cluster_state.MetadataRow],
    moved: Mapping[int, cluster_state.LogStartsMoved],
    since_ms: int,
    at_most: int | None,
) -> set[int]:
    """Return the rows of log starts that are kept because they are recent."""
    told: set[int] = set()
    count = 0
    for row in reversed(rows):
        if row.seq not in moved:
            continue
        count += len(moved[row.seq].moves)
        if at_most is not None and count > at_most:
            break
        if row.time_ms >= since_ms:
            told.add(row.seq)
    return told


def kept_group_rows(rows: Sequence[GroupRow], since_ms: int, at_most: int | None = None) -> list[GroupRow]:
    """Return the rows of `__consumer_offsets` to keep.

    These are the last row of each group's members, of each of its offsets and share partitions and of each
    transactional id, and recent rows. A deleted group keeps its last row of members, and so its generation, while
    another row of it is recent; then all of its rows are dropped. The row that deletes an offset, a share partition or
    a transactional id is dropped unless an older row of it is kept, which may happen because clocks of writers differ.

    Args:
        rows: all rows of the table in `seq` order, which alone defines their order.
        since_ms: rows with this time or a later one by their writers' clocks are kept.
        at_most: number of last rows that may be kept only because they are recent; None for all.

    Raises:
        UnsupportedVersionError, LogCorruptError: a row cannot be read.
    """
    first = 0 if at_most is None else max(0, len(rows) - at_most)
    recent = {row.seq for row in rows[first:] if row.time_ms >= since_ms}
    state = GroupsState().applied(rows)
    last = {_group_key(row): row.seq for row in rows}
    known = {_group_key(row) for row in rows if row.seq in recent}
    groups = {
        row.group_id for row in rows if row.seq in recent and row.kind not in {CONFIG, SHARE, TRANSACTION}
    } | state.groups.keys()

    def counts(row: GroupRow) -> bool:
        """Return whether the last row about the subject of `row` must be kept."""
        if row.kind in {OFFSET, SHARE}:
            return row.offset is not None or _group_key(row) in known
        if row.kind == TRANSACTION:
            return row.group_id in state.transactions or _group_key(row) in known
        if row.kind == CONFIG:
            return row.group_id in state.configs or _group_key(row) in known
        return row.group_id in groups

    return [
        row
        for row in rows
        if row.seq in recent or row is rows[-1] or (last[_group_key(row)] == row.seq and counts(row))
    ]


def _group_key(row: GroupRow) -> tuple[str, str, str | None, int | None]:
    return (
        (row.kind, row.group_id, row.topic, row.partition)
        if row.kind in {OFFSET, SHARE}
        else (row.kind, row.group_id, None, None)
    )
