"""Data file copy: copies data files from a source table to its mirror before a version names them."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kafkalike.delta.actions import Add
from kafkalike.delta.layout import MIRRORS
from kafkalike.errors import CorruptRecordError, KafkaStorageError
from kafkalike.model import faults
from kafkalike.storage.port import Storage

WHOLE_BYTES: Final = 64 * 1024 * 1024
"""Larger files are copied in steps instead of in memory."""

STEP_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a large file in memory at a time."""

FRESH_MS: Final = 86_400_000
"""Maximum age at which a file that an earlier pass has copied is reused. Maintenance removes unnamed files of a mirror
after `LEFT_MS`, so a reused file cannot disappear before its version is put."""

LEFT_MS: Final = 7 * 86_400_000
"""Age after which maintenance removes a file of a mirror that no version names."""

BESIDE: Final = 16
"""Files that are copied in parallel, where that saves time."""

_MAGIC: Final = b"PAR1"


class MissingSourceFileError(KafkaStorageError):
    """A data file is missing at the source; the caller decides whether it is needed."""

    def __init__(self, where: str, path: str) -> None:
        self.path = path
        super().__init__(f"{where}/{path} is missing")


@dataclass(slots=True)
class DataFiles:
    """Copies data files of one topic.

    Args:
        source: files of the source's table.
        target: files of its mirror's table.
        root: files of the mirror's cluster.
    """

    source: Storage
    target: Storage
    root: Storage
    copied: int = 0
    """Number of copied bytes."""
    _known: dict[str, int] | None = field(default=None, init=False)
    """Sizes of the files at the target, by path, bytes."""

    def bring(self, adds: Iterable[Add], *, durable: bool) -> Iterator[str]:
        """Copy files that are missing at the target.

        Args:
            adds: the files.
            durable: whether they must survive a power failure before a version names them.

        Yields:
            A word after each round.

        Raises:
            MissingSourceFileError: the source has lost one.
            CorruptRecordError: one is damaged at the source; it is not copied.
            OSError: a storage did not answer.
        """
        known = self._there()
        missing = [add for add in {a.path: a for a in adds}.values() if known.get(add.path) != add.size]
        for at in range(0, len(missing), BESIDE):
            part = missing[at : at + BESIDE]
            self.target.scheduler.beside([partial(self._copy, add, durable=durable) for add in part])
            known |= {add.path: add.size for add in part}
            self.copied += sum(add.size for add in part)
            yield "copied"

    def forget(self) -> None:
        """Drop the known file sizes; the next copy lists the target again."""
        self._known = None

    def _there(self) -> dict[str, int]:
        if self._known is None:
            since = self.root.coordination.now_ns() // 1_000_000 - FRESH_MS
            self._known = {e.name: e.size for e in self.target.list(deep=True) if e.modified_ms >= since}
        return self._known

    def _copy(self, add: Add, *, durable: bool) -> None:
        faults.point("mirror.before_file")
        try:
            if add.size > WHOLE_BYTES:
                self._copy_in_steps(add)
            else:
                content = self.source.read(add.path)
                self._check(add, len(content), content[:4], content[-4:])
                self.target.make_folder(posixpath.dirname(add.path))
                # Atomically, because another pass may write the same file.
                self.target.replace(add.path, content)
        except FileNotFoundError as cause:
            raise MissingSourceFileError(self.source.uri, add.path) from cause
        if durable:
            self.target.sync(add.path)

    def _check(self, add: Add, size: int, first: bytes, last: bytes) -> None:
        if size != add.size or first != _MAGIC or last != _MAGIC:
            raise CorruptRecordError(
                f"{self.source.uri}/{add.path} is damaged: it has {size} bytes, its table's log says {add.size}"
            )

    def _copy_in_steps(self, add: Add) -> None:
        size = self.source.size(add.path)
        ends = (self.source.read_range(add.path, at, at + 4).to_pybytes() for at in (0, size - 4))
        self._check(add, size, *ends)
        self.target.make_folder(posixpath.dirname(add.path))
        if self.target.coordination.reach != "machine":
            # A shared or remote storage shows a file only when it is complete.
            self._stream(add, self.target, add.path)
            return
        waiting = f"{MIRRORS}/{uuid.uuid4().hex}.file"
        try:
            self._stream(add, self.root, waiting)
            self.root.copy(waiting, self.target, add.path)
        finally:
            self.root.remove(waiting, quietly=True)

    def _stream(self, add: Add, store: Storage, name: str) -> None:
        with store.open_output(name) as stream:
            for at in range(0, add.size, STEP_BYTES):
                stream.write(self.source.read_range(add.path, at, min(at + STEP_BYTES, add.size)))
