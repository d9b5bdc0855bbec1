"""Kafka's errors of logins, tokens and rights.

Nothing in kafkalike raises them; ported code may name them.
"""

from __future__ import annotations

from kafkalike.errors.base import AuthorizationError, BrokerResponseError


class ClusterAuthorizationFailedError(AuthorizationError):
    """Kafka's error 31: cluster authorization failed."""

    errno = 31


class UnsupportedSaslMechanismError(BrokerResponseError):
    """Kafka's error 33: unsupported sasl mechanism."""

    errno = 33


class IllegalSaslStateError(BrokerResponseError):
    """Kafka's error 34: illegal sasl state."""

    errno = 34


class TransactionalIdAuthorizationFailedError(AuthorizationError):
    """Kafka's error 53: transactional id authorization failed."""

    errno = 53


class SecurityDisabledError(BrokerResponseError):
    """Kafka's error 54: security disabled."""

    errno = 54


class SaslAuthenticationFailedError(BrokerResponseError):
    """Kafka's error 58: sasl authentication failed."""

    errno = 58


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
