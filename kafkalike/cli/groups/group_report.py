"""Group report: format descriptions and lags of groups with the columns of kafka-consumer-groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from kafkalike.admin.group_lag import GroupLag, Lags, lag_history
from kafkalike.cli.output import Row, json_lines, text
from kafkalike.model.lag import RATE_MS, Lag, Moment, total
from kafkalike.model.structs import TopicPartition

OFFSET_HEADS: Final = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "LEADER-EPOCH",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)

MEMBER_HEADS: Final = (
    "GROUP",
    "CONSUMER-ID",
    "GROUP-INSTANCE-ID",
    "HOST",
    "CLIENT-ID",
    "#PARTITIONS",
    "CURRENT-EPOCH",
    "CURRENT-ASSIGNMENT",
    "TARGET-EPOCH",
    "TARGET-ASSIGNMENT",
)

STATE_HEADS: Final = (
    "GROUP",
    "COORDINATOR (ID)",
    "ASSIGNMENT-STRATEGY",
    "STATE",
    "GROUP-EPOCH",
    "TARGET-ASSIGNMENT-EPOCH",
    "#MEMBERS",
)

REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})

Description = Mapping[str, Any]
"""A group as described by `KafkaAdminClient.describe_groups`."""


def notice(group: Description) -> str | None:
    """Return Kafka's notice about the state of a group, for standard error; None for a stable group."""
    if group["group_state"] == "Empty":
        return f"\nConsumer group '{group['group_id']}' has no active members."
    if group["group_state"] in REBALANCING:
        return f"\nWarning: Consumer group '{group['group_id']}' is rebalancing."
    return None


def beyond_end(group_id: str, lags: Lags) -> Iterator[str]:
    """Yield a warning for each committed offset above the log end, which has no meaningful lag."""
    for found in lags.of(group_id):
        if found.beyond:
            tp, offset = found.partition, found.committed.position.offset
            yield (
                f"\nWarning: Consumer group '{group_id}' has committed offset {offset} in {tp.topic}-{tp.partition}, "
                f"and the log ends at {found.index.log_end}: the log has lost records, or the offset was set by "
                "hand. Once the log has grown past it, the group misses the records below it; see `kafkalike verify`, "
                "and --reset-offsets."
            )


def listing(groups: Iterable[Mapping[str, str]], *, types: bool, states: bool, as_json: bool) -> Iterator[str]:
    """Yield the lines of `--list`: names alone, or a table with `--type` or `--state`."""
    groups = list(groups)
    if as_json:
        yield from json_lines(("GROUP", "TYPE", "STATE"), [tuple(map(group.get, _LISTED)) for group in groups])
        return
    if not types and not states:
        yield from (shown(group["group_id"]) for group in groups)
        return
    known = [{**group, "group_id": shown(group["group_id"])} for group in groups]
    width = max([15, *(len(group["group_id"]) for group in known)]) + 10
    known = [{**group, "group_type": group["group_type"].capitalize()} for group in known]
    wanted = [("TYPE", "group_type")] * types + [("STATE", "group_state")] * states
    yield _line((f"{'GROUP':<{width}}", *(f"{head:<20}" for head, _ in wanted)))
    for group in known:
        yield _line((f"{group['group_id']:<{width}}", *(f"{group[name]:<20}" for _, name in wanted)))


def offsets(group: Description, lags: Lags, *, verbose: bool) -> KafkaTable:
    """Return the report of `--describe --offsets`: owned partitions, then committed partitions without an owner."""
    widths = (15, 15, 10, 15, 15, 15, 15, 15, 15, 0)
    rows = list(_offset_rows(group, lags))
    return KafkaTable(OFFSET_HEADS, rows, widths, {0, 1, 7, 8}, () if verbose else (3,), needs_rows=True)


