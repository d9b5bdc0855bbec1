"""Unbounded: what stores have in common whose calls are made by the caller's thread, as they end by themselves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from kafkalike.storage.bounded.calls import BoundedCalls
    from kafkalike.storage.bounded.foreseen import Ahead

T = TypeVar("T")


class UnboundedStore:
    """A local disk, which is waited for, or requests, which are given up by themselves; see `BoundedStore`."""

    @property
    def bounded_calls(self) -> BoundedCalls | None:
        """None."""
        return None

    def bounded(self, work: Callable[[], T], *, long: bool = False, key: Hashable = None) -> T:
        """Make calls in the caller's thread."""
        del long, key
        return work()

    def watch(self, folder: str, add: Callable[[str], object]) -> None:
        """The kernel does not see what others put there."""
        del folder, add

    def is_past(self, name: str) -> bool:
        """Not known."""
        del name
        return False

    def ahead(self, following: str, known: str = "") -> Sequence[Ahead]:
        """Nothing is gained."""
        del following, known
        return ()

    def foreseeing(
        self, work: Callable[[], T], calls: Callable[[], Sequence[Ahead]] | None = None, *, by_turn: bool = False
    ) -> T:
        """Nothing is made ahead."""
        del calls, by_turn
        return work()
