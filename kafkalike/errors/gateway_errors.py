"""Errors that only clients of the gateway get, as codes of Kafka's protocol."""

from __future__ import annotations

from kafkalike.errors.kafka_error import AuthorizationError, BrokerResponseError, RetriableError


class CoordinatorLoadInProgressError(RetriableError, BrokerResponseError):
    """The gateway cannot decide about the group at this moment; a retry may succeed."""

    errno = 14


class InvalidRequiredAcksError(BrokerResponseError):
    """A produce request has `acks` other than -1, 0 and 1."""

    errno = 21


class InvalidSessionTimeoutError(BrokerResponseError):
    """A client that joins a group has an invalid session timeout."""

    errno = 26


class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError):
    """A fetch request names a session; the gateway has none, and every request names its partitions."""

    errno = 70


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
