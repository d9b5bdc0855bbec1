"""Metrics: a report in, a file for Prometheus's textfile collector out."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from kafkalike.maintenance.retention.report import MaintenanceReport

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
"""Fields of a topic's report that are published, with what they mean."""


def write_metrics(report: MaintenanceReport, path: str) -> None:
    """Write the figures of a run as gauges `kafkalike_maintenance_…`, one series per topic; the file appears whole.

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
