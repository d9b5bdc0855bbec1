"""Probe: what a storage says of itself is tried out before anything rests on it.

A store that does not know conditional puts ignores the condition and answers "done" to everybody: acknowledged records
would vanish without an error. So one key is created twice, and the second time must be refused.
"""

from __future__ import annotations

import contextlib
import errno
import random
import re
import uuid
from dataclasses import dataclass
from typing import Final, Protocol

from kafkalike.clock import SYSTEM_CLOCK, Clock
from kafkalike.errors import KafkaConnectionError, UnsafeStorageError
from kafkalike.log.store.port import Entry, NotStoredError

PROBES: Final = "__probe"
"""Folder of the keys that are created and removed for it."""

TRIES: Final = 8
FIRST_WAIT_SECONDS: Final = 0.05

FARTHEST_SECONDS: Final = 300.0
"""How far this machine's clock may be from the storage's: maintenance goes by both, and keeps an hour between."""

_REFUSED: Final = re.compile(r"\b(400|405|412|501)\b")
"""Answers to the first conditional create that mean: not here."""


class Requests(Protocol):
    """The requests of a store that are tried."""

    uri: str

    def create(self, name: str, content: bytes) -> str | None:
        """Put an object unless there is one; None where there is."""
        ...

    def get_with_time(self, name: str) -> tuple[bytes, int]:
        """An object, and when it was written, ns."""
        ...

    def list(self, folder: str, *, deep: bool) -> list[Entry]:
        """Objects of a folder."""
        ...

    def delete(self, name: str) -> None:
        """Remove an object."""
        ...


@dataclass(frozen=True, slots=True)
class Proof:
    """What was seen of a storage that may be written to."""

    ahead_ns: int
    """How far its clock is ahead of this machine's, ns; by about a second, as it tells whole seconds."""


def probe(client: Requests, clock: Clock = SYSTEM_CLOCK) -> Proof:
    """Try a storage out.

    Args:
        client: makes the requests.
        clock: time and waiting.

    Raises:
        UnsafeStorageError: it does not keep several writers apart; says what was seen.
        KafkaConnectionError: it gives no answer, or there is no such bucket.
        PermissionError: it may not be written to with these credentials, so nothing is known of it.
    """
    name = _created(client, clock)
    try:
        _refused_the_second_time(client, name, clock)
        try:
            content, written_ns = client.get_with_time(name)
        except FileNotFoundError:
            raise _unsafe(client, "an object was not found right after it was created") from None
        now_ns = clock.now_ms() * 1_000_000
        if content != b"first":
            raise _unsafe(client, "an object held something else than what was put, right after it was created")
        if name.rpartition("/")[2] not in {entry.name for entry in client.list(PROBES, deep=False)}:
            raise _unsafe(client, "an object was not listed right after it was created")
    except OSError as cause:
        raise KafkaConnectionError(f"{client.uri} gives no answer: {cause}") from None
    finally:
        with contextlib.suppress(OSError):
            client.delete(name)
    # The storage's time is cut to whole seconds, so it is half a second later on average.
    ahead_ns = written_ns + 500_000_000 - now_ns
    if abs(ahead_ns) > FARTHEST_SECONDS * 1_000_000_000:
        raise _unsafe(
            client,
            f"its clock is {abs(ahead_ns) // 1_000_000_000} s {'ahead of' if ahead_ns > 0 else 'behind'} this "
            f"machine's, and {FARTHEST_SECONDS:.0f} s are the most: set the machine's clock",
        )
    return Proof(ahead_ns)


def _created(client: Requests, clock: Clock) -> str:
    """Create a key that nobody has."""
    seen: OSError | None = None
    for attempt in range(TRIES):
        name = f"{PROBES}/{uuid.uuid4().hex}"
        try:
            if client.create(name, b"first") is not None:
                return name
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
