"""Properties: names, types, defaults and bounds of Kafka's dotted settings, and the errors for bad ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from kafkalike.errors import InvalidConfigurationError

Value = int | float | bool | str | tuple[str, ...]

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """A setting with Kafka's dotted name."""

    name: str
    parse: Callable[[str], Value]
    """Converts the text to a value, or raises `ValueError` with the expected value."""
    default: str
    """In text form, as Kafka prints it."""
    doc: str
    """Meaning of the setting, with unit."""
    is_list: bool = False
    """True if APPEND and SUBTRACT are possible."""


def whole(low: int, high: int = LONG_MAX) -> Callable[[str], int]:
    """Return a parser of whole numbers from `low` to `high`, both included."""

    def parse(text: str) -> int:
        try:
            number = int(text, 10)
        except ValueError:
            number = low - 1
            if not text.strip():
                text = "an empty text"
            raise ValueError(f"a whole number from {low} to {high} is needed, not {text}") from None
        if not low <= number <= high:
            raise ValueError(f"a whole number from {low} to {high} is needed, not {text}")
        return number

    return parse


def ratio(text: str) -> float:
    """Parse a number from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise ValueError(f"a number from 0 to 1 is needed, not {text!r}")
    return number


def boolean(text: str) -> bool:
    """Parse true or false, in any case."""
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise ValueError(f"true or false is needed, not {text!r}")
    return word == "true"


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser that allows only these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)} is needed, not {text!r}")
        return text

    return parse


def words_of(*words: str, empty: bool = False) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of a comma-separated list of these words without repeats; with `empty`, it may be empty."""

    def parse(text: str) -> tuple[str, ...]:
        items = tuple(item.strip() for item in text.split(",") if item.strip())
        wrong = [item for item in items if item not in words]
        if wrong or (not items and not (empty and not text.strip())) or len(set(items)) != len(items):
            raise ValueError(f"a comma-separated list of {', '.join(words)} is needed, not {text!r}")
        return items

    return parse


def group_ids(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of group ids without repeats; it may be empty."""
    items = tuple(item.strip() for item in text.split(",") if item.strip())
    if len(set(items)) != len(items):
        raise ValueError(f"a comma-separated list of group ids without repeats is needed, not {text!r}")
    return items


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known setting most similar to `name`; empty if none is similar."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def as_text(value: Any) -> str:  # noqa: ANN401 - what users put into a dict of settings
    """Return a setting's value in Kafka's text form: `True` is `true`, numbers as they are.

    Raises:
        InvalidConfigurationError: the type has no text form.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise InvalidConfigurationError(
        f"a setting must be a str, int, float or bool, not {type(value).__name__}: {value!r}"
    )


class PropertySet:
    """The known settings of one kind, and Kafka's settings that have no meaning here.

    Args:
        kind: `topic` or `server`, for messages.
        properties: the supported settings.
        meaningless: Kafka's settings that are rejected, with the reason.
        aliases: other names of settings; values are stored and shown under the settings' own names.
    """

    def __init__(
        self,
        kind: str,
        properties: Iterable[Property],
        meaningless: Mapping[str, str],
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self.properties = {p.name: p for p in properties}
        self.meaningless = dict(meaningless)
        self._aliases = dict(aliases or {})
        self.check: Callable[[str, str], Value] = lru_cache(maxsize=4096)(self._check)
        """`check(name, text)` parses one setting, once for each text, because maintenance reads 30 settings of each
        topic.

        Raises:
            InvalidConfigurationError: the setting is unknown or has no meaning here, or its value is not allowed.
        """

    def name_of(self, name: str) -> str:
        """Return a setting's own name for any of its names."""
        return self._aliases.get(name, name)

    def _check(self, name: str, text: str) -> Value:
        if name in self.meaningless:
            raise InvalidConfigurationError(
                f"{self.kind} setting {name!r} has no meaning here: {self.meaningless[name]}"
            )
        known = self.properties.get(self._aliases.get(name, name))
        if known is None:
            raise InvalidConfigurationError(f"unknown {self.kind} setting {name!r}{nearest(name, self.properties)}")
        try:
            return known.parse(text)
        except ValueError as cause:
            raise InvalidConfigurationError(f"invalid value for {self.kind} setting {name!r}: {cause}") from cause

    def check_all(self, configs: Mapping[str, Any]) -> dict[str, str]:
        """Check every setting of a mapping and return it in text form, under its own name."""
        texts = {str(name): as_text(value) for name, value in configs.items()}
        found: dict[str, str] = {}
        for name, text in texts.items():
            self.check(name, text)
            if found.setdefault(self.name_of(name), text) != text:
                raise InvalidConfigurationError(
                    f"{self.kind} setting {self.name_of(name)!r} is given twice, once as an alias, and differs"
                )
        return found

    def merged(self, current: Mapping[str, str], name: str, operation: str, value: str | None) -> dict[str, str]:
        """Return the settings after one SET, DELETE, APPEND or SUBTRACT.

        APPEND and SUBTRACT change list settings (`cleanup.policy`), from the current value or Kafka's default.

        Raises:
            InvalidConfigurationError: unknown setting or operation, or a list operation on another setting.
        """
        after = dict(current)
        name = self.name_of(name)
        known = self.properties.get(name)
        if known is None:
            self.check(name, value or "")
            raise AssertionError(name)
        if operation == "DELETE":
            after.pop(name, None)
            return after
        if value is None:
            raise InvalidConfigurationError(f"{self.kind} setting {name!r}: {operation} needs a value")
        if operation == "SET":
            after[name] = value
            return after
        if operation not in {"APPEND", "SUBTRACT"}:
            raise InvalidConfigurationError(
                f"unknown operation {operation!r}; SET, DELETE, APPEND or SUBTRACT is needed"
            )
        if not known.is_list:
            raise InvalidConfigurationError(
                f"{self.kind} setting {name!r} is not a list, so {operation} has no meaning"
            )
        items = [item for item in after.get(name, known.default).split(",") if item]
        wanted = [item.strip() for item in value.split(",") if item.strip()]
        if operation == "APPEND":
            items += [item for item in wanted if item not in items]
        else:
            items = [item for item in items if item not in wanted]
        after[name] = ",".join(items)
        return after
