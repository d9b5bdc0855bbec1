"""Dead letter queue: the dead-letter topics of a cluster, their records, and why each record could not be read."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalike.admin.dead_letter_replay import GROUP, Replay, Replaying
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
    """A dead-letter topic."""

    topic: str
    letters: int
    """Records that it has."""
    waiting: int
    """Those of them that were not replayed."""
    classes: Mapping[str, int] = field(default_factory=dict)
    """Letters by the error's class, the most frequent first; under the empty name those that do not say it."""
    sources: Mapping[str, int] = field(default_factory=dict)
    """Letters by the topic that they come from."""


class DeadLetters:
    """The dead letters of a cluster. Thread-safe; nothing is changed but by `replay`.

    Args:
        bootstrap_servers: the cluster; see `kafkalike.connect.connect`.
        storage_options: of an object store; see there.
        clock: time.

    Raises:
        KafkaConfigurationError, UnsafeStorageError, KafkaConnectionError: see there.
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
        """Whether the first record of a topic was a letter: there may be thousands of topics to look into."""
        self._empty: dict[TopicId, int] = {}
        """Topics that had no record when they were looked into, or could not be read; the number of that look."""
        self._looks = 0
        self._summaries: dict[TopicId, tuple[_Seen, DeadLetterTopic]] = {}

    def names(self, most: int | None = None) -> tuple[Sequence[str], int]:
        """Names of the topics with dead letters: those that end with `.dlq`, and those whose first record is a letter.

        Args:
            most: topics that are looked into at most. Those that never were come first, then some empty ones, a quarter
                at most, as they may have a record by now; what a topic's first record is stays known. None looks into
                all.

        Returns:
            The names, sorted, and how many topics were never looked into.
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
            # What is wrong with a topic that nobody asked about is told elsewhere.
            with contextlib.suppress(KafkaError):
                found += [info.name] if self._holds_letters(info) else []
        return sorted(found), sum(info.topic_id not in self._empty for info in asked[most:]) if most is not None else 0

    def topics(self, named: Collection[str] = (), group: str = GROUP) -> Sequence[DeadLetterTopic]:
        """Dead-letter topics with what is in them; reads all headers of those that have changed since the last call.

        Args:
            named: only these; none means all of `names`.
            group: by whose offsets `waiting` is counted.

        Raises:
            UnknownTopicOrPartitionError: one of `named` does not exist.
        """
        names: Sequence[str] = [check_topic_name(name) for name in named] if named else self.names()[0]
        return [self._summary(name, group) for name in sorted(names)]

    def read(self, topic: str, which: Filter | None = None) -> Iterator[StoredLetter]:
        """The letters of a topic, partition by partition, in their order.

        Args:
            topic: the dead-letter topic.
            which: only those; None means all.

        Raises:
            UnknownTopicOrPartitionError: no such topic or partition.
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
        """Send letters back to the topics that they come from, each once.

        A letter gets back its record's key, value, headers and time, and its partition, if the topic has that one. The
        records and the group's progress are committed together, some thousands of letters at a time: however often
        it is interrupted and called again, no letter is replayed twice by one group. Letters that come meanwhile are
        left for the next call.

        Args:
            topic: the dead-letter topic.
            which: only these; the others can be replayed later.
            to: another topic for all of them; partitions then follow from the keys.
            group: a consumer group, whose offsets say what was replayed. It must have no members.
            dry_run: only say what would be done; on by default, as records that were sent cannot be taken back.
            change: makes another letter of one, with a value that can be read, for instance; None leaves it where it
                is, not replayed.
            timeout_ms: how long each step waits for other writers.

        Returns:
            What was done, or would be.

        Raises:
            IllegalArgumentError: `to` is the topic itself; a letter does not say where it comes from, and `to` is not
                given; or the letters that a filter leaves out are too scattered for the group to note.
            UnknownTopicOrPartitionError: a topic does not exist.
            CommitFailedError: the group has members.
            ProducerFencedError: another call replays the topic for the group.
            InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError: a topic does not take its record;
                nothing of this transaction was written, and those before it count.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: call again.
        """
        replaying = Replaying(
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
        """Whether the first record of a topic is a letter."""
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
    """What a summary was counted from: as long as it stays, so does the summary."""

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
