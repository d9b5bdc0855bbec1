"""Probe: tests whether a storage keeps several writers apart, before anything depends on it.

An object store that does not implement conditional puts ignores the condition and answers "done" to every writer:
acknowledged records would vanish without an error. So the probe creates one key twice, and the second request must be
rejected. If another process has probed the same storage at the same address a short while ago, the probe tries to
create the key that process left: one request per new process (decision 078).

A network file system needs hard links, which must fail if the name exists, and locks. One machine can test whether they
exist, but not whether they hold between machines, so the user also has to allow such a root by a setting.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import re
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from filelock import FileLock, Timeout

from kafkalike.errors import KafkaConnectionError, UnsafeStorageError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.storage.port import Entry, NotStoredError

PROBES: Final = "__probe"
"""Folder of the keys that are created for it."""

KEPT_MS: Final = 20 * 60 * 1000
"""Longest time, in ms, that other processes rely on the key of a full probe; twice that with a slow clock."""

LEFT_MS: Final = 24 * 3600 * 1000
"""Age, in ms, at which a killed process's leftover key is removed."""

TRIES: Final = 8
FIRST_WAIT_SECONDS: Final = 0.05
"""Maximum first wait before a retry; it doubles with each try."""

FARTHEST_SECONDS: Final = 300.0
"""Largest allowed difference between this machine's clock and the storage's: maintenance uses both, with an hour
between."""

_REFUSED: Final = re.compile(r"\b(400|405|412|501)\b")
"""Answers to the first conditional create that mean that the storage does not support it."""

_KEPT: Final = re.compile(r"(\d{1,12})-[0-9a-f]{16}")
"""Names of reusable keys; other keys have names of letters and digits only."""


class Requests(Protocol):
    """Requests that the probe makes to a storage."""

    uri: str

    address: str
    """Address of the requests, if an option names one."""

    def create(self, name: str, content: bytes) -> str | None:
        """Put an object unless it exists; None if it does."""
        ...

    def get_with_time(self, name: str) -> tuple[bytes, int]:
        """Return the content of an object and its write time in ns."""
        ...

    def list(self, folder: str, *, deep: bool) -> list[Entry]:
        """List the objects of a folder."""
        ...

    def delete(self, name: str) -> None:
        """Remove an object, if it exists."""
        ...


@dataclass(frozen=True, slots=True)
class Proof:
    """Result of a successful probe."""

    ahead_ns: int | None
    """Lead of the storage's clock over this machine's, in ns, to about a second, because it tells whole seconds. None
    after a short probe."""


