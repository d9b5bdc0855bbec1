"""Damage: what readers and writers of a table do when one of its files cannot be read, and checksums of our own files.

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
"""What an operator runs."""

_told: dict[tuple[str, str], object] = {}
"""What this process has said, with who said it."""


class DamagedFileError(LogCorruptError):
    """A data file that a table names cannot be read.

    Args:
        where: the table's folder.
        path: the file, relative to it.
        why: what is wrong.
    """

    def __init__(self, where: str, path: str, why: str) -> None:
        super().__init__(f"{where}/{path} cannot be read: {why}; see `{REPAIR_COMMAND}`")
        self.path = path
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A damaged file at the end of a table, and what is left without it."""

    where: str
    """The table's folder."""
    file: str
    """The first damaged file, relative to it."""
    why: str
    """What is wrong with it."""
    commit: int | None
    """The version that the file commits; None for a data file."""
    good: int
    """The last version that can be read."""
    newest: int
    """The newest version in the log."""
    size: int = -1
    """Bytes of a data file; -1 when it is missing."""

    def warn(self) -> None:
        """Say it in the log, once in each process."""
        here = object()
        # One step, without a lock that a fork could copy while it is held.
        if _told.setdefault((self.where, self.file), here) is not here:
            return
        _log.warning(
            "%s/%s is damaged (%s): the table is read at its last good version %d, what came after it up to version %d "
            "is not seen, and nothing can be written to the table; run `%s`",
            self.where,
            self.file,
            self.why,
            self.good,
            self.newest,
            REPAIR_COMMAND,
        )

    def refuse(self) -> LogCorruptError:
        """The error of a writer."""
        return LogCorruptError(
            f"{self.where}: nothing was written, as {self.file} is damaged ({self.why}); the last good version is "
            f"{self.good}. Run `{REPAIR_COMMAND}`, which says what is lost and makes the table writable again"
        )


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """Turn a storage's failure to answer into the error of a client; that a file is missing stays what it is.

    Args:
        where: what was read.

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
    """The error of a client whose storage fails to answer. Caller: `storage_errors`, and who has no time for that."""
    return KafkaStorageError(f"{where} cannot be read: {cause}")


FORMAT: Final = 1
"""Of the file; another one is refused."""


def sealed(rest: bytes) -> bytes:
    """The file."""
    return _seal(rest) + b"\n" + rest


def opened(content: bytes) -> bytes:
    """What the file holds.

    Raises:
        ValueError: it is no such file, is damaged, or only a newer release can read it.
    """
    seal, _, rest = content.partition(b"\n")
    if seal != _seal(rest):
        raise ValueError("another format, or a wrong checksum")
    return rest


def _seal(rest: bytes) -> bytes:
    return b"%d %08x" % (FORMAT, zlib.crc32(rest))
