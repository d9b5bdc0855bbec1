"""kafka-python's errors of a client and its connections.

Nothing in kafkalike raises them; ported code may name them.
"""

from __future__ import annotations

from kafkalike.errors.base import InvalidMetadataError, KafkaError, RetriableError
from kafkalike.errors.storage import UnsupportedVersionError


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
