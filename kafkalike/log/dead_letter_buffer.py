"""Dead-letter buffer: records that a consumer could not read, until one transaction commits them and its offsets."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kafkalike import errors
from kafkalike.log.dead_letter_topic import batch_of, ensure, stage
from kafkalike.log.group.group_offsets import GroupOffsets, MetadataOfReader
from kafkalike.log.group.membership import Membership
from kafkalike.log.topic.record_rules import check_batch
from kafkalike.model import faults
from kafkalike.model.clock import RETRY_BACKOFF_SECONDS, Clock, Deadline
from kafkalike.model.dead_letter import Held, Letter, Lives
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions.group_claims import GroupClaim

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.log.transactions.session import TransactionSession


MOST_LETTERS: Final = 10_000
MOST_BYTES: Final = 16 * 1024 * 1024
"""Approximate limits of the letters that a consumer holds: at a limit, they must be committed before it reads on."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class DeadLetterBuffer:
    """Uncommitted letters of one consumer. Its thread adds letters; a transactional producer in any thread reads them.

    Args:
        cluster: the cluster of source and dead-letter topics.
        group_id: the group whose offsets are committed with the letters.
        clock: time.
        lives: returns the consumer's partitions with the ids of their topics. Any thread may call it.
    """

    def __init__(self, cluster: Cluster, group_id: str, clock: Clock, lives: Callable[[], Lives]) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._offsets = GroupOffsets.of(cluster, clock)
        self._clock = clock
        self._lives = lives
        self._held = Held()
        """Replaced only by the consumer's thread, without a lock, which an interrupt might leave locked."""
        self._noted: Mapping[TopicPartition, int] = {}
        """Offsets that a producer has committed; the consumer's thread removes their letters."""
        self._logs: dict[str, TopicLog] = {}
        """Dead-letter topics, as of the first letter for each."""

    @property
    def group_id(self) -> str:
        """The group whose offsets are committed with the letters."""
        return self._group_id

    @property
    def held(self) -> Held:
        """Letters that wait for a commit."""
        return self._held

    @property
    def full(self) -> bool:
        """True if a commit is due before more can be read. For the consumer's thread."""
        self._take_notes()
        return self._held.count >= MOST_LETTERS or self._held.size >= MOST_BYTES

    # --- in ------------------------------------------------------------------------------------

    def room(self, letter: Letter, count: int, size: int) -> bool:
        """True if a letter fits, in addition to others of that number and size that are about to be added."""
        count, size = self._held.count + count, self._held.size + size
        return not count or (count < MOST_LETTERS and size + letter.size <= MOST_BYTES)

    def check(self, letter: Letter) -> None:
        """Refuse a letter that its topic would reject, while its record can still be read again.

        Raises:
            IllegalStateError: its topic is its record's own.
            KafkaError: the dead-letter topic does not exist and must not be created, or its settings reject the letter.
        """
        if letter.topic == letter.origin.topic:
            raise errors.IllegalStateError(f"{letter.topic} is the dead-letter topic itself")
        found = self._logs.get(letter.topic)
        if found is None:
            found = self._logs[letter.topic] = ensure(self._cluster, letter.topic, letter.origin.topic)
        batch = batch_of([letter], found.info.num_partitions)
        check_batch(batch, found.info, found.config, self._clock.now_ms(), found.schemas)

    def read(self, tp: TopicPartition, span: range, letters: Sequence[Letter]) -> None:
        """Record that offsets were read, and the letters among them; see `Held.read`. For the consumer's thread."""
        self._take_notes()
        if letters or tp in self._held.parts:
            lives = self._lives()
            self._held = self._held.of(lives).read(tp, lives.get(tp), span, letters)

    # --- out -----------------------------------------------------------------------------------

    def due(self, offsets: Mapping[TopicPartition, int]) -> Sequence[Letter]:
        """Return the letters that a commit of these offsets must write; looks up the group's committed offsets.

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
        """Drop the letters below committed offsets. For the consumer's thread."""
        self._held = self._held.settled(offsets)

    def note(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Record committed offsets from any thread. A lost note costs memory until the next commit detects it."""
        self._noted = {**self._noted, **offsets}

    def _take_notes(self) -> None:
        """Apply notes before letters of records that are read again are added, because those are new letters."""
        if self._noted:
            noted, self._noted = self._noted, {}
            self._held = self._held.settled(noted)


class MetadataWithLetters(MetadataOfReader):
    """The result of `KafkaConsumer.group_metadata()` if records may become dead letters.

    `send_offsets_to_transaction` finds the consumer's letters in it, including later ones: the transaction that commits
    the offsets writes them. A copy in another process has no letters.
    """

    box: DeadLetterBuffer

    @classmethod
    def of(cls, known: MetadataOfReader, box: DeadLetterBuffer) -> MetadataWithLetters:
        """Return the metadata with the letters."""
        made = cls(*known)
        made.topic_ids, made.box = known.topic_ids, box
        return made


def plain(offsets: Offsets) -> dict[TopicPartition, int]:
    """Return offsets without their metadata."""
    return {tp: at.offset for tp, at in offsets.items()}


_log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 60_000
TIDY_MS: Final = 10_000
TRIES: Final = 3

OVER: Final = (errors.InvalidProducerEpochError, errors.ProducerFencedError, errors.TransactionAbortableError)
"""Errors of a transaction that maintenance (after its timeout) or an administrator has aborted: nothing was
committed."""


class DeadLetterTransactions:
    """Writes letters and offsets together, for a consumer that commits by itself. Belongs to its consumer's thread.

    After an error or an interrupt at any line the session is dropped. The next commit starts a new epoch of the same
    transactional id, which finishes or aborts the previous transaction, and then looks up which letters the group's
    offsets have passed.

    Args:
        cluster: the cluster of topics and groups.
        box: the consumer's letters.
        client_id: the consumer's client id.
        clock: time.
    """

    def __init__(self, cluster: Cluster, box: DeadLetterBuffer, client_id: str, clock: Clock) -> None:
        self._cluster = cluster
        self._box = box
        self._client_id = client_id
        self._clock = clock
        self._id = f"dead letters of {box.group_id} {uuid.uuid4().hex}"
        self._session: TransactionSession | None = None
        self._number = 0

    def commit(
        self,
        membership: Membership,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, str],
        timeout_ms: float | None,
    ) -> bool:
        """Commit offsets with the letters below them.

        Args:
            membership: the member that commits.
            offsets: checked offsets.
            topic_ids: by topic, the id of the topic that the offsets belong to.
            timeout_ms: how long to try; None without limit.

        Returns:
            False if no letters are due; then nothing was done.

        Raises:
            KafkaError: see `KafkaConsumer.commit`.
        """
        at = plain(offsets)
        if not self._box.held.below(at):
            return False
        deadline = Deadline(self._clock, timeout_ms)
        claim = GroupClaim(
            group_id=membership.group_id,
            generation=membership.generation,
            member_id=membership.member_id,
            group_instance_id=membership.group_instance_id,
            client_id=membership.client_id,
            alone=membership.generation < 0 and not membership.member_id,
            lives=tuple(sorted(topic_ids.items())),
        )
        for left in reversed(range(TRIES)):
            try:
                return self._try(claim, offsets, at, deadline)
            except OVER:
                if not left:
                    raise
        raise AssertionError

    def _try(
        self,
        claim: GroupClaim,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        at: Mapping[TopicPartition, int],
        deadline: Deadline,
    ) -> bool:
        # Unset until the commit has succeeded, so that after an interrupt a new session finishes the transaction.
        session, self._session = self._session, None
        if session is None:
            session = self._begun(deadline)
        # After the session, because that has finished or aborted an earlier commit without an answer.
        letters = self._box.due(at)
        if not letters:
            self._session = session
            return False
        self._number += 1
        number = self._number
        try:
            stage(self._cluster, session, number, letters, deadline, claim.group_id)
            faults.point("dead_letters.before_commit")
            self._decide(session, number, claim, offsets, deadline)
        except errors.KafkaError:
            with suppress(errors.KafkaError):
                session.abort(number, Deadline(self._clock, TIDY_MS))
                self._session = session
            raise
        faults.point("dead_letters.after_commit")
        self._session = session
        return True

    def _begun(self, deadline: Deadline) -> TransactionSession:
        longest = int(self._cluster.server.get("transaction.max.timeout.ms"))
        self._number = 0
        return self._cluster.transactions.begin_session(
            self._id, min(TIMEOUT_MS, longest), self._client_id, deadline, longest_ms=longest
        )

    def _decide(
        self,
        session: TransactionSession,
        number: int,
        claim: GroupClaim,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
    ) -> None:
        while True:
            try:
                session.commit(number, {claim: offsets}, deadline)
            except errors.KafkaError as cause:
                if session.decided(number):
                    # Any process applies the letters to their topics as soon as the storage answers.
                    _log.warning(
                        "%s: offsets are committed, and the dead letters will be applied later: %s", self._id, cause
                    )
                    return
                if not isinstance(cause, errors.UnknownOutcomeError) or deadline.expired():
                    raise
            else:
                return
            self._clock.sleep(RETRY_BACKOFF_SECONDS)

    def close(self) -> None:
        """Forget the transactional id; after a failure maintenance does so later."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(errors.KafkaError):
                session.forget(Deadline(self._clock, TIDY_MS))
