"""Shared polls: the looks of this process for files that may not exist yet, with answers shared between its threads.

A look at an object store costs money and time. A thread that polls for news accepts a recent answer of another thread;
the longer nothing new has arrived, the older it may be. Files that this process puts are known at once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.storage.port import Pace

KNOWN_SECONDS: Final = 10.0
"""How long polling threads rely on a found file; other threads ask again."""

QUIET_SECONDS: Final = 5.0
"""Longest quiet time before a listing that is credited to a folder: then polling threads look after a second."""

KNOWN_FILES: Final = 32
KNOWN_BYTES: Final = 64 * 1024
"""Number and maximum size of the found files of a folder that are kept: the commits that other readers poll for."""

MOST_FOLDERS: Final = 4096
"""Number of remembered folders; the least recently used one is evicted."""


@dataclass(slots=True)
class _Answer:
    content: bytes | None
    """Content of the file; None if it did not exist."""
    at: float
    """The answer holds for this time or later."""


@dataclass(slots=True)
class _Folder:
    """Known files of one folder."""

    changed: float
    """Time of the last new file."""
    asking: threading.Lock = field(default_factory=threading.Lock)
    """Held by the polling thread of this process that asks the storage."""
    missing: tuple[str, _Answer] | None = None
    """The last missing file."""
    found: OrderedDict[str, _Answer] = field(default_factory=OrderedDict)

    def answer(self, name: str, since: float) -> _Answer | None:
        """Return the answer for a file, if it is from this time or later."""
        answer = self.found.get(name)
        if answer is None and self.missing is not None and self.missing[0] == name:
            answer = self.missing[1]
        return None if answer is None or answer.at < since else answer


class Looks:
    """The looks of one process at one root. Thread-safe.

    Args:
        monotonic: time in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic) -> None:
        self._monotonic = monotonic
        self._mutex = threading.Lock()
        self._folders: OrderedDict[str, _Folder] = OrderedDict()

    def look(self, name: str, pace: Pace, ask: Callable[[], bytes | None]) -> bytes | None:
        """Return the content of a file; None if it does not exist.

        Args:
            name: the file.
            pace: which answers of other threads are accepted.
            ask: asks the storage.
        """
        folder = self._folder(name)
        if not pace.waits:
            known = self._known(folder, name, pace)
            return self._asked(folder, name, ask) if known is None else known.content
        known = self._known(folder, name, pace)
        if known is None:
            with folder.asking:
                known = self._known(folder, name, pace)
                if known is None:
                    return self._asked(folder, name, ask)
        return known.content

    def has_answer(self, name: str, pace: Pace) -> bool:
        """Return True if a look needs no request."""
        return self._known(self._folder(name), name, pace) is not None

    def made(self, name: str, content: bytes) -> None:
        """Record a file that this process has just created."""
        folder, now = self._folder(name), self._monotonic()
        with self._mutex:
            self._note_found(folder, name, _Answer(content, now), now)

    def missed(self, name: str, since: float, quiet_seconds: float) -> None:
        """Record that a listing did not show a file.

        Args:
            name: the file.
            since: time of the listing.
            quiet_seconds: time since the last new file of the folder; at most `QUIET_SECONDS` are used.
        """
        folder = self._folder(name)
        with self._mutex:
            folder.changed = min(folder.changed, since - max(0.0, min(quiet_seconds, QUIET_SECONDS)))
            known = folder.missing
            if name not in folder.found and (known is None or known[0] != name or known[1].at < since):
                folder.missing = name, _Answer(None, since)

    def forget(self, name: str) -> None:
        """Forget a file that was removed or replaced."""
        with self._mutex:
            folder = self._folders.get(name.rpartition("/")[0])
            if folder is not None:
                folder.found.pop(name, None)
                folder.missing = None

    def _folder(self, name: str) -> _Folder:
        path = name.rpartition("/")[0]
        with self._mutex:
            folder = self._folders.get(path)
            if folder is None:
                folder = self._folders[path] = _Folder(self._monotonic())
                if len(self._folders) > MOST_FOLDERS:
                    self._folders.popitem(last=False)
            else:
                self._folders.move_to_end(path)
            return folder

    def _known(self, folder: _Folder, name: str, pace: Pace) -> _Answer | None:
        now = self._monotonic()
        with self._mutex:
            if not pace.waits:
                return folder.answer(name, pace.since)
            pause = KNOWN_SECONDS if name in folder.found else pause_seconds(now - folder.changed, pace.longest)
            return folder.answer(name, min(now - pause, pace.since))

    def _asked(self, folder: _Folder, name: str, ask: Callable[[], bytes | None]) -> bytes | None:
        begun = self._monotonic()
        answer = _Answer(ask(), begun)
        with self._mutex:
            if answer.content is not None:
                self._note_found(folder, name, answer, self._monotonic())
            elif name not in folder.found or folder.found[name].at < begun:
                # A file that was found after this look began exists, whatever this look returned.
                folder.found.pop(name, None)
                if folder.missing is None or folder.missing[0] != name or folder.missing[1].at < begun:
                    folder.missing = name, answer
        return answer.content

    @staticmethod
    def _note_found(folder: _Folder, name: str, answer: _Answer, now: float) -> None:
        if name not in folder.found:
            folder.changed = now
        if answer.content is None or len(answer.content) > KNOWN_BYTES:
            folder.found.pop(name, None)
            return
        folder.found[name] = answer
        folder.found.move_to_end(name)
        while len(folder.found) > KNOWN_FILES:
            folder.found.popitem(last=False)


SHORTEST_SECONDS: Final = 0.05
"""Time between two looks right after a new file."""

SHARE: Final = 5.0
"""A look follows after this fraction of the quiet time, so a record waits for at most a fifth of the pause before it,
and some twenty looks lead from the fastest pace to one per second."""


def pause_seconds(idle: float, longest: float) -> float:
    """Return the seconds between two looks for new files.

    Args:
        idle: seconds since the last new file.
        longest: maximum result, even below `SHORTEST_SECONDS`.
    """
    return min(longest, max(SHORTEST_SECONDS, idle / SHARE))
