"""Errors of Kafka's protocol that kafkalike never raises but ported code may name, and the class of each code."""

from __future__ import annotations

from functools import cache

from kafkalike.errors import client_errors, cluster_errors, kafka_error
from kafkalike.errors.cluster_errors import UnsupportedVersionError
from kafkalike.errors.kafka_error import (
    AuthorizationError,
    BrokerResponseError,
    InvalidMetadataError,
    KafkaError,
    RetriableError,
    UnknownError,
)

# Brokers, controllers, replicas and their metadata


class ReplicaNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """Kafka's error 9: replica not available."""

    errno = 9


class StaleControllerEpochError(BrokerResponseError):
    """Kafka's error 11: stale controller epoch."""

    errno = 11


class NetworkExceptionError(InvalidMetadataError, BrokerResponseError):
    """Kafka's error 13: network exception."""

    errno = 13


class CoordinatorNotAvailableError(RetriableError, BrokerResponseError):
    """Kafka's error 15: coordinator not available."""

    errno = 15


class NotCoordinatorError(RetriableError, BrokerResponseError):
    """Kafka's error 16: not coordinator."""

    errno = 16


class NotControllerError(RetriableError, BrokerResponseError):
    """Kafka's error 41: not controller."""

    errno = 41


class LogDirNotFoundError(BrokerResponseError):
    """Kafka's error 57: log dir not found."""

    errno = 57


class ListenerNotFoundError(InvalidMetadataError, BrokerResponseError):
    """Kafka's error 72: listener not found."""

    errno = 72


class TopicDeletionDisabledError(BrokerResponseError):
    """Kafka's error 73: topic deletion disabled."""

    errno = 73


class FencedLeaderEpochError(InvalidMetadataError, BrokerResponseError):
    """Kafka's error 74: fenced leader epoch."""

    errno = 74


class StaleBrokerEpochError(BrokerResponseError):
    """Kafka's error 77: stale broker epoch."""

    errno = 77


class DuplicateResourceError(BrokerResponseError):
    """Kafka's error 92: duplicate resource."""

    errno = 92


class InconsistentVoterSetError(BrokerResponseError):
    """Kafka's error 94: inconsistent voter set."""

    errno = 94


class InvalidUpdateVersionError(BrokerResponseError):
    """Kafka's error 95: invalid update version."""

    errno = 95


class FeatureUpdateFailedError(BrokerResponseError):
    """Kafka's error 96: feature update failed."""

    errno = 96


class SnapshotNotFoundError(BrokerResponseError):
    """Kafka's error 98: snapshot not found."""

    errno = 98


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


class IneligibleReplicaError(BrokerResponseError):
    """Kafka's error 107: ineligible replica."""

    errno = 107


class NewLeaderElectedError(BrokerResponseError):
    """Kafka's error 108: new leader elected."""

    errno = 108


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


# Fetching, producing, groups and transactions


class InvalidFetchRequestError(BrokerResponseError):
    """Kafka's error 4: invalid fetch request."""

    errno = 4


class InvalidCommitOffsetSizeError(BrokerResponseError):
    """Kafka's error 28: invalid commit offset size."""

    errno = 28


class UnsupportedForMessageFormatError(BrokerResponseError):
    """Kafka's error 43: unsupported for message format."""

    errno = 43


class TransactionCoordinatorFencedError(BrokerResponseError):
    """Kafka's error 52: transaction coordinator fenced."""

    errno = 52


class InvalidFetchSessionEpochError(RetriableError, BrokerResponseError):
    """Kafka's error 71: invalid fetch session epoch."""

    errno = 71


class UnsupportedCompressionTypeError(BrokerResponseError):
    """Kafka's error 76: unsupported compression type."""

    errno = 76


class OffsetNotAvailableError(RetriableError, BrokerResponseError):
    """Kafka's error 78: offset not available."""

    errno = 78


class ThrottlingQuotaExceededError(RetriableError, BrokerResponseError):
    """Kafka's error 89: throttling quota exceeded."""

    errno = 89


class PositionOutOfRangeError(BrokerResponseError):
    """Kafka's error 99: position out of range."""

    errno = 99


class FetchSessionTopicIdError(RetriableError, BrokerResponseError):
    """Kafka's error 106: fetch session topic id."""

    errno = 106


class OffsetMovedToTieredStorageError(BrokerResponseError):
    """Kafka's error 109: offset moved to tiered storage."""

    errno = 109


class UnreleasedInstanceIdError(BrokerResponseError):
    """Kafka's error 111: unreleased instance id."""

    errno = 111


class ShareSessionNotFoundError(RetriableError, BrokerResponseError):
    """Kafka's error 122: share session not found."""

    errno = 122


class InvalidShareSessionEpochError(RetriableError, BrokerResponseError):
    """Kafka's error 123: invalid share session epoch."""

    errno = 123


# Logins, tokens and rights


class SecurityDisabledError(BrokerResponseError):
    """Kafka's error 54: security disabled."""

    errno = 54


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


class UnacceptableCredentialError(BrokerResponseError):
    """Kafka's error 93: unacceptable credential."""

    errno = 93


class PrincipalDeserializationFailureError(BrokerResponseError):
    """Kafka's error 97: principal deserialization failure."""

    errno = 97


# kafka-python's errors of a client and its connections


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


class UnknownBrokerIdError(KafkaError):
    """kafka-python's: unknown broker id."""


class UnrecognizedBrokerVersion(KafkaError):
    """kafka-python's: unrecognized broker version."""


class IncompatibleBrokerVersion(UnsupportedVersionError):
    """kafka-python's: incompatible broker version."""


@cache
def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class of a code of Kafka's protocol; for an unknown code, a new subclass of `UnknownError`."""
    known = [*vars(kafka_error).values(), *vars(client_errors).values(), *vars(cluster_errors).values()]
    classes = [each for each in (*known, *globals().values()) if isinstance(each, type)]
    found = [each for each in classes if issubclass(each, BrokerResponseError) and each.errno == error_code]
    if not found:
        return type("UnrecognizedBrokerError", (UnknownError,), {"errno": error_code, "__module__": "kafkalike.errors"})
    return UnknownError if error_code == UnknownError.errno else min(found, key=lambda each: len(each.__mro__))
