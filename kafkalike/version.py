"""Version: what this package calls itself in the tables it writes, and whose process it is."""

from __future__ import annotations

import os
from functools import cache

__version__ = "0.2.0"
"""The only place that says it; the wheel's metadata are made of it."""


@cache
def engine_info() -> str:
    """Goes into `commitInfo.engineInfo`."""
    return f"kafkalike/{__version__}"


@cache
def user_and_host() -> tuple[str, str]:
    """The user of this process, by name or else by number, and the machine's name."""
    import getpass  # here: programs that only read need neither
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        user = str(os.getuid())
    return user, socket.gethostname()
