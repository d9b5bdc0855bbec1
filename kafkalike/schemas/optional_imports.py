"""Optional imports: packages that only records with schemas and services need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kafkalike.errors import KafkaConfigurationError


def require_module(module: str, use: str, extra: str = "schemas") -> Any:  # noqa: ANN401 - a module
    """Import a module from a package that is not a required dependency.

    Args:
        module: name of the module.
        use: plural noun for the feature that needs it, the subject of the error message.
        extra: the extra of kafkalike that installs the package.

    Raises:
        KafkaConfigurationError: the package is missing; the message names the `pip` command.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as cause:
        missing = cause.name or module
        raise KafkaConfigurationError(f"{use} need {missing}: pip install 'kafkalike[{extra}]'") from cause
