"""Dead-letter transactions: a consumer's offsets and the letters below them, committed by one decision."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kafkalike.errors import (
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    UnknownOutcomeError,
)
from kafkalike.log.dead_letters.dead_letter_buffer import DeadLetterBuffer, plain
from kafkalike.log.dead_letters.dead_letter_topic import stage
from kafkalike.log.group.membership import Membership
from kafkalike.model import faults
from kafkalike.model.clock import RETRY_BACKOFF_SECONDS, Clock, Deadline
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions.group_claims import GroupClaim

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.transactions.session import TransactionSession

_log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 60_000
TIDY_MS: Final = 10_000
TRIES: Final = 3

OVER: Final = (InvalidProducerEpochError, ProducerFencedError, TransactionAbortableError)
"""The transaction took so long that maintenance may have aborted it, or an administrator has: nothing was committed."""


class DeadLetterTransactions:
    """Writes letters and offsets together, for a consumer that commits by itself. Belongs to its consumer's thread.

    An error or an interrupt at any line lets go of the session. The next commit begins with a new epoch of the same
    transactional id, which settles what was under way, and looks then which letters the group's offsets have passed.

    Args:
        cluster: where topics and groups are.
        box: the consumer's letters.
        client_id: the consumer's.
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
            membership: in whose name.
            offsets: checked.
            topic_ids: by topic, the id of the topic that the offsets belong to.
            timeout_ms: until when to try; None without end.

        Returns:
            False when there is no letter to write, and nothing was done.

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
        # Taken out of sight until the commit has succeeded: what is cut off is settled by a new session.
        session, self._session = self._session, None
        if session is None:
            session = self._begun(deadline)
        # Only now: an earlier commit without an answer is done or not by now.
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
        except KafkaError:
            with suppress(KafkaError):
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
            except KafkaError as cause:
                if session.decided(number):
                    # Anybody brings the letters into their topics now, as soon as the storage lets them.
                    _log.warning("%s: offsets are committed, and the dead letters are on their way: %s", self._id, cause)
                    return
                if not isinstance(cause, UnknownOutcomeError) or deadline.expired():
                    raise
            else:
                return
            self._clock.sleep(RETRY_BACKOFF_SECONDS)

    def close(self) -> None:
        """Forget the transactional id; what cannot be done now, maintenance does later."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(KafkaError):
                session.forget(Deadline(self._clock, TIDY_MS))
