"""Replicas: what brokers, leaders and replicas cannot do."""

from __future__ import annotations

from kafkalike.errors.base import BrokerResponseError, InvalidMetadataError, RetriableError


class BrokerNotAvailableError(BrokerResponseError):
    """There is no such broker in the cluster."""

    errno = 8


class ElectionNotNeededError(InvalidMetadataError, BrokerResponseError):
    """The replica that was to lead leads already."""

    errno = 84


class EligibleLeadersNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """No replica answers that could lead."""

    errno = 83


class NoReassignmentInProgressError(BrokerResponseError):
    """The topic's replicas are where they shall be."""

    errno = 85


class NotEnoughReplicasAfterAppendError(RetriableError, BrokerResponseError):
    """The records were written, and fewer replicas than `min.insync.replicas` are in sync now."""

    errno = 20


class PreferredLeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """The preferred replica is not in sync, so it cannot lead."""

    errno = 80
