"""Untouched log: whether a topic's table is the log of the topic's own readers, so that Delta may read it.

Delta takes every file for what it is. Nothing is read but the table's log. Of a table whose log has every version, and
none but the first did more than add, the files that are there are those that its versions have added, one after the
other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalike.delta.actions import log_name, parse_commit
from kafkalike.delta.table_state import load_table
from kafkalike.errors import CorruptRecordError, DataLossError, KafkaError
from kafkalike.log.topic.topic_commits import segment_of, versions
from kafkalike.model.maintenance.log_cleanup import HOLES, cleaner_app
from kafkalike.model.segments import Gap, gaps_and_overlaps
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.segments import Segment


MOST_VERSIONS: Final = 500
"""Versions that are read, at most: some 50 ms."""


def is_young(files: Storage, most: int = MOST_VERSIONS) -> bool:
    """Whether a table's log holds all its versions, and those have taken nothing away and changed no metadata.

    A table in an object store counts as none: each version would be a request.

    Args:
        files: the table.
        most: a table with more versions counts as none.
    """
    if files.scheduler.is_remote:
        return False
    there = list(versions(files))
    if not there or len(there) > most or there != list(range(len(there))):
        return False
    try:
        commits = (parse_commit(version, files.read(log_name(version)), files.uri) for version in there)
        return not any(commit.removes or (commit.version > 0 and commit.table_id) for commit in commits)
    except (KafkaError, OSError):
        # Delta's source tells it, whichever way it reads.
        return False


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
