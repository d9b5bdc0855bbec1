"""Looks: questions for a file that may not be there yet in, answers out; shared by the threads of this process.

A look at an object store costs money and time. Whoever waits for something new takes the answer that another one got
a moment ago; the longer nothing came, the longer a moment is. What this process puts itself is known at once.
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
"""How long a file that was found is taken to be there by those who wait; who does not wait asks anew."""

QUIET_SECONDS: Final = 5.0
"""How long, at most, nothing is taken to have come before a folder was listed: who waits looks after a second then."""

KNOWN_FILES: Final = 32
KNOWN_BYTES: Final = 64 * 1024
"""How many found files of a folder are kept, and how large one may be: the commits that other readers come for."""

MOST_FOLDERS: Final = 4096
"""Folders that are remembered; the one that nobody asked for the longest goes first."""


@dataclass(slots=True)
class _Answer:
    content: bytes | None
    """None: there was no such file."""
    at: float
    """The file was there, or was not there, at this time or later."""


@dataclass(slots=True)
class _Folder:
    """What is known of the files of one folder."""

    changed: float
    """When something new was seen in it the last time."""
    asking: threading.Lock = field(default_factory=threading.Lock)
    """Held by the one of this process's waiting threads that asks."""
    missing: tuple[str, _Answer] | None = None
    """The last file that was not there."""
    found: OrderedDict[str, _Answer] = field(default_factory=OrderedDict)

    def answer(self, name: str, since: float) -> _Answer | None:
        """What is known since a time."""
        answer = self.found.get(name)
        if answer is None and self.missing is not None and self.missing[0] == name:
            answer = self.missing[1]
        return None if answer is None or answer.at < since else answer


class Looks:
    """The looks of one process at one root. Thread-safe.

    Args:
        monotonic: time, seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic) -> None:
        self._monotonic = monotonic
        self._mutex = threading.Lock()
        self._folders: OrderedDict[str, _Folder] = OrderedDict()

    def look(self, name: str, pace: Pace, ask: Callable[[], bytes | None]) -> bytes | None:
        """Content of a file, or None when it is not there.

        Args:
            name: the file.
            pace: which answers of others will do.
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
        """Whether a look would be spared."""
        return self._known(self._folder(name), name, pace) is not None

    def made(self, name: str, content: bytes) -> None:
        """Note a file that this process has just made."""
        folder, now = self._folder(name), self._monotonic()
        with self._mutex:
            self._note_found(folder, name, _Answer(content, now), now)

    def missed(self, name: str, since: float, quiet_seconds: float) -> None:
        """Note that a file was not there at a time, or later, as a list of its folder said.

        Args:
            name: the file.
            since: the time.
            quiet_seconds: how long nothing new had come into the folder; a short while at most is made of it.
        """
        folder = self._folder(name)
        with self._mutex:
            folder.changed = min(folder.changed, since - max(0.0, min(quiet_seconds, QUIET_SECONDS)))
            known = folder.missing
            if name not in folder.found and (known is None or known[0] != name or known[1].at < since):
                folder.missing = name, _Answer(None, since)

    def forget(self, name: str) -> None:
        """Know nothing of a file any more: it was removed, or replaced."""
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
                # One that was found after this look began is there, whatever this look saw.
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
"""Between two looks right after something new."""

SHARE: Final = 5.0
"""A look comes after this part of the time in which nothing came: so a record waits for a fifth of the pause before it
at most, and some twenty looks lead from the fastest pace to one a second."""


def pause_seconds(idle: float, longest: float) -> float:
    """Seconds between two looks for something new.

    Args:
        idle: seconds since something new was seen the last time.
        longest: most seconds between two looks; below `SHORTEST_SECONDS` it is what counts.
    """
    return min(longest, max(SHORTEST_SECONDS, idle / SHARE))
