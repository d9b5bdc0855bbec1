"""Groups: members, generations and rebalances of a consumer group."""

from __future__ import annotations

from kafkalike.errors.base import AuthorizationError, BrokerResponseError


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
