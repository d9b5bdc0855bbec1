"""Dead-letter buffer: records that a consumer could not read, held until a commit writes them as letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkalike.errors import IllegalStateError
from kafkalike.log.dead_letters.dead_letter_topic import batch_of, ensure
from kafkalike.log.group.group_offsets import GroupOffsets, MetadataOfReader
from kafkalike.log.topic.record_rules import check_batch
from kafkalike.model.dead_letter import Held, Letter, Lives
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.clock import Clock


MOST_LETTERS: Final = 10_000
MOST_BYTES: Final = 16 * 1024 * 1024
"""Letters that a consumer holds at most, and their bytes, about: then they must be committed before it reads on."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class DeadLetterBuffer:
    """Letters of one consumer. The consumer puts them in; a transaction's producer, maybe in another thread, asks too.

    Args:
        cluster: where source and dead-letter topics are.
        group_id: whose offsets letters are committed with.
        clock: time.
        lives: what the consumer holds, with the ids of the topics. Any thread may call it.
    """

    def __init__(self, cluster: Cluster, group_id: str, clock: Clock, lives: Callable[[], Lives]) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._offsets = GroupOffsets.of(cluster, clock)
        self._clock = clock
        self._lives = lives
        self._held = Held()
        """Replaced by the consumer's thread alone, so that no lock is needed, which an interrupt might leave shut."""
        self._noted: Mapping[TopicPartition, int] = {}
        """Offsets that others have committed, to be settled by the consumer's thread."""
        self._logs: dict[str, TopicLog] = {}
        """Dead-letter topics, as they were when the first letter for them came."""

    @property
    def group_id(self) -> str:
        """Whose offsets letters are committed with."""
        return self._group_id

    @property
    def held(self) -> Held:
        """What waits for a commit."""
        return self._held

    @property
    def full(self) -> bool:
        """Whether a commit is due before more can be read. Caller: the consumer."""
        self._take_notes()
        return self._held.count >= MOST_LETTERS or self._held.size >= MOST_BYTES

    # --- in ------------------------------------------------------------------------------------

    def room(self, letter: Letter, count: int, size: int) -> bool:
        """Whether a letter may be held, besides others of that number and size that are about to be."""
        count, size = self._held.count + count, self._held.size + size
        return not count or (count < MOST_LETTERS and size + letter.size <= MOST_BYTES)

    def check(self, letter: Letter) -> None:
        """Refuse a letter that its topic would not take, while its record can still be read again.

        Raises:
            IllegalStateError: its topic is its record's own.
            KafkaError: the dead-letter topic does not exist and must not be created, or its settings refuse the letter.
        """
        if letter.topic == letter.origin.topic:
            raise IllegalStateError(f"{letter.topic} is the dead-letter topic itself")
        found = self._logs.get(letter.topic)
        if found is None:
            found = self._logs[letter.topic] = ensure(self._cluster, letter.topic, letter.origin.topic)
        batch = batch_of([letter], found.info.num_partitions)
        check_batch(batch, found.info, found.config, self._clock.now_ms(), found.schemas)

    def read(self, tp: TopicPartition, span: range, letters: Sequence[Letter]) -> None:
        """Some offsets were read, and these of them could not be; see `Held.read`. Caller: the consumer."""
        self._take_notes()
        if letters or tp in self._held.parts:
            lives = self._lives()
            self._held = self._held.of(lives).read(tp, lives.get(tp), span, letters)

    # --- out -----------------------------------------------------------------------------------

    def due(self, offsets: Mapping[TopicPartition, int]) -> Sequence[Letter]:
        """The letters that a commit of these offsets has to write; looks at what the group has committed.

        Any thread may call it.

        Raises:
            KafkaError: the table of groups cannot be read.
        """
        lives = self._lives()
        held = self._held.of(lives)
        if not held.below(offsets):
            return ()
        ids = {tp.topic: topic_id or "" for tp, topic_id in lives.items()}
        asked = [tp for tp in held.parts if tp in offsets]
        committed = {tp: at.offset for tp, at in self._offsets.committed(self._group_id, asked, ids).items()}
        return held.due(offsets, committed)

    def settle(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These offsets are committed, with their letters. Caller: the consumer."""
        self._held = self._held.settled(offsets)

    def note(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The same, from any thread. A note that gets lost costs memory until the next commit finds out by itself."""
        self._noted = {**self._noted, **offsets}

    def _take_notes(self) -> None:
        """Before letters of records that are read again come in: these are other ones."""
        if self._noted:
            noted, self._noted = self._noted, {}
            self._held = self._held.settled(noted)


class MetadataWithLetters(MetadataOfReader):
    """What `KafkaConsumer.group_metadata()` gives where records may become dead letters.

    `send_offsets_to_transaction` finds the consumer's letters by it, also those that come later: the transaction that
    commits the offsets writes them. A copy in another process has no letters.
    """

    box: DeadLetterBuffer

    @classmethod
    def of(cls, known: MetadataOfReader, box: DeadLetterBuffer) -> MetadataWithLetters:
        """The same, with the letters."""
        made = cls(*known)
        made.topic_ids, made.box = known.topic_ids, box
        return made


def plain(offsets: Offsets) -> dict[TopicPartition, int]:
    """Offsets without notes."""
    return {tp: at.offset for tp, at in offsets.items()}
