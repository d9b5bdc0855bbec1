"""Share letters: archive records of a share group and write them to a dead-letter topic, in one transaction."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kafkalike import errors
from kafkalike.consumer.record_builders import record_builder
from kafkalike.consumer.share_delivery import ShareReader
from kafkalike.log.dead_letter_topic import stage
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.dead_letter import FailedReader, Failure, Letter, context_headers, original_headers
from kafkalike.model.shares.share_partition import Acknowledgement, RecordRun, RecordState, RecordVerdict
from kafkalike.model.structs import ConsumerRecord, ShareGroupMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.log.transactions.session import TransactionSession
    from kafkalike.model.config.consumer_config import ShareConsumerConfig
    from kafkalike.model.shares.share_partition import Acknowledgements

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 60_000
TIDY_MS: Final = 10_000
TRIES: Final = 3

NO_LIMIT: Final = 2**31 - 1

REJECTED: Final = "RecordRejected"
TOO_OFTEN: Final = "DeliveryCountLimitExceeded"
"""Reasons in the headers of dead letters, where Connect has the class of an error."""
WHY_REJECTED: Final = "the application has rejected the record"

Outcome = tuple["Acknowledgements", errors.KafkaError | None]
"""Acknowledgements of the application, and their error."""

STAGE: Final = "TASK_PUT"
"""Connect's name of the step that processes a record."""


