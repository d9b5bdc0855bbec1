"""Forgotten: a run that was cut off in; the table versions that it had made all the same out."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from kafkalike.delta.actions import Add, TableCommit, log_name, parse_commit
from kafkalike.errors import CorruptRecordError, KafkaStorageError
from kafkalike.log.topic.segment_files import segment_of, sha256_of, versions
from kafkalike.log.topic.segment_rows import read_segment
from kafkalike.log.topic.topic_history import RUN_KEY
from kafkalike.model.maintenance.purge_certificate import FileHash, VersionMade
from kafkalike.model.maintenance.record_removal import runs_of

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.segments import Segment


def versions_of_run(log: TopicLog, run: str, known: Collection[int]) -> list[VersionMade]:
    """The table versions of a run that was killed before it could write them down.

    Args:
        log: the topic.
        run: id of the run.
        known: versions that are written down.

    Raises:
        KafkaStorageError: a file that one of them took out is gone: there is no saying any more what it held.
    """
    files = log.files
    found: list[TableCommit] = []
    sources: dict[str, Add] = {}
    for version in versions(files):
        try:
            commit = parse_commit(version, files.read(log_name(version)), files.uri)
        except FileNotFoundError:
            # Cleaned up meanwhile.
            continue
        sources |= {add.path: add for add in commit.adds}
        if commit.note.get(RUN_KEY) == run and commit.removes and version not in known:
            found.append(commit)
    return [made for commit in found for made in _made(log, commit, sources)]


def _made(log: TopicLog, commit: TableCommit, sources: dict[str, Add]) -> Iterator[VersionMade]:
    files = log.files
    try:
        before = [segment_of(sources[path], files) for path in commit.removes]
        after = [segment_of(add, files) for add in commit.adds]
        removed, added = _hashes(log, before), _hashes(log, after)
        for partition in sorted({s.partition for s in before}):
            kept = _offsets(log, [s for s in after if s.partition == partition])
            held = _offsets(log, [s for s in before if s.partition == partition])
            yield VersionMade(
                version=commit.version,
                partition=partition,
                removed=removed,
                added=added,
                offsets=runs_of(held - kept),
            )
    except (KeyError, FileNotFoundError, CorruptRecordError) as cause:
        raise KafkaStorageError(
            f"{log.info.name}: version {commit.version} is of this run, and what it took cannot be told any more: "
            f"{cause}; begin a new certificate"
        ) from cause


def _hashes(log: TopicLog, segments: Collection[Segment]) -> tuple[FileHash, ...]:
    return tuple(FileHash(path=s.path, size=s.size_bytes, sha256=sha256_of(log.files, s.path)) for s in segments)


def _offsets(log: TopicLog, segments: Collection[Segment]) -> set[int]:
    tables = (table for s in segments for table in read_segment(log.files, s, ("offset",)))
    return {offset for table in tables for offset in table.column("offset").to_pylist()}
