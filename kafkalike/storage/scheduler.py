"""Scheduler: how the requests to a storage are made, and which answers to other looks a look accepts (its pace)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Pace:
    """Which answers to other looks of this process a look accepts, where a look is a request that costs money."""

    since: float = math.inf
    """Accept an answer to a question that was asked at this time or later, in seconds of the machine's monotonic clock.
    Infinity, the default, accepts none: the look asks the storage."""
    longest: float = 0.0
    """Above 0, the caller polls for news. Such looks become less frequent while nothing new arrives, down to one in
    this many seconds, and all polling callers share them. An earlier `since` still counts."""
    surely: bool = False
    """True if a leader that does not answer is an error at once. Otherwise a look finds nothing new for as long as the
    leader may lag. That is right for callers that poll, and wrong for callers that draw conclusions from a missing
    file."""

    @property
    def waits(self) -> bool:
        """True if the caller polls for news."""
        return self.longest > 0


NOW: Final = Pace()
"""Asks the storage for each look."""

SURELY: Final = Pace(surely=True)
"""Asks the storage, and fails if the storage does not answer."""


class Scheduler:
    """Decides how requests to a storage are made if each takes many milliseconds and costs money: few, and in parallel.

    This base class is for all other storages: it makes each request at once and shares nothing.
    """

    @property
    def is_remote(self) -> bool:
        """True if a request takes many milliseconds and costs money."""
        return False

    @property
    def combines(self) -> bool:
        """True if writers save requests for each other.

        Then appends wait beside the table for the next committer, commits are bundled, and plans are made in parallel
        with looks. False where a version is made at several roots.
        """
        return False

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests of this process to the root, by kind, such as `get`; empty where requests are not counted."""
        return {}

    def shared(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return an object that the storages of this root share in this process while any of them is in use.

        Where requests cost nothing, each call makes a new object.

        Args:
            name: identifies the object.
            make: makes the object.
        """
        del name
        return make()

    def beside(self, calls: Sequence[Callable[[], R]]) -> list[R]:
        """Make calls, in parallel where they wait for a network; the first one runs in the caller's thread.

        Args:
            calls: only the first one may call `beside` itself.

        Returns:
            The results, in the order of the calls.

        Raises:
            Exception: the first error of a call, after all calls have ended.
        """
        return [calls[0]()] if len(calls) == 1 else [call() for call in calls]

    def look_ahead(self, names: Sequence[str], pace: Pace = NOW) -> None:
        """Look for several files in parallel, where that saves time.

        Errors are ignored here; `Storage.look` raises them. Does nothing if the pace accepts answers from before this
        call.

        Args:
            names: the files.
            pace: as in `Storage.look`; files with an accepted answer are skipped.
        """

    def fetch(self, names: Sequence[str]) -> None:
        """Prefetch files that never change and will soon be read one after the other, where that saves time.

        Errors are ignored here; `Storage.read` raises them.
        """

    def note_missing(self, name: str, since: float, quiet_seconds: float) -> None:
        """Note that a list did not show a file: that answers a look for it.

        Args:
            name: the file.
            since: time of the request, in seconds of the machine's monotonic clock.
            quiet_seconds: time since the last new file of the folder.
        """

    def is_past(self, name: str) -> bool:
        """Return whether a version's file is known to have existed though a look does not find it.

        Then later versions exist, and a checkpoint has replaced the file. False where finding out needs a request.
        """
        del name
        return False

    def tag(self, name: str) -> str:
        """Return the storage's name for the content that this process has put under a name; see `Entry.tag`.

        Empty where it is unknown, because the storage did not answer or the put was long ago.
        """
        del name
        return ""


class _AtOnce(Scheduler):
    is_remote = False
    combines = False


AT_ONCE: Final = _AtOnce()
"""Scheduler of storages whose requests cost a system call."""
