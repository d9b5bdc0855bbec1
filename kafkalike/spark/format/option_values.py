"""Names and values of options: numbers, flags, words and durations; unknown names are refused."""

from __future__ import annotations

import difflib
import hashlib
import logging
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kafkalike.errors import IllegalArgumentError
from kafkalike.maintenance.staging_lease import DriverProcess
from kafkalike.model.config.properties import nearest

_log = logging.getLogger(__name__)

STORAGE: Final = "storage."
"""Prefix of storage options, as files of settings have them. Options of a query must not use it, because plans show
them."""
SLIP: Final = 0.85
"""Similarity from which an unknown option counts as a typing error: `topics`, `startingOffset`."""

SPARKS: Final = (
    *("provider", "path", "location", "owner", "external", "comment", "collation", "is_managed_location"),
    "queryname",
)
"""Options that Spark itself adds: its catalog for a table (`CREATE TABLE … USING kafkalike`), which repeats the user's
options with the prefix `option.`, and its streams. They are accepted silently."""


def is_first(what: str) -> bool:
    """Return whether this is the first process below the same Spark driver to ask with this text.

    The answer is a file in Spark's folder for temporary files, which is removed with the driver, or in the machine's.
    """
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or tempfile.gettempdir()
    name = hashlib.sha256(f"{what} {DriverProcess.above()}".encode()).hexdigest()[:32]
    try:
        Path(folder, f"kafkalike-said-{name}").touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def by_known_name(
    given: Mapping[str, str], known: Sequence[str], no_meaning: Iterable[str], refused: Mapping[str, str]
) -> dict[str, str]:
    """Return options by their canonical names; the given names may be in any case.

    Args:
        given: the user's options.
        known: options with an effect.
        no_meaning: options without an effect.
        refused: options that are refused, with the reason.

    Raises:
        IllegalArgumentError: an option is refused, or is unknown and resembles a known one. Other unknown options are
            accepted without an effect, as by Spark's Kafka connector.
    """
    canonical = {name.lower(): name for name in (*known, *no_meaning, *refused)}
    found = {}
    for name, value in given.items():
        if of_spark(name):
            continue
        own = canonical.get(name.lower())
        if own is not None and own in refused:
            raise IllegalArgumentError(f"option {own} is not supported: {refused[own]}")
        if name.lower().startswith(STORAGE):
            raise IllegalArgumentError(
                f"option {name} is not supported, as options stand in Spark's plans: give storage_options to "
                "kafkalike.spark.session or kafkalike.spark.register_format, or set environment variables"
            )
        if own is not None:
            found[own] = value
        elif "." not in name and difflib.get_close_matches(name.lower(), map(str.lower, known), 1, SLIP):
            raise IllegalArgumentError(
                f"unknown option {name}{nearest(name, known)}; the options are {', '.join(known)}"
            )
    return found


def of_spark(name: str) -> bool:
    """Return whether an option comes from Spark itself."""
    return name.lower() in SPARKS or name.lower().startswith("option.")


def warn_of_names(given: Iterable[str], known: Iterable[str], no_meaning: Mapping[str, str]) -> None:
    """Log a warning for each option without an effect."""
    reasons = {name.lower(): (name, reason) for name, reason in no_meaning.items()}
    meant = {name.lower() for name in known}
    for option in given:
        low = option.lower()
        if of_spark(option):
            continue
        if low in reasons:
            _log.warning("option %s has no effect: %s", *reasons[low])
        elif low.startswith("kafka.") and low not in meant:
            _log.warning("option %s has no effect: kafkalike has neither a broker nor a Kafka client", option)
        elif f"kafka.{low}" in meant:
            _log.warning("option %s has no effect without kafka. in front: kafka.%s", option, low)
        elif low not in meant:
            _log.warning("option %s has no effect: the format has no such option", option)


MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1


def number(options: Mapping[str, str], name: str, most: int, least: int = 1) -> int | None:
    """Parse an option as a whole number from `least` to `most`."""
    text = options.get(name)
    if text is None:
        return None
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit()) or not least <= int(stripped) <= most:
        what = "a positive whole number" if least else "a whole number from 0"
        raise IllegalArgumentError(f"option {name} must be {what} up to {most}, not {text!r}")
    return int(stripped)


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Parse an option as true or false, in any case."""
    text = options.get(name)
    if text is None:
        return default
    if text.strip().lower() not in {"true", "false"}:
        raise IllegalArgumentError(f"option {name} must be true or false, not {text!r}")
    return text.strip().lower() == "true"


def word(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """Parse an option as a word of a list, in any case; the first word is the default."""
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
    """Parse a duration in Spark's notation (`JavaUtils.timeStringAs`): `90s`, `15m`, `1h`; a bare number is ms."""
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        units = ", ".join(unit for unit in _UNITS if unit)
        raise IllegalArgumentError(f"option maxTriggerDelay must be a duration with a unit of {units}, not {text!r}")
    return int(match[1]) * _UNITS[match[2]]
