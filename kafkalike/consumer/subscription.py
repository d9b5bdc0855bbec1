"""Subscription: the topics and partitions of a consumer, its positions and pauses, and the user's listener.

Pure state, without I/O.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal

from kafkalike.errors import IllegalArgumentError, IllegalStateError
from kafkalike.model.names import INTERNAL_PREFIX, check_topic_name
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.topic import TopicInfo

MAX_PATTERN_BYTES: Final = 1024
"""Maximum size of a pattern, because Python's `re` may take exponential time."""

Reset = Literal["earliest", "latest"]


class Mode(Enum):
    """The way in which the consumer was told what to read, fixed until `unsubscribe`."""

    NONE = "nothing yet"
    TOPICS = "subscribe to topics"
    PATTERN = "subscribe to a pattern"
    ASSIGNED = "assign partitions"


@dataclass(slots=True)
class Changes:
    """Counts the changes of a subscription, so that readers of an unchanged one need not check each partition.

    Every change counts, except a position moving past delivered records.
    """

    count: int = 0


@dataclass(slots=True)
class PartitionState:
    """The position and state of one partition."""

    topic_id: str | None = None
    """Id of the position's topic; None until the topic is seen."""
    position: int | None = None
    """Next offset to deliver; None until it is resolved."""
    reset: Reset | None = None
    """Policy for resolving the position, after a seek or an offset out of range."""
    paused: bool = False
    highwater: int | None = None
    """Log end at the last look."""
    changes: Changes = field(default_factory=Changes, repr=False, compare=False)
    """Counter of the subscription."""

    @property
    def fetchable(self) -> bool:
        """True if records may be delivered."""
        return self.position is not None and not self.paused and self.topic_id is not None

    def seek(self, offset: int) -> None:
        """Set the position. Caller: client, resolver. Changes: position; a pending reset is dropped."""
        self.changes.count += 1
        self.position, self.reset = offset, None

    def find(self, reset: Reset) -> None:
        """Have the position resolved when it is needed. Caller: client, fetcher. Changes: position, reset."""
        self.changes.count += 1
        self.position, self.reset = None, reset

    def pause(self, *, on: bool) -> None:
        """Pause or resume delivery. Caller: client. Changes: paused."""
        self.changes.count += 1
        self.paused = on

    def bind(self, topic_id: str) -> None:
        """Set the topic. Caller: assigner. Changes: topic_id."""
        self.changes.count += 1
        self.topic_id = topic_id

    def forget(self) -> None:
        """Forget a deleted topic: its position is meaningless in the next topic of that name.

        Caller: assigner, fetcher. Changes: all but `paused`.
        """
        self.changes.count += 1
        self.topic_id = self.position = self.reset = self.highwater = None


class _Held(Mapping[TopicPartition, str | None]):
    """Topic ids of the assigned partitions, looked up on access, because a consumer may have very many."""

    __slots__ = ("_states",)

    def __init__(self, states: Mapping[TopicPartition, PartitionState]) -> None:
        self._states = states

    def __getitem__(self, tp: TopicPartition) -> str | None:
        return self._states[tp].topic_id

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)


