"""Topic maintenance: plan and apply the steps of one topic in one run, and fill its report."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.maintenance.file_tasks import Tasks
from kafkalike.maintenance.maintenance_commit import COMMIT_TIMEOUT_MS, delete_dead
from kafkalike.maintenance.maintenance_report import FAILED, UNFINISHED, TopicReport
from kafkalike.maintenance.works.file_rewrite import merge
from kafkalike.maintenance.works.topic_compaction import Compacted, DuePass, checkpoints_of, compact
from kafkalike.maintenance.works.vacuum import ORPHAN_MS, Delays, leftovers, log_reach_ms, vacuum
from kafkalike.model import faults
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.config.maintenance_config import MaintenanceConfig
from kafkalike.model.maintenance import log_cleanup
from kafkalike.model.structs import TopicPartition
from kafkalike.replication.mirrors.data_file_copy import LEFT_MS

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.topic import TopicInfo


RETENTION: Final = "retention"
"""The reason that is recorded at each log start that a run moves."""

DAY_MS: Final = 86_400_000
"""Default retention of a topic table's log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The settings of a maintenance run, common to all topics."""

    run: str
    """Id of the run."""
    works: frozenset[str]
    """Kinds of work to do."""
    dry_run: bool
    """Report only, without changes."""
    clock: Clock
    budget: Deadline
    """Time limit; no new work starts after it."""
    buffer_bytes: int
    """Memory for the keys of a compaction pass, bytes."""
    tasks: Tasks
    """Reads and rewrites files."""


