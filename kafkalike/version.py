"""Version: what this package calls itself in the tables it writes."""

from __future__ import annotations

from functools import cache


@cache
def package_version() -> str:
    """Version of the installed package; `0` when it runs from a bare folder."""
    from importlib.metadata import PackageNotFoundError, version  # 30 ms, which only writers need

    try:
        return version("kafkalike")
    except PackageNotFoundError:
        return "0"


def engine_info() -> str:
    """Goes into `commitInfo.engineInfo`."""
    return f"kafkalike/{package_version()}"
