"""Commit bundles: files beside a Delta log that hold many commits each, so that a reader needs few requests.

A bundle is never trusted alone: a commit of it counts only if the log's own file has the same size and tag.
`CommitBundler` writes the bundles of a table, `CommitFiles` reads them.
"""

from __future__ import annotations

import json
import logging
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, Final

from kafkalike.delta.actions import log_name, parse_commit
from kafkalike.delta.damage import opened, sealed
from kafkalike.delta.log_files import READ_BESIDE, LogFiles, block_of, joined_name
from kafkalike.storage.port import Storage

MOST_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of commits in a bundle, before compression. A hundred commits of one data file each have 0.1 MB; of a
hundred files each, 4 MB."""

_LEVEL: Final = 1
"""Level of zlib: 1 ms of work leaves a tenth of the bytes."""


def pressed(contents: Sequence[bytes]) -> bytes:
    """Compress some contents into one piece; a bundle may hold several pieces in a row."""
    return zlib.compress(b"".join(contents), _LEVEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleHeader:
    """Header of a bundle."""

    table_id: str
    """Id of the table that the commits belong to."""
    first: int
    """Version of the first commit."""
    sizes: Sequence[int]
    """Sizes of the commit files, bytes, from the first version on."""
    tags: Sequence[str]
    """Tags of the commit files, see `Entry.tag`; an unknown tag is empty."""
    files: Mapping[str, int] = field(default_factory=dict)
    """Data files in the bundle with their sizes, bytes: all data files of the last version of a control table."""

    def packed(self, pieces: Sequence[bytes]) -> bytes:
        """Return the bundle's file.

        Args:
            pieces: commits, then data files, in order, each piece made by `pressed`.
        """
        said = {
            "table": self.table_id,
            "first": self.first,
            "sizes": list(self.sizes),
            "tags": list(self.tags),
            "files": list(self.files.items()),
        }
        return sealed(json.dumps(said, separators=(",", ":")).encode() + b"\n" + b"".join(pieces))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitBundle:
    """Commits of consecutive versions, and data files of a control table."""

    table_id: str
    first: int
    contents: Sequence[bytes]
    """Contents of the commit files, in order."""
    tags: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)

    def packed(self) -> bytes:
        """Return the bundle's file."""
        about = BundleHeader(
            table_id=self.table_id,
            first=self.first,
            sizes=[len(content) for content in self.contents],
            tags=self.tags,
            files={path: len(content) for path, content in self.files.items()},
        )
        return about.packed([pressed([*self.contents, *self.files.values()])])


def unpacked(content: bytes) -> CommitBundle:
    """Parse a bundle's file.

    Raises:
        ValueError: the file is not a bundle, is damaged, or has another release's format.
    """
    said, _, body = opened(content).partition(b"\n")
    try:
        about = _about(json.loads(said))
        sizes = [*about.sizes, *about.files.values()]
        whole = _inflated(body, sum(sizes))
    except (KeyError, TypeError, RecursionError, zlib.error) as cause:
        raise ValueError(f"it does not hold a valid bundle: {cause!r}") from cause
    parts, at = list[bytes](), 0
    for size in sizes:
        parts.append(whole[at : at + size])
        at += size
    commits = len(about.sizes)
    return CommitBundle(
        table_id=about.table_id,
        first=about.first,
        contents=parts[:commits],
        tags=about.tags,
        files=dict(zip(about.files, parts[commits:], strict=True)),
    )


def _inflated(body: bytes, size: int) -> bytes:
    parts, left = list[bytes](), size
    while body:
        inflate = zlib.decompressobj()
        # One byte more than allowed, to notice a bundle that is too long.
        parts.append(inflate.decompress(body, left + 1))
        left -= len(parts[-1])
        if left < 0 or not inflate.eof:
            break
        body = inflate.unused_data
    else:
        if not left:
            return b"".join(parts)
    raise ValueError(f"it does not hold {size} bytes")


