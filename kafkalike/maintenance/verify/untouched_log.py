"""Untouched log: check that Delta sees the same records in a topic's table as the topic's own readers.

Delta reads every live file as it is. Only the table's log is read here. If the log has every version, and all versions
after the first one only added files, the live files are exactly the appended ones, in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalike.delta.actions import log_name, parse_commit
from kafkalike.delta.table_state import load_table
from kafkalike.errors import CorruptRecordError, DataLossError, KafkaError
from kafkalike.log.topic.topic_commits import segment_of, versions
from kafkalike.model.record_batch import HOLES, cleaner_app
from kafkalike.model.segments import Gap, Segment, gaps_and_overlaps
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalike.log.topic.topic_log import TopicLog


MOST_VERSIONS: Final = 500
"""Maximum number of versions to read; about 50 ms."""


def is_young(files: Storage, most: int = MOST_VERSIONS) -> bool:
    """Return whether a table's log has all versions, none of which removed files or changed metadata.

    A table in an object store does not count as young, because each version would take a request.

    Args:
        files: the table.
        most: a table with more versions does not count as young.
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
        # Delta's source will raise it, however it reads.
        return False


def check_readable(log: TopicLog, version: int | None = None) -> None:
    """Raise the error that a consumer of the whole topic would meet in its files.

    Args:
        log: the topic, refreshed.
        version: of its table; None: the newest one. Log starts are the current ones.

    Raises:
        CorruptRecordError: two records have one offset, or a file belongs to an unknown partition.
        DataLossError: records are missing that neither compaction nor forgetting has removed.
        LogCorruptError: the version does not exist.
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
                f"{where}: offsets in [{segment.start}, {segment.stop}) are missing in {segment.path}, "
                f"{width - segment.num_records} in all: data loss{_more(topic)}"
            )


def _more(topic: str) -> str:
    return (
        "; another writer of the table has changed its records. "
        f"Run `kafkalike verify --topic {topic}` and `kafkalike history --topic {topic}`"
    )
