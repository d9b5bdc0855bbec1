"""Version: what this package calls itself, also in the tables it writes."""

from __future__ import annotations

__version__ = "0.2.0"
"""The only place that says it; the wheel's metadata are made of it."""


def engine_info() -> str:
    """Goes into `commitInfo.engineInfo`."""
    return f"kafkalike/{__version__}"