class TopicMaintenance:
    """The maintenance of one topic in one run.

    Args:
        cluster: the cluster.
        info: the topic, as the run has read it.
        settings: of the run.
        report: the topic's report, with its name; filled during the work.
        progress: called with the name of each piece of work that starts.
    """

    def __init__(
        self,
        cluster: Cluster,
        info: TopicInfo,
        settings: RunSettings,
        report: TopicReport,
        progress: Callable[[str], None],
    ) -> None:
        self.topic_id = str(info.topic_id)
        """Id of the topic, because another one may get its name meanwhile."""
        self._cluster = cluster
        self._info = info
        self._settings = settings
        self._report = report
        self._progress = progress

    def go(self) -> None:
        """Run all steps in order.

        The table is read once, and each step plans by it. Only a step that is due reads it again before it changes
        anything, so a run with nothing due costs one look at each table.

        Raises:
            KafkaError: a step failed; earlier steps are done.
        """
        self._go_over_table(self._cluster.open(self._info))

    def _look_again(self, log: TopicLog) -> MaintenanceConfig:
        """Refresh the topic before a change, and return the current settings.

        The state that the run read at its start, or before earlier steps, may be hours old.
        """
        log.refresh()
        return self._config(log)

    def _config(self, log: TopicLog) -> MaintenanceConfig:
        return MaintenanceConfig.from_properties(self._cluster.server.effective(log.info.configs))

    def _go_over_table(self, log: TopicLog) -> None:
        if log.info.mirror is not None:
            # A mirror's maintenance is mirrored from its source; only files that leave the table are removed here.
            if "vacuum" in self._settings.works:
                self._progress("vacuum")
                self._vacuum(log, self._config(log))
            return
        # If a foreign writer has rewound the table, files that look dead may be the only copy of its records.
        log.check_appendable()
        log.check_removable()
        # Nor may files be written beside a table that takes no versions.
        log.check_known_sound()
        if not self._settings.dry_run and not log.is_closed_as_set:
            # The table was made by an earlier release, or a change of the setting was interrupted.
            log.apply_foreign_writes(Deadline(self._settings.clock, COMMIT_TIMEOUT_MS))
        config = self._config(log)
        if "retention" in self._settings.works:
            self._retain(log, config)
        steps: list[tuple[str, Callable[[TopicLog, MaintenanceConfig], None]]] = [
            ("compaction", self._compact),
            ("merge", self._merge),
            ("vacuum", self._vacuum),
        ]
        for work, step in steps:
            if work in self._settings.works:
                if self._stop():
                    return
                self._progress(work)
                step(log, config)

    def _stop(self) -> bool:
        if not self._settings.budget.expired():
            return False
        self._report.status = UNFINISHED
        return True

    # --- retention -----------------------------------------------------------------------------

    def _retain(self, log: TopicLog, config: MaintenanceConfig) -> None:
        """Move log starts up, and drop segments below them."""
        self._progress("retention")
        plans = self._retention_plans(log, config)
        if any(plan.moves for plan in plans):
            plans = self._retention_plans(log, self._look_again(log))
        starts = {p.partition: p.new_log_start for p in plans if p.moves}
        report = self._report
        report.log_starts = {p.partition: (p.log_start, p.new_log_start) for p in plans if p.moves}
        report.held_segments = sum(len(p.held) for p in plans)
        report.held_by = sorted({group for p in plans for group in p.held_by})
        report.next_retention_ms = min((p.next_ms for p in plans if p.next_ms is not None), default=None)
        gone = [segment for p in plans for segment in p.goes]
        if not self._settings.dry_run:
            if starts:
                self._cluster.move_log_start(
                    log.info.name, starts, RETENTION, self._settings.run, log.info.topic_id, log=log
                )
                faults.point("retention.after_log_start")
            gone = delete_dead(log, self._settings.run) if gone else []
        report.deleted_segments = len(gone)
        report.deleted_records = sum(s.num_records for s in gone)
        report.deleted_bytes = sum(s.size_bytes for s in gone)

    def _retention_plans(self, log: TopicLog, config: MaintenanceConfig) -> list[log_cleanup.RetentionPlan]:
        waiting = holds(self._cluster, log, config)
        now = self._settings.clock.now_ms()
        return [
            log_cleanup.plan_retention(
                p,
                log.table_segments(p),
                log_start=log.log_start(p),
                now_ms=now,
                policy=config.retention,
                hold=waiting.get(p),
            )
            for p in log.info.partitions
        ]

    # --- compaction ----------------------------------------------------------------------------

    def _compact(self, log: TopicLog, config: MaintenanceConfig) -> None:
        if not config.compaction.compact:
            return
        for done in compact(
            log,
            log.files,
            self._due_passes(log, config),
            self._settings.run,
            clock=self._settings.clock,
            buffer_bytes=self._settings.buffer_bytes,
            budget=self._settings.budget,
            tasks=self._settings.tasks,
            dry_run=self._settings.dry_run,
        ):
            self._count(done)

    def _due_passes(self, log: TopicLog, config: MaintenanceConfig) -> Iterator[DuePass]:
        """Yield the passes that are due, each planned when it can start."""
        checkpoints = checkpoints_of(log)
        for partition in log.info.partitions:
            if self._stop():
                return
            cleaned, now_ms = checkpoints[partition], self._settings.clock.now_ms()
            if not log_cleanup.plan_compaction(
                partition, log.segments(partition), cleaned, now_ms, config.compaction
            ).due:
                continue
            compaction = self._look_again(log).compaction
            cleaned = checkpoints_of(log)[partition]
            plan = log_cleanup.plan_compaction(partition, log.segments(partition), cleaned, now_ms, compaction)
            if compaction.compact and plan.due:
                self._report.compaction_reasons[partition] = plan.reason
                yield DuePass(plan=plan, cleaned=cleaned)

    def _count(self, done: Compacted) -> None:
        report = self._report
        report.compacted_segments += done.segments
        report.compacted_records += done.gone
        report.compacted_tombstones += done.tombstones
        report.compacted_bytes += done.bytes_before - done.bytes_after
        if done.keyless:
            report.problems.append(f"records without key removed, because compaction cannot keep them: {done.keyless}")
        if not done.complete:
            report.status = UNFINISHED

    # --- merging -------------------------------------------------------------------------------

    def _merge(self, log: TopicLog, config: MaintenanceConfig) -> None:
        report = self._report
        runs = self._merge_plans(log, config)
        if runs:
            runs = self._merge_plans(log, self._look_again(log))
        if not runs:
            return
        if self._settings.dry_run:
            report.merged_segments = sum(map(len, runs))
            report.merged_files = len(runs)
            report.merged_bytes = sum(s.size_bytes for run in runs for s in run)
            return
        settings, told = self._settings, len(report.problems)
        merged = merge(
            log, log.files, runs, settings.run, report.problems, budget=settings.budget, tasks=settings.tasks
        )
        for done in merged:
            report.merged_segments += done.segments
            report.merged_files += done.files
            report.merged_bytes += done.bytes_before
        self._stop()
        if len(report.problems) > told:  # segments that cannot be read
            report.status = FAILED

    def _merge_plans(self, log: TopicLog, config: MaintenanceConfig) -> list[log_cleanup.Run]:
        now = self._settings.clock.now_ms()
        runs: list[log_cleanup.Run] = []
        for partition in log.info.partitions:
            # In a dry run, the log start has not moved yet.
            start = self._report.log_starts.get(partition, (0, 0))[1]
            live = [s for s in log.segments(partition) if s.stop > start]
            dense = [s.start for s in live[1:]] == [s.stop for s in live[:-1]]
            runs += log_cleanup.plan_merges(live, now, config.merging, 0 if dense else log.holes_below(partition))
        return runs

    # --- unneeded files ------------------------------------------------------------------------

    def _vacuum(self, log: TopicLog, config: MaintenanceConfig) -> None:
        report, files = self._report, log.files
        delays = _delays(config)

        def live() -> Collection[str]:
            log.refresh()
            return log.live_paths()

        def exclusive() -> AbstractContextManager[None]:
            return log.exclusive(Deadline(self._settings.clock, COMMIT_TIMEOUT_MS))

        longest = max(delays.deleted_ms, delays.replaced_ms)
        if longest > DAY_MS and longest > (reach := log_reach_ms(files)):
            report.problems.append(
                f"files stay for {reach} ms and not for {longest} ms after they left the table, because its log "
                "reaches no further back (delta.logRetentionDuration)"
            )
        mirror = log.info.mirror
        # Files that no version of a mirror names will probably be named by its next version.
        orphan_ms = ORPHAN_MS if mirror is None else LEFT_MS if mirror.version >= 0 else math.inf
        due = leftovers(files, live, self._settings.clock.now_ms(), delays, orphan_ms, known=log.live_paths())
        if due and (delays := _delays(self._look_again(log))) != _delays(config):
            due = leftovers(files, live, self._settings.clock.now_ms(), delays, orphan_ms)
        if self._settings.dry_run:
            report.vacuumed_files, report.vacuumed_bytes = len(due), sum(file.size for file in due)
            return
        if mirror is None and any(not file.was_live for file in due):
            # A writer that paused before its commit may still use these files.
            log.fence(Deadline(self._settings.clock, COMMIT_TIMEOUT_MS))
        for file in vacuum(files, due, live, exclusive, self._stop):
            report.vacuumed_files += 1
            report.vacuumed_bytes += file.size
        log.clean_log()


def _delays(config: MaintenanceConfig) -> Delays:
    return Delays(deleted_ms=config.file_delete_delay_ms, replaced_ms=config.replaced_delay_ms)


def holds(cluster: Cluster, log: TopicLog, config: MaintenanceConfig) -> Mapping[int, log_cleanup.RetentionHold]:
    """Return by partition the reads that retention must wait for; empty if the topic waits for no groups.

    A group without a committed offset for this topic id holds a partition from its log start, so that a group that is
    named before its first read misses no records. `max_ms` limits the wait.
    """
    if not config.wait_groups:
        return {}
    state = cluster.groups.refresh()
    made = {}
    for partition in log.info.partitions:
        where = TopicPartition(log.info.name, partition)
        offsets = {}
        for group_id in config.wait_groups:
            commit = state.group(group_id).offsets.get(where)
            known = commit is not None and commit.topic_id in {"", log.info.topic_id}
            offsets[group_id] = commit.position.offset if commit is not None and known else log.log_start(partition)
        made[partition] = log_cleanup.RetentionHold(
            offsets=offsets, max_ms=config.wait_max_ms, max_bytes=config.wait_max_bytes
        )
    return made
