"""Reset plan: compute and set new offsets of groups for the scenarios of kafka-consumer-groups."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import click

from kafkalike.admin.admin_client import KafkaAdminClient
from kafkalike.admin.group_change_operations import Outcome
from kafkalike.model.offset_commit import shifted, storable
from kafkalike.model.structs import OffsetAndMetadata, OffsetSpec, OffsetTimestamp, TopicPartition

WORDS: Final = {"to_earliest": OffsetSpec.EARLIEST, "to_latest": OffsetSpec.LATEST}

Plan = Mapping[TopicPartition, int]
Warn = Callable[[str], object]

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:[.,]\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_PARTITIONS: Final = re.compile(r"\d+(?:,\d+)*")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Scenario of a reset with its value."""

    name: str
    """Name of the option, such as `to_offset`."""
    number: int = 0
    """Offset of `to_offset`, number of offsets of `shift_by`, else a time or a duration (ms)."""
    plans: Mapping[str, Plan] = field(default_factory=dict)
    """Offsets by group, for `from_file`."""


@dataclass(frozen=True, slots=True)
class Resetter:
    """Plans and sets offsets.

    Args:
        admin: client of the cluster.
        topic_ids: ids of the topics from before the first plan, so that recreated topics are not changed.
        now_ms: current time, for durations.
        warn: called with a message for each offset that was moved into the log.
    """

    admin: KafkaAdminClient
    topic_ids: Mapping[str, str]
    now_ms: int
    warn: Warn

    def plan(
        self,
        group_id: str,
        scenario: Scenario,
        partitions: Sequence[TopicPartition],
    ) -> Plan:
        """Return the offsets of a scenario for a group, without a change.

        Args:
            group_id: the group.
            scenario: the scenario.
            partitions: scope of the reset; a file of `from_file` names its own.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
            IllegalArgumentError: `shift_by` for a partition without a committed offset.
        """
        if scenario.name in WORDS:
            return self.admin.resolve_offsets(dict.fromkeys(partitions, WORDS[scenario.name]))
        if scenario.name in {"to_datetime", "by_duration"}:
            at_ms = scenario.number if scenario.name == "to_datetime" else max(0, self.now_ms - scenario.number)
            return self.admin.resolve_offsets(dict.fromkeys(partitions, OffsetTimestamp(at_ms)))
        if scenario.name == "to_offset":
            return self._within(dict.fromkeys(partitions, scenario.number))
        if scenario.name == "from_file":
            return self._within(scenario.plans[group_id])
        committed = {tp: at.offset for tp, at in self.admin.list_consumer_group_offsets(group_id).items()}
        if scenario.name == "shift_by":
            return self._within(shifted(committed, partitions, scenario.number))
        # To the current offset, or to the log end without one.
        ends = self.admin.resolve_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        return {tp: committed.get(tp, ends[tp]) for tp in partitions}

    def execute(self, group_id: str, plan: Plan) -> dict[TopicPartition, Outcome]:
        """Set the offsets of a plan; see `KafkaAdminClient.alter_group_offsets` for the result."""
        positions = {tp: OffsetAndMetadata(offset) for tp, offset in plan.items()}
        return self.admin.alter_group_offsets(group_id, positions, topic_ids=self.topic_ids)

    def _within(self, wanted: Plan) -> Plan:
        """Move offsets into the range of the log, with a warning for each moved offset."""
        found = self.admin.resolve_offsets({tp: storable(offset) for tp, offset in wanted.items()})
        for tp, offset in wanted.items():
            if found[tp] != offset:
                edge = "higher than latest" if offset > found[tp] else "lower than earliest"
                where = f"{tp.topic}-{tp.partition}"
                self.warn(f"New offset ({offset}) is {edge} offset for topic partition {where}. "
                          f"Value will be set to {found[tp]}")  # fmt: skip
        return found


