"""Commit bundler: puts the commits of a writer into bundles."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

from kafkalike.delta.actions import log_name, parse_commit
from kafkalike.delta.commit_bundles import MOST_BYTES, BundleHeader, CommitFiles, pressed
from kafkalike.delta.log_files import LogFiles, block_of, joined_name
from kafkalike.storage.port import Storage

_FEWEST: Final = 2
"""Commits that are worth a file."""


class _Run:
    """Commits in a row of one block, compressed a few at a time, so that each is so once."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.whole = first == _first_of(block_of(first))
        """Whether it begins with the first commit that the log has of its block."""
        self.sizes: list[int] = []
        self.tags: list[str] = []
        self.bytes = 0
        self._pieces: list[bytes] = []
        self._loose: list[bytes] = []

    @property
    def next(self) -> int:
        """The version that goes on from it."""
        return self.first + len(self.sizes)

    def add(self, content: bytes, tag: str) -> None:
        """Take in the next commit."""
        self.sizes.append(len(content))
        self.tags.append(tag)
        self.bytes += len(content)
        if self.bytes <= MOST_BYTES:
            self._loose.append(content)

    def begin_with(self, first: int, contents: Sequence[bytes], tags: Sequence[str]) -> None:
        """Take in all commits that come before this run.

        Args:
            first: version of the first of them.
            contents: their files, in order.
            tags: what the storage calls these, one each.
        """
        self.sizes = [*(len(content) for content in contents), *self.sizes]
        self.tags = [*tags, *self.tags]
        self.bytes += sum(map(len, contents))
        self._pieces = [*([pressed(contents)] if contents else []), *self._pieces]
        self.first, self.whole = first, True

    def pieces(self) -> list[bytes]:
        """All of them; not where they are too many."""
        if self._loose:
            self._pieces.append(pressed(self._loose))
            self._loose = []
        return list(self._pieces)


def _first_of(block: int) -> int:
    return block + 1 if block else 0


class CommitBundler:
    """Joins the commits of one table. Thread-safe.

    It keeps the latest ones in a row that were made or read here, of one block and the one before, so that who writes
    alone reads none.

    Args:
        store: the table.
        every: see `CommitFiles`.
    """

    def __init__(self, store: Storage, every: int) -> None:
        self._store = store
        self._every = every
        self._mutex = threading.Lock()
        self._run = _Run(-1)
        self._earlier = self._run
        self._files: dict[str, bytes] = {}

    def note(self, version: int, content: bytes) -> None:
        """Keep a commit that was made here."""
        tag = self._store.scheduler.tag(log_name(version))
        with self._mutex:
            if version != self._run.next or block_of(version) != block_of(self._run.first):
                self._earlier, self._run = self._run, _Run(version)
            if tag:
                self._run.add(content, tag)
            else:
                # Its answer was lost: it is read when it is to be joined.
                self._run = _Run(version + 1)

    def join(self, version: int, table_id: str, paths: Sequence[str] = ()) -> None:
        """Put the commits of a block into one file, up to a version, or to a later one that is known.

        Args:
            version: the last one.
            table_id: the table's.
            paths: data files that are to be in it too.

        Raises:
            LogCorruptError: one of them is damaged.
            OSError: the storage refused, or did not answer.
        """
        run = self._known(version)
        if not run.whole and not self._complete(run, table_id):
            return
        files = self._files_of(paths)
        with self._mutex:
            about = BundleHeader(
                table_id=table_id,
                first=run.first,
                sizes=list(run.sizes),
                tags=list(run.tags),
                files={path: len(content) for path, content in files.items()},
            )
            if len(about.sizes) < _FEWEST or run.bytes + sum(about.files.values()) > MOST_BYTES:
                return
            pieces = run.pieces()
        if files:
            pieces.append(pressed(list(files.values())))
        self._store.replace(joined_name(block_of(version)), about.packed(pieces))

    def _known(self, version: int) -> _Run:
        """What is known of the commits up to a version; an empty one after it where that is nothing."""
        with self._mutex:
            for run in (self._run, self._earlier):
                if run.first <= version < run.next:
                    return run
            if self._run.first == version + 1 and not self._run.whole:
                # The answer to the put of this version was lost.
                return self._run
            run = _Run(version + 1)
            run.whole = False
            return run

    def _complete(self, run: _Run, table_id: str) -> bool:
        """Read what comes before some commits in their block; returns whether it is not too much.

        Without what the log does not have any more.
        """
        last = run.first - 1
        files = LogFiles.listed(self._store, block_of(last))
        versions = [v for v in files.commits if _first_of(block_of(last)) <= v <= last]
        # Those that go on to the last one without a gap.
        versions = [v for at, v in enumerate(reversed(versions)) if v == last - at][::-1]
        if sum(files.sizes[v] for v in versions) > MOST_BYTES:
            return False
        found = CommitFiles(self._store, files, every=self._every)
        read = list(found.read(versions))
        if found.mislead(table_id):
            read = list(CommitFiles(self._store, files, joined=False).read(versions))
        for at, content in read:
            parse_commit(at, content, self._store.uri)
        with self._mutex:
            if run.first == last + 1:
                tags = [files.tags.get(v, "") for v in versions]
                run.begin_with(versions[0] if versions else last + 1, [content for _, content in read], tags)
        return True

    def _files_of(self, paths: Sequence[str]) -> dict[str, bytes]:
        with self._mutex:
            known = {path: content for path, content in self._files.items() if path in paths}
        wanted = [path for path in paths if path not in known]
        known |= zip(
            wanted, self._store.scheduler.beside([partial(self._store.read, path) for path in wanted]), strict=True
        )
        with self._mutex:
            self._files = dict(known)
        return known
