"""The state of a streaming query's planner, as pure rules: the range of the next micro-batch, lost records, and lag.

The state is one value. It is replaced when a call from Spark has succeeded. The rules return lost records; the caller
raises or logs them before it replaces the state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kafkalike.model.groups.partition_split import family, parent
from kafkalike.model.segments import MARK
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format.batch_plan import Offsets, rate_limited, waits
from kafkalike.spark.format.positions import names, offsets_of

if TYPE_CHECKING:
    pass


LOOK_SECONDS: Final = 0.01
"""Time between two looks at the topics while a query is idle."""
IDLE_LOOKS: Final = 5
"""Most looks of one call from Spark. While they last, Spark does not look at other sources of the query."""
IDLE_SECONDS: Final = 1.0
"""A query is idle after this time without news."""


@dataclass(frozen=True, slots=True)
class IdlePolls:
    """Successive calls from Spark for a next end, none of which found any news."""

    since: float | None = None
    """Time of the first one, monotonic, s."""
    last: float = 0.0
    """End of the last one."""
    waits: bool = False
    """True if the query was idle at the last one, so that the next one may wait for news."""

    def looks(self, now: float) -> int:
        """Return how often to look at the topics in a call, `LOOK_SECONDS` apart.

        >>> IdlePolls().looks(7.0), IdlePolls(since=5.0, last=7.0, waits=True).looks(7.01)
        (1, 5)
        """
        return IDLE_LOOKS if self.waits and now - self.last < IDLE_SECONDS else 1

    def ended(self, now: float) -> IdlePolls:
        """Return the state after a call without news.

        A query whose trigger has an interval does not wait, because its calls are far apart.

        >>> first = IdlePolls().ended(5.0)
        >>> first.ended(5.5).waits, first.ended(5.5).ended(6.1).waits, first.ended(9.0).waits
        (False, True, False)
        """
        since = now if self.since is None or now - self.last >= IDLE_SECONDS else self.since
        return IdlePolls(since, now, waits=now - since >= IDLE_SECONDS)


@dataclass(frozen=True, slots=True)
class RecordLoss:
    """Records that a query may miss."""

    kind: str
    """Spark's sub-class of `KAFKA_DATA_LOSS`."""
    message: str
    hint: str | None = None
    """Advice for the user. None for the advice about lost records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnds:
    """A partition at the last refresh."""

    start: int
    """The partition's log start."""
    stop: int
    """The partition's log end."""
    why_gone: Callable[[int], str | None] = lambda _: None
    """Returns why an offset is below the log start, if that is known."""


