"""Dead letter queue: the dead-letter topics of a cluster, their records, and why each record could not be read."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalike.admin.dead_letter_replay import GROUP, Replay, ReplayRun
from kafkalike.connect import connect
from kafkalike.errors import KafkaError
from kafkalike.log.dead_letter_topic import Filter, StoredLetter, letters_of
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.dead_letter import SUFFIX, Replayed, read_context
from kafkalike.model.names import TopicId, check_topic_name
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.topic import TopicInfo

__all__ = ["DeadLetterTopic", "DeadLetters", "Filter", "Replay", "StoredLetter"]

_LOOK_BYTES: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterTopic:
    """Statistics of a dead-letter topic."""

    topic: str
    letters: int
    """Number of dead letters in the topic."""
    waiting: int
    """Number of dead letters that were not replayed."""
    classes: Mapping[str, int] = field(default_factory=dict)
    """Dead letters by error class, most frequent first; the empty name counts letters without a class."""
    sources: Mapping[str, int] = field(default_factory=dict)
    """Dead letters by source topic."""


class DeadLetters:
    """The dead letters of a cluster. Thread-safe; only `replay` writes.

    Args:
        bootstrap_servers: the cluster; see `kafkalike.connect.connect`.
        storage_options: options of an object store; see `kafkalike.connect.connect`.
        clock: source of time.

    Raises:
        KafkaConfigurationError, UnsafeStorageError, KafkaConnectionError: see `kafkalike.connect.connect`.
    """

    def __init__(
        self,
        bootstrap_servers: Address | None = None,
        *,
        storage_options: StorageOptionsLike | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._cluster = connect(bootstrap_servers, storage_options)
        self._clock = clock
        self._first_records: dict[TopicId, bool] = {}
        """For each topic, True if its first record is a dead letter. Cached, because there may be thousands of topics.
        """
        self._empty: dict[TopicId, int] = {}
        """Topics that were empty or unreadable when probed, with the number of that probe."""
        self._looks = 0
        self._summaries: dict[TopicId, tuple[_Seen, DeadLetterTopic]] = {}

    def names(self, most: int | None = None) -> tuple[Sequence[str], int]:
        """Return the names of dead-letter topics.

        A name that ends with `.dlq` identifies them, or a first record that is a dead letter.

        Args:
            most: maximum number of topics to probe; None for all. Topics that were never probed come first, then up to
                a quarter of the empty ones, which may have records by then. The result for a first record is cached.

        Returns:
            The names, sorted, and the number of topics that were never probed.
        """
        known = self._cluster.topics()
        found: list[str] = []
        asked: list[TopicInfo] = []
        for name, info in known.items():
            first = True if name.endswith(SUFFIX) else self._first_records.get(info.topic_id)
            if first is None:
                asked.append(info)
            elif first:
                found.append(name)
        if most is not None:
            new = [info for info in asked if info.topic_id not in self._empty]
            empty = [info for info in asked if info.topic_id in self._empty]
            empty.sort(key=lambda info: self._empty[info.topic_id])
            asked = [*new, *empty[: max(1, most // 4)]]
        for info in asked[:most]:
            # Ignore errors here, because the caller did not ask about this topic.
            with contextlib.suppress(KafkaError):
                found += [info.name] if self._holds_letters(info) else []
        return sorted(found), sum(info.topic_id not in self._empty for info in asked[most:]) if most is not None else 0

    def topics(self, named: Collection[str] = (), group: str = GROUP) -> Sequence[DeadLetterTopic]:
        """Return statistics of dead-letter topics; reads the headers of topics that changed since the last call.

        Args:
            named: the topics; empty for all of `names`.
            group: the group whose offsets determine `waiting`.

        Raises:
            UnknownTopicOrPartitionError: a topic in `named` does not exist.
        """
        names: Sequence[str] = [check_topic_name(name) for name in named] if named else self.names()[0]
        return [self._summary(name, group) for name in sorted(names)]

    def read(self, topic: str, which: Filter | None = None) -> Iterator[StoredLetter]:
        """Yield the dead letters of a topic, by partition and offset.

        Args:
            topic: the dead-letter topic.
            which: only these dead letters; None for all.

        Raises:
            UnknownTopicOrPartitionError: the topic or partition does not exist.
        """
        log = self._log(topic)
        wanted = Filter() if which is None else which
        for partition in wanted.partitions_of(log.info):
            for letter in letters_of(log, partition, log.log_start(partition)):
                if wanted.takes(letter):
                    yield letter

    def replay(
        self,
        topic: str,
        which: Filter | None = None,
        *,
        to: str | None = None,
        group: str = GROUP,
        dry_run: bool = True,
        change: Callable[[StoredLetter], StoredLetter | None] | None = None,
        timeout_ms: float = 120_000,
    ) -> Replay:
        """Send dead letters back to their source topics, each once.

        A dead letter is sent with the key, value, headers and time of its record, and to its partition if that exists.
        Records and the group's progress are committed together, some thousands of letters at a time, so a group replays
        no letter twice, even if calls are interrupted and repeated. Letters that arrive during the call are left for
        the next one.

        Args:
            topic: the dead-letter topic.
            which: only these dead letters; others can be replayed later.
            to: another target topic for all letters; partitions then follow from the keys.
            group: the consumer group whose offsets record the progress. It must not have members.
            dry_run: only return what would be done. This is the default, because sent records cannot be taken back.
            change: returns a changed letter, for instance with a repaired value; None leaves the letter for a later
                call.
            timeout_ms: how long each step waits for other writers.

        Returns:
            What was done, or would be done.

        Raises:
            IllegalArgumentError: `to` is the dead-letter topic; a letter has no source topic and `to` is missing; or
                the letters excluded by the filter are too scattered to be recorded in the group's offsets.
            UnknownTopicOrPartitionError: a topic does not exist.
            CommitFailedError: the group has members.
            ProducerFencedError: another call replays the topic for this group.
            InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError: a topic rejects a record; this
                transaction was not written, earlier ones were.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: call again.
        """
        replaying = ReplayRun(
            cluster=self._cluster,
            clock=self._clock,
            source=self._log(topic),
            group=group,
            to=to,
            change=change,
            timeout_ms=timeout_ms,
        )
        return replaying.run(Filter() if which is None else which, dry_run=dry_run)

    def _log(self, topic: str) -> TopicLog:
        return self._cluster.log(check_topic_name(topic))

    def _holds_letters(self, info: TopicInfo) -> bool:
        """Return True if the first record of a topic is a dead letter."""
        self._looks += 1
        self._empty[info.topic_id] = self._looks
        log = self._cluster.log(info.name)
        topic_id = log.info.topic_id
        for partition in log.info.partitions:
            chunk = log.reader(partition, log.log_start(partition)).read(_LOOK_BYTES)
            if chunk is not None:
                headers = chunk.split(1)[0].columns().headers
                found = bool(headers) and read_context(headers[0]) is not None  # type: ignore[index]
                self._first_records[topic_id] = found
                self._empty.pop(topic_id, None)
                return found
        return False

    def _summary(self, topic: str, group: str) -> DeadLetterTopic:
        log = self._log(topic)
        tps = [TopicPartition(topic, partition) for partition in log.info.partitions]
        committed = GroupOffsets.of(self._cluster, self._clock).committed(group, tps, {topic: log.info.topic_id})
        seen = _Seen(log.version, tuple(map(log.log_start, log.info.partitions)), group, tuple(committed.items()))
        known = self._summaries.get(log.info.topic_id)
        if known is not None and known[0] == seen:
            return known[1]
        counted = _counted(log, committed)
        self._summaries[log.info.topic_id] = (seen, counted)
        return counted


class _Seen(NamedTuple):
    """Cache key of a topic's statistics."""

    version: int
    starts: tuple[int, ...]
    group: str
    committed: tuple[tuple[TopicPartition, OffsetAndMetadata], ...]


def _counted(log: TopicLog, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> DeadLetterTopic:
    topic = log.info.name
    count = waiting = 0
    classes: Counter[str] = Counter()
    sources: Counter[str] = Counter()
    for partition in log.info.partitions:
        start = log.log_start(partition)
        done = Replayed.of(committed.get(TopicPartition(topic, partition)), start)
        for letter in letters_of(log, partition, start):
            count += 1
            waiting += letter.offset not in done
            about = letter.context
            classes[about.exception if about else ""] += 1
            sources[about.origin.topic if about and about.origin else ""] += 1
    return DeadLetterTopic(
        topic=topic,
        letters=count,
        waiting=waiting,
        classes=dict(classes.most_common()),
        sources=dict(sources.most_common()),
    )
