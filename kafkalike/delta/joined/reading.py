"""Reading: versions of a log in, their commit files out; from joined files where these can be believed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from kafkalike.delta.actions import log_name
from kafkalike.delta.joined.content import Joined, proven, unpacked
from kafkalike.delta.log_files import READ_BESIDE, LogFiles, block_of, joined_name
from kafkalike.storage.port import Store

_log = logging.getLogger(__name__)

EVERY: Final = 4
"""Commits from one time that a writer joins them to the next: so many minus one, a reader reads by themselves."""

EACH: Final = 1
"""The same for tables that few commits are made to: none."""


class CommitFiles:
    """Reads the commit files of one log.

    Args:
        store: the table.
        files: a list of its log.
        joined: whether joined files may be used.
        every: `EVERY` or `EACH`, as the table's writers have it: what is not joined yet is read beside what is.
    """

    def __init__(self, store: Store, files: LogFiles, *, joined: bool = True, every: int = EVERY) -> None:
        self._store = store
        self._files = files
        self._joined = joined and store.far and store.combines
        self._every = every
        self.tables: set[str] = set()
        """Ids of the tables of whose commits joined files have been used."""
        self.carried: dict[str, bytes] = {}
        """Data files that were in these."""

    def read(self, versions: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """The files of some versions, in order.

        Args:
            versions: in order; all are in the list of the log.

        Raises:
            FileNotFoundError: one is gone since the list was made.
            OSError: the storage does not answer.
        """
        blocks = [(block, list(part)) for block, part in groupby(versions, block_of)]
        for at in range(0, len(blocks), READ_BESIDE):
            yield from self._blocks(blocks[at : at + READ_BESIDE])

    def mislead(self, table_id: str) -> bool:
        """Whether what was read may be wrong, and is to be read without joined files: these are of another table.

        Its commits may fit by chance, where a storage names contents by the time at which they came.

        Args:
            table_id: the table's.
        """
        return bool(self.tables) and self.tables != {table_id}

    def _blocks(self, blocks: Sequence[tuple[int, list[int]]]) -> Iterator[tuple[int, bytes]]:
        found = self._believed(blocks) if self._joined else {}
        for _, versions in blocks:
            left = [v for v in versions if v not in found]
            beside = READ_BESIDE if self._store.far else 1
            # In parts, so that whoever stops at a damaged one has not read all.
            singles = (part for n in range(0, len(left), beside) for part in self._singles(left[n : n + beside]))
            for version in versions:
                yield (version, found.pop(version)) if version in found else next(singles)

    def _singles(self, versions: Sequence[int]) -> list[tuple[int, bytes]]:
        contents = self._store.beside([partial(self._store.read, log_name(v)) for v in versions])
        return list(zip(versions, contents, strict=True))

    def _believed(self, blocks: Sequence[tuple[int, list[int]]]) -> dict[int, bytes]:
        """What joined files say, and what none of them can have yet, read beside them."""
        latest = blocks[-1][1][-1]
        late = [v for v in blocks[-1][1] if v > latest - latest % self._every]
        wanted = [b for b, versions in blocks if b in self._files.joined and set(versions).difference(late)]
        if not wanted:
            return {}
        answers = self._store.beside(
            [*(partial(self._open, block) for block in wanted), *(partial(self._single, v) for v in late)]
        )
        found: dict[int, bytes] = {}
        for one in answers:
            found |= one
        return found

    def _open(self, block: int) -> dict[int, bytes]:
        """The commits of a joined file; none where it is not to be believed."""
        try:
            joined: Joined = unpacked(self._store.read(joined_name(block)))
        except (OSError, ValueError) as cause:
            _log.debug("%s/%s is not used: %s", self._store.uri, joined_name(block), cause)
            return {}
        found = proven(joined, block, self._files)
        if found:
            self.tables.add(joined.table_id)
            self.carried |= joined.files
        return found

    def _single(self, version: int) -> dict[int, bytes]:
        return {version: self._store.read(log_name(version))}