@dataclass(frozen=True, slots=True)
class TopicsLook:
    """The topics of a query at one moment."""

    partitions: Mapping[TopicPartition, PartitionEnds]
    ids: Mapping[str, str]
    """Topic ids by name."""
    unread: Collection[str] = ()
    """Existing topics that the options do not name."""
    before: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By name of a repartitioned topic, its number of partitions under each id that it has had."""

    def followed(self, offsets: Offsets, ids: Mapping[str, str]) -> tuple[Offsets, dict[str, str]]:
        """Return offsets, and the ids of their topics, after the repartitions of these topics.

        An offset applies to all partitions that the records of its partition went to. A topic of which the query does
        not read all of these stays as it is, which is a loss of records.

        >>> look = TopicsLook({TopicPartition("t", p): PartitionEnds(start=0, stop=9) for p in range(4)}, {"t": "b"},
        ...                   before={"t": {"a": 2, "b": 4}})
        >>> offsets, ids = look.followed({TopicPartition("t", 0): 3, TopicPartition("t", 1): 5}, {"t": "a"})
        >>> [offsets[TopicPartition("t", p)] for p in range(4)], ids
        ([3, 5, 3, 5], {'t': 'b'})
        """
        found, known = dict(offsets), dict(ids)
        for topic, topic_id in ids.items():
            counts = self.before.get(topic, {})
            if topic_id not in counts or topic_id == self.ids.get(topic):
                continue
            count, total = counts[topic_id], counts[self.ids[topic]]
            mine = {tp.partition for tp in self.partitions if tp.topic == topic}
            if all(mine.issuperset(family(parent(p, count), count, total)) for p in mine):
                places = {TopicPartition(topic, p): TopicPartition(topic, parent(p, count)) for p in mine}
                found |= {tp: offsets[place] for tp, place in places.items() if place in offsets}
                known[topic] = self.ids[topic]
        return found, known

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Return the log ends."""
        return {tp: live.stop for tp, live in self.partitions.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Limits of a micro-batch."""

    most: int | None
    """`maxOffsetsPerTrigger`; None for no limit."""
    least: int | None
    """`minOffsetsPerTrigger`; None for no limit."""
    delay_ms: int
    """`maxTriggerDelay`: after this time, a batch is planned with fewer offsets than `least`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """The planner's knowledge of one streaming query between two calls from Spark."""

    ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics being read, by name."""
    initial: Offsets | None = None
    """Initial offsets, if they were resolved in this process."""
    movable: frozenset[TopicPartition] = frozenset()
    """Partitions whose initial offset depends on when it is resolved, because it is the log end or a group's offset.
    Empty once a batch is planned."""
    target: Offsets | None = None
    """End of the query with Trigger.AvailableNow."""
    latest: Offsets = field(default_factory=dict)
    """Log ends at the last refresh."""
    began_again: Offsets = field(default_factory=dict)
    """Offsets of the query in earlier topics of the same names, by partition of the topics that were created again."""
    last_trigger: float | None = None
    """Time of the last planned batch, monotonic, in s; only with `minOffsetsPerTrigger`."""

    def saw(self, look: TopicsLook) -> StreamState:
        """Return the state with the ids of newly found topics; known ids stay."""
        if look.ids.keys() <= self.ids.keys():
            return self
        return replace(self, ids={**look.ids, **self.ids})

    def began_in(self, ids: Mapping[str, str]) -> StreamState:
        """Return the state with topic ids that a checkpoint has for the query's offsets."""
        return replace(self, ids={**self.ids, **ids})

    def followed(self, look: TopicsLook) -> StreamState:
        """Return the state after the repartitions of the query's topics; see `TopicsLook.followed`."""
        if not look.before:
            return self
        return replace(
            self,
            ids=look.followed({}, self.ids)[1],
            initial=None if self.initial is None else look.followed(self.initial, self.ids)[0],
            target=None if self.target is None else look.followed(self.target, self.ids)[0],
            began_again=look.followed(self.began_again, self.ids)[0],
        )

    def replaced(self, topic: str, look: TopicsLook) -> str | None:
        """Describe how a topic was recreated under its name; None if it is still the same."""
        known, now = self.ids.get(topic), look.ids.get(topic)
        return None if known is None or now is None or known == now else f"topic id {known} is now {now}"

    def start_of(self, tp: TopicPartition, begun: Offsets, live: PartitionEnds) -> int:
        """Return the offset at which to read a partition: the log start for new partitions and recreated topics."""
        if tp in begun and self.began_again.get(tp) != begun[tp]:
            return begun[tp]
        return live.start


def begin(
    query: StreamState, look: TopicsLook, offsets: Offsets, movable: frozenset[TopicPartition]
) -> tuple[StreamState, list[RecordLoss]]:
    """Start a new query.

    Args:
        query: the state.
        look: the topics.
        offsets: the initial offsets.
        movable: partitions whose offset was resolved from the log end or a group.

    Returns:
        The state, with initial offsets inside the log, and the records lost by that.
    """
    within, losses = dict(offsets), list[RecordLoss]()
    for tp, at in sorted(offsets.items()):
        live = look.partitions[tp]
        if not live.start <= at <= live.stop:
            message = f"{names([tp])}: the start {at} is not in the log, which is [{live.start}, {live.stop})"
            losses.append(RecordLoss("START_OFFSET_RESET", message))
            within[tp] = min(max(at, live.start), live.stop)
    return replace(query.saw(look), initial=within, movable=movable), losses


def out_of_reach(query: StreamState, look: TopicsLook) -> str | None:
    """Return why the end of Trigger.AvailableNow is unreachable; None if it can be reached."""
    for tp, target in sorted((query.target or {}).items()):
        live = look.partitions.get(tp)
        if live is None or query.replaced(tp.topic, look) or live.stop < target:
            now = "it is gone" if live is None else f"it ends at {live.stop} now"
            return (
                f"{names([tp])}: Trigger.AvailableNow was to read up to offset {target}, but {now}: the topic was "
                "deleted, or deleted and created again, while the query ran"
            )
    return None


def next_end(
    query: StreamState, look: TopicsLook, begun: Offsets, limits: BatchLimits | None, now: float
) -> tuple[StreamState, Offsets | None, list[RecordLoss]]:
    """Return the end of the next micro-batch.

    Args:
        query: the state.
        look: the topics; the target can be reached.
        begun: start of the batch.
        limits: None to read everything.
        now: monotonic time, s.

    Returns:
        The state; the ends, None for no batch; the losses.
    """
    query = query.saw(look)
    ends = look.ends if query.target is None else dict(query.target)
    query, losses = _checked(query, look, begun, ends)
    if not ends:
        # Never `{}`, because the checkpoint must keep the query's offsets.
        return query, None, losses
    if query.movable and begun == query.initial:
        # The first batch of a query that starts at the log end, or at a group's offset, is empty. It puts the initial
        # offsets into the checkpoint; without it, a restart would resolve them to later offsets and skip the records
        # between.
        ends |= {tp: begun[tp] for tp in query.movable if tp in ends}
    query = replace(query, movable=frozenset())
    if limits is None:
        return query, ends, losses
    starts = {tp: query.start_of(tp, begun, look.partitions[tp]) for tp in ends}
    # A query that ends when it has caught up must not wait for more.
    if limits.least is not None and query.target is None:
        waited = None if query.last_trigger is None else (now - query.last_trigger) * 1000
        if waited is not None and waited < limits.delay_ms and waits(limits.least, starts, ends):
            return query, None, losses
        query = replace(query, last_trigger=now)
    return query, ends if limits.most is None else rate_limited(limits.most, starts, ends), losses


def _checked(
    query: StreamState, look: TopicsLook, begun: Offsets, ends: dict[TopicPartition, int]
) -> tuple[StreamState, list[RecordLoss]]:
    """Check the partitions that the query has read so far; changes the ends of partitions of recreated topics."""
    losses, began_again = list[RecordLoss](), dict(query.began_again)
    gone = sorted(begun.keys() - ends.keys())
    unread = [tp for tp in gone if tp.topic in look.unread]
    if unread:
        offsets = ", ".join(f"{names([tp])} at offset {begun[tp]}" for tp in unread)
        message = f"the query's options do not name {offsets}, which its checkpoint has; the topics are there"
        hint = (
            "Name them again, or set failOnDataLoss to false for a run to leave them: their offsets are forgotten then"
        )
        losses.append(RecordLoss("PARTITIONS_DELETED", message, hint))
    gone = [tp for tp in gone if tp.topic not in look.unread]
    if gone:
        offsets = ", ".join(f"{names([tp])} at offset {begun[tp]}" for tp in gone)
        losses.append(RecordLoss("PARTITIONS_DELETED", f"partitions of the query were deleted: {offsets}"))
    for tp in sorted(begun.keys() & ends.keys()):
        at, end = begun[tp], ends[tp]
        if began_again.get(tp) == at:
            ends[tp] = _other_than(at, end)
            continue
        began_again.pop(tp, None)
        replaced = query.replaced(tp.topic, look)
        if replaced is not None or end < at:
            why = replaced or "it was deleted and created again"
            message = f"{names([tp])}: its offset was changed from {at} to {end}: {why}"
            losses.append(RecordLoss("PARTITION_OFFSET_CHANGED", message))
            began_again[tp] = at
            ends[tp] = _other_than(at, end)
    return replace(query, began_again=began_again, ids={**query.ids, **look.ids}), losses


def _other_than(old: int, end: int) -> int:
    """Return an end that differs from the query's offset, so that Spark sees new data in the recreated topic."""
    return end - 1 if end == old and end > 0 else end


def ranges(
    query: StreamState,
    look: TopicsLook,
    begun: Offsets,
    ends: Offsets,
    *,
    by_time: bool,
    begun_ids: Mapping[str, str] | None = None,
) -> tuple[StreamState, dict[TopicPartition, range], list[RecordLoss]]:
    """Return the offsets of a micro-batch.

    Args:
        query: the state.
        look: the topics.
        begun: start of the batch.
        ends: end of the batch.
        by_time: whether the query's start was resolved by time.
        begun_ids: known ids of the topics to which `begun` belongs; the state has the ids of `ends`.

    Returns:
        The state; offsets by partition, in order; the losses.
    """
    query, found, losses = query.saw(look), dict[TopicPartition, range](), list[RecordLoss]()
    other = {
        topic
        for topic, began in (begun_ids or {}).items()
        if began not in {query.ids.get(topic, began), look.ids.get(topic, began)}
    }
    if other:
        # These topics were found to be recreated before the batch was planned, so it reads them from their log start.
        again = {tp: at for tp, at in begun.items() if tp.topic in other}
        query = replace(query, began_again={**query.began_again, **again})
    for tp in sorted(ends):
        live = look.partitions.get(tp)
        if live is None:
            message = f"{names([tp])}: it is gone; it was to be read up to offset {ends[tp]}"
            losses.append(RecordLoss("PARTITIONS_DELETED", message))
        elif query.replaced(tp.topic, look):
            # The topic was replaced after the batch was planned; the next batch starts with the new topic.
            known, now = query.ids[tp.topic], look.ids[tp.topic]
            message = f"{names([tp])}: topic id {known}, to be read up to {ends[tp]}, is now {now}"
            losses.append(RecordLoss("PARTITION_OFFSET_CHANGED", message))
        else:
            found[tp], lost = _readable(query, tp, begun, ends[tp], live, by_time=by_time)
            losses += lost
    return replace(query, movable=frozenset()), found, losses


def _readable(
    query: StreamState, tp: TopicPartition, begun: Offsets, end: int, live: PartitionEnds, *, by_time: bool
) -> tuple[range, list[RecordLoss]]:
    """Return the offsets of a partition that a batch reads, and the losses."""
    losses = []
    begin_at = query.start_of(tp, begun, live)
    if tp not in begun and begin_at > 0:
        message = f"{names([tp])}: the added partition starts from {begin_at} instead of 0"
        losses.append(RecordLoss("ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", message))
    if tp in query.movable and end <= live.stop:
        # A repeated first batch. It was planned as an empty one, at the log end or group offset of that time.
        return range(end, end), losses
    if end < begin_at:
        if tp in query.movable or (live.start <= end and by_time and begun == query.initial):
            # A repeated first batch. It was planned as an empty one, at an earlier log end, or because no record below
            # its end was as late as the starting time.
            return range(end, end), losses
        message = f"{names([tp])}: its offset was changed from {begin_at} to {end}: it was deleted and created again"
        losses.append(RecordLoss("PARTITION_OFFSET_CHANGED", message))
        begin_at = live.start
    if end > live.stop:
        message = f"{names([tp])}: offsets [{max(begin_at, live.stop)}, {end}) are lost: the log ends at {live.stop}"
        losses.append(RecordLoss("COULD_NOT_READ_OFFSET_RANGE", message))
        end = live.stop
    if begin_at < live.start and begin_at < end:
        why = live.why_gone(begin_at) or "the log starts there"
        message = f"{names([tp])}: offsets [{begin_at}, {min(live.start, end)}) are lost: {why}"
        losses.append(RecordLoss("START_OFFSET_RESET", message))
        begin_at = live.start
    return range(begin_at, max(begin_at, end)), losses


def offsets_behind(source: Any) -> dict[str, float]:  # noqa: ANN401 - a dict, or Spark's SourceProgress
    """Return how far a source of a streaming query is behind, in offsets per partition.

    Spark's Kafka source puts these figures into its progress as strings. A Python source cannot, so this function
    computes them from the offsets in the progress.

    Args:
        source: an entry of `sources` of `StreamingQuery.lastProgress`.

    Returns:
        `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`; empty before the first batch.
    """
    ends = _offsets(source, "endOffset")
    latest = _offsets(source, "latestOffset")
    behind = [max(0, at - ends.get(tp, 0)) for tp, at in latest.items()]
    if not ends or not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _offsets(source: Any, name: str) -> dict[TopicPartition, int]:  # noqa: ANN401
    given = source.get(name) if isinstance(source, Mapping) else getattr(source, name)
    if isinstance(given, str):
        given = json.loads(given)
    return offsets_of({topic: by for topic, by in given.items() if topic != MARK}) if given else {}
