"""Joined content: the commits of some versions ↔ the file that holds them all, and what of it a reader may believe.

The file is an addition to a log that is right without it. It holds the commit files as they are, so whoever reads it
knows exactly what those say, which Delta's own log compaction does not keep: its files have no `commitInfo`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.delta.log_files import LogFiles, block_of
from kafkalike.delta.sealed import opened, sealed

MOST_BYTES: Final = 64 * 1024 * 1024
"""Bytes of commits that one file holds at most, before they are compressed; a hundred commits of one data file each
have 0.1 MB, of a hundred files each 4 MB."""

_LEVEL: Final = 1
"""zlib's: a tenth of the bytes is left, after 1 ms."""


def pressed(contents: Sequence[bytes]) -> bytes:
    """Some contents, compressed; pieces made by this can stand one after the other."""
    return zlib.compress(b"".join(contents), _LEVEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a joined file holds."""

    table_id: str
    """Of the table whose commits they are."""
    first: int
    """The first version."""
    sizes: Sequence[int]
    """Bytes of the commit files of it and those after it."""
    tags: Sequence[str]
    """What the storage calls their contents, see `Entry.tag`; empty where that is not known."""
    files: Mapping[str, int] = field(default_factory=dict)
    """Data files that are in it too, with their sizes: all that the last version has, of a control table."""

    def packed(self, pieces: Sequence[bytes]) -> bytes:
        """The file.

        Args:
            pieces: `pressed` commits, then data files, in order.
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
class Joined:
    """Commits of consecutive versions, and data files of a control table."""

    table_id: str
    first: int
    contents: Sequence[bytes]
    """The commit files."""
    tags: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)

    def packed(self) -> bytes:
        """The file that holds them."""
        about = About(
            table_id=self.table_id,
            first=self.first,
            sizes=[len(content) for content in self.contents],
            tags=self.tags,
            files={path: len(content) for path, content in self.files.items()},
        )
        return about.packed([pressed([*self.contents, *self.files.values()])])


def unpacked(content: bytes) -> Joined:
    """What a file holds.

    Raises:
        ValueError: it is no such file, is damaged, or another release has made it.
    """
    said, _, body = opened(content).partition(b"\n")
    try:
        about = _about(json.loads(said))
        sizes = [*about.sizes, *about.files.values()]
        whole = _inflated(body, sum(sizes))
    except (KeyError, TypeError, RecursionError, zlib.error) as cause:
        raise ValueError(f"it does not hold what it should: {cause!r}") from cause
    parts, at = list[bytes](), 0
    for size in sizes:
        parts.append(whole[at : at + size])
        at += size
    commits = len(about.sizes)
    return Joined(
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
        # One more than it may have, so that too much is seen.
        parts.append(inflate.decompress(body, left + 1))
        left -= len(parts[-1])
        if left < 0 or not inflate.eof:
            break
        body = inflate.unused_data
    else:
        if not left:
            return b"".join(parts)
    raise ValueError(f"it does not hold {size} bytes")


def _about(found: Any) -> About:  # noqa: ANN401 - JSON
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
    return About(table_id=table_id, first=first, sizes=sizes, tags=tags, files=files)


def proven(found: Joined, block: int, files: LogFiles) -> dict[int, bytes]:
    """The commits of a joined file that the log has so: a reader need not read those by themselves.

    Args:
        found: what the file of a block holds.
        block: which one.
        files: a list of the log.

    Returns:
        By version. A commit whose own file has another size, or another content by the storage's name for it, is not
        among them: somebody has replaced it, as a repair does, or the table. What was not listed is of no use either,
        nor is anything where the storage has one name for two commits, whose contents are never the same.
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
