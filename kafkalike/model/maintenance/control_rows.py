"""Control rows: all rows of a control table in, those that a compacted table keeps out.

The state that the kept rows make is the same, and so is the number of the last one; only the generation of a group
that is long gone is forgotten. Rows younger than a time stay for people, as many as there is room for: who moved a log
start and why, how a group's offsets moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kafkalike.model.brokers import DEFAULTS, REPLICAS, Defaults, ReplicatedTable
from kafkalike.model.cluster_state import (
    MIRROR,
    BrokerChange,
    LogStartsMoved,
    MetadataRow,
    TopicChange,
    parse_row,
    trimmed,
)
from kafkalike.model.group_state import OFFSET, TRANSACTION, GroupRow, GroupsState
from kafkalike.model.mirror import Mirrored

MERGE_FACTOR: Final = 4
"""A file of a control table is written again when the rows after it are more than this part of its own."""


def files_to_merge(rows: Sequence[int]) -> int:
    """How many of a control table's last files are to become one.

    A file stays as it is while it has more rows than `MERGE_FACTOR` times all that come after it, so a row is written
    again only when the table has grown by a share, and few files are left: as many as the logarithm of the rows.

    Args:
        rows: number of rows of each file, oldest first.

    Returns:
        At least 2, or 0 when nothing is to be merged.
    """
    after = count = 0
    for number, own in enumerate(reversed(rows), start=1):
        if own <= MERGE_FACTOR * after or number == 1:
            count = number
        after += own
    return count if count > 1 else 0


def kept_metadata_rows(
    rows: Sequence[MetadataRow], since_ms: int, moves_at_most: int | None = None
) -> list[MetadataRow]:
    """The last row of each topic, broker, mirror, table with replicas and of defaults; highest log starts; recent rows.

    Of topics that are gone neither log starts nor replicas nor mirrors stay.

    Of a row that only stays for log starts which are the highest, the other partitions go.

    Args:
        rows: all of the table, in `seq` order, which alone says what came after what.
        since_ms: rows stay whose time is at or after this, by their writers' clocks.
        moves_at_most: of rows of log starts only the last ones can stay for their time, as many as have so many moves
            of a partition's log start; None for all.

    Raises:
        UnsupportedVersionError, LogCorruptError: a row cannot be read.
    """
    moved: dict[int, LogStartsMoved] = {}
    last: dict[object, int] = {}
    about: dict[int, object] = {}
    living: dict[str, str] = {}
    moved_before: dict[str, int] = {}
    for row in rows:
        said = parse_row(row)
        if isinstance(said, LogStartsMoved):
            moved[row.seq] = said
            continue
        if isinstance(said, TopicChange):
            living[row.topic] = "" if said.deleted else row.topic_id
            if said.deleted:
                # An id may come back, as a mirror of what was its own mirror: that begins anew.
                moved_before[row.topic_id] = row.seq
        about[row.seq] = _subject(row, said)
        last[about[row.seq]] = row.seq
    highest = _highest([row for row in rows if row.seq > moved_before.get(row.topic_id, 0)], moved)
    told = _told(rows, moved, since_ms, moves_at_most)
    kept = []
    for row in rows:
        newest = row.seq in about and last[about[row.seq]] == row.seq
        if newest and row.kind in {REPLICAS, MIRROR} and row.topic_id:
            newest = living.get(row.topic) == row.topic_id
        if row is rows[-1] or row.seq in told or newest:
            kept.append(row)
        elif row.seq not in moved:
            kept += [row] if row.time_ms >= since_ms else []
        elif row.seq in highest and living.get(row.topic) == row.topic_id:
            kept.append(trimmed(row, moved[row.seq], highest[row.seq]))
    return kept


def _subject(row: MetadataRow, said: TopicChange | BrokerChange | ReplicatedTable | Mirrored | Defaults) -> object:
    """What a row is about: of the rows about one thing the last one counts."""
    if isinstance(said, TopicChange):
        return row.topic
    if isinstance(said, BrokerChange):
        return said.broker.id
    if isinstance(said, ReplicatedTable):
        return row.topic, row.topic_id, said.location
    if isinstance(said, Defaults):
        # A pair, as a topic may have that name.
        return DEFAULTS, ""
    return MIRROR, row.topic_id


def _highest(rows: Sequence[MetadataRow], moved: Mapping[int, LogStartsMoved]) -> dict[int, list[int]]:
    """By number of a row, the partitions whose log start it is that counts."""
    latest: dict[tuple[str, int], tuple[int, int]] = {}
    for row in rows:
        for partition, move in moved[row.seq].moves.items() if row.seq in moved else ():
            # A log start never moves back, so a row that says so changes nothing.
            if move.offset > latest.get((row.topic_id, partition), (-1, 0))[0]:
                latest[row.topic_id, partition] = move.offset, row.seq
    found: dict[int, list[int]] = {}
    for (_, partition), (_, seq) in latest.items():
        found.setdefault(seq, []).append(partition)
    return found


def _told(
    rows: Sequence[MetadataRow], moved: Mapping[int, LogStartsMoved], since_ms: int, at_most: int | None
) -> set[int]:
    """Rows of log starts that stay for people."""
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
    """The last row of each group's members, of each of its offsets and of each transactional id; all rows since a time.

    A group that is gone keeps its last members' row, and with it its generation, while another row of it is recent;
    then nothing of it stays. Of an offset that was deleted nothing has to stay, unless an older row of it does: the
    writer's clock may have been behind that of the one before. The same holds of a transactional id that is forgotten.

    Args:
        rows: all of the table, in `seq` order, which alone says what came after what.
        since_ms: rows stay whose time is at or after this, by their writers' clocks.
        at_most: only so many of the last rows can stay for their time; None for all.

    Raises:
        UnsupportedVersionError, LogCorruptError: a row cannot be read.
    """
    first = 0 if at_most is None else max(0, len(rows) - at_most)
    recent = {row.seq for row in rows[first:] if row.time_ms >= since_ms}
    state = GroupsState().applied(rows)
    last = {_group_key(row): row.seq for row in rows}
    known = {_group_key(row) for row in rows if row.seq in recent}
    groups = {row.group_id for row in rows if row.seq in recent and row.kind != TRANSACTION} | state.groups.keys()

    def counts(row: GroupRow) -> bool:
        """Whether something has to stay of what the row is about."""
        if row.kind == OFFSET:
            return row.offset is not None or _group_key(row) in known
        if row.kind == TRANSACTION:
            return row.group_id in state.transactions or _group_key(row) in known
        return row.group_id in groups

    return [
        row
        for row in rows
        if row.seq in recent or row is rows[-1] or (last[_group_key(row)] == row.seq and counts(row))
    ]


def _group_key(row: GroupRow) -> tuple[str, str, str | None, int | None]:
    return (
        (row.kind, row.group_id, row.topic, row.partition)
        if row.kind == OFFSET
        else (row.kind, row.group_id, None, None)
    )
