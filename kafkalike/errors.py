"""Errors: one tree, under kafka-python's names.

Two questions matter to a caller: may I try again (`retriable`), and is the outcome known (`UnknownOutcomeError`).
Errors carry their facts as attributes and say them. `errno` is Kafka's protocol error code where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final


class KafkaError(Exception):
    """Root of every error this package raises on purpose."""

    retriable: ClassVar[bool] = False
    """Whether the same call may succeed when it is made again unchanged."""
    errno: ClassVar[int] = -1
    """Kafka's protocol error code; -1 where Kafka has none."""


class RetriableError(KafkaError):
    """The operation did not happen; trying again may work."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """What a client knew of a topic or the cluster is out of date; trying again looks anew."""


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


class KafkaConnectionError(InvalidMetadataError):
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
    """A topic table breaks an invariant of the log: a foreign writer changed it, or a file is damaged."""


# --- answers a Kafka broker would give -------------------------------------------------------------


class BrokerResponseError(KafkaError):
    """Parent of the errors that have a code in Kafka's protocol."""

    description: ClassVar[str] = ""


class AuthorizationError(BrokerResponseError):
    """Access was refused."""


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


CorruptRecordException = CorruptRecordError
"""kafka-python's older name."""


class UnknownTopicOrPartitionError(InvalidMetadataError, BrokerResponseError):
    """There is no such topic, or the topic has no such partition."""

    errno = 3


class UnknownPartitionerTopicError(UnknownTopicOrPartitionError, ValueError):
    """A partitioner was asked for a topic that the cluster does not have; kafka-python raises ValueError."""


class LeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """No writer can be had for the partition now."""

    errno = 5


class NotLeaderForPartitionError(InvalidMetadataError, BrokerResponseError):
    """Another root leads the partition."""

    errno = 6


class RequestTimedOutError(RetriableError, BrokerResponseError):
    """The operation did not finish in time."""

    errno = 7


class MessageSizeTooLargeError(BrokerResponseError):
    """A record is larger than `max_request_size` or the topic's `max.message.bytes` allow."""

    errno = 10


class OffsetMetadataTooLargeError(BrokerResponseError):
    """The metadata string of a committed offset is too long."""

    errno = 12


class InvalidTopicError(BrokerResponseError, ValueError):
    """A topic name that Kafka's rule does not allow; kafka-python raises ValueError."""

    errno = 17


class InvalidTopicTypeError(InvalidTopicError, TypeError):
    """A topic name that is no str; kafka-python raises TypeError."""


class RecordListTooLargeError(BrokerResponseError):
    """A batch is larger than allowed."""

    errno = 18


class NotEnoughReplicasError(RetriableError, BrokerResponseError):
    """Fewer replicas than `min.insync.replicas` asks for."""

    errno = 19


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


class TopicAuthorizationFailedError(AuthorizationError):
    """The storage refused access to a topic."""

    errno = 29


class GroupAuthorizationFailedError(AuthorizationError):
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


class InvalidReplicationAssignmentError(BrokerResponseError):
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


class ConcurrentTransactionsError(RetriableError, BrokerResponseError):
    """Another transaction of this producer is still under way."""

    errno = 51


class KafkaStorageError(InvalidMetadataError, BrokerResponseError):
    """The storage failed to read or write; nothing was written."""

    errno = 56


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


class UnstableOffsetCommitError(RetriableError, BrokerResponseError):
    """An offset is part of an open transaction."""

    errno = 88


class ProducerFencedError(BrokerResponseError):
    """A newer producer with the same transactional id took over."""

    errno = 90


class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError):
    """There is no topic with this id."""

    errno = 100


class TopicDeletedError(UnknownTopicOrPartitionError, UnknownTopicIdError):
    """The topic this client was using was deleted, or deleted and created again under the same name.

    Args:
        topic: its name.
        topic_id: the id the client knew.
        current_id: the id the name has now; `None` when the topic is gone.
    """

    retriable = False
    errno = 100

    def __init__(self, topic: str, topic_id: str, current_id: str | None) -> None:
        now = "it is gone" if current_id is None else f"the name now belongs to topic id {current_id}"
        super().__init__(f"topic {topic!r} with id {topic_id} was deleted: {now}")
        self.topic = topic
        self.topic_id = topic_id
        self.current_id = current_id


# --- kafka-python's other errors: ported code may name them; nothing here raises them -----------------


