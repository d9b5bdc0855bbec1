"""FolderWatch: the logs that a waiting poll has read to their ends in; out, that one of them may have a new commit.

On Linux the kernel reports new files of a folder (inotify), so a record arrives without the wait between two looks.
This only ever shortens a wait. A poll that is not woken looks as often as without it: where there is no inotify, where
its limits are used up, and where a change comes from elsewhere, as on a network file system.
"""

from __future__ import annotations

import os
import select
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.concurrency import inherited

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog

# From <sys/inotify.h>; they are part of Linux's interface and never change.
_MOVED_TO: Final = 0x80
_CREATE: Final = 0x100
_ONLY_A_FOLDER: Final = 0x01000000
_EVENTS: Final = _CREATE | _MOVED_TO | _ONLY_A_FOLDER

RENEW_SECONDS: Final = 10.0
"""How often the folders are named to the kernel again: one may have been replaced by another of the same name, and a
limit may have room again."""

COMMIT_NAME: Final = b".json\0"
"""End of the name of a version's file in an event, which the kernel fills up with zeros. Temporary files end in others.
"""

EVENT_BYTES: Final = 65_536


class FolderWatch:
    """Wakes one waiting thread. Belongs to its consumer; holds one descriptor after its first wait, until `close`."""

    def __init__(self) -> None:
        self._kernel: Any = None
        self._handle = -1
        self._close: weakref.finalize[..., Any] | None = None
        self._watched: dict[str, int] = {}
        """The kernel's number by folder."""
        self._logs: frozenset[TopicLog] = frozenset()
        self._named_at = 0.0
        self.complete = False
        """True if the kernel reports new commits of all logs that `wait` was given last."""

    def wait(self, logs: Sequence[TopicLog], seconds: float) -> bool:
        """Wait for a commit to one of some logs.

        Args:
            logs: whose commits are awaited.
            seconds: how long at most.

        Returns:
            Whether there may be a commit that was made since the last look; False when time is up.
        """
        if logs and self._is_due(logs):
            self._name(logs)
            if self._watched:
                # A commit may have come after the last look and before this.
                return True
        if not logs or not self._watched:
            SYSTEM_CLOCK.sleep(seconds)
            return False
        end = SYSTEM_CLOCK.monotonic() + seconds
        poller = select.poll()
        poller.register(self._handle, select.POLLIN)
        while (left := end - SYSTEM_CLOCK.monotonic()) > 0:
            if poller.poll(left * 1000) and self._has_commit():
                return True
        return False

    def close(self) -> None:
        """Give the descriptor back."""
        close, self._close, self._handle, self._watched, self._logs = self._close, None, -1, {}, frozenset()
        self.complete = False
        if close is not None:
            close()

    def in_child(self) -> None:
        """Close the copy of a forked child; the parent keeps receiving events."""
        self.close()

    # --- the kernel ----------------------------------------------------------------------------

    def _is_due(self, logs: Sequence[TopicLog]) -> bool:
        # Logs that are left over from the last time do no harm.
        return not self._logs.issuperset(logs) or SYSTEM_CLOCK.monotonic() - self._named_at >= RENEW_SECONDS

    def _name(self, logs: Sequence[TopicLog]) -> None:
        """Have the kernel watch the folders of these logs."""
        self.complete = False
        # A dict of its own: a storage that hangs may call `add` when nobody waits for it any more.
        watched: dict[str, int] = {}
        kernel, handle = self._open(logs)
        if kernel is not None:

            def add(folder: str) -> None:
                number = kernel.inotify_add_watch(handle, os.fsencode(folder), _EVENTS)
                if number >= 0:
                    watched[folder] = number

            for log in logs:
                log.watch(add)
            for number in set(self._watched.values()).difference(watched.values()):
                kernel.inotify_rm_watch(handle, number)
        # Last: an interrupt before this has all of it done again.
        self._watched, self._named_at = dict(watched), SYSTEM_CLOCK.monotonic()
        self.complete = len(self._watched) == len(logs)
        self._logs = frozenset(logs)

    def _open(self, logs: Sequence[TopicLog]) -> tuple[Any, int]:
        """The kernel's functions and the descriptor; None and -1 where they are of no use or cannot be had."""
        if self._handle < 0:
            folders: list[str] = []
            for log in logs:
                log.watch(folders.append)
            kernel = _linux() if folders else None
            if kernel is None:
                return None, -1
            inherited.add(self)
            self._kernel, self._handle = kernel, kernel.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if self._handle < 0:
                return None, -1
            self._close = weakref.finalize(self, os.close, self._handle)
        return self._kernel, self._handle

    def _has_commit(self) -> bool:
        """Take the events; whether one of them is about a version's file."""
        found = False
        while True:
            try:
                events = os.read(self._handle, EVENT_BYTES)
            except BlockingIOError:
                return found
            found = found or COMMIT_NAME in events


def _linux() -> Any:  # noqa: ANN401 - ctypes
    """The C library, where it has the functions; else None."""
    try:
        from ctypes import CDLL

        library = CDLL(None)
    except (ImportError, OSError):
        return None
    return library if hasattr(library, "inotify_init1") else None