def parse_datetime(text: str) -> int:
    """Parse `YYYY-MM-DDTHH:mm:SS.sss` to ms since 1970; UTC unless the text names a zone (`Z`, `+02:00`), as in Kafka.

    Raises:
        click.UsageError: the text is malformed or before 1970.

    >>> parse_datetime("1970-01-02T00:00:00.001")
    86400001
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as cause:
        raise click.UsageError(f"--to-datetime: YYYY-MM-DDTHH:mm:SS.sss is needed, not {text!r}") from cause
    at_ms = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    if "T" not in text.upper() or at_ms < timedelta(0):
        raise click.UsageError(f"--to-datetime: YYYY-MM-DDTHH:mm:SS.sss from 1970 on is needed, not {text!r}")
    return at_ms // timedelta(milliseconds=1)


def parse_duration(text: str) -> int:
    """Parse `PnDTnHnMnS` to ms.

    Raises:
        click.UsageError: the text is malformed or too long.

    >>> parse_duration("P1DT2H3M4.5S")
    93784500
    """
    match = _DURATION.fullmatch(text)
    parts = {} if match is None else {name: given for name, given in match.groupdict().items() if given is not None}
    if not parts or text.upper().endswith("T"):
        raise click.UsageError(f"--by-duration: PnDTnHnMnS is needed, such as P1D or PT30M, not {text!r}")
    try:
        span = timedelta(**{name: float(given.replace(",", ".")) for name, given in parts.items()})
    except OverflowError as cause:
        raise click.UsageError(f"--by-duration: {text!r} is too long") from cause
    return span // timedelta(milliseconds=1)


def parse_topic(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Parse `topic` or `topic:0,1` to a name and partition numbers, None for all.

    Raises:
        click.UsageError: the text is malformed.

    >>> parse_topic("orders:2,0")
    ('orders', (2, 0))
    """
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    if not _PARTITIONS.fullmatch(numbers):
        raise click.UsageError(f"--topic: topic or topic:0,1,2 is needed, not {text!r}")
    return topic, tuple(dict.fromkeys(map(int, numbers.split(","))))


def read_plan(path: str, group_ids: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Read a file of `topic,partition,offset` lines for one group, or `group,topic,partition,offset` lines for several.

    Returns:
        Offsets by group; empty for a group without a line.

    Raises:
        click.UsageError: the file cannot be read; or a line is malformed, repeats a partition, or names another group.
    """
    found: dict[str, dict[TopicPartition, int]] = {group_id: {} for group_id in group_ids}
    try:
        with Path(path).open(newline="", encoding="utf-8") as stream:
            for number, row in enumerate(csv.reader(stream), start=1):
                if row:
                    group_id, tp, offset = _parse_row(f"{path}, line {number}", row, group_ids)
                    if tp in found[group_id]:
                        raise click.UsageError(f"{path}, line {number}: {tp.topic}-{tp.partition} is named twice")
                    found[group_id][tp] = offset
    except (OSError, UnicodeDecodeError, csv.Error) as cause:
        raise click.UsageError(f"{path} cannot be read: {cause}") from cause
    return found


def _parse_row(where: str, row: Sequence[str], group_ids: Sequence[str]) -> tuple[str, TopicPartition, int]:
    cells = [cell.strip() for cell in row]
    if len(cells) == 3 and len(group_ids) == 1:  # noqa: PLR2004 - topic, partition, offset
        cells = [group_ids[0], *cells]
    if len(cells) != 4 or not (cells[2].isdecimal() and cells[3].isdecimal()):  # noqa: PLR2004 - a group before them
        form = "topic,partition,offset" if len(group_ids) == 1 else "group,topic,partition,offset"
        raise click.UsageError(f"{where}: {form} is needed, not {','.join(row)!r}")
    if cells[0] not in group_ids:
        raise click.UsageError(f"{where}: group {cells[0]!r} is not among those to reset")
    return cells[0], TopicPartition(cells[1], int(cells[2])), int(cells[3])