def _about(found: Any) -> BundleHeader:  # noqa: ANN401 - JSON
    table_id, first, sizes, tags = found["table"], found["first"], found["sizes"], found["tags"]
    files = dict(found["files"])
    numbers = [first, *sizes, *files.values()]
    texts = [table_id, *tags, *files]
    if (
        any(type(number) is not int or number < 0 for number in numbers)
        or any(type(text) is not str for text in texts)
        or len(tags) != len(sizes)
        or sum(numbers) - first > MOST_BYTES
    ):
        raise TypeError(found)
    return BundleHeader(table_id=table_id, first=first, sizes=sizes, tags=tags, files=files)


def proven(found: CommitBundle, block: int, files: LogFiles) -> dict[int, bytes]:
    """Return the commits of a bundle that the log confirms, by version: a reader need not read their own files.

    A commit is left out if the list has no file for it, or one with another size or tag, because a repair or another
    table has replaced it. Nothing is confirmed if two commits of the list share a tag: their contents always differ, so
    the storage's tags prove nothing.

    Args:
        found: the bundle of a block.
        block: the block, see `block_of`.
        files: a list of the log.
    """
    if len(set(files.tags.values())) < len(files.tags):
        return {}
    return {
        version: content
        for version, (content, tag) in enumerate(zip(found.contents, found.tags, strict=True), found.first)
        if block_of(version) == block and _same(content, tag, files.sizes.get(version), files.tags.get(version))
    }


def _same(content: bytes, tag: str, listed_size: int | None, listed_tag: str | None) -> bool:
    return bool(tag) and tag == listed_tag and len(content) == listed_size


_log = logging.getLogger(__name__)

EVERY: Final = 4
"""A writer bundles its commits at every fourth version, so a reader opens at most three commit files by themselves."""

EACH: Final = 1
"""`EVERY` for rarely changed tables: each commit is bundled at once."""


