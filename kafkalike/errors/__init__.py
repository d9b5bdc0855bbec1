"""Errors: one class hierarchy with kafka-python's names.

Each error answers two questions for a caller: may the call be retried (`retriable`), and is the outcome known (if not,
it is an `UnknownOutcomeError`). The facts of an error are attributes and part of its message. `errno` is Kafka's
protocol error code where Kafka has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

from kafkalike.errors import client_errors, cluster_errors, gateway_errors, kafka_error, never_raised
from kafkalike.errors.client_errors import *
from kafkalike.errors.cluster_errors import *
from kafkalike.errors.gateway_errors import *
from kafkalike.errors.kafka_error import *
from kafkalike.errors.never_raised import *

__all__ = [
    "AuthorizationError",
    "BrokerIdNotRegisteredError",
    "BrokerNotAvailableError",
    "BrokerResponseError",
    "Cancelled",
    "CheckpointMismatchError",
    "ClusterAuthorizationFailedError",
    "CommitFailedError",
    "ConcurrentTransactionsError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorrelationIdError",
    "CorruptRecordError",
    "CorruptRecordException",
    "DataLossError",
    "DelegationTokenAuthDisabledError",
    "DelegationTokenAuthorizationFailedError",
    "DelegationTokenExpiredError",
    "DelegationTokenNotFoundError",
    "DelegationTokenOwnerMismatchError",
    "DelegationTokenRequestNotAllowedError",
    "DuplicateBrokerRegistrationError",
    "DuplicateResourceError",
    "DuplicateSequenceNumberError",
    "DuplicateVoterError",
    "ElectionNotNeededError",
    "EligibleLeadersNotAvailableError",
    "FeatureUpdateFailedError",
    "FencedInstanceIdError",
    "FencedLeaderEpochError",
    "FencedMemberEpochError",
    "FencedStateEpochError",
    "FetchSessionIdNotFoundError",
    "FetchSessionTopicIdError",
    "GroupAuthorizationFailedError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "GroupSubscribedToTopicError",
    "IllegalArgumentError",
    "IllegalGenerationError",
    "IllegalSaslStateError",
    "IllegalStateError",
    "IncompatibleBrokerVersion",
    "InconsistentClusterIdError",
    "InconsistentGroupProtocolError",
    "InconsistentTopicIdError",
    "InconsistentVoterSetError",
    "IneligibleReplicaError",
    "InvalidCommitOffsetSizeError",
    "InvalidConfigurationError",
    "InvalidFetchRequestError",
    "InvalidFetchSessionEpochError",
    "InvalidGroupIdError",
    "InvalidMetadataError",
    "InvalidPartitionsError",
    "InvalidPrincipalTypeError",
    "InvalidProducerEpochError",
    "InvalidProducerIdMappingError",
    "InvalidReceiveError",
    "InvalidRecordError",
    "InvalidRecordStateError",
    "InvalidRegistrationError",
    "InvalidReplicationAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidRequestError",
    "InvalidRequiredAcksError",
    "InvalidSchemaError",
    "InvalidSessionTimeoutError",
    "InvalidShareSessionEpochError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTopicTypeError",
    "InvalidTransactionTimeoutError",
    "InvalidTxnStateError",
    "InvalidUpdateVersionError",
    "InvalidVoterKeyError",
    "KafkaConfigurationError",
    "KafkaConnectionError",
    "KafkaError",
    "KafkaProtocolError",
    "KafkaStorageError",
    "KafkaTimeoutError",
    "LeaderNotAvailableError",
    "ListenerNotFoundError",
    "LogCorruptError",
    "LogDirNotFoundError",
    "LogTruncationError",
    "MemberIdRequiredError",
    "MessageSizeTooLargeError",
    "MetadataEmptyBrokerList",
    "MirrorError",
    "MirrorTopicError",
    "MismatchedEndpointTypeError",
    "NetworkExceptionError",
    "NewLeaderElectedError",
    "NoError",
    "NoOffsetForPartitionError",
    "NoReassignmentInProgressError",
    "NodeNotReadyError",
    "NonEmptyGroupError",
    "NotControllerError",
    "NotCoordinatorError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderForPartitionError",
    "OffsetMetadataTooLargeError",
    "OffsetMovedToTieredStorageError",
    "OffsetNotAvailableError",
    "OffsetOutOfRangeError",
    "OperationNotAttemptedError",
    "OutOfOrderSequenceNumberError",
    "PolicyViolationError",
    "PositionOutOfRangeError",
    "PreferredLeaderNotAvailableError",
    "PrincipalDeserializationFailureError",
    "ProducerFencedError",
    "QuotaViolationError",
    "ReassignmentInProgressError",
    "RebalanceInProgressError",
    "RecordDeserializationError",
    "RecordListTooLargeError",
    "ReplicaNotAvailableError",
    "RequestTimedOutError",
    "ResourceNotFoundError",
    "RetriableError",
    "SaslAuthenticationFailedError",
    "SchemaRegistryError",
    "SecurityDisabledError",
    "SerializationError",
    "ShareSessionNotFoundError",
    "SnapshotNotFoundError",
    "StaleBrokerEpochError",
    "StaleControllerEpochError",
    "StaleMemberEpochError",
    "StaleMetadata",
    "TelemetryTooLargeError",
    "ThrottlingQuotaExceededError",
    "TooManyInFlightRequests",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "TopicDeletedError",
    "TopicDeletionDisabledError",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionCoordinatorFencedError",
    "TransactionalIdAuthorizationFailedError",
    "TransactionalIdNotFoundError",
    "UnacceptableCredentialError",
    "UnknownBrokerIdError",
    "UnknownControllerIdError",
    "UnknownError",
    "UnknownLeaderEpochError",
    "UnknownMemberCommitError",
    "UnknownMemberIdError",
    "UnknownOutcomeError",
    "UnknownPartitionerTopicError",
    "UnknownProducerIdError",
    "UnknownRegistryOutcomeError",
    "UnknownSubscriptionIdError",
    "UnknownTopicIdError",
    "UnknownTopicOrPartitionError",
    "UnrecognizedBrokerVersion",
    "UnreleasedInstanceIdError",
    "UnsafeStorageError",
    "UnstableOffsetCommitError",
    "UnsupportedAssignorError",
    "UnsupportedCodecError",
    "UnsupportedCompressionTypeError",
    "UnsupportedEndpointTypeError",
    "UnsupportedForMessageFormatError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
    "VoterNotFoundError",
    "for_code",
]

_MODULES: Final = (kafka_error, client_errors, cluster_errors, gateway_errors, never_raised)


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class of a code of Kafka's protocol; for an unknown code, a new subclass of `UnknownError`."""
    known = _by_code().get(error_code)
    if known is not None:
        return known
    return type("UnrecognizedBrokerError", (UnknownError,), {"errno": error_code, "__module__": "kafkalike.errors"})


def _classes() -> Iterator[type[BrokerResponseError]]:
    for module in _MODULES:
        for found in vars(module).values():
            if isinstance(found, type) and issubclass(found, BrokerResponseError):
                yield found


@cache
def _by_code() -> dict[int, type[BrokerResponseError]]:
    """Map each code to its class nearest to the root. Built on first use, because few programs need it."""
    found: dict[int, type[BrokerResponseError]] = {UnknownError.errno: UnknownError}
    for one in sorted(_classes(), key=lambda one: len(one.__mro__)):
        found.setdefault(one.errno, one)
    return found


for _name in __all__:
    # A user sees one name: in a traceback, in a pickle and in `repr`.
    globals()[_name].__module__ = __name__
