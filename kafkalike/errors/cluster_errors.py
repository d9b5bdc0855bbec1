"""Errors of a cluster: topics, brokers, replicas, files, and the schema registry."""

from __future__ import annotations

from typing import Any

from kafkalike.errors.kafka_error import (
    AuthorizationError,
    BrokerResponseError,
    InvalidMetadataError,
    KafkaError,
    RetriableError,
)


class UnknownTopicOrPartitionError(InvalidMetadataError, BrokerResponseError):
    """The topic does not exist, or has no such partition."""

    errno = 3


class UnknownPartitionerTopicError(UnknownTopicOrPartitionError, ValueError):
    """The cluster does not have the topic of a partitioner's call. It is a ValueError, as in kafka-python."""


class InvalidTopicError(BrokerResponseError, ValueError):
    """Kafka's rule does not allow the topic name. It is a ValueError, as in kafka-python."""

    errno = 17


class InvalidTopicTypeError(InvalidTopicError, TypeError):
    """The topic name is not a str. It is a TypeError, as in kafka-python."""


class TopicAuthorizationFailedError(AuthorizationError):
    """The storage refused access to a topic, or a user of the gateway may not do this to it."""

    errno = 29


class TopicAlreadyExistsError(BrokerResponseError):
    """A topic with this name already exists."""

    errno = 36


class InvalidPartitionsError(BrokerResponseError):
    """The number of partitions is not allowed."""

    errno = 37


class InvalidReplicationFactorError(BrokerResponseError):
    """The replication factor is below one or above the number of storage roots, or none of the roots answers."""

    errno = 38


class InvalidReplicationAssignmentError(BrokerResponseError):
    """A replica assignment names an unknown broker, differs between partitions, or has no broker that answers."""

    errno = 39


class InvalidConfigurationError(BrokerResponseError):
    """A topic or server setting is unknown or has a value that is not allowed."""

    errno = 40


class InvalidRequestError(BrokerResponseError):
    """The parts of the request contradict each other."""

    errno = 42


class PolicyViolationError(BrokerResponseError):
    """The request exceeds a limit that the operator has set."""

    errno = 44


class MirrorTopicError(PolicyViolationError):
    """The topic is a read-only copy of another cluster's topic: until it is promoted, only its mirror writes to it.

    Args:
        topic: name of the copy.
        source: root of the source cluster.
        phase: `following`, or `promoting` after an interrupted promotion.
    """

    def __init__(self, topic: str, source: str, phase: str = "following") -> None:
        self.topic = topic
        self.source = source
        self.phase = phase
        left = " (an unfinished promotion: run it again)" if phase == "promoting" else ""
        super().__init__(
            f"topic {topic!r} is a read-only mirror of {source}{left}; run `kafkalike mirror promote` to make it "
            "writable"
        )


class MirrorError(BrokerResponseError):
    """A mirror cannot continue: its source is another topic, or source and copy have different records."""


class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError):
    """No topic has this id."""

    errno = 100


class TopicDeletedError(UnknownTopicOrPartitionError, UnknownTopicIdError):
    """The topic was deleted, or deleted and created again under the same name, while this client was using it.

    Args:
        topic: name of the topic.
        topic_id: the id that the client knows.
        current_id: the current id of that name; None if no topic has the name.
    """

    retriable = False
    errno = 100

    def __init__(self, topic: str, topic_id: str, current_id: str | None) -> None:
        now = "it is gone" if current_id is None else f"the name now belongs to topic id {current_id}"
        super().__init__(f"topic {topic!r} with id {topic_id} was deleted: {now}")
        self.topic = topic
        self.topic_id = topic_id
        self.current_id = current_id


class BrokerNotAvailableError(BrokerResponseError):
    """The cluster has no such broker."""

    errno = 8


class ElectionNotNeededError(InvalidMetadataError, BrokerResponseError):
    """The replica is already the leader."""

    errno = 84


class EligibleLeadersNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """No replica that could lead answers."""

    errno = 83


