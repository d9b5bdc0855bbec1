"""MaintenanceConfig: the policies of maintenance for a topic, from its settings in effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from kafkalike.errors import InvalidConfigurationError
from kafkalike.model.config.properties import Value
from kafkalike.model.config.topic_config import TOPIC_PROPERTIES
from kafkalike.model.maintenance import log_cleanup

RETENTION_PARTS: Final = 10
"""Minimum number of merged files in the retained part of a partition, by time and by size. Whole files expire, so the
excess over the policy is at most one part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceConfig:
    """Maintenance policies of one topic."""

    retention: log_cleanup.RetentionPolicy
    compaction: log_cleanup.CompactionPolicy
    merging: log_cleanup.MergePolicy
    wait_groups: tuple[str, ...]
    """Groups that retention waits for."""
    wait_max_ms: int
    """Age, ms, above which retention does not wait."""
    wait_max_bytes: int
    """Bytes of a partition above which retention does not wait; -1 for no limit."""
    file_delete_delay_ms: int
    """Time, ms, that the file of a deleted segment stays on disk."""
    replaced_delay_ms: int
    """Time, ms, that a merged or compacted file stays on disk after its replacement."""

    @classmethod
    def from_properties(cls, effective: Mapping[str, str]) -> MaintenanceConfig:
        """Build from the settings in effect, in text form.

        Raises:
            InvalidConfigurationError: two settings contradict each other.
        """

        def get(name: str) -> Value:
            return TOPIC_PROPERTIES.check(name, effective.get(name, TOPIC_PROPERTIES.properties[name].default))

        number = cast("Callable[[str], int]", get)
        policy = cast("tuple[str, ...]", get("cleanup.policy"))
        clock = cast("log_cleanup.RetentionClock", get("kafkalike.retention.clock"))
        config = cls(
            retention=log_cleanup.RetentionPolicy(
                delete="delete" in policy,
                retention_ms=number("retention.ms"),
                retention_bytes=number("retention.bytes"),
                clock=clock,
            ),
            compaction=log_cleanup.CompactionPolicy(
                compact="compact" in policy,
                min_dirty_ratio=float(cast("float", get("min.cleanable.dirty.ratio"))),
                min_lag_ms=number("min.compaction.lag.ms"),
                max_lag_ms=number("max.compaction.lag.ms"),
                delete_retention_ms=number("delete.retention.ms"),
                segment_bytes=number("segment.bytes"),
                segment_ms=number("segment.ms"),
                clock=clock,
            ),
            merging=log_cleanup.MergePolicy(
                target_bytes=number("kafkalike.merge.bytes"),
                max_span_ms=number("segment.ms"),
                min_age_ms=number("kafkalike.merge.min.age.ms"),
            ),
            wait_groups=cast("tuple[str, ...]", get("kafkalike.retention.wait.groups")),
            wait_max_ms=number("kafkalike.retention.wait.max.ms"),
            wait_max_bytes=number("kafkalike.retention.wait.max.bytes"),
            file_delete_delay_ms=number("file.delete.delay.ms"),
            replaced_delay_ms=number("kafkalike.replaced.file.delay.ms"),
        )
        config._check()
        return config._with_merge_limits(number("segment.bytes"))

    def _check(self) -> None:
        retention, compaction = self.retention, self.compaction
        if compaction.min_lag_ms > compaction.max_lag_ms:
            raise InvalidConfigurationError(
                f"min.compaction.lag.ms={compaction.min_lag_ms} is above "
                f"max.compaction.lag.ms={compaction.max_lag_ms}: no record could be compacted in time"
            )
        if not self.wait_groups or not retention.delete:
            return
        if retention.retention_ms != log_cleanup.FOREVER and self.wait_max_ms < retention.retention_ms:
            raise InvalidConfigurationError(
                f"kafkalike.retention.wait.max.ms={self.wait_max_ms} is below retention.ms={retention.retention_ms}: "
                "retention would never wait"
            )
        if log_cleanup.FOREVER not in {self.wait_max_bytes, retention.retention_bytes} and (
            self.wait_max_bytes < retention.retention_bytes
        ):
            raise InvalidConfigurationError(
                f"kafkalike.retention.wait.max.bytes={self.wait_max_bytes} is below "
                f"retention.bytes={retention.retention_bytes}: retention would never wait"
            )

    def _with_merge_limits(self, segment_bytes: int) -> MaintenanceConfig:
        """Limit merged files so that retention can delete in small enough parts."""
        target, span = min(self.merging.target_bytes, segment_bytes), self.merging.max_span_ms
        retention = self.retention
        if retention.delete and retention.retention_bytes != log_cleanup.FOREVER:
            target = min(target, max(1, retention.retention_bytes // RETENTION_PARTS))
        if retention.delete and retention.retention_ms != log_cleanup.FOREVER:
            span = min(span, max(1, retention.retention_ms // RETENTION_PARTS))
        merging = log_cleanup.MergePolicy(target_bytes=target, max_span_ms=span, min_age_ms=self.merging.min_age_ms)
        return MaintenanceConfig(
            retention=retention,
            compaction=self.compaction,
            merging=merging,
            wait_groups=self.wait_groups,
            wait_max_ms=self.wait_max_ms,
            wait_max_bytes=self.wait_max_bytes,
            file_delete_delay_ms=self.file_delete_delay_ms,
            replaced_delay_ms=self.replaced_delay_ms,
        )
