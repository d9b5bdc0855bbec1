"""Maintenance report: the results, or the plan, of a run by topic, as values, JSON, rows, and metrics."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

DONE: Final = "done"
"""Everything that was due is done (or, in a dry run, planned)."""
NOTHING: Final = "nothing to do"
BUSY: Final = "busy"
"""Another run works on this topic."""
UNFINISHED: Final = "unfinished"
"""Time ran out, or keys did not fit into the buffer; the next run continues."""
FAILED: Final = "failed"
GONE: Final = "deleted"
"""The topic was deleted meanwhile."""


@dataclass(slots=True, kw_only=True)
class TopicReport:
    """The results for one topic."""

    topic: str
    status: str = NOTHING
    problems: list[str] = field(default_factory=list)
    """Failures and warnings, one line each."""
    seconds: float = 0.0

    log_starts: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Log start before and after, by partition."""
    deleted_segments: int = 0
    deleted_records: int = 0
    deleted_bytes: int = 0
    held_segments: int = 0
    """Segments past retention that wait for groups."""
    held_by: list[str] = field(default_factory=list)
    next_retention_ms: int | None = None
    """Time from which the next segment is too old, ms since 1970; None if no record expires by its age."""

    compacted_segments: int = 0
    """Number of files that lost records."""
    compacted_records: int = 0
    """Number of removed records."""
    compacted_tombstones: int = 0
    """Number of removed tombstones."""
    compacted_bytes: int = 0
    """Bytes by which the tables shrank; in a dry run, bytes of the files to rewrite."""
    compaction_reasons: dict[int, str] = field(default_factory=dict)
    """Why compaction was due, by partition."""

    merged_segments: int = 0
    merged_files: int = 0
    """Number of files that replaced them."""
    merged_bytes: int = 0
    """Bytes of the files that were merged."""

    vacuumed_files: int = 0
    vacuumed_bytes: int = 0

    @property
    def changed(self) -> bool:
        """True if there was anything to do."""
        counts = (self.deleted_segments, self.compacted_segments, self.merged_segments, self.vacuumed_files)
        return any(counts) or bool(self.log_starts)

    def as_dict(self) -> dict[str, Any]:
        """Return the results as a dict for JSON, with partitions as text."""
        values = asdict(self)
        values["log_starts"] = {str(p): list(moved) for p, moved in self.log_starts.items()}
        values["compaction_reasons"] = {str(p): why for p, why in self.compaction_reasons.items()}
        return values


@dataclass(slots=True, kw_only=True)
class ControlReport:
    """The results for one control table."""

    table: str
    rows_before: int = 0
    rows_after: int = 0
    vacuumed_files: int = 0
    problem: str = ""


@dataclass(slots=True, kw_only=True)
class MaintenanceReport:
    """The results of one run over a cluster."""

    run: str
    """Id of the run, which is recorded in the tables' histories and at each log start it moved."""
    root: str
    started_ms: int
    seconds: float = 0.0
    dry_run: bool = False
    topics: list[TopicReport] = field(default_factory=list)
    control: list[ControlReport] = field(default_factory=list)
    expired_offsets: int = 0
    """Committed offsets of groups that were empty for longer than `offsets.retention.minutes`."""
    cleared_folders: int = 0
    """Folders of deleted topics and of failed creations whose files were removed."""
    cleared_replicas: int = 0
    """Unassigned replicas whose data files were removed."""
    finished_transactions: int = 0
    """Committed transactions that were applied to topics without their records."""
    aborted_transactions: int = 0
    """Open transactions that were past their timeout."""
    forgotten_transactional_ids: int = 0
    """Transactional ids that were unused for `transactional.id.expiration.ms`."""
    problems: list[str] = field(default_factory=list)
    """Failures outside of topics."""

    @property
    def failed(self) -> bool:
        """True if work that was due failed."""
        return bool(self.problems) or any(t.status == FAILED for t in self.topics)

    @property
    def unfinished(self) -> bool:
        """True if work is left for the next run."""
        return any(t.status == UNFINISHED for t in self.topics)

    @property
    def exit_code(self) -> int:
        """0: done; 1: work failed; 3: time ran out and the next run continues."""
        if self.failed:
            return 1
        return 3 if self.unfinished else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dict for JSON."""
        values = asdict(self)
        values["topics"] = [topic.as_dict() for topic in self.topics]
        values["exit_code"] = self.exit_code
        return values


COUNTS: Final = {
    "deleted_segments": "Segments that retention took out of the topic in the last run.",
    "deleted_records": "Records that retention took out in the last run.",
    "deleted_bytes": "Bytes that retention took out in the last run.",
    "held_segments": "Segments past retention that wait for groups.",
    "compacted_records": "Records that compaction took out in the last run.",
    "compacted_bytes": "Bytes that compaction saved in the last run.",
    "merged_segments": "Small files that were merged in the last run.",
    "merged_files": "Files that took their place.",
    "vacuumed_files": "Files removed from disk in the last run.",
    "vacuumed_bytes": "Bytes removed from disk in the last run.",
}
"""Fields of a topic's report that become metrics, with their descriptions."""


def write_metrics(report: MaintenanceReport, path: str) -> None:
    """Write the results of a run as gauges `kafkalike_maintenance_…`, one series per topic, atomically.

    Args:
        report: a finished run.
        path: the file; its folder must exist.

    Raises:
        OSError: it cannot be written.
    """
    registry = CollectorRegistry()
    started = Gauge("kafkalike_maintenance_started_seconds", "When the last run began, Unix time.", registry=registry)
    started.set(report.started_ms / 1000)
    Gauge("kafkalike_maintenance_duration_seconds", "How long it took.", registry=registry).set(report.seconds)
    Gauge("kafkalike_maintenance_exit_code", "0 done, 1 failed, 3 unfinished.", registry=registry).set(report.exit_code)
    for name, meaning in COUNTS.items():
        gauge = Gauge(f"kafkalike_maintenance_{name}", meaning, ["topic"], registry=registry)
        for topic in report.topics:
            gauge.labels(topic=topic.topic).set(getattr(topic, name))
    write_to_textfile(path, registry)
