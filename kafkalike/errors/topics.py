"""Topics: what is wrong with a topic that was asked for, or with a request to make or change one."""

from __future__ import annotations

from kafkalike.errors.base import AuthorizationError, BrokerResponseError, InvalidMetadataError


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