def _offset_rows(group: Description, lags: Lags) -> Iterator[Row]:
    found = {lag.partition: lag for lag in lags.of(group["group_id"])}
    owned: dict[TopicPartition, Description] = {}
    for member in sorted(group["members"], key=lambda m: -len(_owned(m))):
        owned.update(dict.fromkeys(_owned(member), member))
    free = sorted(tp for tp in found if tp not in owned)
    for tp, member in (*owned.items(), *((tp, None) for tp in free)):
        index = lags.index(tp)
        known = found.get(tp)
        epoch = -1 if known is None else known.committed.position.leader_epoch
        yield (
            group["group_id"],
            tp.topic,
            tp.partition,
            None if epoch < 0 else epoch,
            None if known is None else known.committed.position.offset,
            None if index is None else index.log_end,
            None if known is None or known.beyond else known.lag.offsets,
            *((None,) * 3 if member is None else _who(member)),
        )


def members(group: Description, *, verbose: bool) -> KafkaTable:
    """Return the report of `--describe --members`."""
    static = any(member["group_instance_id"] for member in group["members"])
    rows = []
    for member in group["members"]:
        consumer, host, client = _who(member)
        target = member["target_assignment"]["assigned_partitions"]
        rows.append(
            (
                group["group_id"],
                consumer,
                member["group_instance_id"] or "",
                host,
                client,
                len(_owned(member)),
                member["member_metadata"]["generation_id"],
                _assignment(member["member_assignment"]["assigned_partitions"]),
                group["generation_id"],
                _assignment(target),
            )
        )
    left_out = () if verbose else (6, 7, 8, 9)
    return KafkaTable(
        MEMBER_HEADS,
        rows,
        (15, 15, 17, 15, 15, 15, 15, 20, 15, 20),
        {0, 1, 2, 3, 4, 7, 9},
        left_out if static else (2, *left_out),
    )


def state(group: Description, coordinator: str, *, verbose: bool) -> KafkaTable:
    """Return the report of `--describe --state`."""
    row = (
        group["group_id"],
        coordinator,
        group["protocol_data"] or None,
        group["group_state"],
        group["generation_id"],
        group["generation_id"],
        len(group["members"]),
    )
    return KafkaTable(STATE_HEADS, [row], (15, 25, 20, 20, 15, 25, 0), {0, 1}, () if verbose else (4, 5))


@dataclass(frozen=True, slots=True)
class KafkaTable:
    """A table in Kafka's form: an empty line, the heads, the rows; left-aligned."""

    heads: Sequence[str]
    """Names of all columns."""
    rows: Sequence[Row]
    widths: Sequence[int]
    """Minimum width of each column."""
    flexible: Collection[int]
    """Columns that grow with their values."""
    hidden: Collection[int] = ()
    """Columns that only JSON has."""
    needs_rows: bool = False
    """Leave out heads without rows."""

    def lines(self, *, as_json: bool) -> Iterator[str]:
        """Yield the lines of the table, or each row as a line of JSON."""
        return json_lines(self.heads, self.rows) if as_json else self._table()

    def _table(self) -> Iterator[str]:
        if self.needs_rows and not self.rows:
            return
        texts = [[shown(text(cell)) for cell in row] for row in self.rows]
        grown = list(self.widths)
        for at in self.flexible:
            grown[at] = max([grown[at], *(len(row[at]) for row in texts)])
        columns = [at for at in range(len(self.heads)) if at not in self.hidden]
        yield ""
        for row in (self.heads, *texts):
            yield _line(row[at].ljust(grown[at]) for at in columns)


_LISTED: Final = ("group_id", "group_type", "group_state")


def _line(cells: Iterable[str]) -> str:
    return " ".join(cells).rstrip()


def shown(text: str) -> str:
    r"""Escape a name for the terminal: ids of groups and clients may hold control characters.

    >>> shown("a\nb"), shown("é")
    ('a\\nb', 'é')
    """
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _who(member: Description) -> Row:
    return member["member_id"], member["client_host"] or None, member["client_id"] or None


def _owned(member: Description) -> list[TopicPartition]:
    by_topic = member["member_assignment"]["assigned_partitions"]
    return [TopicPartition(entry["topic"], p) for entry in by_topic for p in entry["partitions"]]


