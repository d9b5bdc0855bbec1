"""Lock holder: the file of a lock in; who has it, for people, out."""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LOCKS: Final = Path("/proc/locks")
"""Linux's list of all locks, in which a process sees those of its own container."""

_STATES: Final = {"T": "stopped", "t": "stopped by a debugger", "D": "waiting for the disk", "Z": "dead"}

_LONGEST: Final = 120
"""Characters of a command line that are shown."""


def holder_of(path: str) -> str | None:
    """Who holds the lock, and what can be done about it.

    Args:
        path: the lock's file.

    Returns:
        A sentence without its end; None when nobody has it (any more).
    """
    try:
        pids = sorted(set(_holders(path)))
    except (OSError, ValueError):
        return f"`lsof {shlex.quote(path)}` on {socket.gethostname()} names the process that holds it"
    if not pids:
        return None
    if os.getpid() in pids:
        return f"another thread of this process (pid {os.getpid()} on {socket.gethostname()}) holds it"
    return _told(pids[0])


def _holders(path: str) -> Iterator[int]:
    """Numbers of the processes that hold a lock; 0 is one outside this container."""
    status = Path(path).stat()
    for line in _LOCKS.read_text(encoding="ascii").splitlines():
        # `3: FLOCK  ADVISORY  WRITE 1929 fe:00:9982220 0 EOF`; with `->` it is one that waits.
        match = re.match(r"\d+: FLOCK +\w+ +\w+ +(-?\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", line)
        if match is None or int(match[4]) != status.st_ino:
            continue
        if (int(match[2], 16), int(match[3], 16)) == (os.major(status.st_dev), os.minor(status.st_dev)):
            yield max(0, int(match[1]))


def _told(pid: int) -> str:
    host = socket.gethostname()
    if pid == 0:
        return f"a process outside this container, on {host}, holds it; resume or end it, and the kernel frees the lock"
    state, command = _state(pid), _command(pid)
    about = ", ".join(text for text in (command, state) if text)
    resume = f"resume it with `kill -CONT {pid}`, or end" if state.startswith("stopped") else "if it hangs, end"
    return (
        f"process {pid} on {host} holds it{f' ({about})' if about else ''}; {resume} it with `kill -KILL {pid}`: the "
        "kernel then frees the lock, and an append that was not committed is not there"
    )


def _state(pid: int) -> str:
    try:
        # The second field is a name in brackets, which may hold anything.
        return _STATES.get(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0], "")
    except (OSError, IndexError):
        return ""


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    text = shlex.join(word for word in words if word)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
