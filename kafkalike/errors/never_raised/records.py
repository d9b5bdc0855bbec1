"""Kafka's errors of fetching, producing, groups and transactions.

Nothing in kafkalike raises them; ported code may name them.
"""

from __future__ import annotations

from kafkalike.errors.base import BrokerResponseError, RetriableError


class InvalidFetchRequestError(BrokerResponseError):
    """Kafka's error 4: invalid fetch request."""

    errno = 4


class InvalidRequiredAcksError(BrokerResponseError):
    """Kafka's error 21: invalid required acks."""

    errno = 21


class InvalidSessionTimeoutError(BrokerResponseError):
    """Kafka's error 26: invalid session timeout."""

    errno = 26


class InvalidCommitOffsetSizeError(BrokerResponseError):
    """Kafka's error 28: invalid commit offset size."""

    errno = 28


class UnsupportedForMessageFormatError(BrokerResponseError):
    """Kafka's error 43: unsupported for message format."""

    errno = 43


class InvalidProducerIdMappingError(BrokerResponseError):
    """Kafka's error 49: invalid producer id mapping."""

    errno = 49


class TransactionCoordinatorFencedError(BrokerResponseError):
    """Kafka's error 52: transaction coordinator fenced."""

    errno = 52


class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError):
    """Kafka's error 70: fetch session id not found."""

    errno = 70


class InvalidFetchSessionEpochError(RetriableError, BrokerResponseError):
    """Kafka's error 71: invalid fetch session epoch."""

    errno = 71


class UnsupportedCompressionTypeError(BrokerResponseError):
    """Kafka's error 76: unsupported compression type."""

    errno = 76


class OffsetNotAvailableError(RetriableError, BrokerResponseError):
    """Kafka's error 78: offset not available."""

    errno = 78


class MemberIdRequiredError(BrokerResponseError):
    """Kafka's error 79: member id required."""

    errno = 79


class GroupMaxSizeReachedError(BrokerResponseError):
    """Kafka's error 81: group max size reached."""

    errno = 81


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


class InvalidRecordStateError(BrokerResponseError):
    """Kafka's error 121: invalid record state."""

    errno = 121


class ShareSessionNotFoundError(RetriableError, BrokerResponseError):
    """Kafka's error 122: share session not found."""

    errno = 122


class InvalidShareSessionEpochError(RetriableError, BrokerResponseError):
    """Kafka's error 123: invalid share session epoch."""

    errno = 123
