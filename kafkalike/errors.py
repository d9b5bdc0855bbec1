"""Errors: one tree, under kafka-python's names.

Two questions matter to a caller: may I try again (`retriable`), and is the outcome known (`UnknownOutcomeError`).
Errors carry their facts as attributes and say them. `errno` is Kafka's protocol error code where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


class KafkaError(Exception):
    """Root of every error this package raises on purpose."""

    retriable: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again unchanged."""
    errno: ClassVar[int] = -1
    """Kafka's protocol error code; -1 where Kafka has none."""


class RetriableError(KafkaError):
    """The operation did not happen; trying again may work."""

    retriable = True


# --- the client's own state and arguments ---------------------------------------------------------


class IllegalStateError(KafkaError):
    """The call does not fit the object's state: closed, not subscribed, used from two threads."""


class IllegalArgumentError(KafkaError, ValueError):
    """An argument has a value that is not allowed."""


class KafkaConfigurationError(KafkaError):
    """A setting is unknown or its value is not allowed."""


class SerializationError(KafkaError):
    """A key or value could not be turned into bytes, or back."""


class RecordDeserializationError(SerializationError):
    """A deserialiser failed on a record. The consumer's position stays at that record: seek past it to go on.

    Args:
        topic: the record's topic.
        partition: the record's partition.
        offset: the record's offset.
        part: `key` or `value`.
        cause: what the deserialiser raised.
    """

    def __init__(self, topic: str, partition: int, offset: int, part: str, cause: Exception) -> None:
        super().__init__(f"{topic}-{partition}: the {part} of the record at offset {offset} cannot be read: {cause}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.part = part


class UnsupportedCodecError(KafkaError):
    """A compression codec that is not known here."""


class KafkaTimeoutError(RetriableError):
    """Time ran out before the operation began or could be finished; nothing was written."""


class KafkaConnectionError(RetriableError):
    """The storage root cannot be reached."""


class UnsafeStorageError(KafkaError):
    """This storage cannot keep several writers apart, so writing to it is refused."""


class UnknownOutcomeError(KafkaError):
    """A write may or may not have happened, and the process could not find out.

    Args:
        what: the operation.
        append_id: the id the write carries in the table's history, to look for it later.
    """

    def __init__(self, what: str, append_id: str) -> None:
        super().__init__(f"{what}: the outcome is unknown; look for append id {append_id} with `kafkalike dump-log`")
        self.what = what
        self.append_id = append_id


class CommitFailedError(KafkaError):
    """Offsets were not committed: the group has moved on to a newer generation."""


class NoOffsetForPartitionError(KafkaError):
    """There is no committed offset, and `auto_offset_reset` is `none`."""


class DataLossError(KafkaError):
    """Records that were promised are gone: a hole in a partition that should be dense."""


class LogCorruptError(KafkaError):
    """A topic table breaks an invariant of the log: an outsider changed it, or a file is damaged."""


# --- answers a Kafka broker would give -------------------------------------------------------------


class BrokerResponseError(KafkaError):
    """Parent of the errors that have a code in Kafka's protocol."""

    description: ClassVar[str] = ""


class NoError(BrokerResponseError):
    """Success, where results are given as classes of errors."""

    errno = 0


class OffsetOutOfRangeError(BrokerResponseError):
    """A position below the log start or above the log end.

    Args:
        offsets: the positions that are out of range, by partition name (`orders-3`).
        live: the offsets that exist: half-open range by partition name.
        reason: why the log start is where it is, when known.
    """

    errno = 1

    def __init__(
        self, offsets: Mapping[str, int] | str, live: Mapping[str, range] | None = None, reason: str = ""
    ) -> None:
        if isinstance(offsets, str):
            super().__init__(offsets)
            self.offsets: dict[str, int] = {}
            self.live: dict[str, range] = {}
            return
        self.offsets = dict(offsets)
        self.live = dict(live or {})
        parts = []
        for name, offset in self.offsets.items():
            run = self.live.get(name)
            parts.append(
                f"{name}: offset {offset} is not in " + ("the log" if run is None else f"[{run.start}, {run.stop})")
            )
        super().__init__("; ".join(parts) + (f" ({reason})" if reason else ""))


class CorruptRecordError(BrokerResponseError):
    """A data file cannot be read or does not hold what the log says."""

    errno = 2


class UnknownTopicOrPartitionError(BrokerResponseError):
    """There is no such topic, or the topic has no such partition."""

    errno = 3
    retriable = True


class LeaderNotAvailableError(BrokerResponseError):
    """No writer can be had for the partition now."""

    errno = 5
    retriable = True


class NotLeaderForPartitionError(BrokerResponseError):
    """Another root leads the partition."""

    errno = 6
    retriable = True


class RequestTimedOutError(BrokerResponseError):
    """The operation did not finish in time."""

    errno = 7
    retriable = True


class MessageSizeTooLargeError(BrokerResponseError):
    """A record is larger than `max_request_size` or the topic's `max.message.bytes` allow."""

    errno = 10


class OffsetMetadataTooLargeError(BrokerResponseError):
    """The metadata string of a committed offset is too long."""

    errno = 12


class InvalidTopicError(BrokerResponseError):
    """A topic name that Kafka's rule does not allow."""

    errno = 17


class RecordListTooLargeError(BrokerResponseError):
    """A batch is larger than allowed."""

    errno = 18


class NotEnoughReplicasError(BrokerResponseError):
    """Fewer replicas than `min.insync.replicas` asks for."""

    errno = 19
    retriable = True


class IllegalGenerationError(BrokerResponseError):
    """A commit under a generation that is no longer the current one."""

    errno = 22


class InconsistentGroupProtocolError(BrokerResponseError):
    """The members of a group have no assignor in common."""

    errno = 23


class InvalidGroupIdError(BrokerResponseError):
    """An empty or malformed group id."""

    errno = 24


class UnknownMemberIdError(BrokerResponseError):
    """The group does not know this member."""

    errno = 25


class UnknownMemberCommitError(CommitFailedError, UnknownMemberIdError):
    """Offsets were not committed, as who committed is no member of the group (any more); caught under both names."""

    errno = 25


class RebalanceInProgressError(BrokerResponseError):
    """The group is changing its assignment. Poll before trying again; the same call alone would fail again."""

    errno = 27


class TopicAuthorizationFailedError(BrokerResponseError):
    """The storage refused access to a topic."""

    errno = 29


class GroupAuthorizationFailedError(BrokerResponseError):
    """The storage refused access to the offsets table."""

    errno = 30


class InvalidTimestampError(BrokerResponseError):
    """A record's timestamp is negative, too large, or outside what the topic allows."""

    errno = 32


class UnsupportedVersionError(BrokerResponseError):
    """The table was written by a newer layout or needs a Delta feature that is not supported."""

    errno = 35


class TopicAlreadyExistsError(BrokerResponseError):
    """A topic of that name exists."""

    errno = 36


class InvalidPartitionsError(BrokerResponseError):
    """A partition count that is not allowed."""

    errno = 37


class InvalidReplicationFactorError(BrokerResponseError):
    """More replicas than there are storage roots, or fewer than one."""

    errno = 38


class InvalidReplicaAssignmentError(BrokerResponseError):
    """A replica assignment, which has no meaning without brokers."""

    errno = 39


class InvalidConfigurationError(BrokerResponseError):
    """A topic or server setting is unknown or has a value that is not allowed."""

    errno = 40


class InvalidRequestError(BrokerResponseError):
    """A request that contradicts itself."""

    errno = 42


class PolicyViolationError(BrokerResponseError):
    """The request breaks a limit set by the operator."""

    errno = 44


class OutOfOrderSequenceNumberError(BrokerResponseError):
    """A producer's sequence numbers have a gap."""

    errno = 45


class CheckpointMismatchError(OutOfOrderSequenceNumberError):
    """A stream's id was used by another checkpoint, or by a newer state of this one; nothing was written."""


class DuplicateSequenceNumberError(BrokerResponseError):
    """A producer's sequence number was seen before."""

    errno = 46


class InvalidProducerEpochError(BrokerResponseError):
    """A producer of an older epoch."""

    errno = 47


class InvalidTxnStateError(BrokerResponseError):
    """A transactional call that does not fit the transaction's state."""

    errno = 48


class ConcurrentTransactionsError(BrokerResponseError):
    """Another transaction of this producer is still under way."""

    errno = 51
    retriable = True


class KafkaStorageError(BrokerResponseError):
    """The storage failed to read or write; nothing was written."""

    errno = 56
    retriable = True


class UnknownProducerIdError(BrokerResponseError):
    """The producer id is not known."""

    errno = 59


class NonEmptyGroupError(BrokerResponseError):
    """The group has members, so it cannot be changed from outside."""

    errno = 68


class GroupIdNotFoundError(BrokerResponseError):
    """There is no such group."""

    errno = 69


class FencedInstanceIdError(BrokerResponseError):
    """A newer instance with the same `group_instance_id` took over."""

    errno = 82


class GroupSubscribedToTopicError(BrokerResponseError):
    """The group is subscribed to the topic whose offsets should be deleted."""

    errno = 86


class InvalidRecordError(BrokerResponseError):
    """A record that the topic does not take, for example one without a key in a compacted topic."""

    errno = 87


class UnstableOffsetCommitError(BrokerResponseError):
    """An offset is part of an open transaction."""

    errno = 88
    retriable = True


class ProducerFencedError(BrokerResponseError):
    """A newer producer with the same transactional id took over."""

    errno = 90


class TopicDeletedError(UnknownTopicOrPartitionError):
    """The topic this client was using was deleted, or deleted and created again under the same name.

    Args:
        topic: its name.
        topic_id: the id the client knew.
        current_id: the id the name has now; `None` when the topic is gone.
    """

    errno = 100
    retriable = False

    def __init__(self, topic: str, topic_id: str, current_id: str | None) -> None:
        now = "it is gone" if current_id is None else f"the name now belongs to topic id {current_id}"
        super().__init__(f"topic {topic!r} with id {topic_id} was deleted: {now}")
        self.topic = topic
        self.topic_id = topic_id
        self.current_id = current_id
