"""Ownership: histories of group members in, who believed to own which partition from when to when out."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tools.jepsen_checker import load


@dataclass(frozen=True, slots=True)
class Span:
    """A partition in one live member's hands; ns of the machine's monotonic clock."""

    partition: str
    owner: str
    start: int
    stop: int
    ended: str
    """`revoked`, `lost`, `stopped` (killed, or stopped by a signal), or `open`."""


def spans(folder: Path, group: str, stopped: Mapping[str, int]) -> list[Span]:
    """When each member of a group owned what, as it was told.

    A member is told of an assignment after the group's table says it, and gives it up before. One that lost its
    partitions noticed too late by nature: its span ends with its last commit that was accepted.

    Args:
        folder: holds one history per process.
        group: the group.
        stopped: when processes were killed or stopped; what they believed later does not count.
    """
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        found += _of_one([e for e in load(path) if e.get("group") == group], stopped)
    return found


def _of_one(events: list[dict[str, Any]], stopped: Mapping[str, int]) -> list[Span]:
    spans: list[Span] = []
    open_since: dict[str, int] = {}
    committed: dict[str, int] = {}

    def end(partition: str, owner: str, at: int, how: str) -> None:
        start = open_since.pop(partition)
        halt = stopped.get(owner, at)
        if start < halt <= at:
            at, how = min(at, halt), "stopped"
        if how == "lost":
            at = max(start, committed.get(partition, start))
        spans.append(Span(partition, owner, start, at, how))

    for event in (e for e in events if e["type"] == "ok"):
        owner, now = event["process"], event["time"]
        if event["f"] == "commit":
            committed.update(dict.fromkeys(event["value"], now))
        for partition in event.get("which", ()):
            if event["how"] == "assigned":
                open_since.setdefault(partition, now)
            elif partition in open_since:
                end(partition, owner, now, event["how"])
    for partition in list(open_since):
        last = max(e["time"] for e in events)
        end(partition, events[0]["process"], max(last, stopped.get(events[0]["process"], last)), "open")
    return spans


def overlaps(found: list[Span]) -> list[tuple[Span, Span]]:
    """Pairs of members that owned one partition at one time."""
    clashes = []
    by_partition: dict[str, list[Span]] = {}
    for span in sorted(found, key=lambda s: s.start):
        clashes += [
            (other, span)
            for other in by_partition.get(span.partition, ())
            if other.owner != span.owner and other.stop > span.start
        ]
        by_partition.setdefault(span.partition, []).append(span)
    return clashes
