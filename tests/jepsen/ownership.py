"""Ownership: histories of group members in, who used which partition as its own from when to when out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.jepsen.checker import load

NS_PER_MS = 1_000_000
BEFORE_NS = 2_000 * NS_PER_MS
AFTER_NS = 300 * NS_PER_MS
SLOW_NS = 1_000 * NS_PER_MS
"""A commit whose answer took longer may have been done long before it came, in a bad network longer than a session."""
MOST_LINES = 60
"""Of what `explained` shows of one clash."""


@dataclass(frozen=True, slots=True)
class Span:
    """A partition in one live member's hands; ns of the machine's monotonic clock."""

    partition: str
    owner: str
    start: int
    stop: int
    ended: str
    """`revoked`, `lost`, `stopped` (killed, or stopped by a signal), or `open`."""
    generation: int | None = None
    """In which it began; None where the member did not say."""
    landed: int | None = None
    """Generation in which the group accepted the last commit of it; None where nothing was, or it is not known."""
    answered: int = 0
    """When the answer to that commit was there."""


def spans(folder: Path, group: str, stopped: Mapping[str, Sequence[int]]) -> list[Span]:
    """When each member of a group owned what, as it was told and as it made use of it.

    A member is told of an assignment after the group's table says it, and gives it up before. One that lost its
    partitions noticed too late by nature: its span ends when it began the last poll that gave it records, or the last
    commit that was accepted. So it is where what was revoked was committed first and the answer took very long: a
    commit counts from when the group accepts it, which is between its begin and its answer, and others may have got the
    partitions while the answer was on its way. When it was accepted, its generation tells: see `overlaps`. A poll that
    was under way when its process was stopped is judged by its begin: nobody can say from outside whether the records
    had been handed out by then (tests/contract/log/test_group_lease.py can).

    Args:
        folder: holds one history per process.
        group: the group.
        stopped: by process, when it was killed or stopped; what it believed to own then does not count from there.
    """
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        events = load(path)
        if any(event.get("group") == group for event in events):
            found += _Member(stopped.get(path.stem, ())).read(events)
    return found


class _Member:
    """The history of one member, event by event."""

    def __init__(self, stopped: Sequence[int]) -> None:
        self._stopped = stopped
        self._spans: list[Span] = []
        self._open: dict[str, int] = {}
        """By partition, when it was assigned."""
        self._used: dict[str, int] = {}
        """By partition, when something began that only its owner may do."""
        self._landed: dict[str, tuple[int | None, int]] = {}
        """By partition, generation and answer of the last commit that was accepted."""
        self._begun: dict[str, int] = {}
        self._generations: dict[int, int] = {}
        self._refused = False
        """Whether the last commit was refused."""
        self._slow = False
        """Whether it took long."""

    def read(self, events: Sequence[dict[str, Any]]) -> list[Span]:
        for event in events:
            if event["type"] == "invoke":
                self._begun[event["f"]] = event["time"]
            else:
                self._done(event, event["type"] == "ok")
        last = events[-1]
        for partition in list(self._open):
            self._end(partition, last["process"], max(last["time"], *self._stopped, 0), "open")
        return self._spans

    def _done(self, event: dict[str, Any], ok: bool) -> None:  # noqa: FBT001
        f = event["f"]
        if f == "commit":
            self._refused = not ok
            self._slow = event["time"] - self._begun[f] > SLOW_NS
        if f in {"commit", "poll"} and ok:
            self._used.update(dict.fromkeys(_touched(event), self._begun[f]))
        if f == "commit" and ok:
            self._landed.update(dict.fromkeys(_touched(event), (event.get("generation"), event["time"])))
        for partition in event.get("which", ()):
            if event["how"] == "assigned":
                self._open.setdefault(partition, event["time"])
            elif partition in self._open:
                # What is revoked is committed first; one who may not do that owns it no more.
                how = "lost" if self._refused else event["how"]
                self._end(partition, event["process"], event["time"], how)
        if f == "assignment":
            for span_start in self._open.values():
                self._generations.setdefault(span_start, event["generation"])

    def _end(self, partition: str, owner: str, at: int, how: str) -> None:
        start = self._open.pop(partition)
        if how == "lost" or (how == "revoked" and self._slow):
            at = max(start, self._used.get(partition, start))
        halt = min((s for s in self._stopped if start < s <= at), default=None)
        if halt is not None:
            at, how = halt, "stopped"
        landed, answered = self._landed.get(partition, (None, 0))
        self._spans.append(
            Span(
                partition=partition,
                owner=owner,
                start=start,
                stop=at,
                ended=how,
                generation=self._generations.get(start),
                landed=landed if answered > start else None,
                answered=answered,
            )
        )


def _touched(event: dict[str, Any]) -> Sequence[str]:
    """The partitions that a poll gave records of, or that were committed."""
    value = event["value"]
    return [p for p, records in value[0][1].items() if records] if event["f"] == "poll" else list(value)


def overlaps(found: list[Span]) -> list[tuple[Span, Span]]:
    """Pairs of members that owned one partition at one time.

    By the clock. And by generations, which need none: a commit that the group accepted in the generation in which the
    other member had got the partition, or in a later one, was accepted after that, whenever it was begun.
    """
    clashes = []
    by_partition: dict[str, list[Span]] = {}
    for span in sorted(found, key=lambda s: s.start):
        clashes += [
            (other, span)
            for other in by_partition.get(span.partition, ())
            if other.owner != span.owner and (span.start < min(other.stop, span.stop) or _committed_late(other, span))
        ]
        by_partition.setdefault(span.partition, []).append(span)
    return clashes


def _committed_late(one: Span, after: Span) -> bool:
    """Whether a member's last commit was accepted when a later owner had the partition already."""
    if one.landed is None or after.generation is None or not after.start < one.answered:
        return False
    return one.landed >= after.generation