class ShareLetters:
    """Dead letters of one share consumer. Belongs to its thread.

    Args:
        cluster: the cluster of topics and groups.
        config: the consumer's settings, which name the dead-letter topic.
        member: the consumer. The group's state does not archive records by itself, because letters come first.
        clock: time.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ShareConsumerConfig,
        *,
        member: ShareGroupMetadata,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._timeout_ms = config.default_api_timeout_ms
        self.most_deliveries = 0
        """Deliveries after which a record becomes a dead letter; the consumer sets it."""
        self._reader = ShareReader(record_builder(None, None), config.max_partition_fetch_bytes)
        self._topic = str(config.errors_deadletterqueue_topic_name)
        self._member = member
        self._client_id = config.client_id
        self._clock = clock
        self._id = f"dead letters of {member.group_id} {uuid.uuid4().hex}"
        self._session: TransactionSession | None = None
        self._number = 0

    def bury_rejected(
        self, acknowledgements: Acknowledgements, logs: Mapping[str, TopicLog]
    ) -> tuple[dict[TopicPartition, Sequence[Acknowledgement]], list[Outcome]]:
        """Archive the records that the application has rejected, with their letters.

        Args:
            acknowledgements: the application's.
            logs: open logs by topic.

        Returns:
            The acknowledgements of other verdicts, and the rejections with their errors. Partitions have separate
            transactions, so a lost lock fails only the records of its partition.

        Raises:
            KafkaError: nothing was written, or the outcome is unknown.
        """
        others: dict[TopicPartition, Sequence[Acknowledgement]] = {}
        outcomes: list[Outcome] = []
        for tp, said in acknowledgements.items():
            rejected = [ack for ack in said if ack.verdict is RecordVerdict.REJECT]
            other = [ack for ack in said if ack.verdict is not RecordVerdict.REJECT]
            if other:
                others[tp] = other
            if not rejected:
                continue
            error: errors.KafkaError | None = None
            try:
                self._bury(tp, rejected, logs[tp.topic], REJECTED, WHY_REJECTED)
            except errors.InvalidRecordStateError as refusal:
                error = refusal
            outcomes.append(({tp: rejected}, error))
        return others, outcomes

    def bury_exhausted(
        self, taken: Mapping[TopicPartition, Sequence[RecordRun]], logs: Mapping[str, TopicLog]
    ) -> tuple[dict[TopicPartition, Sequence[RecordRun]], int]:
        """Archive acquired records that were delivered too often, with their letters.

        Returns:
            The other runs, and the number of archived records. Records whose letters cannot be written stay locked, so
            that the next member tries again.
        """
        kept: dict[TopicPartition, Sequence[RecordRun]] = {}
        count = 0
        for tp, runs in taken.items():
            kept[tp] = [run for run in runs if run.deliveries <= self.most_deliveries]
            over = [run for run in runs if run.deliveries > self.most_deliveries]
            if not over:
                continue
            acks = [Acknowledgement(run.first, run.last, RecordVerdict.REJECT, run.deliveries) for run in over]
            why = f"the record was delivered {self.most_deliveries} times, and never accepted"
            try:
                self._bury(tp, acks, logs[tp.topic], TOO_OFTEN, why)
                count += sum(run.size for run in over)
            except errors.KafkaError as error:
                log.warning("share group %s: dead letters of %s-%s: %s", self._member.group_id, *tp, error)
        return kept, count

    def _bury(
        self, tp: TopicPartition, acks: Sequence[Acknowledgement], topic_log: TopicLog, reason: str, why: str
    ) -> None:
        letters = self._letters_of(tp, acks, topic_log, reason, why)
        deadline = Deadline(self._clock, self._timeout_ms)
        for left in reversed(range(TRIES)):
            try:
                self._try({self._member: {tp: acks}}, letters, deadline)
            except (errors.InvalidProducerEpochError, errors.ProducerFencedError, errors.TransactionAbortableError):
                if not left:
                    raise
            else:
                return

    def stage_rejected(
        self,
        session: TransactionSession,
        number: int,
        rejected: Acknowledgements,
        logs: Mapping[str, TopicLog],
        deadline: Deadline,
    ) -> None:
        """Add the letters of rejected records to an open transaction, which acknowledges them.

        Raises:
            KafkaError: a record cannot be read, or its letter cannot be stored.
        """
        letters = [
            letter
            for tp, acks in rejected.items()
            for letter in self._letters_of(tp, acks, logs[tp.topic], REJECTED, WHY_REJECTED)
        ]
        if letters:
            stage(self._cluster, session, number, letters, deadline, self._member.group_id)

    def _letters_of(
        self, tp: TopicPartition, acks: Sequence[Acknowledgement], topic_log: TopicLog, reason: str, why: str
    ) -> list[Letter]:
        letters = []
        for ack in acks:
            run = RecordRun(ack.first, ack.last, RecordState.ACQUIRED)
            found, after, _ = self._reader.read(topic_log, tp, run, NO_LIMIT)
            if after <= ack.last:
                raise errors.OffsetOutOfRangeError(f"{tp.topic}-{tp.partition} ends before its record {ack.last}")
            letters += [self._letter(raw, reason, why) for raw in found]
        return letters

    def _letter(self, raw: ConsumerRecord, reason: str, message: str) -> Letter:
        origin = TopicPartition(raw.topic, raw.partition)
        failure = Failure(
            stage=STAGE, class_name="kafkalike.KafkaShareConsumer", exception=reason, message=message, stacktrace=""
        )
        reader = FailedReader(name=self._member.group_id, task=self._client_id)
        return Letter(
            topic=self._topic,
            origin=origin,
            offset=raw.offset,
            key=raw.key,
            value=raw.value,
            headers=[*original_headers(raw.headers), *context_headers(origin, raw.offset, failure, reader)],
            timestamp_ms=raw.timestamp,
        )

    def _try(
        self,
        acknowledgements: Mapping[ShareGroupMetadata, Acknowledgements],
        letters: Sequence[Letter],
        deadline: Deadline,
    ) -> None:
        # Unset until the commit has succeeded, so that after an interrupt a new session finishes the transaction.
        session, self._session = self._session, None
        if session is None:
            longest = int(self._cluster.server.get("transaction.max.timeout.ms"))
            self._number = 0
            session = self._cluster.transactions.begin_session(
                self._id, min(TIMEOUT_MS, longest), self._client_id, deadline, longest_ms=longest
            )
        self._number += 1
        try:
            stage(self._cluster, session, self._number, letters, deadline, self._member.group_id)
            session.commit(self._number, {}, deadline, acknowledgements=acknowledgements)
        except errors.KafkaError:
            if session.decided(self._number):
                # Any process applies the letters to their topic as soon as the storage answers.
                return
            with suppress(errors.KafkaError):
                session.abort(self._number, Deadline(self._clock, TIDY_MS))
                self._session = session
            raise
        self._session = session

    def close(self) -> None:
        """Forget the transactional id; after a failure maintenance does so later."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(errors.KafkaError):
                session.forget(Deadline(self._clock, TIDY_MS))
