"""Share runs: ranges of consecutive offsets, and the form of a share partition's runs in a row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from kafkalike.model.row_value import INT64, VERSION, as_text, as_whole, checked_list, whole
from kafkalike.model.shares.share_partition import RecordRun, RecordState, SharePartition

FORMAT: Final = 1
"""The newest format of rows of kind `share`."""


def merged_offsets(offsets: Iterable[tuple[int, tuple[Any, ...]]]) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
    """Merge sorted offsets with equal facts to ranges: first, last, facts."""
    first: int | None = None
    last, facts = 0, ()
    for offset, said in offsets:
        if first is not None and offset == last + 1 and said == facts:
            last = offset
            continue
        if first is not None:
            yield first, last, facts
        first, last, facts = offset, offset, said
    if first is not None:
        yield first, last, facts


def gaps(first: int, last: int, covered: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the offsets `first` to `last` that no sorted range covers."""
    at = first
    for begin, end in covered:
        if end < at or begin > last:
            continue
        if begin > at:
            yield at, begin - 1
        at = end + 1
    if at <= last:
        yield at, last


# --- rows ------------------------------------------------------------------------------------------


def dump_share(state: SharePartition) -> str:
    """Return a state as JSON. Runs are lengths, because they follow each other from `start` on."""
    members = sorted({run.member_id for run in state.runs if run.member_id})
    runs = [_dump_run(run, members) for run in state.runs]
    found = {VERSION: FORMAT, "start": state.start, "members": members, "runs": runs}
    return json.dumps(found, separators=(",", ":"))


def _dump_run(run: RecordRun, members: list[str]) -> list[int]:
    found = [run.size, int(run.state)]
    if run.state == RecordState.ACQUIRED:
        return [*found, run.deliveries, members.index(run.member_id), run.since_ms, run.until_ms]
    if run.state == RecordState.AVAILABLE:
        return [*found, run.deliveries, run.until_ms] if run.until_ms else [*found, run.deliveries]
    return found


def load_share(found: Mapping[str, Any], topic_id: str) -> SharePartition:
    """Parse a row.

    Raises:
        ArithmeticError, LookupError, TypeError, ValueError: it is damaged.
    """
    members = [as_text(name, "members") for name in checked_list(found["members"])]
    start = at = whole(found, "start")
    runs = []
    for each in checked_list(found["runs"]):
        numbers = [as_whole(n, "runs") for n in checked_list(each)]
        run = _load_run(at, numbers, members)
        runs.append(run)
        at = run.last + 1
    if at not in INT64:
        raise ValueError(f"offset {at} is not an offset")
    if runs and (runs[0].is_final or any(a[2:] == b[2:] for a, b in pairwise(runs))):
        raise ValueError("the runs are not in their shortest form")
    return SharePartition(topic_id, start, tuple(runs))


def _load_run(first: int, numbers: Sequence[int], members: Sequence[str]) -> RecordRun:
    count, state = as_whole(numbers[0], "runs", at_least=1), RecordState(numbers[1])
    last = first + count - 1
    if state == RecordState.ACQUIRED:
        deliveries, member, since_ms, until_ms = numbers[2:]
        return RecordRun(
            first, last, state, as_whole(deliveries, "runs", at_least=1), members[member], since_ms, until_ms
        )
    if state == RecordState.AVAILABLE:
        return RecordRun(first, last, state, numbers[2], until_ms=numbers[3] if len(numbers) > 3 else 0)  # noqa: PLR2004
    return RecordRun(first, last, state)
