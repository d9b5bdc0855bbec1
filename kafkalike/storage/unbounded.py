"""Unbounded: what stores have in common whose calls are made by the caller's thread, as they end by themselves."""

from __future__ import annotations

from collections.abc import Callable


class UnboundedStore:
    """A local disk, which is waited for, or requests, which are given up by themselves; see `BoundedStore`."""

    def watch(self, folder: str, add: Callable[[str], object]) -> None:
        """The kernel does not see what others put there."""
        del folder, add

    def is_past(self, name: str) -> bool:
        """Not known."""
        del name
        return False
