"""Errors of clients, also of the gateway: wrong calls and settings, groups, positions, records, transactions."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalike.errors.kafka_error import (
    AuthorizationError,
    BrokerResponseError,
    InvalidMetadataError,
    KafkaError,
    RetriableError,
)


class IllegalStateError(KafkaError):
    """The object's state does not allow the call: it is closed, not subscribed, or in use by another thread."""


class IllegalArgumentError(KafkaError, ValueError):
    """An argument has a value that is not allowed."""


class KafkaConfigurationError(KafkaError):
    """A setting is unknown or its value is not allowed."""


class SerializationError(KafkaError):
    """A key or value could not be serialized or deserialized.

    Args:
        message: description of the problem.
        topic: topic of the record; None if unknown.
        partition: partition of the record.
        offset: offset of the record.
        schema_id: schema id at the start of the bytes.
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
    """A deserializer failed on a record. The consumer's position stays at that record; seek past it to continue.

    If the cause has a `schema_id`, it is set here too.

    Args:
        topic: the record's topic.
        partition: the record's partition.
        offset: the record's offset.
        part: `key` or `value`.
        cause: the error that the deserializer raised.
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
    """The compression codec is not supported."""


class KafkaTimeoutError(RetriableError):
    """The timeout expired before the operation started or completed; nothing was written."""


class RequestTimedOutError(RetriableError, BrokerResponseError):
    """The operation did not finish in time."""

    errno = 7


class IllegalGenerationError(BrokerResponseError):
    """The commit carries a generation that is not the group's current one."""

    errno = 22


class InconsistentGroupProtocolError(BrokerResponseError):
    """The members of a group have no assignor in common."""

    errno = 23


class InvalidGroupIdError(BrokerResponseError):
    """The group id is empty or malformed."""

    errno = 24


class UnknownMemberIdError(BrokerResponseError):
    """The group does not know this member."""

    errno = 25


class RebalanceInProgressError(BrokerResponseError):
    """The group is changing its assignment. Poll before retrying; repeating the call without a poll fails again."""

    errno = 27


class GroupAuthorizationFailedError(AuthorizationError):
    """The storage refused access to the offsets table, or a user of the gateway may not use the group."""

    errno = 30


class NonEmptyGroupError(BrokerResponseError):
    """The group has members, so another client cannot change it."""

    errno = 68


class GroupIdNotFoundError(BrokerResponseError):
    """The group does not exist, or it is of another type: a share group or a consumer group."""

    errno = 69


class FencedInstanceIdError(BrokerResponseError):
    """A newer instance with the same `group_instance_id` took over."""

    errno = 82


class GroupSubscribedToTopicError(BrokerResponseError):
    """The group is subscribed to the topic whose offsets should be deleted."""

    errno = 86


class CommitFailedError(KafkaError):
    """Offsets were not committed because the group has a newer generation."""


class NoOffsetForPartitionError(KafkaError):
    """The partition has no committed offset, and `auto_offset_reset` is `none`."""


class OffsetOutOfRangeError(BrokerResponseError):
    """A position is below the log start or above the log end.

    Args:
        offsets: the positions that are out of range, by partition name (`orders-3`).
        live: by partition name, the half-open range of offsets that exist.
        reason: why the log starts where it does; empty if unknown.
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
    """Offsets were not committed because the consumer is not a member of the group; caught as either parent class."""

    errno = 25


class UnstableOffsetCommitError(RetriableError, BrokerResponseError):
    """The offset belongs to an open transaction."""

    errno = 88


class MessageSizeTooLargeError(BrokerResponseError):
    """A record is larger than `max_request_size` or the topic's `max.message.bytes` allow."""

    errno = 10


class RecordListTooLargeError(BrokerResponseError):
    """The batch is larger than the topic or the producer allows."""

    errno = 18


class InvalidTimestampError(BrokerResponseError):
    """A record's timestamp is negative, too large, or outside what the topic allows."""

    errno = 32


class OutOfOrderSequenceNumberError(BrokerResponseError):
    """A producer's sequence numbers have a gap."""

    errno = 45


class CheckpointMismatchError(OutOfOrderSequenceNumberError):
    """Another checkpoint, or a newer state of this one, has used the stream's id; nothing was written."""


class DuplicateSequenceNumberError(BrokerResponseError):
    """The producer's sequence number has been used before."""

    errno = 46


