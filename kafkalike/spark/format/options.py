"""Options: what a user gave to `format("kafkalike")` in, checked settings out; as Spark's Kafka source has them."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafkalike.config.properties import nearest
from kafkalike.config.storage import SentOptions
from kafkalike.errors import IllegalArgumentError
from kafkalike.model.names import check_group_id, check_topic_name
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format.positions import (
    EARLIEST,
    LATEST,
    AtTime,
    Committed,
    Everywhere,
    Position,
    check_literals,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
    refuse_mark,
)

_log = logging.getLogger(__name__)

BOOTSTRAP: Final = "kafka.bootstrap.servers"
STORAGE: Final = "storage."
"""How options begin that say who asks an object store, where they are no secret: in files of settings."""
STRATEGIES: Final = ("assign", "subscribe", "subscribePattern")
MAX_PATTERN_BYTES: Final = 1_024
MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
SLIP: Final = 0.85
"""From how much likeness on an unknown option is taken for a slip of the pen: `topics`, `startingOffset`."""
MAX_PARTS: Final = 1_000_000
"""Most Spark partitions that options may name: each one is a task."""

GROUP: Final = "kafka.group.id"
GROUP_TOO: Final = "group_id"
"""The same, as Python's functions call it."""
RESET: Final = "kafka.auto.offset.reset"
RESETS: Final = ("earliest", "latest", "none")
COMMITTED: Final = "committed"
"""The word for where the group stands."""

ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
LIMITS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

TOPIC: Final = "topic"
"""The sink's name of the topic; read where no strategy is given."""

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
)
"""Options with a meaning."""

NO_MEANING: Final = {
    "kafkaConsumer.pollTimeoutMs": "records are read from files, not polled",
    "fetchOffset.numRetries": "offsets are read from the table's log, not fetched",
    "fetchOffset.retryIntervalMs": "offsets are read from the table's log, not fetched",
    "groupIdPrefix": "no consumer group is made for a query",
}
"""Options of Spark's Kafka source that change nothing here; each one is warned about."""

