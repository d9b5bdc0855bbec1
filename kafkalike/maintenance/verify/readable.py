"""Readable: a topic's table at a version in; an error if its files are not the log that the topic's own readers read.

For readers that hand the table to Delta, which takes every file for what it is. Nothing is read but the table's log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalike.delta.table_loader import load_table
from kafkalike.errors import CorruptRecordError, DataLossError
from kafkalike.log.topic.segment_files import segment_of
from kafkalike.model.maintenance.compaction import HOLES, cleaner_app
from kafkalike.model.offsets import Gap, gaps_and_overlaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.segments import Segment


def check_readable(log: TopicLog, version: int | None = None) -> None:
    """Raise what a consumer that reads the whole topic would be told of its files.

    Args:
        log: the topic, fresh.
        version: of its table; None for the newest one. Log starts are those of now.

    Raises:
        CorruptRecordError: two records have one offset, or a file is of no partition of the topic.
        DataLossError: records are missing where neither compaction nor forgetting has taken them.
        LogCorruptError: there is no such version.
    """
    name, partitions = log.info.name, log.info.partitions
    if version is None or version == log.version:
        found = [(p, log.table_segments(p), log.log_end(p), log.holes_below(p)) for p in partitions]
        strays = log.strays
    else:
        state = load_table(log.files, segment_of, version)
        found = [
            (p, state.index.segments(p), state.end(p), state.txns.get(cleaner_app(p, HOLES), 0)) for p in partitions
        ]
        strays = []
    for segment in strays:
        raise CorruptRecordError(
            f"{name}: {log.files.uri}/{segment.path} holds offsets [{segment.start}, {segment.stop}) of partition "
            f"{segment.partition}, which the topic does not have{_more(name)}"
        )
    for partition, segments, end, holes_below in found:
        _check(f"{name}-{partition}", name, segments, range(log.log_start(partition), end), holes_below)


def _check(where: str, topic: str, segments: Sequence[Segment], live: range, holes_below: int) -> None:
    runs = [*(segment.offsets for segment in segments), range(live.stop, live.stop + 1)]
    for flaw in gaps_and_overlaps(0, runs, live.start):
        if not isinstance(flaw, Gap):
            at = f"[{flaw.doubled.start}, {flaw.doubled.stop})"
            raise CorruptRecordError(f"{where}: two files hold offsets in {at}{_more(topic)}")
        if flaw.missing.stop > holes_below:
            at = f"[{flaw.missing.start}, {flaw.missing.stop})"
            raise DataLossError(f"{where}: offsets {at} are missing: data loss{_more(topic)}")
    for segment in segments:
        width = segment.stop - segment.start
        if segment.num_records > width:
            raise CorruptRecordError(f"{where}: {segment.path} holds an offset twice{_more(topic)}")
        if segment.num_records < width and segment.start >= max(live.start, holes_below):
            raise DataLossError(
                f"{where}: {width - segment.num_records} offsets in [{segment.start}, {segment.stop}) are missing in "
                f"{segment.path}: data loss{_more(topic)}"
            )


def _more(topic: str) -> str:
    return (
        "; another writer of the table has changed its records. "
        f"Run `kafkalike verify --topic {topic}` and `kafkalike history --topic {topic}`"
    )
