"""Replacing: segments that lose records in, files with what stays of them out; what compaction and removals share.

Nothing is committed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from kafkalike.errors import CorruptRecordError
from kafkalike.maintenance.upkeep.rewrite import Mask, codec_of, rewrite
from kafkalike.model.segments import Segment

if TYPE_CHECKING:
    from kafkalike.delta.actions import Add
    from kafkalike.storage.port import Storage

GROUP_ROWS: Final = 1_000_000
GROUP_BYTES: Final = 128 * 1024 * 1024
"""Records, and bytes, of files that one table version replaces at most, and so roughly the size of a compacted file."""

Masks = Mapping[str, Mask]
"""By file: which of its rows stay, in offset order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Neighbouring segments that lose records, and the file that is to take their place."""

    partition: int
    removes: tuple[Segment, ...]
    add: Add | None
    """None when no record stays, and in a dry run."""
    records_after: int
    end: int
    """Offset below which records are taken."""


def check_apart(segments: Sequence[Segment]) -> None:
    """Refuse segments of a partition that hold an offset twice: it is not clear which records are the log's.

    Raises:
        CorruptRecordError: naming two of them.
    """
    for before, after in pairwise(segments):
        if after.start < before.stop:
            raise CorruptRecordError(
                f"two files hold offsets in [{after.start}, {min(before.stop, after.stop)}): {before.path} and "
                f"{after.path}; partition {after.partition} is left as it is"
            )


def groups(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Neighbouring segments, as many as one table version replaces at most."""
    group: list[Segment] = []
    size = rows = 0
    for segment in segments:
        if group and (size + segment.size_bytes > GROUP_BYTES or rows + segment.num_records > GROUP_ROWS):
            yield group
            group, size, rows = [], 0, 0
        group.append(segment)
        size += segment.size_bytes
        rows += segment.num_records
    if group:
        yield group


def losing(group: Sequence[Segment], masks: Masks) -> Iterator[list[Segment]]:
    """Runs of neighbouring segments that lose records; one without a mask loses none."""
    run: list[Segment] = []
    for segment in group:
        if segment.path not in masks or masks[segment.path].all():
            if run:
                yield run
            run = []
        else:
            run.append(segment)
    if run:
        yield run


def replaced(
    files: Storage, run: Sequence[Segment], masks: Masks, compression: str, *, end: int, dry_run: bool
) -> Replacement:
    """Put what stays of a run of segments into one file.

    Args:
        files: the topic's table.
        run: neighbours, in offset order.
        masks: which rows stay.
        compression: the topic's `compression.type`.
        end: see `Replacement`.
        dry_run: only count.

    Raises:
        CorruptRecordError, KafkaStorageError: see `rewrite`.
    """
    kept = sum(int(masks[s.path].sum()) for s in run)
    added: Add | None = None
    if kept and not dry_run:
        codec = codec_of(files, compression, run[-1])
        added = rewrite(files, run, codec, lambda s: masks[s.path], data_change=True)
    return Replacement(partition=run[0].partition, removes=tuple(run), add=added, records_after=kept, end=end)