def reread(folder: Path, group: str) -> tuple[int, list[str]]:
    """Return how many records members read again, and those reads that commits rule out.

    A member that gets a partition may read again what its former owner has read and not committed. It must not read
    what was committed before it got the partition.

    Args:
        folder: holds one history per process.
        group: the group.
    """
    members = [load(path) for path in sorted(folder.glob("*.jsonl"))]
    committed = _committed([event for events in members for event in events], group)
    seen: Counter[tuple[str, int]] = Counter()
    wrong = []
    for events in members:
        since: dict[str, int] = {}
        for event in events:
            if event["type"] != "ok":
                continue
            if event.get("how") == "assigned":
                since |= dict.fromkeys(event["which"], event["time"])
            elif event["f"] == "poll":
                for partition, records in event["value"][0][1].items():
                    seen.update((partition, offset) for offset, _ in records)
                    before = [offset for at, offset in committed.get(partition, ()) if at < since.get(partition, 0)]
                    if records and before and records[0][0] < max(before):
                        wrong.append(f"{event['process']} read {partition} from {records[0][0]} on after {max(before)}")
    return sum(count - 1 for count in seen.values()), wrong


def _committed(events: Iterable[dict[str, Any]], group: str) -> dict[str, list[tuple[int, int]]]:
    """Return by partition when a commit was accepted, and its offset."""
    found: dict[str, list[tuple[int, int]]] = {}
    for event in events:
        if event["f"] == "commit" and event["type"] == "ok" and event.get("group") == group:
            for partition, offset in event["value"].items():
                found.setdefault(partition, []).append((event["time"], offset))
    return found


def explained(folder: Path, clashes: Sequence[tuple[Span, Span]]) -> str:
    """Both spans of each clash, and what their owners did around it; times in ms from the begin of the later one."""
    return "\n".join(line for clash in clashes for line in _story(folder, *clash))


def _story(folder: Path, one: Span, other: Span) -> Iterator[str]:
    zero = other.start
    for span in (one, other):
        yield (
            f"{span.partition} owned by {span.owner} from {_ms(span.start - zero)} to {_ms(span.stop - zero)} ms, "
            f"generation {span.generation}, ended: {span.ended}"
        )
    events = [event for span in (one, other) for event in load(folder / f"{span.owner}.jsonl")]
    events.sort(key=lambda event: event["time"])
    until = min(one.stop, other.stop) + AFTER_NS
    near = [e for e in events if zero - BEFORE_NS <= e["time"] <= until and _tells(e)]
    for event in near[-MOST_LINES:]:
        what = (
            {p: [r[0][0], r[-1][0]] for p, r in event["value"][0][1].items()}
            if event["f"] == "poll"
            else event["value"]
        )
        more = {key: event[key] for key in ("generation", "how", "which", "error") if key in event}
        yield f"  {_ms(event['time'] - zero):>9} {event['process']} {event['type']} {event['f']} {what} {more}"


def _tells(event: dict[str, Any]) -> bool:
    return event["type"] != "invoke" and (event["f"] != "poll" or bool(event["value"][0][1]))


def _ms(ns: int) -> str:
    return f"{ns / NS_PER_MS:.1f}"