def _assignment(by_topic: Iterable[Mapping[str, Any]]) -> str | None:
    """Return an assignment in Kafka's form: `orders:0,1;payments:2`; None if it is empty."""
    return ";".join(f"{e['topic']}:{','.join(map(str, e['partitions']))}" for e in by_topic) or None


HEADS: Final = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "RECORD-LAG",
    "SECONDS-BEHIND",
    "WAITING-S",
    "CONSUMED/S",
    "PRODUCED/S",
    "CATCH-UP-S",
)
WIDTHS: Final = (15, 15, 10, 15, 15, 15, 15, 15, 12, 12, 12, 12)

ALL: Final = "*"
"""Mark of a sum over all partitions of a topic, or all topics of a group."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Offsets per second over the last 15 minutes; None if unknown."""

    consumed: float | None
    produced: float | None

    @classmethod
    def of(cls, moments: Sequence[Moment | None]) -> Rates:
        """Sum rates over partitions; the sum is None if a rate is."""
        consumed = [None if moment is None else moment.consumed_per_second for moment in moments]
        produced = [None if moment is None else moment.produced_per_second for moment in moments]
        return cls(_sum(consumed), _sum(produced))

    def catch_up(self, lag: int) -> float | None:
        """Return the seconds until a lag is consumed; None if it does not shrink or a rate is unknown."""
        if lag == 0:
            return 0.0
        if self.consumed is None or self.produced is None or self.consumed <= self.produced:
            return None
        return lag / (self.consumed - self.produced)


def _sum(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def rates_now(lags: Lags, group_ids: Sequence[str], now_ms: int) -> dict[tuple[str, TopicPartition], Moment]:
    """Return the rates of groups and of their topics over the last 15 minutes, by group and partition."""
    wanted = set(group_ids)
    found = lag_history(
        lags, now_ms, span_ms=0, step_ms=1, rate_ms=RATE_MS, wanted=lambda group_id, _: group_id in wanted
    )
    return {(group_id, tp): moment for group_id, tp, moment in found}


def lag_report(
    group_id: str, lags: Lags, moments: Mapping[tuple[str, TopicPartition], Moment], now_ms: int
) -> KafkaTable:
    """Return the report of `--describe --lag`: each partition, sums of topics with several partitions, the group's sum.

    Args:
        group_id: the group.
        lags: lags of all groups.
        moments: rates by group and partition.
        now_ms: current time, for the waiting time of the oldest unread record.
    """
    found = list(lags.of(group_id))
    rows: list[Row] = []
    topics = 0
    for topic, run in groupby(found, key=lambda lag: lag.partition.topic):
        own = list(run)
        topics += 1
        rows += [_partition_row(lag, moments, now_ms) for lag in own]
        if len(own) > 1:
            rows.append(_sum_row(group_id, topic, own, moments, now_ms))
    if topics > 1:
        rows.append(_sum_row(group_id, ALL, found, moments, now_ms))
    return KafkaTable(HEADS, rows, WIDTHS, {0, 1}, needs_rows=True)


def _partition_row(found: GroupLag, moments: Mapping[tuple[str, TopicPartition], Moment], now_ms: int) -> Row:
    where = (found.group_id, found.partition.topic, found.partition.partition)
    ends = (found.committed.position.offset, found.index.log_end)
    rates = Rates.of([moments.get((found.group_id, found.partition))])
    offsets, *numbers = _numbers(found.lag, rates, now_ms)
    return (*where, *ends, None if found.beyond else offsets, *numbers)


def _sum_row(
    group_id: str,
    topic: str,
    found: Sequence[GroupLag],
    moments: Mapping[tuple[str, TopicPartition], Moment],
    now_ms: int,
) -> Row:
    rates = Rates.of([moments.get((group_id, lag.partition)) for lag in found])
    return (group_id, topic, ALL, None, None, *_numbers(total(lag.lag for lag in found), rates, now_ms))


def _numbers(lag: Lag, rates: Rates, now_ms: int) -> Row:
    return (
        lag.offsets,
        lag.records,
        lag.behind_ms / 1000,
        lag.waiting_ms(now_ms) / 1000,
        rates.consumed,
        rates.produced,
        rates.catch_up(lag.offsets),
    )
