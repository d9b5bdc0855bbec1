"""Optional imports: packages that only records with schemas need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kafkalike.errors import KafkaConfigurationError


def require_module(module: str, use: str, extra: str = "schemas") -> Any:  # noqa: ANN401 - a module
    """A module of a package that is not installed with kafkalike alone.

    Args:
        module: its name.
        use: what it is needed for; begins the sentence of the error.
        extra: the extra that brings it.

    Raises:
        KafkaConfigurationError: it is not there; says what to install.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as cause:
        missing = cause.name or module
        raise KafkaConfigurationError(f"{use} need {missing}: pip install 'kafkalike[{extra}]'") from cause
