"""Ratchet: figures that may fall and must not rise; the recorded limits are in `scripts/limits.json`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

LIMITS: Final = Path(__file__).with_name("limits.json")


def complaints(section: str, figures: Mapping[str, float], limits: Path = LIMITS) -> list[str]:
    """Return a sentence for each figure above its limit; a figure without a limit is one, too.

    Args:
        section: name of the script that measured.
        figures: by name.
        limits: file with the limits.
    """
    allowed = json.loads(limits.read_text(encoding="utf-8"))[section]
    return [
        f"{name}: {value:g} is above the recorded limit of {allowed[name]:g} ({limits.name})"
        if name in allowed
        else f"{name}: {limits.name} has no limit; run the script with --record"
        for name, value in figures.items()
        if value > allowed.get(name, -1)
    ]


def record(section: str, figures: Mapping[str, float], limits: Path = LIMITS) -> None:
    """Lower the limits to these figures; a limit never rises here, only by hand and with a reason."""
    every = json.loads(limits.read_text(encoding="utf-8"))
    old = every.get(section, {})
    every[section] = {name: min(value, old.get(name, value)) for name, value in figures.items()}
    limits.write_text(json.dumps(every, indent=2) + "\n", encoding="utf-8")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `--check` and `--record`, for `settle`."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--check", action="store_true", help="end with 1 when a figure is above its limit")
    which.add_argument("--record", action="store_true", help="lower the limits to these figures")


def settle(section: str, figures: Mapping[str, float], options: argparse.Namespace) -> int:
    """Compare or record the figures, as the options say; return the exit code."""
    if options.record:
        record(section, figures)
    found = complaints(section, figures) if options.check else []
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0
