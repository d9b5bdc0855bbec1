"""Errors of a cluster: its topics, brokers and replicas, the files that hold them, and its schema registry."""

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
    """There is no such topic, or the topic has no such partition."""

    errno = 3


class UnknownPartitionerTopicError(UnknownTopicOrPartitionError, ValueError):
    """A partitioner was asked for a topic that the cluster does not have; kafka-python raises ValueError."""


class InvalidTopicError(BrokerResponseError, ValueError):
    """A topic name that Kafka's rule does not allow; kafka-python raises ValueError."""

    errno = 17


class InvalidTopicTypeError(InvalidTopicError, TypeError):
    """A topic name that is no str; kafka-python raises TypeError."""


class TopicAuthorizationFailedError(AuthorizationError):
    """The storage refused access to a topic."""

    errno = 29


class TopicAlreadyExistsError(BrokerResponseError):
    """A topic of that name exists."""

    errno = 36


class InvalidPartitionsError(BrokerResponseError):
    """A partition count that is not allowed."""

    errno = 37


class InvalidReplicationFactorError(BrokerResponseError):
    """More replicas than there are storage roots, or fewer than one; or none of the roots answers."""

    errno = 38


class InvalidReplicationAssignmentError(BrokerResponseError):
    """A replica assignment that cannot be: no such broker, different ones for partitions, or none that answers."""

    errno = 39


class InvalidConfigurationError(BrokerResponseError):
    """A topic or server setting is unknown or has a value that is not allowed."""

    errno = 40


class InvalidRequestError(BrokerResponseError):
    """A request that contradicts itself."""

    errno = 42


class PolicyViolationError(BrokerResponseError):
    """The request breaks a limit set by the operator."""

    errno = 44


class MirrorTopicError(PolicyViolationError):
    """The topic is a read-only copy of another cluster's: only its mirror writes to it until it is promoted.

    Args:
        topic: its name.
        source: root of the cluster that it is a copy of.
        phase: `following`, or `promoting` when a promotion has begun and is not through.
    """

    def __init__(self, topic: str, source: str, phase: str = "following") -> None:
        self.topic = topic
        self.source = source
        self.phase = phase
        left = " (a promotion has begun: run it again)" if phase == "promoting" else ""
        super().__init__(
            f"topic {topic!r} is a read-only mirror of {source}{left}; `kafkalike mirror promote` makes it a topic "
            "that can be written"
        )


class MirrorError(BrokerResponseError):
    """A mirror cannot go on: its source is another topic by now, or has something else than its copy."""


class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError):
    """There is no topic with this id."""

    errno = 100


class TopicDeletedError(UnknownTopicOrPartitionError, UnknownTopicIdError):
    """The topic this client was using was deleted, or deleted and created again under the same name.

    Args:
        topic: its name.
        topic_id: the id the client knew.
        current_id: the id the name has now; `None` when the topic is gone.
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


class KafkaConnectionError(InvalidMetadataError):
    """The storage root cannot be reached."""


class UnsafeStorageError(KafkaError):
    """This storage cannot keep several writers apart, so writing to it is refused."""


class UnknownOutcomeError(KafkaError):
    """A write may or may not have happened, and the process could not find out.

    Args:
        what: the operation.
        append_id: the id the write carries in the table's history, to look for it later.
    """

    def __init__(self, what: str, append_id: str) -> None:
        super().__init__(f"{what}: the outcome is unknown; look for append id {append_id} with `kafkalike dump-log`")
        self.what = what
        self.append_id = append_id


class DataLossError(KafkaError):
    """Records that were promised are gone: a hole in a partition that should be dense."""


class LogCorruptError(KafkaError):
    """A topic table breaks an invariant of the log: a foreign writer changed it, or a file is damaged."""


class CorruptRecordError(BrokerResponseError):
    """A data file cannot be read or does not hold what the log says."""

    errno = 2


CorruptRecordException = CorruptRecordError
"""kafka-python's older name."""


class LeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """The partition has no writer now."""

    errno = 5


class NotLeaderForPartitionError(InvalidMetadataError, BrokerResponseError):
    """Another root leads the partition."""

    errno = 6


class NotEnoughReplicasError(RetriableError, BrokerResponseError):
    """Fewer replicas than `min.insync.replicas` asks for."""

    errno = 19


class UnsupportedVersionError(BrokerResponseError):
    """A newer layout, a Delta feature that is not supported, or a cluster of one root that got others meanwhile."""

    errno = 35


class KafkaStorageError(InvalidMetadataError, BrokerResponseError):
    """The storage failed to read or write; nothing was written."""

    errno = 56


class SchemaRegistryError(KafkaError):
    """A schema registry, in the cluster or as a service, said no; nothing was changed.

    The attributes have the names of `confluent_kafka.schema_registry.error.SchemaRegistryError`.

    Args:
        http_status_code: what the REST interface answers, such as 404.
        error_code: Confluent's code, such as 40401; -1 where there is none.
        error_message: what is wrong.
    """

    def __init__(self, http_status_code: int, error_code: int, error_message: str) -> None:
        super().__init__(f"{error_message} (HTTP status code {http_status_code}, SR code {error_code})")
        self.http_status_code = http_status_code
        self.error_code = error_code
        self.error_message = error_message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.http_status_code, self.error_code, self.error_message)


class InvalidSchemaError(SchemaRegistryError, ValueError):
    """A schema that cannot be understood: not in its language, a type that is nowhere defined, too long or too deep.

    Args:
        error_message: what is wrong with it.
    """

    def __init__(self, error_message: str) -> None:
        super().__init__(422, 42201, error_message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.error_message,)


class UnknownRegistryOutcomeError(UnknownOutcomeError):
    """A change was sent to a registry that is a service, and no answer came: it may or may not have been made.

    Args:
        what: the change.
        cause: what came instead of an answer.
    """

    def __init__(self, what: str, cause: str) -> None:
        KafkaError.__init__(
            self, f"{what}: no answer came, and it may have been done ({cause}); look before trying again"
        )
        self.what = what
        self.append_id = ""
        self._cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self._cause)
