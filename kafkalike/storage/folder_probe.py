"""Folder probe: what a network file system says of itself is tried out, where the user lets a root lie on one.

What keeps writers apart there is a hard link that appears or fails, and locks. One machine can see whether they exist,
and not whether they hold between machines: so the user has to say so, too.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from kafkalike.errors import KafkaConnectionError, UnsafeStorageError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock

FARTHEST_FOLDER_SECONDS: Final = 300.0
"""How far the machine's clock may be from that of the files' times."""

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL})
"""What a file system without hard links answers to one."""


def probe_folder(root: str, link: Callable[[Path, Path], None] = os.link, clock: Clock = SYSTEM_CLOCK) -> None:
    """Try a folder out, or the nearest one above it that exists. It is left as it was.

    Where it may not be written to nothing is tried, and every write is refused later.

    Args:
        root: the folder.
        link: makes a hard link to a file.
        clock: the machine's time.

    Raises:
        UnsafeStorageError: writers would not be kept apart; says what was seen.
        KafkaConnectionError: it gives no answer.
    """
    place = Path(root)
    while not place.is_dir() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".kafkalike-probe-", dir=place) as folder:
            seen = _seen_in(Path(folder), link, clock)
    except OSError as cause:
        if cause.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            return
        raise KafkaConnectionError(f"{root} gives no answer: {cause}") from cause
    if seen is not None:
        raise UnsafeStorageError(
            f"{root} was tried and is not safe to write to, as it would not keep several writers apart: {seen}"
        )


def _seen_in(folder: Path, link: Callable[[Path, Path], None], clock: Clock) -> str | None:
    """What is wrong in a folder; None for nothing."""
    first, second, name = (folder / each for each in ("first", "second", "name"))
    first.write_bytes(b"first")
    second.write_bytes(b"second")
    try:
        link(first, name)
    except OSError as cause:
        if cause.errno in _NO_LINKS:
            return f"it has no hard links: {cause.strerror}"
        raise
    try:
        link(second, name)
    except FileExistsError:
        pass
    else:
        return "a hard link took the place of a file"
    if name.read_bytes() != b"first" or name not in folder.iterdir():
        return "a file was not there right after it was made, or held something else"
    apart = abs(name.stat().st_mtime - clock.now_ms() / 1000)
    if apart > FARTHEST_FOLDER_SECONDS:
        return f"its clock is {apart:.0f} s from this machine's, and {FARTHEST_FOLDER_SECONDS:.0f} s are the most"
    return _seen_of_locks(folder)


def _seen_of_locks(folder: Path) -> str | None:
    held, other = (FileLock(folder / "lock", thread_local=False) for _ in range(2))
    try:
        with held.acquire(timeout=0), other.acquire(timeout=0):
            return "two had one lock"
    except Timeout:
        return None
    except (NotImplementedError, OSError) as cause:
        return f"it has no locks: {cause}"
