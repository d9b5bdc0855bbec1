"""The checked options of the format's source, with the names of Spark's Kafka source."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.brokers import ReadFrom
from kafkalike.model.config.storage_options import SentOptions
from kafkalike.model.names import check_group_id, check_topic_name
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format import positions
from kafkalike.spark.format.option_values import MAX_LONG, by_known_name, duration_ms, flag, number, warn_of_names, word

_log = logging.getLogger(__name__)

BOOTSTRAP: Final = "kafka.bootstrap.servers"
STRATEGIES: Final = ("assign", "subscribe", "subscribePattern")
MAX_PATTERN_BYTES: Final = 1_024
MAX_PARTS: Final = 1_000_000
"""Most Spark partitions that options may request; each one is a task."""

GROUP: Final = "kafka.group.id"
GROUP_TOO: Final = "group_id"
"""Alternative name, as in the Python functions."""
RACK: Final = "kafka.client.rack"
STRIPE: Final = "stripeReads"
RESET: Final = "kafka.auto.offset.reset"
RESETS: Final = ("earliest", "latest", "none")
COMMITTED: Final = "committed"
"""Position word for a group's committed offsets."""

ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
LIMITS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

TOPIC: Final = "topic"
"""The sink's name of the topic, read if no strategy is given."""

KNOWN: Final = (
    BOOTSTRAP,
    *STRATEGIES,
    TOPIC,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    *ENDING,
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    *LIMITS,
    "minPartitions",
    "maxPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    GROUP,
    GROUP_TOO,
    RESET,
    "kafka.isolation.level",
    RACK,
    STRIPE,
)
"""Options with an effect."""

NO_MEANING: Final = {
    "kafkaConsumer.pollTimeoutMs": "records are read from files, not polled",
    "fetchOffset.numRetries": "offsets are read from the table's log, not fetched",
    "fetchOffset.retryIntervalMs": "offsets are read from the table's log, not fetched",
    "groupIdPrefix": "no consumer group is made for a query",
}
"""Options of Spark's Kafka source without an effect here; each one gets a warning."""