class Cancelled(RetriableError):
    """kafka-python's: cancelled."""


class KafkaProtocolError(KafkaError):
    """kafka-python's: kafka protocol."""


class CorrelationIdError(RetriableError, KafkaProtocolError):
    """kafka-python's: correlation id."""


class InvalidReceiveError(KafkaProtocolError):
    """kafka-python's: invalid receive."""


class LogTruncationError(KafkaError):
    """kafka-python's: log truncation."""


class MetadataEmptyBrokerList(RetriableError):
    """kafka-python's: metadata empty broker list."""


class NodeNotReadyError(RetriableError):
    """kafka-python's: node not ready."""


class QuotaViolationError(KafkaError):
    """kafka-python's: quota violation."""


class StaleMetadata(InvalidMetadataError):
    """kafka-python's: stale metadata."""


class TooManyInFlightRequests(RetriableError):
    """kafka-python's: too many in flight requests."""


class TransactionAbortedError(KafkaError):
    """kafka-python's: transaction aborted."""


class UnknownBrokerIdError(KafkaError):
    """kafka-python's: unknown broker id."""


class UnrecognizedBrokerVersion(KafkaError):
    """kafka-python's: unrecognized broker version."""


class UnknownError(BrokerResponseError):
    """Kafka's error -1: unknown."""

    errno = -1


class InvalidFetchRequestError(BrokerResponseError):
    """Kafka's error 4: invalid fetch request."""

    errno = 4


class BrokerNotAvailableError(BrokerResponseError):
    """Kafka's error 8: broker not available."""

    errno = 8


class ReplicaNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """Kafka's error 9: replica not available."""

    errno = 9


class StaleControllerEpochError(BrokerResponseError):
    """Kafka's error 11: stale controller epoch."""

    errno = 11


class NetworkExceptionError(InvalidMetadataError, BrokerResponseError):
    """Kafka's error 13: network exception."""

    errno = 13


class CoordinatorLoadInProgressError(RetriableError, BrokerResponseError):
    """Kafka's error 14: coordinator load in progress."""

    errno = 14


class CoordinatorNotAvailableError(RetriableError, BrokerResponseError):
    """Kafka's error 15: coordinator not available."""

    errno = 15


class NotCoordinatorError(RetriableError, BrokerResponseError):
    """Kafka's error 16: not coordinator."""

    errno = 16


class NotEnoughReplicasAfterAppendError(RetriableError, BrokerResponseError):
    """Kafka's error 20: not enough replicas after append."""

    errno = 20


class InvalidRequiredAcksError(BrokerResponseError):
    """Kafka's error 21: invalid required acks."""

    errno = 21


class InvalidSessionTimeoutError(BrokerResponseError):
    """Kafka's error 26: invalid session timeout."""

    errno = 26


class InvalidCommitOffsetSizeError(BrokerResponseError):
    """Kafka's error 28: invalid commit offset size."""

    errno = 28


class ClusterAuthorizationFailedError(AuthorizationError):
    """Kafka's error 31: cluster authorization failed."""

    errno = 31


class UnsupportedSaslMechanismError(BrokerResponseError):
    """Kafka's error 33: unsupported sasl mechanism."""

    errno = 33


class IllegalSaslStateError(BrokerResponseError):
    """Kafka's error 34: illegal sasl state."""

    errno = 34


class IncompatibleBrokerVersion(UnsupportedVersionError):
    """kafka-python's: incompatible broker version."""


class NotControllerError(RetriableError, BrokerResponseError):
    """Kafka's error 41: not controller."""

    errno = 41


class UnsupportedForMessageFormatError(BrokerResponseError):
    """Kafka's error 43: unsupported for message format."""

    errno = 43


class InvalidProducerIdMappingError(BrokerResponseError):
    """Kafka's error 49: invalid producer id mapping."""

    errno = 49


class InvalidTransactionTimeoutError(BrokerResponseError):
    """Kafka's error 50: invalid transaction timeout."""

    errno = 50


class TransactionCoordinatorFencedError(BrokerResponseError):
    """Kafka's error 52: transaction coordinator fenced."""

    errno = 52


class TransactionalIdAuthorizationFailedError(AuthorizationError):
    """Kafka's error 53: transactional id authorization failed."""

    errno = 53


class SecurityDisabledError(BrokerResponseError):
    """Kafka's error 54: security disabled."""

    errno = 54


class OperationNotAttemptedError(BrokerResponseError):
    """Kafka's error 55: operation not attempted."""

    errno = 55


