"""Kafka's errors of brokers, controllers, replicas and their metadata.

Nothing in kafkalike raises them; ported code may name them.
"""

from __future__ import annotations

from kafkalike.errors.base import BrokerResponseError, InvalidMetadataError, RetriableError


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


class NotControllerError(RetriableError, BrokerResponseError):
    """Kafka's error 41: not controller."""

    errno = 41


class OperationNotAttemptedError(BrokerResponseError):
    """Kafka's error 55: operation not attempted."""

    errno = 55


class LogDirNotFoundError(BrokerResponseError):
    """Kafka's error 57: log dir not found."""

    errno = 57


class ReassignmentInProgressError(BrokerResponseError):
    """Kafka's error 60: reassignment in progress."""

    errno = 60


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


class StaleBrokerEpochError(BrokerResponseError):
    """Kafka's error 77: stale broker epoch."""

    errno = 77


class ResourceNotFoundError(BrokerResponseError):
    """Kafka's error 91: resource not found."""

    errno = 91


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
