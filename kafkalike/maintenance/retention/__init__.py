"""Retention: a cluster in, topics as long, as compact and in as few files as their settings say out.

Plans are the model's (`kafkalike.model.maintenance.retention`, `compaction`, `merging`); what changes tables is the
log's (`kafkalike.maintenance.upkeep.change` and its neighbours). Here they meet, in an order that survives a crash
between any two steps.
"""

from __future__ import annotations

from kafkalike.maintenance.retention.report import MaintenanceReport, TopicReport
from kafkalike.maintenance.retention.run import WORKS, maintain

__all__ = ["WORKS", "MaintenanceReport", "TopicReport", "maintain"]
