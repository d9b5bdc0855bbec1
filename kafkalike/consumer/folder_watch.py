"""FolderWatch: wakes a waiting poll when a topic that it has read to the end may have a new commit.

On Linux, the kernel reports new files of a folder (inotify), so a record arrives without the wait between two looks. A
watch only shortens a wait. A poll that is not woken looks as often as without a watch: if inotify is missing, its
limits are used up, or a change comes from another machine, as on a network file system.
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
"""Time between two registrations of the folders: a folder may have been replaced by another of the same name, and a
limit may have space again."""

COMMIT_NAME: Final = b".json\0"
"""Suffix of a commit file's name in an event, which the kernel pads with zeros. Temporary files have other suffixes."""

EVENT_BYTES: Final = 65_536


class FolderWatch:
    """Wakes one waiting thread. Belongs to its consumer; holds one descriptor from its first wait until `close`."""

    def __init__(self) -> None:
        self._kernel: Any = None
        self._handle = -1
        self._close: weakref.finalize[..., Any] | None = None
        self._watched: dict[str, int] = {}
        """The kernel's watch number by folder."""
        self._logs: frozenset[TopicLog] = frozenset()
        self._named_at = 0.0
        self.complete = False
        """True if the kernel reports new commits of all logs of the last `wait`."""

    def wait(self, logs: Sequence[TopicLog], seconds: float) -> bool:
        """Wait for a commit to any of these logs.

        Args:
            logs: logs with awaited commits.
            seconds: maximum wait.

        Returns:
            True if there may be a commit since the last look; False after the wait.
        """
        if logs and self._is_due(logs):
            self._name(logs)
            if self._watched:
                # A commit may have come between the last look and this registration.
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
        """Close the kernel's descriptor."""
        close, self._close, self._handle, self._watched, self._logs = self._close, None, -1, {}, frozenset()
        self.complete = False
        if close is not None:
            close()

    def in_child(self) -> None:
        """Close the copy of a forked child; the parent keeps receiving events."""
        self.close()

    # --- the kernel ----------------------------------------------------------------------------

    def _is_due(self, logs: Sequence[TopicLog]) -> bool:
        # Additional logs of the last registration are harmless.
        return not self._logs.issuperset(logs) or SYSTEM_CLOCK.monotonic() - self._named_at >= RENEW_SECONDS

    def _name(self, logs: Sequence[TopicLog]) -> None:
        """Register the folders of these logs with the kernel."""
        self.complete = False
        # A separate dict, because a hung storage may call `add` after its caller has given up.
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
        # Last, because an interrupt before this must repeat everything.
        self._watched, self._named_at = dict(watched), SYSTEM_CLOCK.monotonic()
        self.complete = len(self._watched) == len(logs)
        self._logs = frozenset(logs)

    def _open(self, logs: Sequence[TopicLog]) -> tuple[Any, int]:
        """Return the kernel's functions and the descriptor; None and -1 if they are useless or unavailable."""
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
        """Read the events; return whether any of them names a commit file."""
        found = False
        while True:
            try:
                events = os.read(self._handle, EVENT_BYTES)
            except BlockingIOError:
                return found
            found = found or COMMIT_NAME in events


def _linux() -> Any:  # noqa: ANN401 - ctypes
    """Return the C library if it has the functions, else None."""
    try:
        from ctypes import CDLL

        library = CDLL(None)
    except (ImportError, OSError):
        return None
    return library if hasattr(library, "inotify_init1") else None
