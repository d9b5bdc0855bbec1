"""Held: records that a consumer could not read in; which of them a commit of offsets makes dead letters out.

A letter is written by the commit that moves the group's offset past its record, in one outcome with it. So it waits in
memory until then, and what was read and never committed is read again by whoever comes next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafkalike.model.dead_letters.letters import Letter
from kafkalike.model.structs import TopicPartition

Lives = Mapping[TopicPartition, str | None]
"""Ids of the topics of partitions."""


@dataclass(frozen=True, slots=True)
class _Part:
    topic_id: str | None
    letters: tuple[Letter, ...]
    """In offset order."""


@dataclass(frozen=True, slots=True)
class Held:
    """Letters that wait for a commit. A value: whoever changes it replaces it whole."""

    parts: Mapping[TopicPartition, _Part] = field(default_factory=dict)
    count: int = 0
    size: int = 0
    """Bytes, about."""

    def read(self, tp: TopicPartition, topic_id: str | None, span: range, letters: Sequence[Letter]) -> Held:
        """Some offsets of a partition were read, and these of them are letters; what was known of them is forgotten.

        Args:
            tp: the partition.
            topic_id: of its topic; letters of another one that had the name are forgotten.
            span: offsets that were read.
            letters: in offset order, all within the span.
        """
        known = self.parts.get(tp)
        if known is None and not letters:
            return self
        old = () if known is None or known.topic_id != topic_id else known.letters
        before = tuple(letter for letter in old if letter.offset < span.start)
        after = tuple(letter for letter in old if letter.offset >= span.stop)
        return _of({**self.parts, tp: _Part(topic_id, before + tuple(letters) + after)})

    def of(self, lives: Lives) -> Held:
        """Only letters of partitions that are held still, of the same topic."""
        kept = {tp: part for tp, part in self.parts.items() if tp in lives and lives[tp] == part.topic_id}
        return self if len(kept) == len(self.parts) else _of(kept)

    def due(self, offsets: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> Sequence[Letter]:
        """The letters that a commit writes.

        Args:
            offsets: what is to be committed.
            committed: what the group has committed; a partition without offset is missing. Letters below that were
                written when it was: by an earlier owner of the partition, by a transaction's producer, or by a
                commit that nobody got an answer to.

        Returns:
            In order of partitions and offsets.
        """
        return [
            letter
            for tp in sorted(self.parts.keys() & offsets.keys())
            for letter in self.parts[tp].letters
            if committed.get(tp, 0) <= letter.offset < offsets[tp]
        ]

    def below(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether any letter lies below these offsets, committed or not."""
        return any(
            tp in offsets and part.letters and part.letters[0].offset < offsets[tp] for tp, part in self.parts.items()
        )

    def settled(self, offsets: Mapping[TopicPartition, int]) -> Held:
        """Without letters below offsets that are committed."""
        if not self.below(offsets):
            return self
        return _of(
            {
                tp: _Part(part.topic_id, tuple(one for one in part.letters if one.offset >= offsets.get(tp, 0)))
                for tp, part in self.parts.items()
            }
        )


def _of(parts: Mapping[TopicPartition, _Part]) -> Held:
    kept = {tp: part for tp, part in parts.items() if part.letters}
    letters = [letter for part in kept.values() for letter in part.letters]
    return Held(kept, len(letters), sum(letter.size for letter in letters))
