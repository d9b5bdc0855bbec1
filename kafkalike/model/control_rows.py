"""Control rows: all rows of a control table in, those that a compacted table keeps out.

The state that the kept rows make is the same, and so is the number of the last one. Rows younger than a time stay for
people: who moved a log start and why, how a group's offsets moved.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from kafkalike.model.cluster_state import TOPIC, MetadataRow
from kafkalike.model.group_state import OFFSET, GroupRow

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


def kept_metadata_rows(rows: Sequence[MetadataRow], since_ms: int) -> list[MetadataRow]:
    """The last row of each topic, the highest log start of a topic that exists, and all rows since a time."""
    last: dict[tuple[str, str, str], int] = {}
    highest: dict[tuple[str, str, str], int] = {}
    living: dict[str, str] = {}
    for row in rows:
        key, value = _metadata_key(row), json.loads(row.value)
        if row.kind == TOPIC:
            living[row.topic] = "" if value["deleted"] else row.topic_id
        elif value.get("offset", 0) <= highest.get(key, -1):
            # A log start never moves back, so a row that says so changes nothing.
            continue
        else:
            highest[key] = value.get("offset", 0)
        last[key] = row.seq
    return [
        row
        for row in rows
        if row.time_ms >= since_ms
        or row is rows[-1]
        or (last[_metadata_key(row)] == row.seq and (row.kind == TOPIC or living.get(row.topic) == row.topic_id))
    ]


def _metadata_key(row: MetadataRow) -> tuple[str, str, str]:
    if row.kind == TOPIC:
        return row.kind, row.topic, ""
    return row.kind, row.topic_id, str(json.loads(row.value).get("partition", ""))


def kept_group_rows(rows: Sequence[GroupRow], since_ms: int, at_most: int | None = None) -> list[GroupRow]:
    """The last row of each group's members and of each of its offsets, and all rows since a time.

    A group that is gone keeps its last members' row, as its generations must never fall; of an offset that was deleted
    nothing has to stay, unless an older row of it does: the writer's clock may have been behind that of the one before.

    Args:
        rows: all of the table, in `seq` order, which alone says what came after what.
        since_ms: rows stay whose time is at or after this, by their writers' clocks.
        at_most: only so many of the last rows can stay for their time; None for all.
    """
    first = 0 if at_most is None else max(0, len(rows) - at_most)
    recent = {row.seq for row in rows[first:] if row.time_ms >= since_ms}
    last = {_group_key(row): row.seq for row in rows}
    known = {_group_key(row) for row in rows if row.seq in recent}
    return [
        row
        for row in rows
        if row.seq in recent
        or row is rows[-1]
        or (
            last[_group_key(row)] == row.seq
            and (row.kind != OFFSET or row.offset is not None or _group_key(row) in known)
        )
    ]


def _group_key(row: GroupRow) -> tuple[str, str, str | None, int | None]:
    return (
        (row.kind, row.group_id, row.topic, row.partition)
        if row.kind == OFFSET
        else (row.kind, row.group_id, None, None)
    )