class Subscription:
    """The topics and partitions of one consumer. Not thread-safe; belongs to its consumer."""

    def __init__(self, *, exclude_internal: bool = True, hidden: Callable[[str], bool] = lambda _: False) -> None:
        self.mode = Mode.NONE
        self.topics: set[str] = set()
        """Topics of the subscription: the given names, or the matches of the pattern at the last look."""
        self.listener: ConsumerRebalanceListener | None = None
        self.changed = False
        """True if `topics` or the pattern changed since the last `apply`."""
        self.changes = Changes()
        self._pattern: re.Pattern[str] | None = None
        self._exclude_internal = exclude_internal
        self._hidden = hidden
        """Returns True for topics that a pattern skips: the dead-letter topics of this consumer."""
        self._partitions: dict[TopicPartition, PartitionState] = {}

    # --- what the user says ------------------------------------------------------------------

    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Replace the subscription by topics or a pattern.

        Caller: client. Changes: mode, topics, pattern, listener; partitions only at the next `apply`.

        Raises:
            IllegalArgumentError: neither, or a bad pattern.
            IllegalStateError: both, or partitions were assigned, or the other way of subscribing was used before.
            TypeError: topics are not a list, or the listener is not a listener.
            InvalidTopicError: an invalid topic name.
        """
        if not topics and not pattern:
            raise IllegalArgumentError("subscribe needs topics or a pattern")
        if topics and pattern:
            raise IllegalStateError("subscribe takes topics or a pattern, not both")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError(f"listener must be a ConsumerRebalanceListener, not {listener!r}")
        if pattern:
            compiled, names = _compile(pattern), set[str]()
            self._enter(Mode.PATTERN)
        else:
            if isinstance(topics, str) or not isinstance(topics, Sequence):
                raise TypeError(f"topics must be a list of names, not {topics!r}")
            compiled, names = None, {check_topic_name(name) for name in topics}
            self._enter(Mode.TOPICS)
        self.changed = True
        self.listener, self._pattern, self.topics = listener, compiled, names

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Take exactly these partitions; already assigned ones keep their state. Caller: client. Changes: partitions.

        Raises:
            IllegalStateError: the consumer is subscribed.
            TypeError: anything but a `TopicPartition` with an int, or a negative partition (IllegalArgumentError).
            InvalidTopicError: an invalid topic name.
        """
        wanted = [check_partition(tp) for tp in partitions]
        self._enter(Mode.ASSIGNED)
        self._hold({tp: self._partitions.get(tp) or PartitionState(changes=self.changes) for tp in wanted})

    def unsubscribe(self) -> None:
        """Clear subscription and partitions. Caller: client. Changes: everything."""
        self.mode = Mode.NONE
        self.topics = set()
        self.listener = None
        self.changed = False
        self._pattern = None
        self._hold({})

    def _hold(self, partitions: dict[TopicPartition, PartitionState]) -> None:
        """Replace the partitions. The mapping is never changed in place, so that other threads may read it."""
        self.changes.count += 1
        self._partitions = partitions

    def _enter(self, mode: Mode) -> None:
        if self.mode not in {Mode.NONE, mode}:
            raise IllegalStateError(
                f"cannot {mode.value}: this consumer was told to {self.mode.value}; unsubscribe() first"
            )
        self.mode = mode

    # --- what the topics are -----------------------------------------------------------------

    @property
    def automatic(self) -> bool:
        """True if the partitions follow from a subscription."""
        return self.mode in {Mode.TOPICS, Mode.PATTERN}

    def match(self, known: Mapping[str, TopicInfo]) -> dict[TopicPartition, str]:
        """Return the partitions of the subscription with their topics' ids, in order of name and number.

        Caller: assigner. Changes: topics, if there is a pattern.
        """
        if self._pattern is not None:
            pattern = self._pattern
            hidden = INTERNAL_PREFIX if self._exclude_internal else None
            found = {name for name in known if pattern.match(name) and not (hidden and name.startswith(hidden))}
            self.topics = {name for name in found if not self._hidden(name)}
        infos = [known[name] for name in sorted(self.topics) if name in known]
        return {TopicPartition(info.name, p): info.topic_id for info in infos for p in info.partitions}

    def apply(self, target: Mapping[TopicPartition, str | None]) -> None:
        """Hold exactly these partitions; a partition of the same topic id keeps its state. Caller: assigner."""
        kept = self._partitions
        self._hold(
            {
                tp: kept[tp]
                if tp in kept and kept[tp].topic_id == topic_id
                else PartitionState(topic_id, changes=self.changes)
                for tp, topic_id in target.items()
            }
        )
        self.changed = False

    # --- partitions --------------------------------------------------------------------------

    def __contains__(self, tp: object) -> bool:
        return tp in self._partitions

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def held(self) -> Mapping[TopicPartition, str | None]:
        """All assigned partitions, with the ids of their topics; None if the topic is unknown or deleted."""
        return _Held(self._partitions)

    def get(self, tp: TopicPartition) -> PartitionState | None:
        """Return the state of a partition; None if it is not assigned."""
        return self._partitions.get(tp)

    def require(self, tp: TopicPartition) -> PartitionState:
        """Return the state of a partition.

        Raises:
            TypeError: not a `TopicPartition`.
            IllegalStateError: not assigned.
        """
        if not isinstance(tp, TopicPartition):
            raise TypeError(f"a TopicPartition is needed, not {tp!r}")
        state = self._partitions.get(tp)
        if state is None:
            raise IllegalStateError(f"{tp.topic}-{tp.partition} is not assigned to this consumer")
        return state

    def items(self) -> list[tuple[TopicPartition, PartitionState]]:
        """Return all assigned partitions with their states; a copy."""
        return list(self._partitions.items())

    def forget_topic(self, topic: str) -> None:
        """Forget the positions in a deleted topic. Caller: assigner, fetcher."""
        for tp, state in self._partitions.items():
            if tp.topic == topic:
                state.forget()

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the known positions in the form of a commit."""
        return {
            tp: OffsetAndMetadata(state.position)
            for tp, state in self._partitions.items()
            if state.position is not None
        }


def check_partition(tp: object) -> TopicPartition:
    """Return a valid partition with a Python int.

    Raises:
        TypeError: not a `TopicPartition`, or its number is not an int.
        IllegalArgumentError: its number is negative.
        InvalidTopicError: an invalid topic name.
    """
    if not isinstance(tp, TopicPartition):
        raise TypeError(f"a TopicPartition is needed, not {tp!r}")
    number: object = tp.partition
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"the partition of {tp!r} must be an int")
    partition = number.__index__()
    if partition < 0:
        raise IllegalArgumentError(f"the partition of {tp!r} must not be negative")
    return TopicPartition(check_topic_name(tp.topic), partition)


def _compile(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if not isinstance(text, str):
        raise TypeError(f"pattern must be a str, not {pattern!r}")
    size = len(text.encode(errors="replace"))
    if size > MAX_PATTERN_BYTES:
        raise IllegalArgumentError(f"pattern has {size} bytes; at most {MAX_PATTERN_BYTES} are allowed")
    try:
        return re.compile(pattern)
    except re.error as cause:
        raise IllegalArgumentError(f"pattern {text!r} is not a regular expression: {cause}") from cause


class ConsumerRebalanceListener(ABC):
    """Receives changes of the assignment; given to `KafkaConsumer.subscribe`.

    Called by the thread that calls `poll`, `unsubscribe` or `close`, and only for subscriptions, never after `assign`.
    A callback may query, seek and commit, but not poll, subscribe or close: that raises `IllegalStateError`. An error
    of a callback is raised by the call it runs in, as the cause of a `KafkaError`, after the change of the assignment
    is finished.

    The order of a change is Kafka's. Eager assignors, and consumers without a group: automatic commit,
    `on_partitions_revoked` with all previous partitions (an empty set at the first time), then, after all members have
    done so, `on_partitions_assigned` with all new partitions. Cooperative assignors: automatic commit,
    `on_partitions_revoked` with the revoked partitions, if any; `on_partitions_assigned` with the added ones.
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: AbstractSet[TopicPartition]) -> None:
        """Called before partitions are given up; committing is still possible.

        Args:
            revoked: the revoked partitions; with an eager assignor all previous partitions.
        """

    @abstractmethod
    def on_partitions_assigned(self, assigned: AbstractSet[TopicPartition]) -> None:
        """Called after partitions were assigned and before they are read: the place to `seek`.

        Args:
            assigned: the added partitions; with an eager assignor all current partitions.
        """

    def on_partitions_lost(self, lost: AbstractSet[TopicPartition]) -> None:
        """Called after the session has expired, or another process took the static name: committing fails.

        Calls `on_partitions_revoked` unless it is overridden.

        Args:
            lost: all previous partitions.
        """
        self.on_partitions_revoked(lost)