class ReassignmentInProgressError(BrokerResponseError):
    """The topic is being repartitioned, or must not be repartitioned at present; the message says what to do."""

    errno = 60


class NoReassignmentInProgressError(BrokerResponseError):
    """The topic's replicas are already on the requested brokers."""

    errno = 85


class NotEnoughReplicasAfterAppendError(RetriableError, BrokerResponseError):
    """The records were written, but fewer replicas than `min.insync.replicas` are in sync afterwards."""

    errno = 20


class PreferredLeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """The preferred replica is not in sync, so it cannot lead."""

    errno = 80


class KafkaConnectionError(InvalidMetadataError):
    """The storage root cannot be reached."""


class UnsafeStorageError(KafkaError):
    """The storage cannot keep concurrent writers apart, so kafkalike does not write to it."""


class UnknownOutcomeError(KafkaError):
    """A write may or may not have happened; its outcome could not be determined.

    Args:
        what: the operation.
        append_id: the write's id in the table's history, by which to find it later.
    """

    def __init__(self, what: str, append_id: str) -> None:
        super().__init__(f"{what}: the outcome is unknown; look for append id {append_id} with `kafkalike dump-log`")
        self.what = what
        self.append_id = append_id


class DataLossError(KafkaError):
    """Acknowledged records are missing: a partition has a hole although it should be dense."""


class LogCorruptError(KafkaError):
    """A topic table breaks an invariant of the log: a foreign writer changed it, or a file is damaged."""


class CorruptRecordError(BrokerResponseError):
    """A data file cannot be read, or does not hold the records that the log lists."""

    errno = 2


CorruptRecordException = CorruptRecordError
"""kafka-python's older name."""


class LeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """The partition has no leader."""

    errno = 5


class NotLeaderForPartitionError(InvalidMetadataError, BrokerResponseError):
    """Another root leads the partition, or the topic is being repartitioned; a producer tries again."""

    errno = 6


class NotEnoughReplicasError(RetriableError, BrokerResponseError):
    """Fewer replicas are in sync than `min.insync.replicas` requires."""

    errno = 19


class UnsupportedVersionError(BrokerResponseError):
    """A newer layout, an unsupported Delta feature, or a cluster of one root that has got more roots since opening."""

    errno = 35


class KafkaStorageError(InvalidMetadataError, BrokerResponseError):
    """The storage failed to read or write; nothing was written."""

    errno = 56


class SchemaRegistryError(KafkaError):
    """A schema registry, in the cluster or as a service, rejected the request; nothing was changed.

    The attributes have the names of `confluent_kafka.schema_registry.error.SchemaRegistryError`.

    Args:
        http_status_code: status of the REST response, such as 404.
        error_code: Confluent's code, such as 40401; -1 if there is none.
        error_message: description of the problem.
    """

    def __init__(self, http_status_code: int, error_code: int, error_message: str) -> None:
        super().__init__(f"{error_message} (HTTP status code {http_status_code}, SR code {error_code})")
        self.http_status_code = http_status_code
        self.error_code = error_code
        self.error_message = error_message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.http_status_code, self.error_code, self.error_message)


class InvalidSchemaError(SchemaRegistryError, ValueError):
    """The schema is not valid: a syntax error, an undefined type, or a text that is too long or nested too deeply.

    Args:
        error_message: description of the problem.
    """

    def __init__(self, error_message: str) -> None:
        super().__init__(422, 42201, error_message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.error_message,)


class UnknownRegistryOutcomeError(UnknownOutcomeError):
    """A change was sent to a registry service and no answer came, so it may or may not have been made.

    Args:
        what: the change.
        cause: the error in place of an answer.
    """

    def __init__(self, what: str, cause: str) -> None:
        KafkaError.__init__(
            self,
            f"{what}: the registry did not answer ({cause}); the change may have been made: check before retrying",
        )
        self.what = what
        self.append_id = ""
        self._cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self._cause)
