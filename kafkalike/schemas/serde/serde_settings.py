"""Settings of serializers and deserializers under Confluent's names, and the subjects of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafkalike.errors import KafkaConfigurationError, SerializationError
from kafkalike.schemas.serialization import SerializationContext

Strategy = Callable[..., str | None]
"""`(ctx, record name) -> subject`, as in Confluent's clients."""
TOPIC: Final = "TOPIC"
RECORD: Final = "RECORD"
TOPIC_RECORD: Final = "TOPIC_RECORD"
_STRATEGIES: Final[Mapping[str, str]] = {
    "topic_subject_name_strategy": TOPIC,
    "record_subject_name_strategy": RECORD,
    "topic_record_subject_name_strategy": TOPIC_RECORD,
    "TopicNameStrategy": TOPIC,
    "RecordNameStrategy": RECORD,
    "TopicRecordNameStrategy": TOPIC_RECORD,
}
"""Names of functions in Confluent's Python client and of classes in its Java client."""
_UNUSED: Final[Mapping[str, tuple[Any, ...]]] = {
    "subject.name.strategy.conf": (None, {}),
    "use.deprecated.format": (False,),
    "validation.rules.execution": (None, "DISABLED"),
    "validation.rules.fail.fast": (False,),
    "validation.rules.executor": (None,),
}
"""Settings of unsupported features, with the values that disable them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a serializer or a deserializer."""

    auto_register: bool = True
    """The serializer registers its schema."""
    normalize: bool = False
    """Equivalent schemas count as equal."""
    use_schema_id: int | None = None
    """The id of the schema to write with."""
    use_latest: bool = False
    """Use the newest version of the subject as the writer's or the reader's schema."""
    use_latest_metadata: Mapping[str, str] | None = None
    """Use the newest version of the subject with this metadata."""
    strategy: str | Strategy = TOPIC
    """Determines the subject of a record."""
    in_headers: bool = False
    """The serializer writes the schema's GUID into a header, not its id before the payload."""
    from_headers: bool = True
    """The deserializer looks for such a header first."""
    validate: bool = True
    """Validate JSON against its schema."""
    strict: bool = False
    """Avro records must have exactly the fields of the schema."""
    strict_allow_default: bool = False
    """Like `strict`, but fields with a default may be missing."""
    skip_known_types: bool = True
    """Do not register Google's and Confluent's own `.proto` files as references."""
    reference_strategy: Strategy | None = None
    """Determines the subject of an imported file; None for the file's name."""


_FLAGS: Final[Mapping[str, str]] = {
    "auto.register.schemas": "auto_register",
    "normalize.schemas": "normalize",
    "use.latest.version": "use_latest",
    "validate": "validate",
    "validate.strict": "strict",
    "validate.strict.allow.default": "strict_allow_default",
    "skip.known.types": "skip_known_types",
}
COMMON: Final = (
    "use.latest.version",
    "use.latest.with.metadata",
    "subject.name.strategy",
    "subject.name.strategy.type",
)
WRITING: Final = (*COMMON, "auto.register.schemas", "normalize.schemas", "use.schema.id", "schema.id.serializer")
READING: Final = (*COMMON, "schema.id.deserializer")


def read_settings(conf: Mapping[str, Any] | None, known: tuple[str, ...]) -> Settings:
    """Parse the settings of a serializer or deserializer.

    Args:
        conf: values by Confluent's names.
        known: names of the supported settings.

    Raises:
        KafkaConfigurationError: a setting is unknown, invalid, or asks for an unsupported feature.
    """
    given = dict(conf or {})
    found: dict[str, Any] = {}
    for name, nothing in _UNUSED.items():
        value = given.pop(name, nothing[0])
        if (
            not any(value is harmless or value == harmless for harmless in nothing)
            and getattr(value, "name", "") != "DISABLED"
        ):
            raise KafkaConfigurationError(f"the setting {name!r} only supports {nothing[0]!r}, not {value!r}")
    # If both a type and a function are given, the function wins.
    for name in sorted(given, key="subject.name.strategy".__eq__):
        value = given[name]
        if name not in known:
            raise KafkaConfigurationError(f"unknown setting {name!r}; known are {', '.join(sorted(known))}")
        if name in _FLAGS:
            if not isinstance(value, bool):
                raise KafkaConfigurationError(f"invalid value for setting {name!r}: True or False, not {value!r}")
            found[_FLAGS[name]] = value
        else:
            found |= _OTHERS[name](name, value)
    made = Settings(**found)
    if made.use_latest and "auto.register.schemas" in known and made.auto_register:
        raise KafkaConfigurationError("'use.latest.version' and 'auto.register.schemas' cannot both be True")
    return made