def probe(client: Requests, clock: Clock = SYSTEM_CLOCK, *, whole: bool = True) -> Proof:
    """Probe a storage.

    Args:
        client: makes the requests.
        clock: time and waiting.
        whole: make the full probe of five requests. Otherwise, a key that another process created for the same address
            within about 20 minutes by this machine's clock is enough: creating it again must fail.

    Raises:
        UnsafeStorageError: the storage does not keep several writers apart; the message names the failed check.
        KafkaConnectionError: the storage does not answer, or the bucket does not exist.
        PermissionError: these credentials may not write, so nothing is known.
    """
    turn = clock.now_ms() // KEPT_MS
    kept = "" if whole else f"{PROBES}/{turn}-{hashlib.sha256(client.address.encode()).hexdigest()[:16]}"
    name = _created(client, clock, kept)
    if name is None:
        return Proof(None)
    proved = False
    try:
        _refused_the_second_time(client, name, clock)
        try:
            content, written_ns = client.get_with_time(name)
        except FileNotFoundError:
            raise _unsafe(client, "an object was not found right after it was created") from None
        now_ns = clock.now_ms() * 1_000_000
        if content != b"first":
            raise _unsafe(client, "an object had another content than the one put, right after it was created")
        listed = client.list(PROBES, deep=False)
        if name.rpartition("/")[2] not in {entry.name for entry in listed}:
            raise _unsafe(client, "an object was not listed right after it was created")
        # The storage truncates times to whole seconds, so the real time is half a second later on average.
        ahead_ns = written_ns + 500_000_000 - now_ns
        if abs(ahead_ns) > FARTHEST_SECONDS * 1_000_000_000:
            raise _unsafe(
                client,
                f"its clock is {abs(ahead_ns) // 1_000_000_000} s {'ahead of' if ahead_ns > 0 else 'behind'} this "
                f"machine's, and {FARTHEST_SECONDS:.0f} s are the most: set the machine's clock",
            )
        proved = True
    except OSError as cause:
        raise KafkaConnectionError(f"{client.uri} gives no answer: {cause}") from None
    finally:
        if not proved or name != kept:
            with contextlib.suppress(OSError):
                client.delete(name)
    if name == kept:
        _tidy(client, listed, turn, written_ns // 1_000_000)
    return Proof(ahead_ns)


def _tidy(client: Requests, listed: list[Entry], turn: int, now_ms: int) -> None:
    """Remove the keys of earlier probes that have expired."""
    for entry in listed:
        of = _KEPT.fullmatch(entry.name)
        old = entry.modified_ms < now_ms - LEFT_MS if of is None else int(of[1]) < turn - 1
        if old:
            with contextlib.suppress(OSError):
                client.delete(f"{PROBES}/{entry.name}")


def _created(client: Requests, clock: Clock, kept: str) -> str | None:
    """Create a new key, first `kept`, if that is a name. None if `kept` exists already."""
    seen: OSError | None = None
    for attempt in range(TRIES):
        name = kept if kept and not attempt else f"{PROBES}/{uuid.uuid4().hex}"
        try:
            if client.create(name, b"first") is not None:
                return name
            if name == kept:
                return None
            seen = OSError(errno.EEXIST, "a key that nobody has was said to exist")
        except NotStoredError as cause:
            if cause.errno == errno.EACCES:
                raise PermissionError(cause.errno, cause.strerror, client.uri) from None
            raise KafkaConnectionError(f"{client.uri} cannot be written: {cause.strerror}") from None
        except OSError as cause:
            seen = cause
            if _REFUSED.search(str(cause.strerror)):
                raise _unsafe(client, f"a conditional create was answered with: {cause.strerror}") from None
        clock.sleep(random.random() * FIRST_WAIT_SECONDS * 2**attempt)  # noqa: S311 - spreads requests
    assert seen is not None
    raise KafkaConnectionError(f"{client.uri} gives no answer: {seen}") from None


def _refused_the_second_time(client: Requests, name: str, clock: Clock) -> None:
    seen: OSError | None = None
    for attempt in range(TRIES):
        try:
            if client.create(name, b"second") is not None:
                raise _unsafe(client, "a conditional create of a key that exists was answered with success")
        except NotStoredError as cause:
            raise _unsafe(client, f"a conditional create of a key that exists was answered: {cause.strerror}") from None
        except OSError as cause:
            seen = cause
        else:
            return
        clock.sleep(random.random() * FIRST_WAIT_SECONDS * 2**attempt)  # noqa: S311 - spreads requests
    assert seen is not None
    raise seen


def _unsafe(client: Requests, seen: str) -> UnsafeStorageError:
    return UnsafeStorageError(
        f"{client.uri} was tried and is not safe to write to, as it would not keep several writers apart: {seen}"
    )


_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL})
"""Errors of a file system without hard links."""


def probe_folder(root: str, link: Callable[[Path, Path], None] = os.link, clock: Clock = SYSTEM_CLOCK) -> None:
    """Probe a folder, or its nearest existing parent, and leave it unchanged.

    A read-only folder is not probed, because every later write fails.

    Args:
        root: the folder.
        link: makes a hard link to a file.
        clock: the machine's time.

    Raises:
        UnsafeStorageError: the folder does not keep several writers apart; the message names the failed check.
        KafkaConnectionError: the folder does not answer.
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
    """Return the first failed check in a folder; None if all succeed."""
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
    if apart > FARTHEST_SECONDS:
        return f"its clock is {apart:.0f} s from this machine's, and {FARTHEST_SECONDS:.0f} s are the most"
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
