"""Offsets of a topic's partitions to start and end at, in Spark's JSON forms."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafkalike.errors import IllegalArgumentError, OffsetOutOfRangeError

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog


EARLIEST: Final = "earliest"
LATEST: Final = "latest"
MARKS: Final = {EARLIEST: -2, LATEST: -1}

Offsets: TypeAlias = str | Mapping[int, int]
"""`earliest`, `latest`, or an offset by partition, where -2 is earliest and -1 latest."""


def parse_offsets(text: str, topic: str) -> Offsets:
    """Offsets as Spark's Kafka source takes them.

    Args:
        text: `earliest`, `latest` or JSON such as `{"orders": {"0": 23, "1": -1}}`.
        topic: the one topic that the JSON must name.

    Raises:
        IllegalArgumentError: it is none of these.
    """
    if text.strip().lower() in MARKS:
        return text.strip().lower()
    shape = f'earliest, latest or JSON like {{"{topic}": {{"0": 23, "1": -1}}}} is needed'
    try:
        given: Any = json.loads(text)
    except ValueError as cause:
        raise IllegalArgumentError(f"{shape}, not {text!r}: {cause}") from cause
    if not isinstance(given, dict) or list(given) != [topic] or not isinstance(given[topic], dict):
        raise IllegalArgumentError(f"{shape}, not {text!r}")
    try:
        return {int(partition): _offset(offset) for partition, offset in given[topic].items()}
    except ValueError as cause:
        raise IllegalArgumentError(f"{shape}: {cause}") from cause


def _offset(given: object) -> int:
    if type(given) is not int or given < min(MARKS.values()):
        raise ValueError(f"{given!r} is no offset")
    return given


def plan_ranges(log: TopicLog, starting: Offsets, ending: Offsets) -> dict[int, range]:
    """The offsets to read of each partition, fixed now: half-open, empty where there is nothing to read.

    Args:
        log: the topic, fresh.
        starting: first offsets.
        ending: offsets to stop before.

    Raises:
        IllegalArgumentError: offsets that do not name exactly the topic's partitions, that begin after they end, or,
            as for Spark's Kafka source, a start at `latest` and an end at `earliest`.
        OffsetOutOfRangeError: offsets that are not in the log.
    """
    name = log.info.name
    for what, given, refused in (("starting", starting, LATEST), ("ending", ending, EARLIEST)):
        if given == refused or (not isinstance(given, str) and MARKS[refused] in given.values()):
            raise IllegalArgumentError(f"{what} offsets of a batch cannot be {refused} ({MARKS[refused]})")
    live = {p: range(log.log_start(p), log.log_end(p)) for p in log.info.partitions}
    starts = _resolve(name, starting, live)
    ends = _resolve(name, ending, live)
    outside = {p: at for at_by in (starts, ends) for p, at in at_by.items() if not live[p].start <= at <= live[p].stop}
    if outside:
        raise OffsetOutOfRangeError(
            {f"{name}-{p}": at for p, at in outside.items()}, {f"{name}-{p}": live[p] for p in outside}
        )
    for p in live:
        if starts[p] > ends[p]:
            raise IllegalArgumentError(f"{name}-{p}: the start {starts[p]} is behind the end {ends[p]}")
    return {p: range(starts[p], ends[p]) for p in live}


def _resolve(topic: str, offsets: Offsets, live: Mapping[int, range]) -> dict[int, int]:
    given = dict.fromkeys(live, MARKS[offsets]) if isinstance(offsets, str) else offsets
    if set(given) != set(live):
        raise IllegalArgumentError(f"{topic}: offsets name {_names(given)}; its partitions are {_names(live)}")
    marks = {MARKS[EARLIEST]: "start", MARKS[LATEST]: "stop"}
    return {p: getattr(live[p], marks[at]) if at in marks else at for p, at in given.items()}


def _names(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"
