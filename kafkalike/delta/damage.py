"""Damage: the behavior of readers and writers after a damaged file of a table, and checksums of our own files.

A reader stays at the last good version, and logs that once. A writer refuses to write, because it would have to guess
what the damaged file said. `sealed` adds a format and a checksum to the files that Delta knows nothing of: bundles of
commits, and staged appends.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kafkalike.errors import KafkaStorageError, LogCorruptError

_log = logging.getLogger(__name__)

REPAIR_COMMAND: Final = "kafkalike verify --repair"
"""Command that repairs a damaged table."""

_told: dict[tuple[str, str], object] = {}
"""Damaged files that this process has logged, each with the token of the call that did so."""


class DamagedFileError(LogCorruptError):
    """A data file that the log names cannot be read.

    Args:
        where: the table's folder.
        path: the file, relative to it.
        why: reason, for the message.
    """

    def __init__(self, where: str, path: str, why: str) -> None:
        super().__init__(f"{where}/{path} cannot be read: {why}; see `{REPAIR_COMMAND}`")
        self.path = path
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A damaged file at the end of a table, and the last version before the damage."""

    where: str
    """The table's folder."""
    file: str
    """The first damaged file, relative to it."""
    why: str
    """Reason why it cannot be read."""
    commit: int | None
    """Version that the file commits; None for a data file."""
    good: int
    """Last version that can be read."""
    newest: int
    """Newest version in the log."""
    size: int = -1
    """Size of a damaged data file, bytes; -1 if it is missing."""

    def warn(self) -> None:
        """Log the damage, once per process."""
        here = object()
        # One step, because a fork could copy a lock while it is held.
        if _told.setdefault((self.where, self.file), here) is not here:
            return
        _log.warning(
            "%s/%s is damaged (%s): readers see the table's last good version %d and nothing of the versions up to %d, "
            "and nothing can be written to the table; run `%s`",
            self.where,
            self.file,
            self.why,
            self.good,
            self.newest,
            REPAIR_COMMAND,
        )

    def refuse(self) -> LogCorruptError:
        """Return the error that a writer raises."""
        return LogCorruptError(
            f"{self.where}: nothing was written, because {self.file} is damaged ({self.why}); the last good version is "
            f"{self.good}. Run `{REPAIR_COMMAND}`, which reports the losses and makes the table writable again"
        )


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """Turn an `OSError` of the storage into a client's error; a missing file stays a `FileNotFoundError`.

    Args:
        where: the table or file that is read, for the message.

    Raises:
        KafkaStorageError: in place of any other `OSError`.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as cause:
        raise unanswered(where, cause) from cause


def unanswered(where: str, cause: OSError) -> KafkaStorageError:
    """Return a client's error for a storage that does not answer; for hot paths, where `storage_errors` is too slow."""
    return KafkaStorageError(f"{where} cannot be read: {cause}")


FORMAT: Final = 1
"""Format of a sealed file; other formats are refused."""


def sealed(rest: bytes) -> bytes:
    """Return the content of a sealed file: format and checksum, then these bytes."""
    return _seal(rest) + b"\n" + rest


def opened(content: bytes) -> bytes:
    """Return the bytes that a sealed file holds.

    Raises:
        ValueError: the file is not sealed, is damaged, or has another release's format.
    """
    seal, _, rest = content.partition(b"\n")
    if seal != _seal(rest):
        raise ValueError("another format, or a wrong checksum")
    return rest


def _seal(rest: bytes) -> bytes:
    return b"%d %08x" % (FORMAT, zlib.crc32(rest))
