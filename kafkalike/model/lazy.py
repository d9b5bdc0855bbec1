"""Lazy: the homes of a package's public names in, functions that load each when it is first used (PEP 562) out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str], extra: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package.

    Args:
        package: its `__name__`.
        homes: module that defines each public name.
        extra: the extra that brings what these modules import beyond kafkalike's own packages.

    Returns:
        The two functions; the first raises AttributeError for other names, and ModuleNotFoundError, which says what
        to install, where the extra is missing.
    """

    def load(name: str) -> Any:  # noqa: ANN401 - any public name
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(home), name)
        except ModuleNotFoundError as cause:
            if extra is None:
                raise
            raise ModuleNotFoundError(
                f"{name} needs {cause.name}: pip install 'kafkalike[{extra}]'", name=cause.name, path=cause.path
            ) from cause
        vars(sys.modules[package])[name] = value
        return value

    def listed() -> list[str]:
        own = vars(sys.modules[package])
        return sorted({*homes, *(name for name in own if name in own.get("__all__", ()) or name.startswith("__"))})

    return load, listed
