"""Topic compaction: commit the passes that remove shadowed records; each key keeps its last value.

A pass over one partition (`compaction_pass`) reads and writes files, in this process or on another machine
(`file_tasks`). This process makes the table versions, one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafkalike.errors import CorruptRecordError, KafkaTimeoutError
from kafkalike.maintenance.file_tasks import IN_PROCESS, Tasks, where_possible
from kafkalike.maintenance.maintenance_commit import MaintenanceCommit, publish, publish_or_discard, still_live
from kafkalike.maintenance.works.compaction_pass import Cleaning, Looked, clean
from kafkalike.maintenance.works.file_rewrite import Replacement
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.maintenance.log_cleanup import Cleaned, CompactionPlan
from kafkalike.model.record_batch import cleaner_app

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.storage.port import Storage


_CHECKPOINT: Final = ("dirty", "horizon", "horizon_ms", "settled")


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePass:
    """A pass over one partition that is due."""

    plan: CompactionPlan
    """The segments to examine."""
    cleaned: Cleaned
    """The checkpoint on which the plan is based."""


@dataclass(slots=True, kw_only=True)
class Compacted:
    """The result, or the plan, of a pass over one partition."""

    records_before: int = 0
    """Number of records in the clean and the dirty part."""
    shadowed: int = 0
    """Number of removed records that a later record with the same key shadows."""
    tombstones: int = 0
    """Number of removed tombstones."""
    keyless: int = 0
    """Number of removed records without key; Kafka's cleaner drops them, too."""
    segments: int = 0
    """Number of files that were rewritten or dropped."""
    files: int = 0
    """Number of files that replaced them."""
    bytes_before: int = 0
    bytes_after: int = 0
    complete: bool = True
    """False if the keys did not fit into the buffer, or time ran out; the next run continues."""
    clean_end: int = 0
    """Offset below which everything is clean after the pass."""
    cleaned: Cleaned = field(default_factory=Cleaned)

    @property
    def gone(self) -> int:
        """Number of all removed records."""
        return self.shadowed + self.tombstones + self.keyless


def checkpoints_of(log: TopicLog) -> dict[int, Cleaned]:
    """Return the cleaner's checkpoint of each partition, as of the last `refresh`.

    Checkpoints are stored in the topic's table as versions of Delta applications, so they change atomically with the
    data and survive log cleaning.
    """
    return {
        p: Cleaned(**{name: log.txn_version(cleaner_app(p, name)) or 0 for name in _CHECKPOINT})
        for p in log.info.partitions
    }


def _checkpoint(partition: int, cleaned: Cleaned) -> dict[str, int]:
    return {cleaner_app(partition, name): getattr(cleaned, name) for name in _CHECKPOINT}


def compact(
    log: TopicLog,
    files: Storage,
    passes: Iterable[DuePass],
    run_id: str,
    *,
    clock: Clock,
    buffer_bytes: int,
    budget: Deadline,
    tasks: Tasks = IN_PROCESS,
    dry_run: bool = False,
) -> Iterator[Compacted]:
    """Compact partitions.

    Each table version is correct by itself: it only removes records that a live record with the same key follows, or
    tombstones that have been readable for long enough. An interrupted pass is repeated from the old checkpoint.

    Args:
        log: the topic.
        files: its files.
        passes: at most one for each partition; drawn when it can start.
        run_id: id of the maintenance run.
        clock: gives the end of a pass, from which the age of tombstones counts.
        buffer_bytes: memory for the keys of a partition's dirty part.
        budget: passes end early after it.
        tasks: reads and writes the files.
        dry_run: whether to count only.

    Yields:
        The result of each finished pass.

    Raises:
        CorruptRecordError: a file cannot be read; earlier changes stay.
        KafkaStorageError: the storage refused.
    """
    begun: dict[int, _Applied] = {}

    def jobs() -> Iterator[Cleaning]:
        for due in passes:
            partition = due.plan.partition
            begun[partition] = _Applied(log, due, run_id, dry_run=dry_run)
            yield Cleaning(
                files=files.tasks.sendable(files),
                plan=due.plan,
                start=max(due.cleaned.dirty, log.log_start(partition)),
                compression=log.config.compression_type,
                buffer_bytes=buffer_bytes,
                dry_run=dry_run,
            )

    try:
        for piece in where_possible(tasks, files).run(clean, jobs(), budget):
            if isinstance(piece, Replacement):
                begun[piece.partition].replace(piece)
            else:
                yield begun.pop(piece.partition).finish(piece, clock.now_ms())
    except CorruptRecordError as cause:
        if all(applied.reads_live_files() for applied in begun.values()):
            raise
        raise KafkaTimeoutError(f"{log.info.name}: another run has replaced its files meanwhile; try again") from cause


class _Applied:
    """Commits the results of a pass over one partition."""

    def __init__(self, log: TopicLog, due: DuePass, run_id: str, *, dry_run: bool) -> None:
        self._log = log
        self._due = due
        self._run_id = run_id
        self._dry_run = dry_run
        self._fenced = log.fenced
        self._done = Compacted()
        self._replaced: set[str] = set()

    def reads_live_files(self) -> bool:
        """Return whether all files that the pass still has to read are live."""
        plan = self._due.plan
        return still_live(self._log, (s for s in (*plan.clean, *plan.dirty) if s.path not in self._replaced))

    def replace(self, piece: Replacement) -> None:
        """Commit one replacement as a table version."""
        done = self._done
        done.segments += len(piece.removes)
        done.bytes_before += sum(s.size_bytes for s in piece.removes)
        done.files += piece.records_after > 0
        if self._dry_run:
            return
        if publish_or_discard(self._log, self._change(piece), self._run_id) is None:
            raise KafkaTimeoutError(
                f"{self._log.info.name}-{piece.partition}: another run has replaced its files meanwhile; try again"
            )
        self._replaced.update(s.path for s in piece.removes)
        done.bytes_after += 0 if piece.add is None else piece.add.size

    def _change(self, piece: Replacement) -> MaintenanceCommit:
        partition = piece.partition
        before = sum(s.num_records for s in piece.removes)
        return MaintenanceCommit(
            work="compaction",
            removes=piece.removes,
            adds=[] if piece.add is None else [piece.add],
            fenced=self._fenced,
            holes={partition: piece.end},
            facts={"partition": partition, "records_before": before, "records_after": piece.records_after},
        )

    def finish(self, looked: Looked, now_ms: int) -> Compacted:
        """Commit the checkpoint as a table version of its own, unless time ran out."""
        done, plan, cleaned = self._done, self._due.plan, self._due.cleaned
        done.records_before = looked.records_before
        done.shadowed, done.tombstones, done.keyless = looked.shadowed, looked.tombstones, looked.keyless
        done.complete, done.clean_end = looked.complete, looked.end
        if looked.stopped:
            return done
        done.cleaned = cleaned.after(looked.end, now_ms, plan.tombstones_below)
        if not self._dry_run and done.cleaned != cleaned:
            txns = _checkpoint(plan.partition, done.cleaned)
            change = MaintenanceCommit(work="compaction", txns=txns, facts={"partition": plan.partition})
            publish(self._log, change, self._run_id)
        return done
