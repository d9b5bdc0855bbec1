"""Version: what this package calls itself in the tables it writes."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def package_version() -> str:
    """Version of the installed package; `0` when it runs from a bare folder."""
    try:
        return version("kafkalike")
    except PackageNotFoundError:
        return "0"


ENGINE_INFO: Final = f"kafkalike/{package_version()}"
"""Goes into `commitInfo.engineInfo`."""
