"""Dead-letter settings: check keyword arguments with Kafka Connect's names."""

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
    """Handling of records that cannot be deserialized; Kafka Connect's names, with `_` for `.`."""

    errors_tolerance: str = "none"
    """`none`: `poll` raises `RecordDeserializationError`. `all`: the record becomes a dead letter, and `poll` continues
    with the next one. The commit that moves the group's offset past the record writes the letter, with the same
    outcome."""
    errors_deadletterqueue_topic_name: str | None = None
    """With `errors_tolerance='all'`: the topic of the dead letters; None for the record's topic with the suffix `.dlq`.
    The empty text writes no letters: such records are skipped, as in Connect without the setting."""
    errors_deadletterqueue_context_headers_enable: bool = True
    """True to add headers `__connect.errors.…` with the record's origin and error to a letter. Connect's default is
    False; `kafkalike dlq` needs them."""
    errors_log_enable: bool = False
    """True to log each such record as well."""
    errors_log_include_messages: bool = False
    """True to include the record's topic, partition, offset and time in the log; its content is never logged, as in
    Connect."""

    @property
    def tolerant(self) -> bool:
        """True if unreadable records are skipped."""
        return self.errors_tolerance == "all"

    def letters_of(self, topic: str) -> str | None:
        """Return the dead-letter topic of a topic's records; None if letters are not written."""
        name = self.errors_deadletterqueue_topic_name
        return default_topic(topic) if name is None else name or None

    def is_letters(self, topic: str) -> bool:
        """Return whether letters are written to a topic, so that patterns do not match it."""
        name = self.errors_deadletterqueue_topic_name
        return self.tolerant and (topic.endswith(SUFFIX) if name is None else topic == name)


def settings_of(tolerance: str, topic: str | None, *, context_headers: bool = True) -> DeadLetterSettings:
    """Return the settings of a job or a stream.

    Args:
        tolerance: `none` or `all`.
        topic: the dead-letter topic; None for the default, the empty text for none.
        context_headers: True to add headers with the record's origin and error.

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
    """Return the settings of a new dead-letter topic for a topic with these settings in effect.

    The dead-letter topic accepts every record of its source: of any age, with or without a key.
    """
    config = TopicConfig.from_properties(source)
    return {
        "cleanup.policy": "delete",
        # A letter keeps its record's time, which may be long ago, so retention counts from the time of the letter.
        "kafkalike.retention.clock": "append",
        # Rejected and unreadable records must be accepted.
        "kafkalike.key.schema.validation": "false",
        "kafkalike.value.schema.validation": "false",
        "max.message.bytes": str(min(INT_MAX, config.max_message_bytes + CONTEXT_BYTES)),
        "message.timestamp.after.max.ms": str(config.timestamp_after_max_ms),
        "message.timestamp.before.max.ms": str(LONG_MAX),
        "message.timestamp.type": "CreateTime",
    }


def check_dead_letters(settings: DeadLetterSettings, group_id: str | None) -> None:
    """Reject settings that contradict each other.

    Raises:
        KafkaConfigurationError: letters without a group, although they are committed with a group's offsets.
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
