"""Deletion: table versions of a topic without chosen records; everything else stays as it is.

`deletion_task` finds what goes and writes files, wherever `tasks` runs it; this process makes the table versions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalike.delta.table_change import maintenance_turn
from kafkalike.errors import CorruptRecordError, KafkaTimeoutError
from kafkalike.maintenance.deletion_task import Removed, Removing, find_and_remove
from kafkalike.maintenance.file_tasks import IN_PROCESS, Tasks, where_possible
from kafkalike.maintenance.maintenance_commit import (
    COMMIT_TIMEOUT_MS,
    MaintenanceCommit,
    discard_all,
    publish_or_discard,
    still_live,
)
from kafkalike.maintenance.vacuum import Leftover, vacuum
from kafkalike.model import faults
from kafkalike.model.clock import Deadline
from kafkalike.model.concurrency import OnError
from kafkalike.model.maintenance.record_removal import Taking, count

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog


class Remover:
    """Takes records out of one topic.

    Args:
        log: the topic.
        run: id that is noted in the table's history.
        work: what the history calls it, a key of `OPERATIONS`.
        facts: what else it says.
        budget: nothing new is begun when it has run out.
        tasks: where files are read and written.
    """

    def __init__(
        self,
        log: TopicLog,
        run: str,
        *,
        work: str,
        facts: Mapping[str, Any],
        budget: Deadline,
        tasks: Tasks = IN_PROCESS,
    ) -> None:
        self._log = log
        self._run = run
        self._work = work
        self._facts = facts
        self._budget = budget
        self._tasks = tasks

    def found(self, takings: Mapping[int, Taking], *, by_key: bool = False) -> Iterator[Removed]:
        """What would go, partition by partition; nothing is written.

        Args:
            takings: the records, by partition.
            by_key: see `Removing`.

        Raises: see `removed`.
        """
        self._log.refresh()
        return self._pieces(takings, dry_run=True, hashed=False, by_key=by_key)

    def removed(self, takings: Mapping[int, Taking]) -> Iterator[tuple[int, Removed]]:
        """Take the records out, each piece by a table version of its own.

        A run that is cut off leaves some of them; made again, it goes on. What others do to the table meanwhile costs
        that partition a second look, and no more.

        Yields:
            The version, and what it took, as soon as it is made.

        Raises:
            CorruptRecordError: a file cannot be read; what was done before stays.
            KafkaTimeoutError: time ran out; what was done before stays.
            KafkaStorageError, UnknownOutcomeError, PolicyViolationError, TopicDeletedError: see `Table.change`.
        """
        left = dict(takings)
        while left:
            self._log.refresh()
            fenced = self._log.fenced
            again: set[int] = set()
            for piece in self._pieces(left, dry_run=False, hashed=True, by_key=False):
                partition = piece.replacement.partition
                if partition in again:
                    self._discard([piece])
                    continue
                version = self._publish([piece], fenced)
                if version is None:
                    again.add(partition)
                    continue
                yield version, piece
            left = {p: taking for p, taking in left.items() if p in again}
            self._check_time(left)

    def removed_at_once(self, takings: Mapping[int, Taking]) -> tuple[int | None, list[Removed]]:
        """Take the records out by one table version: all of them or none.

        Returns:
            The version, and what it took; None where there is nothing to take.

        Raises: see `removed`.
        """
        while True:
            self._log.refresh()
            fenced = self._log.fenced
            pieces = list[Removed]()
            with OnError(partial(self._discard, pieces)):
                pieces.extend(self._pieces(takings, dry_run=False, hashed=False, by_key=False))
            if not pieces:
                return None, []
            version = self._publish(pieces, fenced)
            if version is not None:
                return version, pieces
            self._check_time(takings)

    def _discard(self, pieces: Sequence[Removed]) -> None:
        discard_all(self._log.files, _adds(pieces))

    def _check_time(self, left: Mapping[int, Taking]) -> None:
        if left and self._budget.expired():
            name = self._log.info.name
            raise KafkaTimeoutError(f"{name}: others were at its files until time ran out; run it again")

    def _pieces(self, takings: Mapping[int, Taking], *, dry_run: bool, hashed: bool, by_key: bool) -> Iterator[Removed]:
        log = self._log
        done: set[str] = set()
        jobs = [
            Removing(
                files=log.files.tasks.sendable(log.files),
                partition=partition,
                segments=tuple(log.table_segments(partition)),
                taking=taking,
                compression=log.config.compression_type,
                dry_run=dry_run,
                hashed=hashed,
                by_key=by_key,
            )
            for partition, taking in sorted(takings.items())
        ]
        try:
            for piece in where_possible(self._tasks, log.files).run(find_and_remove, jobs, self._budget):
                done.update(s.path for s in piece.replacement.removes)
                yield piece
        except CorruptRecordError as cause:
            if still_live(log, (s for job in jobs for s in job.segments if s.path not in done)):
                raise
            raise KafkaTimeoutError(f"{log.info.name}: another run has been at its files; try again") from cause

    def _publish(self, pieces: Sequence[Removed], fenced: int) -> int | None:
        holes: dict[int, int] = {}
        for piece in pieces:
            at = piece.replacement.partition
            holes[at] = max(holes.get(at, 0), piece.replacement.end)
        records = sum(count(piece.offsets) for piece in pieces)
        where: dict[str, Any] = {"partition": next(iter(holes))} if len(holes) == 1 else {"partitions": sorted(holes)}
        change = MaintenanceCommit(
            work=self._work,
            removes=[s for piece in pieces for s in piece.replacement.removes],
            adds=_adds(pieces),
            holes=holes,
            fenced=fenced,
            facts={**where, "records": records, **self._facts},
        )
        return publish_or_discard(self._log, change, self._run)


def _adds(pieces: Sequence[Removed]) -> list[Any]:
    return [piece.replacement.add for piece in pieces if piece.replacement.add is not None]


def ready_to_remove(log: TopicLog) -> None:
    """Refuse a topic from whose table nothing may be taken, before any work.

    Raises:
        PolicyViolationError: the table is append-only.
        UnsupportedVersionError: a foreign writer has asked something of it that we do not honour.
        LogCorruptError: it is damaged, was replaced or rewound.
        UnsafeStorageError: its files can only be read here.
    """
    log.files.coordination.check_writable()
    log.ready_to_append()
    log.check_removable()
    log.check_sound()


@contextlib.contextmanager
def without_maintenance(cluster: Cluster, topic: str) -> Iterator[None]:
    """Keep maintenance runs away from a topic, where the root has locks.

    Raises:
        KafkaTimeoutError: one was at it for a minute.
    """
    with cluster.store.coordination.turn(maintenance_turn(topic), Deadline(cluster.clock, COMMIT_TIMEOUT_MS)):
        yield


def remove_files(log: TopicLog, paths: Collection[str]) -> list[str]:
    """Remove data files at once that a table version has taken out; one that is part of the table again stays.

    No writer can be about to commit one of them, as each was in the table before. Readers of ours that had one in hand
    look the log up again; a query of another engine that began before may fail.

    Args:
        log: the topic.
        paths: the files.

    Returns:
        Those that are gone.
    """

    def live() -> Collection[str]:
        log.refresh()
        return log.live_paths()

    faults.point("remove.before_files")
    due = [Leftover(path, 0, was_live=True) for path in paths]
    return [file.path for file in vacuum(log.files, due, live, partial(contextlib.nullcontext))]