class InvalidProducerEpochError(BrokerResponseError):
    """The producer has an old epoch because a timeout or an administrator aborted its transaction."""

    errno = 47


class InvalidTxnStateError(BrokerResponseError):
    """The transaction cannot have this outcome because it already has the other one."""

    errno = 48


class InvalidTransactionTimeoutError(BrokerResponseError):
    """`transaction_timeout_ms` is greater than the server's `transaction.max.timeout.ms`."""

    errno = 50


class ConcurrentTransactionsError(RetriableError, BrokerResponseError):
    """Another transaction of this producer is in progress."""

    errno = 51


class UnknownProducerIdError(BrokerResponseError):
    """The producer id is unknown."""

    errno = 59


class InvalidRecordError(BrokerResponseError):
    """The topic does not accept the record, for example one without a key in a compacted topic."""

    errno = 87


class InvalidRecordStateError(BrokerResponseError):
    """Records were not acknowledged: their lock has ended, and another member of the share group has acquired them."""

    errno = 121
    message = "INVALID_RECORD_STATE"
    description = "The record state is invalid. The acknowledgement of delivery could not be completed."


class ProducerFencedError(BrokerResponseError):
    """A newer producer with the same transactional id took over."""

    errno = 90


class TransactionalIdNotFoundError(BrokerResponseError):
    """The transactional id does not exist, or has expired."""

    errno = 105


class TransactionAbortableError(BrokerResponseError):
    """The transaction cannot be committed. Abort it and continue with the same producer."""

    errno = 120


class TransactionAbortedError(KafkaError):
    """The record's transaction was aborted before the record was written."""


# Only clients of the gateway get these, as codes of Kafka's protocol


class CoordinatorLoadInProgressError(RetriableError, BrokerResponseError):
    """The gateway cannot decide about the group at this moment; a retry may succeed."""

    errno = 14


class InvalidRequiredAcksError(BrokerResponseError):
    """A produce request has `acks` other than -1, 0 and 1."""

    errno = 21


class InvalidSessionTimeoutError(BrokerResponseError):
    """A client that joins a group has an invalid session timeout."""

    errno = 26


class InvalidProducerIdMappingError(BrokerResponseError):
    """The transactional id does not exist, or has another producer id."""

    errno = 49


class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError):
    """A fetch request names a session; the gateway has none, and every request names its partitions."""

    errno = 70


class UnknownLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    """A client knows a later leader epoch of a partition than the gateway, whose partitions have epoch 0."""

    errno = 75


class MemberIdRequiredError(BrokerResponseError):
    """A client joins a group with the id that this answer gives it."""

    errno = 79


class GroupMaxSizeReachedError(BrokerResponseError):
    """The gateway has as many group members as it may have."""

    errno = 81


class FencedMemberEpochError(BrokerResponseError):
    """The member of a group has to give up its partitions and join again."""

    errno = 110


class UnsupportedAssignorError(BrokerResponseError):
    """The gateway does not have the assignor that a member of a group names."""

    errno = 112


class StaleMemberEpochError(BrokerResponseError):
    """The member of a group commits offsets under an epoch that has ended."""

    errno = 113


class MismatchedEndpointTypeError(BrokerResponseError):
    """A client asks for controllers; a gateway is an endpoint of brokers."""

    errno = 114


class UnsupportedEndpointTypeError(BrokerResponseError):
    """A client asks for an unknown type of endpoint."""

    errno = 115


class ClusterAuthorizationFailedError(AuthorizationError):
    """A user of the gateway may not do this to the cluster."""

    errno = 31


class UnsupportedSaslMechanismError(BrokerResponseError):
    """A client of the gateway chooses a SASL mechanism that is not offered."""

    errno = 33


class IllegalSaslStateError(BrokerResponseError):
    """A client of the gateway sends a message of authentication at the wrong time."""

    errno = 34


class TransactionalIdAuthorizationFailedError(AuthorizationError):
    """A user of the gateway may not use the transactional id."""

    errno = 53


class OperationNotAttemptedError(BrokerResponseError):
    """Part of a request was not tried, because another part failed."""

    errno = 55


class SaslAuthenticationFailedError(BrokerResponseError):
    """A client of the gateway has a wrong user or password."""

    errno = 58


class ResourceNotFoundError(BrokerResponseError):
    """A user of the gateway does not exist."""

    errno = 91
