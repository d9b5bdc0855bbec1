"""Fault points: named places where a test can stop, slow or kill the process.

Only pytest arms them: a process that pytest has not started ignores the environment variable `KAFKALIKE_FAULT`. In a
test session `point(name)` does nothing unless the variable names it, as in `KAFKALIKE_FAULT=append.before_commit:kill`
or `…:delay:150` or `…:raise`; a trailing `@3` fires at the third visit only, and a forked child counts its own. The
tests of crashes and races use it in child processes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Final

_VARIABLE: Final = "KAFKALIKE_FAULT"
_ARMED: Final = "PYTEST_VERSION" in os.environ
"""pytest sets `PYTEST_VERSION` for its session, and its children inherit it."""
_visits: dict[str, int] = {}
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_visits.clear)


class InjectedFaultError(OSError):
    """The error that an armed fault point raises; it is an I/O error on purpose."""


def _visit(name: str) -> None:
    """Mark a place in a protocol where a fault may be injected.

    Args:
        name: the place, for example `append.before_commit`.

    Raises:
        InjectedFaultError: when the variable asks for it.
    """
    order = os.environ.get(_VARIABLE)
    if not order:
        return
    place, _, action = order.partition(":")
    action, _, nth = action.partition("@")
    if place != name:
        return
    _visits[name] = _visits.get(name, 0) + 1
    if nth and _visits[name] != int(nth):
        return
    kind, _, amount = action.partition(":")
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "delay":
        time.sleep(int(amount) / 1000)
    elif kind == "raise":
        raise InjectedFaultError(f"injected at {name}")


_nothing: Final[dict[str, object]] = {}
point: Final[Callable[[str], object]] = _visit if _ARMED else _nothing.get
"""Mark a place in a protocol; see `_visit`. Outside of pytest it is a no-op in C, because an append passes five."""