TABLE: Final = ("provider", "path", "location", "owner", "external", "comment", "collation", "is_managed_location")
"""What Spark's catalog adds to the options of a table (`CREATE TABLE … USING kafkalike`); `option.` before a name of
the user's is one more way in which it gives them. Nothing is said of these."""

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
class Choice:
    """Which partitions are read: exactly one of the three; none of them for `assign` of nothing."""

    assign: frozenset[TopicPartition] = frozenset()
    topics: tuple[str, ...] = ()
    pattern: str = ""

    def matches(self, topic: str) -> bool:
        """Whether a topic is one of those read."""
        if self.pattern:
            # Spark's Kafka source looks for the pattern in the name (`SubscribePatternStrategy`); a Kafka consumer
            # would want it to match the whole name.
            return re.search(self.pattern, topic) is not None
        return topic in self.topics or any(tp.topic == topic for tp in self.assign)

    @property
    def named(self) -> tuple[str, ...]:
        """Topics that must exist; none with a pattern."""
        return tuple(sorted({tp.topic for tp in self.assign} | set(self.topics)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Checked options."""

    root: str
    """The cluster's root, as given."""
    storage: SentOptions | None
    """Who asks an object store; None: the environment says it."""
    choice: Choice
    starting: Position | None
    """None for the default: latest in a stream, earliest in a batch."""
    ending: Position
    or_latest: bool
    """Begin at the log end where no record is at or after the starting time, instead of failing."""
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    group_id: str | None
    given: frozenset[str]
    """Options that were given, by the names of `KNOWN`."""


def parse_options(given: Mapping[str, str], storage: SentOptions | None = None) -> SourceOptions:
    """Check options that may be wrong in themselves; names of options count in any case.

    Args:
        given: what the user gave.
        storage: who asks an object store.

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
        ending=ending or Everywhere(LATEST),
        or_latest=_word(options, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        fail_on_data_loss=flag(options, "failOnDataLoss", default=True),
        include_headers=flag(options, "includeHeaders", default=False),
        min_partitions=fewest,
        max_partitions=most,
        max_records_per_partition=number(options, "maxRecordsPerPartition", MAX_LONG),
        max_offsets_per_trigger=maximum,
        min_offsets_per_trigger=minimum,
        max_trigger_delay_ms=_duration_ms(options.get("maxTriggerDelay", "15m")),
        group_id=group,
        given=frozenset(options),
    )


def _bounds(options: Mapping[str, str], low: str, high: str, limit: int) -> tuple[int | None, int | None]:
    """The values of two options of which the first must not be above the second."""
    least, most = number(options, low, limit), number(options, high, limit)
    if least is not None and most is not None and least > most:
        raise IllegalArgumentError(f"{low} ({least}) is above {high} ({most})")
    return least, most


def check_batch(options: SourceOptions) -> None:
    """Rules that only a batch has; limits of a stream are warned about.

    Raises:
        IllegalArgumentError: it begins at latest, ends at earliest, or begins after it ends.
    """
    if options.starting is not None:
        refuse_mark("startingOffsets", options.starting, LATEST)
        check_literals(options.starting, options.ending)
    refuse_mark("endingOffsets", options.ending, EARLIEST)
    place = any(isinstance(position, Committed) for position in (options.starting, options.ending))
    for name in (*LIMITS, GROUP, GROUP_TOO):
        if name in options.given and not (place and name not in LIMITS):
            _log.warning("option %s has no effect in a batch query", name)


def check_stream(options: SourceOptions) -> None:
    """Rules that only a stream has.

    Raises:
        IllegalArgumentError: an end is given.
    """
    for name in ENDING:
        if name in options.given:
            raise IllegalArgumentError(f"option {name} is not valid in streaming queries: a stream has no end")
    if "maxTriggerDelay" in options.given and options.min_offsets_per_trigger is None:
        _log.warning("option maxTriggerDelay has no effect without minOffsetsPerTrigger")


def by_known_name(
    given: Mapping[str, str], known: Sequence[str], no_meaning: Iterable[str], refused: Mapping[str, str]
) -> dict[str, str]:
    """Options by the names they have here, in whatever case they were given.

    Args:
        given: what the user gave.
        known: options with a meaning.
        no_meaning: options that change nothing.
        refused: options that are refused, with the reason.

    Raises:
        IllegalArgumentError: an option is refused; or it is unknown and looks like a known one, so it is a slip.
            Spark's Kafka connector takes any other option and does nothing with it; so does this.
    """
    canonical = {name.lower(): name for name in (*known, *no_meaning, *refused)}
    found = {}
    for name, value in given.items():
        if of_table(name):
            continue
        own = canonical.get(name.lower())
        if own is not None and own in refused:
            raise IllegalArgumentError(f"option {own} is not supported: {refused[own]}")
        if name.lower().startswith(STORAGE):
            raise IllegalArgumentError(
                f"option {name} is not supported, as options stand in Spark's plans: give storage_options to "
                "kafkalike.spark.session or kafkalike.spark.register_format, or set environment variables"
            )
        if own is not None:
            found[own] = value
        elif "." not in name and difflib.get_close_matches(name.lower(), map(str.lower, known), 1, SLIP):
            raise IllegalArgumentError(
                f"unknown option {name}{nearest(name, known)}; the options are {', '.join(known)}"
            )
    return found


def of_table(name: str) -> bool:
    """Whether an option comes from Spark's catalog."""
    return name.lower() in TABLE or name.lower().startswith("option.")


def root_of(options: Mapping[str, str]) -> str:
    """The cluster's root.

    Raises:
        IllegalArgumentError: it is missing.
    """
    if not options.get(BOOTSTRAP, "").strip():
        raise IllegalArgumentError(f"option {BOOTSTRAP} must name the cluster's root, such as /data/kafkalike")
    return options[BOOTSTRAP]


def warn_without_meaning(
    given: Iterable[str], known: Iterable[str] = KNOWN, no_meaning: Mapping[str, str] = NO_MEANING
) -> None:
    """Say by name, on standard error, which options are taken and change nothing."""
    reasons = {name.lower(): (name, reason) for name, reason in no_meaning.items()}
    meant = {name.lower() for name in known}
    for option in given:
        low = option.lower()
        if of_table(option):
            continue
        if low in reasons:
            _log.warning("option %s has no effect: %s", *reasons[low])
        elif low.startswith("kafka.") and low not in meant:
            _log.warning("option %s has no effect: there is no broker and no Kafka client", option)
        elif f"kafka.{low}" in meant:
            _log.warning("option %s has no effect without kafka. in front: kafka.%s", option, low)
        elif low not in meant:
            _log.warning("option %s has no effect: the format has no such option", option)


def _choice(options: Mapping[str, str]) -> Choice:
    named = [name for name in STRATEGIES if name in options]
    if not named and TOPIC in options:
        # A table is both read and written, and the sink's name of its topic will do for both.
        return Choice(topics=(check_topic_name(options[TOPIC].strip()),))
    if len(named) != 1:
        which = "none is" if not named else f"{' and '.join(named)} are"
        raise IllegalArgumentError(
            f"exactly one of the topic options {', '.join(STRATEGIES)} must be specified, but {which}: only one of "
            "them can be specified"
        )
    text = options[named[0]]
    if named[0] == "assign":
        partitions = parse_partitions("assign", text) if text.strip() else frozenset()
        if not text.strip():
            raise IllegalArgumentError(f"option assign: no topic-partitions to assign in {text!r}")
        for tp in partitions:
            check_topic_name(tp.topic)
        return Choice(assign=partitions)
    if named[0] == "subscribe":
        topics = tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))
        if not topics:
            raise IllegalArgumentError(f"option subscribe: no topics to subscribe to in {text!r}")
        return Choice(topics=tuple(map(check_topic_name, topics)))
    return Choice(pattern=_pattern(text))


