"""Forks: objects with open descriptors in; each of them told, in a forked child, that its descriptors are the parent's.

A child inherits descriptors, and with them what they stand for: a lock stays held until the child has closed it, too.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol


class Inherited(Protocol):
    """An object that a forked child must not use."""

    def in_child(self) -> None:
        """Close its descriptors without ending what they stand for. Called in the child; must not raise."""
        ...


inherited: Final[weakref.WeakSet[Inherited]] = weakref.WeakSet()
"""All that have something open. An object adds itself before it opens anything, so that a fork in between finds it."""


def _in_child() -> None:
    for each in tuple(inherited):
        each.in_child()
    inherited.clear()


os.register_at_fork(after_in_child=_in_child)
