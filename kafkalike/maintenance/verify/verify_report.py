"""Verify report: damage in a log, finding by finding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem in a log."""

    kind: str
    """Short name of the rule, for filters: `gap`, `overlap`, `missing-file` …"""
    message: str
    topic: str | None = None
    partition: int | None = None
    offsets: range | None = None
    """The affected offsets, half-open; None if the finding is not about offsets."""
    warning: bool = False
    """True if the log may still be intact."""

    def __str__(self) -> str:
        """Format the finding on one line: severity, place, offsets, kind and message."""
        place = self.topic or "cluster"
        if self.partition is not None:
            place += f"-{self.partition}"
        if self.offsets is not None:
            place += f" [{self.offsets.start}, {self.offsets.stop})"
        return f"{'WARNING' if self.warning else 'ERROR'} {place}: {self.kind}: {self.message}"

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as a dict for JSON; `offsets` is `[start, stop]`."""
        return {
            "severity": "warning" if self.warning else "error",
            "kind": self.kind,
            "topic": self.topic,
            "partition": self.partition,
            "offsets": None if self.offsets is None else [self.offsets.start, self.offsets.stop],
            "message": self.message,
        }


@dataclass(slots=True)
class VerifyReport:
    """The extent of a check, and its findings."""

    topics: int = 0
    partitions: int = 0
    segments: int = 0
    records: int = 0
    findings: list[Finding] = field(default_factory=list)

    def errors(self, *, strict: bool = False) -> int:
        """Return the number of errors; with `strict`, warnings count, too."""
        return sum(1 for finding in self.findings if strict or not finding.warning)


def finding(
    kind: str, message: str, topic: str, partition: int | None, offsets: range | None, *, warning: bool = False
) -> Finding:
    """Make a finding about a topic."""
    return Finding(kind=kind, message=message, topic=topic, partition=partition, offsets=offsets, warning=warning)


def one(offset: int) -> range:
    """Return a single offset as a range, for findings."""
    return range(offset, offset + 1)
