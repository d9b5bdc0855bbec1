"""Option values: texts that a user gave in, numbers, flags, words and durations out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kafkalike.errors import IllegalArgumentError

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1


def number(options: Mapping[str, str], name: str, most: int, least: int = 1) -> int | None:
    """An option that is a whole number from `least` to `most`."""
    text = options.get(name)
    if text is None:
        return None
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit()) or not least <= int(stripped) <= most:
        what = "a positive whole number" if least else "a whole number from 0"
        raise IllegalArgumentError(f"option {name} must be {what} up to {most}, not {text!r}")
    return int(stripped)


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """An option that is true or false, in any case."""
    text = options.get(name)
    if text is None:
        return default
    if text.strip().lower() not in {"true", "false"}:
        raise IllegalArgumentError(f"option {name} must be true or false, not {text!r}")
    return text.strip().lower() == "true"


def word(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """An option that is one of some words, in any case; the first one where it is not given."""
    text = options.get(name, words[0]).strip().lower()
    if text not in words:
        raise IllegalArgumentError(f"option {name} must be one of {', '.join(words)}, not {options[name]!r}")
    return text


_UNITS: Final = {
    **dict.fromkeys(("", "ms"), 1),
    "s": 1_000,
    **dict.fromkeys(("m", "min"), 60_000),
    "h": 3_600_000,
    "d": 86_400_000,
}


def duration_ms(text: str) -> int:
    """A duration as Spark writes it (`JavaUtils.timeStringAs`): `90s`, `15m`, `1h`; a bare number is ms."""
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        units = ", ".join(unit for unit in _UNITS if unit)
        raise IllegalArgumentError(f"option maxTriggerDelay must be a duration with a unit of {units}, not {text!r}")
    return int(match[1]) * _UNITS[match[2]]