class CommitFiles:
    """Reads the commit files of one log in an object store.

    Args:
        store: the table.
        files: a list of its log.
        joined: False ignores bundles.
        every: `EVERY` or `EACH`, as the table's writers have it. Commits that cannot be bundled yet are read beside the
            bundles.
    """

    def __init__(self, store: Storage, files: LogFiles, *, joined: bool = True, every: int = EVERY) -> None:
        self._store = store
        self._files = files
        self._joined = joined and store.scheduler.combines
        self._every = every
        self.tables: set[str] = set()
        """Ids of the tables whose bundles were used."""
        self.carried: dict[str, bytes] = {}
        """Contents of the data files in these bundles, by path."""

    def read(self, versions: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Read the files of some versions, in order.

        Args:
            versions: in order; all are in the list of the log.

        Raises:
            FileNotFoundError: a file was removed since the log was listed.
            OSError: the storage does not answer.
        """
        blocks = [(block, list(part)) for block, part in groupby(versions, block_of)]
        for at in range(0, len(blocks), READ_BESIDE):
            yield from self._blocks(blocks[at : at + READ_BESIDE])

    def mislead(self, table_id: str) -> bool:
        """Return True if bundles of another table were used: then read again with `joined=False`.

        Such commits fit by chance where a storage's tags are modification times.

        Args:
            table_id: the id of this table.
        """
        return bool(self.tables) and self.tables != {table_id}

    def _blocks(self, blocks: Sequence[tuple[int, list[int]]]) -> Iterator[tuple[int, bytes]]:
        found = self._believed(blocks) if self._joined else {}
        for _, versions in blocks:
            left = [v for v in versions if v not in found]
            # Read in parts, because the caller stops at a damaged commit.
            rounds = (left[n : n + READ_BESIDE] for n in range(0, len(left), READ_BESIDE))
            singles = (part for round_ in rounds for part in self._singles(round_))
            for version in versions:
                yield (version, found.pop(version)) if version in found else next(singles)

    def _singles(self, versions: Sequence[int]) -> list[tuple[int, bytes]]:
        contents = self._store.scheduler.beside([partial(self._store.read, log_name(v)) for v in versions])
        return list(zip(versions, contents, strict=True))

    def _believed(self, blocks: Sequence[tuple[int, list[int]]]) -> dict[int, bytes]:
        """Return the commits that bundles hold, and those too late for any bundle, read beside the bundles."""
        latest = blocks[-1][1][-1]
        late = [v for v in blocks[-1][1] if v > latest - latest % self._every]
        wanted = [b for b, versions in blocks if b in self._files.joined and set(versions).difference(late)]
        if not wanted:
            return {}
        answers = self._store.scheduler.beside(
            [*(partial(self._open, block) for block in wanted), *(partial(self._single, v) for v in late)]
        )
        found: dict[int, bytes] = {}
        for one in answers:
            found |= one
        return found

    def _open(self, block: int) -> dict[int, bytes]:
        """Return the confirmed commits of a bundle; none if it cannot be read."""
        try:
            joined: CommitBundle = unpacked(self._store.read(joined_name(block)))
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


_FEWEST: Final = 2
"""Fewest commits for which a bundle is written."""


class _Run:
    """Consecutive commits of one block. They are compressed in pieces, each commit once."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.whole = first == _first_of(block_of(first))
        """True if the run starts with the block's first version."""
        self.sizes: list[int] = []
        self.tags: list[str] = []
        self.bytes = 0
        self._pieces: list[bytes] = []
        self._loose: list[bytes] = []

    @property
    def next(self) -> int:
        """The version after the last commit of the run."""
        return self.first + len(self.sizes)

    def add(self, content: bytes, tag: str) -> None:
        """Append the next commit."""
        self.sizes.append(len(content))
        self.tags.append(tag)
        self.bytes += len(content)
        if self.bytes <= MOST_BYTES:
            self._loose.append(content)

    def begin_with(self, first: int, contents: Sequence[bytes], tags: Sequence[str]) -> None:
        """Prepend all commits of the block below this run.

        Args:
            first: version of the first of them.
            contents: their files, in order.
            tags: their tags, in order.
        """
        self.sizes = [*(len(content) for content in contents), *self.sizes]
        self.tags = [*tags, *self.tags]
        self.bytes += sum(map(len, contents))
        self._pieces = [*([pressed(contents)] if contents else []), *self._pieces]
        self.first, self.whole = first, True

    def pieces(self) -> list[bytes]:
        """Return all pieces. Commits beyond `MOST_BYTES` are missing."""
        if self._loose:
            self._pieces.append(pressed(self._loose))
            self._loose = []
        return list(self._pieces)


def _first_of(block: int) -> int:
    return block + 1 if block else 0


class CommitBundler:
    """Bundles the commits of one table. Thread-safe.

    It keeps the latest consecutive commits that this process wrote or read, of the current block and the one before, so
    that a lone writer reads no commit.

    Args:
        store: the table.
        every: see `CommitFiles`.
    """

    def __init__(self, store: Storage, every: int) -> None:
        self._store = store
        self.every = every
        self._mutex = threading.Lock()
        self._run = _Run(-1)
        self._earlier = self._run
        self._files: dict[str, bytes] = {}

    def note(self, version: int, content: bytes) -> None:
        """Keep a commit that this process made."""
        tag = self._store.scheduler.tag(log_name(version))
        with self._mutex:
            if version != self._run.next or block_of(version) != block_of(self._run.first):
                self._earlier, self._run = self._run, _Run(version)
            if tag:
                self._run.add(content, tag)
            else:
                # The answer to the put was lost: `join` reads the commit again.
                self._run = _Run(version + 1)

    def join(self, version: int, table_id: str, paths: Sequence[str] = ()) -> None:
        """Write the bundle of a block, up to a version or to a later known one.

        Args:
            version: the last one to include.
            table_id: the table's.
            paths: data files to include.

        Raises:
            LogCorruptError: a commit is damaged.
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
        """Return the run that holds a version; an empty run after it if the version is unknown."""
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
        """Read the commits below a run in its block; return False if they are too many bytes.

        Commits that clean-up removed from the log are left out.
        """
        last = run.first - 1
        files = LogFiles.listed(self._store, block_of(last))
        versions = [v for v in files.commits if _first_of(block_of(last)) <= v <= last]
        # Keep the versions that reach the last one without a gap.
        versions = [v for at, v in enumerate(reversed(versions)) if v == last - at][::-1]
        if sum(files.sizes[v] for v in versions) > MOST_BYTES:
            return False
        found = CommitFiles(self._store, files, every=self.every)
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
