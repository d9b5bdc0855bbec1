"""Errors of clients: wrong calls and settings, groups, positions and commits, records and transactions."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalike.errors.kafka_error import AuthorizationError, BrokerResponseError, KafkaError, RetriableError


class IllegalStateError(KafkaError):
    """The call does not fit the object's state: closed, not subscribed, used from two threads."""


class IllegalArgumentError(KafkaError, ValueError):
    """An argument has a value that is not allowed."""


class KafkaConfigurationError(KafkaError):
    """A setting is unknown or its value is not allowed."""


class SerializationError(KafkaError):
    """A key or value could not be turned into bytes, or back.

    Args:
        message: what is wrong.
        topic: the record's topic; None where it is not known.
        partition: its partition.
        offset: its offset.
        schema_id: the id of the schema that it begins with.
    """

    def __init__(
        self,
        message: str = "",
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        schema_id: int | None = None,
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.schema_id = schema_id


class RecordDeserializationError(SerializationError):
    """A deserialiser failed on a record. The consumer's position stays at that record: seek past it to go on.

    Where the cause knows the id of the record's schema, it is `schema_id` here too.

    Args:
        topic: the record's topic.
        partition: the record's partition.
        offset: the record's offset.
        part: `key` or `value`.
        cause: what the deserialiser raised.
    """

    topic: str
    partition: int
    offset: int

    def __init__(self, topic: str, partition: int, offset: int, part: str, cause: Exception) -> None:
        super().__init__(
            f"{topic}-{partition}: the {part} of the record at offset {offset} cannot be read: {cause}",
            topic=topic,
            partition=partition,
            offset=offset,
            schema_id=getattr(cause, "schema_id", None),
        )
        self.part = part


class UnsupportedCodecError(KafkaError):
    """A compression codec that is not known here."""


class KafkaTimeoutError(RetriableError):
    """Time ran out before the operation began or could be finished; nothing was written."""


class RequestTimedOutError(RetriableError, BrokerResponseError):
    """The operation did not finish in time."""

    errno = 7


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


class RebalanceInProgressError(BrokerResponseError):
    """The group is changing its assignment. Poll before trying again; the same call alone would fail again."""

    errno = 27


class GroupAuthorizationFailedError(AuthorizationError):
    """The storage refused access to the offsets table."""

    errno = 30


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


class CommitFailedError(KafkaError):
    """Offsets were not committed: the group has moved on to a newer generation."""


class NoOffsetForPartitionError(KafkaError):
    """There is no committed offset, and `auto_offset_reset` is `none`."""


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


class OffsetMetadataTooLargeError(BrokerResponseError):
    """The metadata string of a committed offset is too long."""

    errno = 12


class UnknownMemberCommitError(CommitFailedError, UnknownMemberIdError):
    """Offsets were not committed: the consumer is not, or no longer, a member of the group; caught under both names."""

    errno = 25


class UnstableOffsetCommitError(RetriableError, BrokerResponseError):
    """An offset is part of an open transaction."""

    errno = 88


class MessageSizeTooLargeError(BrokerResponseError):
    """A record is larger than `max_request_size` or the topic's `max.message.bytes` allow."""

    errno = 10


class RecordListTooLargeError(BrokerResponseError):
    """A batch is larger than allowed."""

    errno = 18


class InvalidTimestampError(BrokerResponseError):
    """A record's timestamp is negative, too large, or outside what the topic allows."""

    errno = 32


class OutOfOrderSequenceNumberError(BrokerResponseError):
    """A producer's sequence numbers have a gap."""

    errno = 45


class CheckpointMismatchError(OutOfOrderSequenceNumberError):
    """A stream's id was used by another checkpoint, or by a newer state of this one; nothing was written."""


class DuplicateSequenceNumberError(BrokerResponseError):
    """A producer's sequence number was seen before."""

    errno = 46


class InvalidProducerEpochError(BrokerResponseError):
    """A producer of an older epoch: its transaction was aborted by a timeout or by an administrator."""

    errno = 47


class InvalidTxnStateError(BrokerResponseError):
    """A transaction cannot have this outcome: it has the other one already."""

    errno = 48


class InvalidTransactionTimeoutError(BrokerResponseError):
    """`transaction_timeout_ms` is above the server's `transaction.max.timeout.ms`."""

    errno = 50


class ConcurrentTransactionsError(RetriableError, BrokerResponseError):
    """Another transaction of this producer is still under way."""

    errno = 51


class UnknownProducerIdError(BrokerResponseError):
    """The producer id is not known."""

    errno = 59


class InvalidRecordError(BrokerResponseError):
    """A record that the topic does not take, for example one without a key in a compacted topic."""

    errno = 87


class ProducerFencedError(BrokerResponseError):
    """A newer producer with the same transactional id took over."""

    errno = 90


class TransactionalIdNotFoundError(BrokerResponseError):
    """There is no such transactional id, or it was forgotten."""

    errno = 105


class TransactionAbortableError(BrokerResponseError):
    """The transaction cannot be committed; abort it, and go on with the same producer."""

    errno = 120


class TransactionAbortedError(KafkaError):
    """The record's transaction was aborted before the record was written."""