REFUSED: Final = {
    "kafka.key.deserializer": "keys are read as bytes; cast them in the query",
    "kafka.value.deserializer": "values are read as bytes; cast them in the query",
    "kafka.enable.auto.commit": "the query's checkpoint holds its offsets",
    "kafka.interceptor.classes": "there is no Kafka client that could call them",
    "kafka.key.serializer": "it belongs to a producer",
    "kafka.value.serializer": "it belongs to a producer",
}
"""Kafka settings that Spark's Kafka source refuses, with the reason here."""


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """The partitions to read, by a strategy of three; all are empty if `assign` is empty."""

    assign: frozenset[TopicPartition] = frozenset()
    topics: tuple[str, ...] = ()
    pattern: str = ""

    def matches(self, topic: str) -> bool:
        """Return whether the query reads a topic."""
        if self.pattern:
            # Spark's Kafka source searches for the pattern in the name (`SubscribePatternStrategy`). A Kafka consumer
            # would match the whole name.
            return re.search(self.pattern, topic) is not None
        return topic in self.topics or any(tp.topic == topic for tp in self.assign)

    @property
    def named(self) -> tuple[str, ...]:
        """Return the topics that must exist; empty with a pattern."""
        return tuple(sorted({tp.topic for tp in self.assign} | set(self.topics)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The checked options of a source."""

    root: str
    """The cluster's root, as given."""
    storage: SentOptions | None
    """Credentials and endpoint of an object store. None takes the environment's."""
    choice: TopicChoice
    starting: positions.Position | None
    """None for the default: latest in a stream, earliest in a batch."""
    ending: positions.Position
    or_latest: bool
    """Starts at the log end if no record is at or after the starting time, instead of failing."""
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    group_id: str | None
    read_from: ReadFrom
    """The preferred replica to read from; see `kafkalike.connect.connect`."""
    given: frozenset[str]
    """Given options, by the names of `KNOWN`."""


def parse_options(given: Mapping[str, str], storage: SentOptions | None = None) -> SourceOptions:
    """Check options that can be judged alone; their names may be in any case.

    Args:
        given: the user's options.
        storage: credentials and endpoint of an object store.

    Raises:
        IllegalArgumentError: an option is unknown, refused, missing, or has a value that is not allowed.
    """
    options = by_known_name(given, KNOWN, NO_MEANING, REFUSED)
    root = root_of(options)
    _isolation(options.get("kafka.isolation.level"))
    minimum, maximum = _bounds(options, "minOffsetsPerTrigger", "maxOffsetsPerTrigger", MAX_LONG)
    fewest, most = _bounds(options, "minPartitions", "maxPartitions", MAX_PARTS)
    starting, ending = _position(options, "starting"), _position(options, "ending")
    group = _group(options, starting, ending)
    return SourceOptions(
        root=root,
        storage=storage,
        choice=_choice(options),
        starting=starting,
        ending=ending or positions.Everywhere(positions.LATEST),
        or_latest=word(options, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        fail_on_data_loss=flag(options, "failOnDataLoss", default=True),
        include_headers=flag(options, "includeHeaders", default=False),
        min_partitions=fewest,
        max_partitions=most,
        max_records_per_partition=number(options, "maxRecordsPerPartition", MAX_LONG),
        max_offsets_per_trigger=maximum,
        min_offsets_per_trigger=minimum,
        max_trigger_delay_ms=duration_ms(options.get("maxTriggerDelay", "15m")),
        group_id=group,
        read_from=ReadFrom(options.get(RACK, ""), flag(options, STRIPE, default=False)),
        given=frozenset(options),
    )


def _bounds(options: Mapping[str, str], low: str, high: str, limit: int) -> tuple[int | None, int | None]:
    """Parse two options of which the first must not exceed the second."""
    least, most = number(options, low, limit), number(options, high, limit)
    if least is not None and most is not None and least > most:
        raise IllegalArgumentError(f"{low} ({least}) is above {high} ({most})")
    return least, most


def check_batch(options: SourceOptions) -> None:
    """Check the rules for batch queries, and log a warning for options of streams.

    Raises:
        IllegalArgumentError: the query starts at latest, ends at earliest, or starts after it ends.
    """
    if options.starting is not None:
        positions.refuse_mark("startingOffsets", options.starting, positions.LATEST)
        positions.check_literals(options.starting, options.ending)
    positions.refuse_mark("endingOffsets", options.ending, positions.EARLIEST)
    place = any(isinstance(position, positions.CommittedPosition) for position in (options.starting, options.ending))
    for name in (*LIMITS, GROUP, GROUP_TOO):
        if name in options.given and not (place and name not in LIMITS):
            _log.warning("option %s has no effect in a batch query", name)


def check_stream(options: SourceOptions) -> None:
    """Check the rules for streaming queries.

    Raises:
        IllegalArgumentError: an end is given.
    """
    for name in ENDING:
        if name in options.given:
            raise IllegalArgumentError(f"option {name} is not valid in streaming queries: a stream has no end")
    if "maxTriggerDelay" in options.given and options.min_offsets_per_trigger is None:
        _log.warning("option maxTriggerDelay has no effect without minOffsetsPerTrigger")


def warn_without_meaning(given: Iterable[str]) -> None:
    """Log a warning for each option without an effect."""
    warn_of_names(given, KNOWN, NO_MEANING)


def root_of(options: Mapping[str, str]) -> str:
    """Return the cluster's root.

    Raises:
        IllegalArgumentError: the option is missing.
    """
    if not options.get(BOOTSTRAP, "").strip():
        raise IllegalArgumentError(f"option {BOOTSTRAP} must name the cluster's root, such as /data/kafkalike")
    return options[BOOTSTRAP]


def _choice(options: Mapping[str, str]) -> TopicChoice:
    named = [name for name in STRATEGIES if name in options]
    if not named and TOPIC in options:
        # A table is both read and written, so the sink's name of its topic works for both.
        return TopicChoice(topics=(check_topic_name(options[TOPIC].strip()),))
    if len(named) != 1:
        which = "none is" if not named else f"{' and '.join(named)} are"
        raise IllegalArgumentError(
            f"exactly one of the topic options {', '.join(STRATEGIES)} must be specified, but {which}: only one of "
            "them can be specified"
        )
    text = options[named[0]]
    if named[0] == "assign":
        partitions = positions.parse_partitions("assign", text) if text.strip() else frozenset()
        if not text.strip():
            raise IllegalArgumentError(f"option assign: no topic-partitions to assign in {text!r}")
        for tp in partitions:
            check_topic_name(tp.topic)
        return TopicChoice(assign=partitions)
    if named[0] == "subscribe":
        topics = tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))
        if not topics:
            raise IllegalArgumentError(f"option subscribe: no topics to subscribe to in {text!r}")
        return TopicChoice(topics=tuple(map(check_topic_name, topics)))
    return TopicChoice(pattern=_pattern(text))


def _group(options: Mapping[str, str], *starts: positions.Position | None) -> str | None:
    """Return the group id, after checking the options that need a group."""
    named = {options[name] for name in (GROUP, GROUP_TOO) if name in options}
    if len(named) > 1:
        raise IllegalArgumentError(
            f"options {GROUP} and {GROUP_TOO} are the same and name {' and '.join(sorted(named))}"
        )
    place = any(isinstance(position, positions.CommittedPosition) for position in starts)
    if place and not named:
        raise IllegalArgumentError(f"startingOffsets and endingOffsets {COMMITTED!r} need {GROUP}: whose offsets?")
    if RESET in options and not place:
        raise IllegalArgumentError(
            f"option {RESET} is not supported without startingOffsets or endingOffsets {COMMITTED!r}; startingOffsets "
            "sets where to start"
        )
    return check_group_id(named.pop()) if named else None


def _pattern(given: str) -> str:
    text = given.strip()
    if not text:
        raise IllegalArgumentError("option subscribePattern: the pattern to subscribe to is empty")
    size = len(text.encode(errors="replace"))
    if size > MAX_PATTERN_BYTES:
        # Python's engine may run forever on a long pattern.
        raise IllegalArgumentError(f"option subscribePattern has {size} bytes; at most {MAX_PATTERN_BYTES} are allowed")
    try:
        re.compile(text)
    except re.error as cause:
        raise IllegalArgumentError(f"option subscribePattern: {text!r} is not a regular expression: {cause}") from cause
    return text


def _position(options: Mapping[str, str], side: str) -> positions.Position | None:
    """Parse a position. The global time wins over times by partition, which win over offsets."""
    timestamp, by_timestamp, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    # All given options must be valid, even if another one wins.
    at_offsets: positions.Position | None = None
    if options.get(offsets, "").strip().lower() == COMMITTED:
        at_offsets = positions.CommittedPosition(word(options, RESET, RESETS) if RESET in options else None)
    elif offsets in options:
        at_offsets = positions.parse_offsets(offsets, options[offsets])
    at_times = positions.parse_timestamps(by_timestamp, options[by_timestamp]) if by_timestamp in options else None
    if timestamp in options:
        text = options[timestamp].strip()
        if not (text.isascii() and text.isdigit()) or int(text) > MAX_LONG:
            raise IllegalArgumentError(
                f"option {timestamp} must be ms since 1970 as a whole number, not {options[timestamp]!r}"
            )
        return positions.AtTime(int(text))
    return at_times or at_offsets


def _isolation(text: str | None) -> None:
    if text is not None and text not in {"read_committed", "read_uncommitted"}:
        raise IllegalArgumentError(
            f"option kafka.isolation.level must be read_committed or read_uncommitted, not {text!r}"
        )


def described(options: SourceOptions) -> str:
    """Return the topics of a query as Spark's Kafka source shows them.

    >>> described(parse_options({"kafka.bootstrap.servers": "/data", "subscribe": "orders,clicks"}))
    'Subscribe[clicks, orders]'
    """
    if options.choice.pattern:
        return f"SubscribePattern[{options.choice.pattern}]"
    assigned = sorted(f"{tp.topic}-{tp.partition}" for tp in options.choice.assign)
    return f"Assign[{', '.join(assigned)}]" if assigned else f"Subscribe[{', '.join(options.choice.named)}]"
