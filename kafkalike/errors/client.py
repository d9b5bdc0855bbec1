"""Client: wrong arguments, settings and states of a client, and time that ran out."""

from __future__ import annotations

from kafkalike.errors.base import BrokerResponseError, KafkaError, RetriableError


class IllegalStateError(KafkaError):
    """The call does not fit the object's state: closed, not subscribed, used from two threads."""


class IllegalArgumentError(KafkaError, ValueError):
    """An argument has a value that is not allowed."""


class KafkaConfigurationError(KafkaError):
    """A setting is unknown or its value is not allowed."""


class SerializationError(KafkaError):
    """A key or value could not be turned into bytes, or back.

    Args:
        message: what is wrong.
        topic: the record's topic; None where it is not known.
        partition: its partition.
        offset: its offset.
        schema_id: the id of the schema that it begins with.
    """

    def __init__(
        self,
        message: str = "",
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        schema_id: int | None = None,
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.schema_id = schema_id


class RecordDeserializationError(SerializationError):
    """A deserialiser failed on a record. The consumer's position stays at that record: seek past it to go on.

    Where the cause knows the id of the record's schema, it is `schema_id` here too.

    Args:
        topic: the record's topic.
        partition: the record's partition.
        offset: the record's offset.
        part: `key` or `value`.
        cause: what the deserialiser raised.
    """

    topic: str
    partition: int
    offset: int

    def __init__(self, topic: str, partition: int, offset: int, part: str, cause: Exception) -> None:
        super().__init__(
            f"{topic}-{partition}: the {part} of the record at offset {offset} cannot be read: {cause}",
            topic=topic,
            partition=partition,
            offset=offset,
            schema_id=getattr(cause, "schema_id", None),
        )
        self.part = part


class UnsupportedCodecError(KafkaError):
    """A compression codec that is not known here."""


class KafkaTimeoutError(RetriableError):
    """Time ran out before the operation began or could be finished; nothing was written."""


class RequestTimedOutError(RetriableError, BrokerResponseError):
    """The operation did not finish in time."""

    errno = 7