class LogDirNotFoundError(BrokerResponseError):
    """Kafka's error 57: log dir not found."""

    errno = 57


class SaslAuthenticationFailedError(BrokerResponseError):
    """Kafka's error 58: sasl authentication failed."""

    errno = 58


class ReassignmentInProgressError(BrokerResponseError):
    """Kafka's error 60: reassignment in progress."""

    errno = 60


class DelegationTokenAuthDisabledError(BrokerResponseError):
    """Kafka's error 61: delegation token auth disabled."""

    errno = 61


class DelegationTokenNotFoundError(BrokerResponseError):
    """Kafka's error 62: delegation token not found."""

    errno = 62


class DelegationTokenOwnerMismatchError(BrokerResponseError):
    """Kafka's error 63: delegation token owner mismatch."""

    errno = 63


class DelegationTokenRequestNotAllowedError(BrokerResponseError):
    """Kafka's error 64: delegation token request not allowed."""

    errno = 64


class DelegationTokenAuthorizationFailedError(AuthorizationError):
    """Kafka's error 65: delegation token authorization failed."""

    errno = 65


class DelegationTokenExpiredError(BrokerResponseError):
    """Kafka's error 66: delegation token expired."""

    errno = 66


class InvalidPrincipalTypeError(BrokerResponseError):
    """Kafka's error 67: invalid principal type."""

    errno = 67


class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError):
    """Kafka's error 70: fetch session id not found."""

    errno = 70


class InvalidFetchSessionEpochError(RetriableError, BrokerResponseError):
    """Kafka's error 71: invalid fetch session epoch."""

    errno = 71


class ListenerNotFoundError(InvalidMetadataError, BrokerResponseError):
    """Kafka's error 72: listener not found."""

    errno = 72


class TopicDeletionDisabledError(BrokerResponseError):
    """Kafka's error 73: topic deletion disabled."""

    errno = 73


class FencedLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    """Kafka's error 74: fenced leader epoch."""

    errno = 74


class UnknownLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    """Kafka's error 75: unknown leader epoch."""

    errno = 75


class UnsupportedCompressionTypeError(BrokerResponseError):
    """Kafka's error 76: unsupported compression type."""

    errno = 76


class StaleBrokerEpochError(BrokerResponseError):
    """Kafka's error 77: stale broker epoch."""

    errno = 77


class OffsetNotAvailableError(RetriableError, BrokerResponseError):
    """Kafka's error 78: offset not available."""

    errno = 78


class MemberIdRequiredError(BrokerResponseError):
    """Kafka's error 79: member id required."""

    errno = 79


class PreferredLeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """Kafka's error 80: preferred leader not available."""

    errno = 80


class GroupMaxSizeReachedError(BrokerResponseError):
    """Kafka's error 81: group max size reached."""

    errno = 81


class EligibleLeadersNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """Kafka's error 83: eligible leaders not available."""

    errno = 83


class ElectionNotNeededError(InvalidMetadataError, BrokerResponseError):
    """Kafka's error 84: election not needed."""

    errno = 84


class NoReassignmentInProgressError(BrokerResponseError):
    """Kafka's error 85: no reassignment in progress."""

    errno = 85


class ThrottlingQuotaExceededError(RetriableError, BrokerResponseError):
    """Kafka's error 89: throttling quota exceeded."""

    errno = 89


class ResourceNotFoundError(BrokerResponseError):
    """Kafka's error 91: resource not found."""

    errno = 91


class DuplicateResourceError(BrokerResponseError):
    """Kafka's error 92: duplicate resource."""

    errno = 92


class UnacceptableCredentialError(BrokerResponseError):
    """Kafka's error 93: unacceptable credential."""

    errno = 93


class InconsistentVoterSetError(BrokerResponseError):
    """Kafka's error 94: inconsistent voter set."""

    errno = 94


class InvalidUpdateVersionError(BrokerResponseError):
    """Kafka's error 95: invalid update version."""

    errno = 95


class FeatureUpdateFailedError(BrokerResponseError):
    """Kafka's error 96: feature update failed."""

    errno = 96


class PrincipalDeserializationFailureError(BrokerResponseError):
    """Kafka's error 97: principal deserialization failure."""

    errno = 97


class SnapshotNotFoundError(BrokerResponseError):
    """Kafka's error 98: snapshot not found."""

    errno = 98


