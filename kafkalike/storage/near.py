"""Near: what a storage does where a request costs a system call: each look is made, one thing after the other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from kafkalike.storage.port import NOW, Pace
from kafkalike.storage.unbounded import UnboundedStore

if TYPE_CHECKING:
    from kafkalike.storage.port import Storage

T = TypeVar("T")


class NearStore(UnboundedStore):
    """The part of `Storage` that is the same for all storages that need not be spared."""

    @property
    def far(self) -> bool:
        """It is not."""
        return False

    @property
    def combines(self) -> bool:
        """Nothing is gained."""
        return False

    @property
    def requests(self) -> Mapping[str, int]:
        """None that anybody counts."""
        return {}

    def copies(self) -> Sequence[Storage]:
        """This one."""
        return [cast("Storage", self)]

    def elsewhere(self) -> Sequence[Storage]:
        """Nowhere."""
        return ()

    def shared(self, name: Hashable, make: Callable[[], T]) -> T:
        """Nothing is shared."""
        del name
        return make()

    def read(self, name: str) -> bytes:
        """See `Storage.read`."""
        raise NotImplementedError

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        """Content of a file that may not be there yet."""
        del pace
        try:
            return self.read(name)
        except FileNotFoundError:
            return None

    def look_ahead(self, names: Sequence[str], pace: Pace = NOW) -> None:
        """Nothing is gained."""

    def fetch(self, names: Sequence[str]) -> None:
        """Nothing is gained."""

    def tag(self, name: str) -> str:
        """It has none."""
        del name
        return ""

    def note_missing(self, name: str, since: float, quiet_seconds: float) -> None:
        """Nothing is gained."""

    def beside(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make calls one after the other."""
        return [call() for call in calls]
