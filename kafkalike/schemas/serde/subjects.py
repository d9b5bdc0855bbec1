"""Subjects: a topic, a part of its records and the name of a record's type in, the name of a subject out."""

from __future__ import annotations

from kafkalike.errors import SerializationError
from kafkalike.schemas.serde.settings import RECORD, TOPIC, TOPIC_RECORD, Settings
from kafkalike.schemas.serialization import SerializationContext


def subject_of(settings: Settings, context: SerializationContext, record: str | None) -> str | None:
    """The subject of a key or value.

    Args:
        settings: with the strategy.
        context: where it belongs.
        record: full name of the record's type; None where there is none.

    Returns:
        The subject; None when a strategy of the user's gives none.

    Raises:
        SerializationError: the strategy needs a name, and the schema has none.
    """
    strategy = settings.strategy
    if callable(strategy):
        return strategy(context, record)
    if strategy == TOPIC:
        return f"{context.topic}-{context.field}"
    if record is None:
        raise SerializationError(f"the strategy {strategy} needs a schema with a name", topic=context.topic)
    assert strategy in {RECORD, TOPIC_RECORD}
    return record if strategy == RECORD else f"{context.topic}-{record}"


def fixed_by_topic(settings: Settings) -> bool:
    """Whether a topic always has the same subject; a function of the user's may say otherwise for each record."""
    return not callable(settings.strategy)
