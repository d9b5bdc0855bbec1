"""Group report: format descriptions and lags of groups with the columns of kafka-consumer-groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from kafkalike.admin.group_lag import GroupLag, Lags, lag_history
from kafkalike.model.lag import RATE_MS, Lag, Moment, total
from kafkalike.model.structs import TopicPartition

MISSING: Final = "-"
"""Placeholder of a missing value."""

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


def lag_text(found: GroupLag) -> str:
    """Return a lag in offsets, or `-` for a committed offset above the log end."""
    return MISSING if found.beyond else str(found.lag.offsets)


def listing(groups: Iterable[Mapping[str, str]], *, types: bool, states: bool) -> Iterator[str]:
    """Yield the lines of `--list` with `--type` or `--state`."""
    known = [{**group, "group_id": shown(group["group_id"])} for group in groups]
    width = max([15, *(len(group["group_id"]) for group in known)]) + 10
    known = [{**group, "group_type": group["group_type"].capitalize()} for group in known]
    wanted = [("TYPE", "group_type")] * types + [("STATE", "group_state")] * states
    yield _line((f"{'GROUP':<{width}}", *(f"{head:<20}" for head, _ in wanted)))
    for group in known:
        yield _line((f"{group['group_id']:<{width}}", *(f"{group[name]:<20}" for _, name in wanted)))


def offsets(group: Description, lags: Lags, *, verbose: bool) -> Iterator[str]:
    """Yield the lines of `--describe --offsets`: owned partitions, then committed partitions without an owner."""
    rows = list(_offset_rows(group, lags))
    if not rows:
        return
    widths = (15, 15, 10, 15, 15, 15, 15, 15, 15, 0)
    yield from table(OFFSET_HEADS, rows, widths, {0, 1, 7, 8}, leave_out=() if verbose else (3,))


def _offset_rows(group: Description, lags: Lags) -> Iterator[Sequence[str]]:
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
            str(tp.partition),
            MISSING if epoch < 0 else str(epoch),
            MISSING if known is None else str(known.committed.position.offset),
            MISSING if index is None else str(index.log_end),
            MISSING if known is None else lag_text(known),
            *((MISSING,) * 3 if member is None else _who(member)),
        )


def members(group: Description, *, verbose: bool) -> Iterator[str]:
    """Yield the lines of `--describe --members`."""
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
                str(len(_owned(member))),
                str(member["member_metadata"]["generation_id"]),
                _assignment(member["member_assignment"]["assigned_partitions"]),
                str(group["generation_id"]),
                _assignment(target),
            )
        )
    left_out = () if verbose else (6, 7, 8, 9)
    yield from table(
        MEMBER_HEADS,
        rows,
        (15, 15, 17, 15, 15, 15, 15, 20, 15, 20),
        {0, 1, 2, 3, 4, 7, 9},
        leave_out=left_out if static else (2, *left_out),
    )


def state(group: Description, coordinator: str, *, verbose: bool) -> Iterator[str]:
    """Yield the lines of `--describe --state`."""
    row = (
        group["group_id"],
        coordinator,
        group["protocol_data"] or MISSING,
        group["group_state"],
        str(group["generation_id"]),
        str(group["generation_id"]),
        str(len(group["members"])),
    )
    left_out = () if verbose else (4, 5)
    yield from table(STATE_HEADS, [row], (15, 25, 20, 20, 15, 25, 0), {0, 1}, leave_out=left_out)


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    widths: Sequence[int],
    flexible: Iterable[int],
    *,
    leave_out: Sequence[int] = (),
) -> Iterator[str]:
    """Yield a table in Kafka's form: an empty line, the heads, the rows; left-aligned.

    Args:
        heads: names of all columns.
        rows: values of all columns.
        widths: minimum width of each column.
        flexible: columns that grow with their values.
        leave_out: hidden columns.
    """
    known = [[shown(cell) for cell in row] for row in rows]
    grown = list(widths)
    for at in flexible:
        grown[at] = max([widths[at], *(len(row[at]) for row in known)])
    columns = [at for at in range(len(heads)) if at not in leave_out]
    form = " ".join(f"%-{grown[at]}s" for at in columns)
    yield ""
    for row in (heads, *known):
        yield (form % tuple(row[at] for at in columns)).rstrip()


def _line(cells: Iterable[str]) -> str:
    return " ".join(cells).rstrip()


def shown(text: str) -> str:
    r"""Escape a name for the terminal: ids of groups and clients may hold control characters.

    >>> shown("a\nb"), shown("é")
    ('a\\nb', 'é')
    """
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _who(member: Description) -> tuple[str, str, str]:
    return member["member_id"], member["client_host"] or MISSING, member["client_id"] or MISSING


def _owned(member: Description) -> list[TopicPartition]:
    by_topic = member["member_assignment"]["assigned_partitions"]
    return [TopicPartition(entry["topic"], p) for entry in by_topic for p in entry["partitions"]]


def _assignment(by_topic: Iterable[Mapping[str, Any]]) -> str:
    """Return an assignment in Kafka's form: `orders:0,1;payments:2`."""
    return ";".join(f"{e['topic']}:{','.join(map(str, e['partitions']))}" for e in by_topic) or MISSING


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


