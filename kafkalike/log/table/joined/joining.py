"""Joining: the commits of a writer in, files that hold many of them out."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from kafkalike.log.store.port import Store
from kafkalike.log.table.actions import TableCommit, parse_commit
from kafkalike.log.table.joined.content import MOST_BYTES, Joined
from kafkalike.log.table.joined.reading import CommitFiles
from kafkalike.log.table.log_files import LogFiles, block_of, joined_name

_FEWEST: Final = 2
"""Commits that are worth a file."""


class Joining:
    """Joins the commits of one table. Thread-safe.

    It keeps the latest ones in a row that were made or read here, of one block, so that who writes alone reads none.

    Args:
        store: the table.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._mutex = threading.Lock()
        self._own: dict[int, bytes] = {}
        self._bytes = 0
        self._last = -1

    def note(self, version: int, content: bytes) -> None:
        """Keep a commit that was made here."""
        with self._mutex:
            if version != self._last + 1 or block_of(version) != block_of(self._last):
                self._own, self._bytes = {}, 0
            self._last = version
            self._bytes += len(content)
            if self._bytes <= MOST_BYTES:
                self._own[version] = content

    def join(self, version: int, table_id: str) -> None:
        """Put the commits of a block into one file, up to a version.

        Args:
            version: the last one.
            table_id: the table's.

        Raises:
            LogCorruptError: one of them is damaged.
            OSError: the storage refused, or did not answer.
        """
        block = block_of(version)
        with self._mutex:
            known = {v: content for v, content in self._own.items() if block_of(v) == block and v <= version}
            too_large = self._bytes > MOST_BYTES
        if too_large:
            return
        wanted = list(range(block + 1 if block else 0, version + 1))
        if known.keys() != set(wanted):
            known = self._read(block, wanted, known, table_id)
            with self._mutex:
                if version in self._own:
                    self._own = known | self._own
                    self._bytes = sum(map(len, self._own.values()))
        if len(known) >= _FEWEST:
            joined = Joined(table_id=table_id, first=next(iter(known)), contents=list(known.values()))
            self._store.replace(joined_name(block), joined.packed())

    def _read(self, block: int, wanted: list[int], own: dict[int, bytes], table_id: str) -> dict[int, bytes]:
        """The same with those of others, but for what the log does not have any more; nothing where it is too much."""
        files = LogFiles.listed(self._store, block)
        there = set(files.commits)
        gone = max((v for v in wanted if v not in there), default=-1)
        versions = [v for v in wanted if v > gone]
        if sum(files.sizes[v] for v in versions) > MOST_BYTES:
            return {}
        left = [v for v in versions if v not in own]
        found = CommitFiles(self._store, files)
        read = dict(found.read(left))
        if found.mislead(table_id, self._parsed(read)):
            read = dict(CommitFiles(self._store, files, joined=False).read(left))
            self._parsed(read)
        return {v: own[v] if v in own else read[v] for v in versions}

    def _parsed(self, contents: Mapping[int, bytes]) -> list[TableCommit]:
        return [parse_commit(version, content, self._store.uri) for version, content in contents.items()]
