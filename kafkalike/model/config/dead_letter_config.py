"""Dead-letter settings: Kafka Connect's names as keyword arguments in, checked fields out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafkalike.errors import InvalidTopicError, KafkaConfigurationError
from kafkalike.model.config.client_config import IdleSettings, build, choice, flag, optional
from kafkalike.model.config.properties import INT_MAX, LONG_MAX
from kafkalike.model.config.topic_config import TopicConfig
from kafkalike.model.dead_letter import CONTEXT_BYTES, SUFFIX, default_topic
from kafkalike.model.names import check_topic_name


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSettings(IdleSettings):
    """What becomes of a record that cannot be read; Kafka Connect's names, with `_` for `.`."""

    errors_tolerance: str = "none"
    """`none`: `poll` raises `RecordDeserializationError`. `all`: the record becomes a dead letter, and `poll` goes on
    with the next one. The letter is written by the commit that moves the group's offset past its record, in one
    outcome with it."""
    errors_deadletterqueue_topic_name: str | None = None
    """With `errors_tolerance='all'`: the topic of the dead letters; None takes the record's topic with `.dlq` behind.
    The empty text writes none: such records are passed over, as by Connect without the setting."""
    errors_deadletterqueue_context_headers_enable: bool = True
    """Whether a letter says in headers `__connect.errors.…` where it comes from and why it is one. Connect's default is
    False; `kafkalike dlq` needs them."""
    errors_log_enable: bool = False
    """Whether each such record is logged as well."""
    errors_log_include_messages: bool = False
    """Whether the log says the record's topic, partition, offset and time, too; never its content, as in Connect."""

    @property
    def tolerant(self) -> bool:
        """Whether records that cannot be read are passed over."""
        return self.errors_tolerance == "all"

    def letters_of(self, topic: str) -> str | None:
        """The dead-letter topic of a topic's records; None where no letters are written."""
        name = self.errors_deadletterqueue_topic_name
        return default_topic(topic) if name is None else name or None

    def is_letters(self, topic: str) -> bool:
        """Whether a topic is one that letters are written to, so that a pattern passes over it."""
        name = self.errors_deadletterqueue_topic_name
        return self.tolerant and (topic.endswith(SUFFIX) if name is None else topic == name)


def settings_of(tolerance: str, topic: str | None, *, context_headers: bool = True) -> DeadLetterSettings:
    """Settings of a job or a stream.

    Args:
        tolerance: `none` or `all`.
        topic: the dead-letter topic; None for the default, the empty text for none.
        context_headers: whether letters say where they come from.

    Raises:
        KafkaConfigurationError: a bad value.
    """
    given = {
        "errors_tolerance": tolerance,
        "errors_deadletterqueue_topic_name": topic,
        "errors_deadletterqueue_context_headers_enable": context_headers,
    }
    return build(DeadLetterSettings, given, CHECKS)


def topic_settings(source: Mapping[str, str]) -> dict[str, str]:
    """Settings of a dead-letter topic that is made for a topic with these settings in effect.

    It takes all that its source has: of any age, with or without a key.
    """
    config = TopicConfig.from_properties(source)
    return {
        "cleanup.policy": "delete",
        # A letter keeps its record's time, which may be long ago: retention counts from when it became one.
        "kafkalike.retention.clock": "append",
        # What was refused or cannot be read must have a place.
        "kafkalike.key.schema.validation": "false",
        "kafkalike.value.schema.validation": "false",
        "max.message.bytes": str(min(INT_MAX, config.max_message_bytes + CONTEXT_BYTES)),
        "message.timestamp.after.max.ms": str(config.timestamp_after_max_ms),
        "message.timestamp.before.max.ms": str(LONG_MAX),
        "message.timestamp.type": "CreateTime",
    }


def check_dead_letters(settings: DeadLetterSettings, group_id: str | None) -> None:
    """Refuse settings that contradict each other.

    Raises:
        KafkaConfigurationError: letters without a group, with whose offsets they are committed.
    """
    if settings.tolerant and group_id is None and settings.errors_deadletterqueue_topic_name != "":
        raise KafkaConfigurationError(
            "setting 'errors_tolerance'='all' needs 'group_id': a dead letter is committed with the group's offsets. "
            "To pass over records that cannot be read, and write no dead letters, set "
            "'errors_deadletterqueue_topic_name' to the empty text"
        )


def _name(value: Any) -> str:  # noqa: ANN401
    if value == "":
        return ""
    try:
        return check_topic_name(value)
    except InvalidTopicError as cause:
        raise ValueError(str(cause)) from cause


CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "errors_tolerance": choice("none", "all"),
    "errors_deadletterqueue_topic_name": optional(_name),
    "errors_deadletterqueue_context_headers_enable": flag,
    "errors_log_enable": flag,
    "errors_log_include_messages": flag,
}