def lag_lines(
    group_id: str, lags: Lags, moments: Mapping[tuple[str, TopicPartition], Moment], now_ms: int
) -> Iterator[str]:
    """Yield the lines of `--describe --lag`: each partition, sums of topics with several partitions, the group's sum.

    Args:
        group_id: the group.
        lags: lags of all groups.
        moments: rates by group and partition.
        now_ms: current time, for the waiting time of the oldest unread record.
    """
    found = list(lags.of(group_id))
    if not found:
        return
    rows: list[Sequence[str]] = []
    topics = 0
    for topic, run in groupby(found, key=lambda lag: lag.partition.topic):
        own = list(run)
        topics += 1
        rows += [_partition_row(lag, moments, now_ms) for lag in own]
        if len(own) > 1:
            rows.append(_sum_row(group_id, topic, own, moments, now_ms))
    if topics > 1:
        rows.append(_sum_row(group_id, ALL, found, moments, now_ms))
    yield from table(HEADS, rows, WIDTHS, {0, 1})


def _partition_row(
    found: GroupLag, moments: Mapping[tuple[str, TopicPartition], Moment], now_ms: int
) -> tuple[str, ...]:
    where = (found.group_id, found.partition.topic, str(found.partition.partition))
    ends = (str(found.committed.position.offset), str(found.index.log_end))
    rates = Rates.of([moments.get((found.group_id, found.partition))])
    offsets, *numbers = _numbers(found.lag, rates, now_ms)
    return (*where, *ends, MISSING if found.beyond else offsets, *numbers)


def _sum_row(
    group_id: str,
    topic: str,
    found: Sequence[GroupLag],
    moments: Mapping[tuple[str, TopicPartition], Moment],
    now_ms: int,
) -> tuple[str, ...]:
    rates = Rates.of([moments.get((group_id, lag.partition)) for lag in found])
    return (group_id, topic, ALL, MISSING, MISSING, *_numbers(total(lag.lag for lag in found), rates, now_ms))


def _numbers(lag: Lag, rates: Rates, now_ms: int) -> tuple[str, ...]:
    fast = (_rounded(rates.consumed), _rounded(rates.produced), _rounded(rates.catch_up(lag.offsets)))
    return (
        str(lag.offsets),
        str(lag.records),
        f"{lag.behind_ms / 1000:.3f}",
        f"{lag.waiting_ms(now_ms) / 1000:.3f}",
        *fast,
    )


def _rounded(number: float | None) -> str:
    return MISSING if number is None else f"{number:.1f}"
