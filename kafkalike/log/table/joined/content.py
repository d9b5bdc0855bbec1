"""Joined content: the commits of some versions ↔ the file that holds them all, and what of it a reader may believe.

The file is an addition to a log that is right without it. It holds the commit files as they are, so whoever reads it
knows exactly what those say, which Delta's own log compaction does not keep: its files have no `commitInfo`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafkalike.log.table.log_files import LogFiles, block_of
from kafkalike.log.table.sealed import opened, sealed

MOST_BYTES: Final = 2 * 1024 * 1024
"""Bytes of commits that one file holds at most; a hundred commits of one data file each have 0.1 MB."""

_LEVEL: Final = 1
"""zlib's: a tenth of the bytes is left, after 1 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Commits of consecutive versions."""

    table_id: str
    """Of the table whose commits they are."""
    first: int
    """The first version."""
    contents: Sequence[bytes]
    """The commit files."""

    def packed(self) -> bytes:
        """The file that holds them."""
        about = {"table": self.table_id, "first": self.first, "sizes": [len(content) for content in self.contents]}
        body = zlib.compress(b"".join(self.contents), _LEVEL)
        return sealed(json.dumps(about, separators=(",", ":")).encode() + b"\n" + body)


def unpacked(content: bytes) -> Joined:
    """What a file holds.

    Raises:
        ValueError: it is no such file, is damaged, or only a newer release can read it.
    """
    about, _, body = opened(content).partition(b"\n")
    try:
        table_id, first, sizes = _about(json.loads(about))
        inflate = zlib.decompressobj()
        whole = inflate.decompress(body, sum(sizes) + 1)
    except (KeyError, TypeError, RecursionError, zlib.error) as cause:
        message = f"it does not hold what it should: {cause!r}"
        raise ValueError(message) from cause
    if len(whole) != sum(sizes) or not inflate.eof:
        message = f"it holds {len(whole)} bytes, and not {sum(sizes)}"
        raise ValueError(message)
    contents, at = list[bytes](), 0
    for size in sizes:
        contents.append(whole[at : at + size])
        at += size
    return Joined(table_id=table_id, first=first, contents=contents)


def _about(found: Any) -> tuple[str, int, list[int]]:  # noqa: ANN401 - JSON
    table_id, first, sizes = found["table"], found["first"], found["sizes"]
    whole = [first, *sizes]
    if not isinstance(table_id, str) or any(type(n) is not int or n < 0 for n in whole) or sum(sizes) > MOST_BYTES:
        raise TypeError(found)
    return table_id, first, list(sizes)


def proven(found: Joined, block: int, files: LogFiles) -> dict[int, bytes]:
    """The commits of a joined file that the log has so: a reader need not read those by themselves.

    Args:
        found: what the file of a block holds.
        block: which one.
        files: a list of the log, made before the file was read.

    Returns:
        By version. A commit whose own file has another size is not among them, nor one whose file is younger than the
        joined one: somebody has replaced it, as a repair does, or the table. What was not listed is of no use either.
    """
    joined_ms = files.joined.get(block)
    if joined_ms is None:
        return {}
    return {
        version: content
        for version, content in enumerate(found.contents, found.first)
        if block_of(version) == block and _same(version, content, files.sizes, files.modified_ms, joined_ms)
    }


def _same(
    version: int, content: bytes, sizes: Mapping[int, int], modified_ms: Mapping[int, int], joined_ms: int
) -> bool:
    return sizes.get(version) == len(content) and modified_ms[version] <= joined_ms