class PositionOutOfRangeError(BrokerResponseError):
    """Kafka's error 99: position out of range."""

    errno = 99


class DuplicateBrokerRegistrationError(BrokerResponseError):
    """Kafka's error 101: duplicate broker registration."""

    errno = 101


class BrokerIdNotRegisteredError(BrokerResponseError):
    """Kafka's error 102: broker id not registered."""

    errno = 102


class InconsistentTopicIdError(InvalidMetadataError, BrokerResponseError):
    """Kafka's error 103: inconsistent topic id."""

    errno = 103


class InconsistentClusterIdError(BrokerResponseError):
    """Kafka's error 104: inconsistent cluster id."""

    errno = 104


class TransactionalIdNotFoundError(BrokerResponseError):
    """Kafka's error 105: transactional id not found."""

    errno = 105


class FetchSessionTopicIdError(RetriableError, BrokerResponseError):
    """Kafka's error 106: fetch session topic id."""

    errno = 106


class IneligibleReplicaError(BrokerResponseError):
    """Kafka's error 107: ineligible replica."""

    errno = 107


class NewLeaderElectedError(BrokerResponseError):
    """Kafka's error 108: new leader elected."""

    errno = 108


class OffsetMovedToTieredStorageError(BrokerResponseError):
    """Kafka's error 109: offset moved to tiered storage."""

    errno = 109


class FencedMemberEpochError(BrokerResponseError):
    """Kafka's error 110: fenced member epoch."""

    errno = 110


class UnreleasedInstanceIdError(BrokerResponseError):
    """Kafka's error 111: unreleased instance id."""

    errno = 111


class UnsupportedAssignorError(BrokerResponseError):
    """Kafka's error 112: unsupported assignor."""

    errno = 112


class StaleMemberEpochError(BrokerResponseError):
    """Kafka's error 113: stale member epoch."""

    errno = 113


class MismatchedEndpointTypeError(BrokerResponseError):
    """Kafka's error 114: mismatched endpoint type."""

    errno = 114


class UnsupportedEndpointTypeError(BrokerResponseError):
    """Kafka's error 115: unsupported endpoint type."""

    errno = 115


class UnknownControllerIdError(BrokerResponseError):
    """Kafka's error 116: unknown controller id."""

    errno = 116


class UnknownSubscriptionIdError(BrokerResponseError):
    """Kafka's error 117: unknown subscription id."""

    errno = 117


class TelemetryTooLargeError(BrokerResponseError):
    """Kafka's error 118: telemetry too large."""

    errno = 118


class InvalidRegistrationError(BrokerResponseError):
    """Kafka's error 119: invalid registration."""

    errno = 119


class TransactionAbortableError(BrokerResponseError):
    """Kafka's error 120: transaction abortable."""

    errno = 120


class InvalidRecordStateError(BrokerResponseError):
    """Kafka's error 121: invalid record state."""

    errno = 121


class ShareSessionNotFoundError(RetriableError, BrokerResponseError):
    """Kafka's error 122: share session not found."""

    errno = 122


class InvalidShareSessionEpochError(RetriableError, BrokerResponseError):
    """Kafka's error 123: invalid share session epoch."""

    errno = 123


class FencedStateEpochError(BrokerResponseError):
    """Kafka's error 124: fenced state epoch."""

    errno = 124


class InvalidVoterKeyError(BrokerResponseError):
    """Kafka's error 125: invalid voter key."""

    errno = 125


class DuplicateVoterError(BrokerResponseError):
    """Kafka's error 126: duplicate voter."""

    errno = 126


class VoterNotFoundError(BrokerResponseError):
    """Kafka's error 127: voter not found."""

    errno = 127


def for_code(error_code: int) -> type[BrokerResponseError]:
    """The class of a code of Kafka's protocol; a class of its own below `UnknownError` for one that is not known."""
    known = _BY_CODE.get(error_code)
    return type("UnrecognizedBrokerError", (UnknownError,), {"errno": error_code}) if known is None else known


def _by_code(parent: type[BrokerResponseError]) -> dict[int, type[BrokerResponseError]]:
    """By code, the class that stands nearest to the root."""
    found: dict[int, type[BrokerResponseError]] = {UnknownError.errno: UnknownError}
    level = [parent]
    while level:
        level = [child for one in level for child in one.__subclasses__()]
        for one in level:
            found.setdefault(one.errno, one)
    return found


_BY_CODE: Final = _by_code(BrokerResponseError)
