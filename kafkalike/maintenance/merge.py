"""Merge: puts one large sorted file in the place of each run of adjacent small segments; no record changes.

Files are written without the topic's lock, wherever `tasks` says, then all of a round are put in place by one table
version with `dataChange=false`. A run that is cut off leaves a file that no commit names, which `vacuum` removes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from kafkalike.errors import CorruptRecordError
from kafkalike.maintenance.file_rewrite import codec_of, rewrite
from kafkalike.maintenance.file_tasks import IN_PROCESS, Tasks, where_possible
from kafkalike.maintenance.maintenance_commit import (
    NOT_COMMITTED,
    MaintenanceCommit,
    discard_all,
    publish_or_discard,
    still_live,
)
from kafkalike.model.clock import Deadline

if TYPE_CHECKING:
    from kafkalike.delta.actions import Add
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.maintenance.small_files import Run
    from kafkalike.model.segments import Segment
    from kafkalike.storage.port import Storage

ROUND_BYTES: Final = 256 * 1024 * 1024
ROUND_RUNS: Final = 64
"""What one table version puts in place at most: enough to make few versions, little enough to stop soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """One finished round."""

    segments: int
    """Files that were replaced."""
    files: int
    """Files that replaced them."""
    bytes_before: int
    bytes_after: int


def merge(
    log: TopicLog,
    files: Storage,
    runs: Sequence[Run],
    run_id: str,
    problems: list[str],
    *,
    budget: Deadline,
    tasks: Tasks = IN_PROCESS,
) -> Iterator[Merged]:
    """Merge the runs, round by round; the caller may stop after any of them.

    Args:
        log: the topic.
        files: its files.
        runs: from `plan_merges`; a round one of whose files is gone by now is left out.
        run_id: id of the maintenance run.
        problems: gets a line for each run that cannot be read and is left as it is.
        budget: when it has run out no round is begun.
        tasks: where files are read and written.

    Yields:
        What each round has done.

    Raises:
        KafkaStorageError, TopicDeletedError: the storage refused, or the topic is gone; earlier rounds stay done.
    """
    compression = log.config.compression_type
    jobs = (_Round(files.tasks.sendable(files), tuple(round_), compression, log.fenced) for round_ in _rounds(runs))
    for written in where_possible(tasks, files).run(_write, takewhile(lambda _: not budget.expired(), jobs), budget):
        problems += [why for run, why in written.problems if still_live(log, run)]
        if not (written.removes and _put_in_place(log, written, run_id)):
            continue
        yield Merged(
            segments=len(written.removes),
            files=len(written.adds),
            bytes_before=sum(s.size_bytes for s in written.removes),
            bytes_after=sum(a.size for a in written.adds),
        )


@dataclass(frozen=True, slots=True)
class _Round:
    """Runs that one table version puts in place."""

    files: Storage
    runs: tuple[Run, ...]
    compression: str
    fenced: int
    """See `MaintenanceCommit`."""


@dataclass(slots=True)
class _MergedFiles:
    """What a round has read and written."""

    fenced: int
    removes: list[Segment] = field(default_factory=list)
    adds: list[Add] = field(default_factory=list)
    problems: list[tuple[Run, str]] = field(default_factory=list)
    """Runs that cannot be read, and why."""


def _write(round_: _Round, budget: Deadline) -> Iterator[_MergedFiles]:
    """Write the files of a round, which is short: it is not cut off; a `Work` of `tasks`."""
    del budget
    written = _MergedFiles(round_.fenced)
    try:
        for run in round_.runs:
            try:
                added = rewrite(round_.files, run, codec_of(round_.files, round_.compression, run[-1]))
            except CorruptRecordError as error:
                written.problems.append((run, str(error)))
                continue
            if added is not None:
                written.adds.append(added)
                written.removes += run
    except NOT_COMMITTED:
        discard_all(round_.files, written.adds)
        raise
    yield written


def _put_in_place(log: TopicLog, written: _MergedFiles, run_id: str) -> bool:
    facts = {"segments": len(written.removes), "files": len(written.adds)}
    change = MaintenanceCommit(
        work="merge",
        removes=written.removes,
        adds=written.adds,
        fenced=written.fenced,
        facts=facts,
        data_change=False,
    )
    return publish_or_discard(log, change, run_id) is not None


def _rounds(runs: Sequence[Run]) -> Iterator[list[Run]]:
    round_: list[Run] = []
    size = 0
    for run in runs:
        round_.append(run)
        size += sum(s.size_bytes for s in run)
        if size >= ROUND_BYTES or len(round_) >= ROUND_RUNS:
            yield round_
            round_, size = [], 0
    if round_:
        yield round_