def _group(options: Mapping[str, str], *positions: Position | None) -> str | None:
    """The group that is named, with what needs one."""
    named = {options[name] for name in (GROUP, GROUP_TOO) if name in options}
    if len(named) > 1:
        raise IllegalArgumentError(
            f"options {GROUP} and {GROUP_TOO} are the same and name {' and '.join(sorted(named))}"
        )
    place = any(isinstance(position, Committed) for position in positions)
    if place and not named:
        raise IllegalArgumentError(f"startingOffsets and endingOffsets {COMMITTED!r} need {GROUP}: whose offsets?")
    if RESET in options and not place:
        raise IllegalArgumentError(
            f"option {RESET} is not supported: where to begin is said by startingOffsets; it goes with the word "
            f"{COMMITTED!r} there"
        )
    return check_group_id(named.pop()) if named else None


def _pattern(given: str) -> str:
    text = given.strip()
    if not text:
        raise IllegalArgumentError("option subscribePattern: the pattern to subscribe to is empty")
    size = len(text.encode(errors="replace"))
    if size > MAX_PATTERN_BYTES:
        # Python's engine may take for ever for a long one.
        raise IllegalArgumentError(f"option subscribePattern has {size} bytes; at most {MAX_PATTERN_BYTES} are allowed")
    try:
        re.compile(text)
    except re.error as cause:
        raise IllegalArgumentError(f"option subscribePattern: {text!r} is no regular expression: {cause}") from cause
    return text


def _position(options: Mapping[str, str], side: str) -> Position | None:
    """The global time wins over times by partition, which win over offsets."""
    timestamp, by_timestamp, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    # All of them must be right, also those that another one wins over.
    at_offsets: Position | None = None
    if options.get(offsets, "").strip().lower() == COMMITTED:
        at_offsets = Committed(_word(options, RESET, RESETS) if RESET in options else None)
    elif offsets in options:
        at_offsets = parse_offsets(offsets, options[offsets])
    at_times = parse_timestamps(by_timestamp, options[by_timestamp]) if by_timestamp in options else None
    if timestamp in options:
        text = options[timestamp].strip()
        if not (text.isascii() and text.isdigit()) or int(text) > MAX_LONG:
            raise IllegalArgumentError(
                f"option {timestamp} must be ms since 1970 as a whole number, not {options[timestamp]!r}"
            )
        return AtTime(int(text))
    return at_times or at_offsets


def number(options: Mapping[str, str], name: str, most: int, least: int = 1) -> int | None:
    """An option that is a whole number from `least` to `most`."""
    text = options.get(name)
    if text is None:
        return None
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit()) or not least <= int(stripped) <= most:
        what = "a positive whole number" if least else "a whole number from 0"
        raise IllegalArgumentError(f"option {name} must be {what} up to {most}, not {text!r}")
    return int(stripped)


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """An option that is true or false, in any case."""
    text = options.get(name)
    if text is None:
        return default
    if text.strip().lower() not in {"true", "false"}:
        raise IllegalArgumentError(f"option {name} must be true or false, not {text!r}")
    return text.strip().lower() == "true"


def _word(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    text = options.get(name, words[0]).strip().lower()
    if text not in words:
        raise IllegalArgumentError(f"option {name} must be one of {', '.join(words)}, not {options[name]!r}")
    return text


def _isolation(text: str | None) -> None:
    if text is not None and text not in {"read_committed", "read_uncommitted"}:
        raise IllegalArgumentError(
            f"option kafka.isolation.level must be read_committed or read_uncommitted, not {text!r}"
        )


_UNITS: Final = {
    **dict.fromkeys(("", "ms"), 1),
    "s": 1_000,
    **dict.fromkeys(("m", "min"), 60_000),
    "h": 3_600_000,
    "d": 86_400_000,
}


def _duration_ms(text: str) -> int:
    """A duration as Spark writes it (`JavaUtils.timeStringAs`): `90s`, `15m`, `1h`; a bare number is ms."""
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        units = ", ".join(unit for unit in _UNITS if unit)
        raise IllegalArgumentError(f"option maxTriggerDelay must be a duration with a unit of {units}, not {text!r}")
    return int(match[1]) * _UNITS[match[2]]
