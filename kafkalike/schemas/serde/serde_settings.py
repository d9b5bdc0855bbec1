"""Settings of serializers and deserializers, under Confluent's names, and the subjects that records belong to."""

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
"""Functions of Confluent's Python client and classes of its Java client."""
_UNUSED: Final[Mapping[str, tuple[Any, ...]]] = {
    "subject.name.strategy.conf": (None, {}),
    "use.deprecated.format": (False,),
    "validation.rules.execution": (None, "DISABLED"),
    "validation.rules.fail.fast": (False,),
    "validation.rules.executor": (None,),
}
"""Settings of things that are not here, with the values that ask for nothing."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a serializer or a deserializer was told."""

    auto_register: bool = True
    """Whether a serializer registers its schema."""
    normalize: bool = False
    """Whether schemas that mean the same are the same."""
    use_schema_id: int | None = None
    """The id of the schema to write with."""
    use_latest: bool = False
    """Whether the newest version of the subject is used: to write with, or to read as."""
    use_latest_metadata: Mapping[str, str] | None = None
    """The same, of the versions with this metadata."""
    strategy: str | Strategy = TOPIC
    """How a subject is named."""
    in_headers: bool = False
    """Whether a serializer writes the schema's GUID into a header and not its id in front."""
    from_headers: bool = True
    """Whether a deserializer looks for such a header first."""
    validate: bool = True
    """Whether JSON is checked by its schema."""
    strict: bool = False
    """Whether Avro records must have exactly the fields of the schema."""
    strict_allow_default: bool = False
    """The same, but fields with a default may be missing."""
    skip_known_types: bool = True
    """Whether Google's and Confluent's own `.proto` files need no reference."""
    reference_strategy: Strategy | None = None
    """How the subject of an imported file is named; None for the file's name."""


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
    """The settings of a serializer or deserializer.

    Args:
        conf: Confluent's names.
        known: those that have a meaning for it.

    Raises:
        KafkaConfigurationError: one is unknown, has a wrong value, or asks for what is not here.
    """
    given = dict(conf or {})
    found: dict[str, Any] = {}
    for name, nothing in _UNUSED.items():
        value = given.pop(name, nothing[0])
        if (
            not any(value is harmless or value == harmless for harmless in nothing)
            and getattr(value, "name", "") != "DISABLED"
        ):
            raise KafkaConfigurationError(f"the setting {name!r} is not supported, but for {nothing[0]!r}")
    # Where a type and a function are given, the function counts.
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
    """A setting whose value is one of Confluent's functions, told by its name; ours have the same names."""

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
    """Value of `schema.id.serializer`: the schema's GUID goes into a header. It is not to be called."""


def prefix_schema_id_serializer(*_: object) -> None:
    """Value of `schema.id.serializer`: the schema's id goes in front of the payload. It is not to be called."""


def dual_schema_id_deserializer(*_: object) -> None:
    """Value of `schema.id.deserializer`: a header counts, else what is in front. It is not to be called."""


def prefix_schema_id_deserializer(*_: object) -> None:
    """Value of `schema.id.deserializer`: only what is in front counts. It is not to be called."""


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
