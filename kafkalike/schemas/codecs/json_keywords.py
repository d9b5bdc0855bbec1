"""Keywords of JSON Schema in a time that grows with the value: where `jsonschema` may take one without end.

Patterns are matched by RE2, whose time grows with the text alone. References are counted: a few that lead to each other
twice are followed twice as often on each level.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import re2
from jsonschema.exceptions import ValidationError

from kafkalike.errors import InvalidSchemaError, SerializationError
from kafkalike.schemas import limits
from kafkalike.schemas.codecs.json_unique import unique_items

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]
"""`(validator, the keyword's value, what is checked, the schema) -> what is wrong`, as `jsonschema` calls them."""

_COUNTED: Final = ("$ref", "$dynamicRef", "$recursiveRef", "unevaluatedItems", "unevaluatedProperties")
_OF_SCHEMAS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES: Final = frozenset({"const", "default", "enum", "examples"})
_BY_NUMBER: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u([0-9A-Fa-f]{4})")
_QUANTIFIER: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|([*+{]|(?<!\()\?)", re.DOTALL)


class Keywords:
    """The keywords that take the place of `jsonschema`'s, for the schemas of one document. Thread-safe.

    Args:
        known: the keywords of the document's dialect.
    """

    def __init__(self, known: Mapping[str, Keyword]) -> None:
        self._known = known
        self._steps = threading.local()
        own: dict[str, Keyword] = {
            "uniqueItems": unique_items,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": self._additional_properties,
        }
        self.changed: dict[str, Keyword] = {name: keyword for name, keyword in own.items() if name in known}
        self.changed |= {name: self._counted(known[name]) for name in _COUNTED if name in known}

    def begin(self) -> None:
        """A value is to be checked."""
        self._steps.done = 0

    def _counted(self, keyword: Keyword) -> Keyword:
        def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:  # noqa: ANN401
            done = self._steps.done = getattr(self._steps, "done", 0) + 1
            if done > limits.MAX_REFERENCES_FOLLOWED:
                raise SerializationError(
                    f"the JSON Schema refers to others more than {limits.MAX_REFERENCES_FOLLOWED:,} times for one value"
                )
            return keyword(validator, value, instance, schema)

        return counted

    def _additional_properties(
        self,
        validator: Any,  # noqa: ANN401
        value: Any,  # noqa: ANN401
        instance: Any,  # noqa: ANN401
        schema: Any,  # noqa: ANN401
    ) -> Iterator[ValidationError] | None:
        patterns = schema.get("patternProperties")
        if patterns and validator.is_type(instance, "object"):
            instance = {name: item for name, item in instance.items() if not any(_found(p, name) for p in patterns)}
            schema = {name: part for name, part in schema.items() if name != "patternProperties"}
        return self._known["additionalProperties"](validator, value, instance, schema)


def check_patterns(document: Any) -> None:  # noqa: ANN401 - any JSON
    """Refuse patterns that cannot be matched in a time that is known.

    Raises:
        InvalidSchemaError: RE2 does not take one, as none that looks around or back; or one with several quantifiers
            stands beside `unevaluatedProperties`, where `jsonschema` itself looks for it.
    """
    patterns: set[str] = set()
    names: set[str] = set()
    looks_itself = False
    waiting: list[tuple[Any, bool]] = [(document, True)]
    while waiting:
        part, is_schema = waiting.pop()
        if isinstance(part, list):
            waiting += [(item, is_schema) for item in part]
        elif isinstance(part, dict):
            # Below these any name stands for a schema; below those stand values.
            waiting += [
                (item, key not in _OF_SCHEMAS) for key, item in part.items() if not is_schema or key not in _VALUES
            ]
            if is_schema:
                patterns |= {part["pattern"]} if isinstance(part.get("pattern"), str) else set()
                names |= set(part["patternProperties"]) if isinstance(part.get("patternProperties"), dict) else set()
                looks_itself |= "unevaluatedProperties" in part
    for pattern in sorted(patterns | names):
        _compiled(pattern)
    for pattern in sorted(names) if looks_itself else ():
        if sum(bool(found[1]) for found in _QUANTIFIER.finditer(pattern)) > 1:
            raise InvalidSchemaError(
                f"the pattern {pattern[:80]!r} has more than one quantifier, and stands with unevaluatedProperties"
            )


def _pattern(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401
    del schema
    if validator.is_type(instance, "string") and not _found(value, instance):
        yield ValidationError(f"{instance!r} does not match {value!r}")


def _pattern_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:  # noqa: ANN401
    del schema
    if validator.is_type(instance, "object"):
        for pattern, below in value.items():
            for name, item in instance.items():
                if _found(pattern, name):
                    yield from validator.descend(item, below, path=name, schema_path=pattern)


def _found(pattern: str, text: str) -> bool:
    return _compiled(pattern).search(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:  # noqa: ANN401 - RE2's
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(_BY_NUMBER.sub(r"\1\\x{\2}", pattern), options)
    except (re2.error, UnicodeError) as cause:
        said = cause.args[0] if cause.args else cause
        said = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise InvalidSchemaError(f"the pattern {pattern[:80]!r} cannot be matched in bounded time: {said}") from cause