def _strategy(name: str, value: Any) -> dict[str, Any]:  # noqa: ANN401
    if value is None:
        return {}
    said = getattr(value, "__name__", None) or (value.rpartition(".")[2] if isinstance(value, str) else "")
    if said in _STRATEGIES:
        return {"strategy": _STRATEGIES[said]}
    if not callable(value):
        raise KafkaConfigurationError(
            f"invalid value for setting {name!r}: a function (ctx, record name), not {value!r}"
        )
    return {"strategy": value}


def _strategy_type(name: str, value: Any) -> dict[str, Any]:  # noqa: ANN401
    if value is None:
        return {}
    said = str(getattr(value, "value", value)).upper()
    if said not in {TOPIC, RECORD, TOPIC_RECORD}:
        raise KafkaConfigurationError(
            f"invalid value for setting {name!r}: TOPIC, RECORD or TOPIC_RECORD, not {value!r}"
        )
    return {"strategy": said}


def _schema_id(name: str, value: Any) -> dict[str, Any]:  # noqa: ANN401
    if value is not None and type(value) is not int:
        raise KafkaConfigurationError(f"invalid value for setting {name!r}: a number, not {value!r}")
    return {"use_schema_id": value}


def _metadata(name: str, value: Any) -> dict[str, Any]:  # noqa: ANN401
    if value is not None and not isinstance(value, Mapping):
        raise KafkaConfigurationError(f"invalid value for setting {name!r}: a dict, not {value!r}")
    return {"use_latest_metadata": value}


def _one_of(field: str, **names: bool) -> Callable[[str, Any], dict[str, Any]]:
    """Return a parser of a setting whose value is a function of Confluent's or ours, identified by name."""

    def read(name: str, value: Any) -> dict[str, Any]:  # noqa: ANN401
        said = value if isinstance(value, str) else getattr(value, "__name__", None)
        if said not in names:
            raise KafkaConfigurationError(f"invalid value for setting {name!r}: {' or '.join(names)}, not {value!r}")
        return {field: names[said]}

    return read


def _reference_strategy(name: str, value: Any) -> dict[str, Any]:  # noqa: ANN401
    if not callable(value):
        raise KafkaConfigurationError(f"invalid value for setting {name!r}: a function (ctx, file), not {value!r}")
    return {
        "reference_strategy": None if getattr(value, "__name__", "") == "reference_subject_name_strategy" else value
    }


_OTHERS: Final[Mapping[str, Callable[[str, Any], dict[str, Any]]]] = {
    "subject.name.strategy.type": _strategy_type,
    "subject.name.strategy": _strategy,
    "use.schema.id": _schema_id,
    "use.latest.with.metadata": _metadata,
    "schema.id.serializer": _one_of("in_headers", header_schema_id_serializer=True, prefix_schema_id_serializer=False),
    "schema.id.deserializer": _one_of(
        "from_headers", dual_schema_id_deserializer=True, prefix_schema_id_deserializer=False
    ),
    "reference.subject.name.strategy": _reference_strategy,
}


def header_schema_id_serializer(*_: object) -> None:
    """Value of `schema.id.serializer`: write the schema's GUID into a header. Never called."""


def prefix_schema_id_serializer(*_: object) -> None:
    """Value of `schema.id.serializer`: write the schema id before the payload. Never called."""


def dual_schema_id_deserializer(*_: object) -> None:
    """Value of `schema.id.deserializer`: read a header, else the bytes before the payload. Never called."""


def prefix_schema_id_deserializer(*_: object) -> None:
    """Value of `schema.id.deserializer`: read only the bytes before the payload. Never called."""


def subject_of(settings: Settings, context: SerializationContext, record: str | None) -> str | None:
    """Return the subject of a key or value.

    Args:
        settings: include the strategy.
        context: topic and field of the record.
        record: full name of the record's type, or None.

    Returns:
        The subject; None if a strategy function returns none.

    Raises:
        SerializationError: the strategy needs a record name, and the schema has none.
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
    """Return True if a topic always has the same subject; a strategy function may choose one for each record."""
    return not callable(settings.strategy)
