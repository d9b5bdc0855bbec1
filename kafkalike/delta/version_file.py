"""Version file: the bytes of a version in; whose it is, and which configuration it puts in force, out. And seals."""

from __future__ import annotations

import json
import re
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from kafkalike.delta.actions import APPEND_KEY, CHECKSUM_KEY, Add, TableCommit, parse_commit
from kafkalike.delta.commit_file import CommitFile
from kafkalike.delta.table_state import REPLICAS, SEAL
from kafkalike.model.maintenance.compaction import HOLES, cleaner_app
from kafkalike.model.replication.registration import Configuration, Replica

APPLICATION: Final = REPLICAS
"""Beginning of the name of the Delta transaction by which a version says a configuration."""

_APPLICATION: Final = APPLICATION.encode()


_APPEND: Final = re.compile(rb'"userMetadata":\s?"\{\\"' + APPEND_KEY.encode() + rb'\\":\s?\\"([0-9A-Za-z-]+)\\"')
"""Where our own writers say the id, in the first line."""


@dataclass(frozen=True)
class VersionFile:
    """The content of a version, byte by byte; a `Version` of the rules."""

    data: bytes

    @cached_property
    def commit(self) -> TableCommit:
        """What it says, its number excepted.

        Raises:
            LogCorruptError: it is damaged.
        """
        return parse_commit(0, self.data, "a replica")

    @property
    def append_id(self) -> str:
        """Whose it is; empty for those of foreign writers."""
        # Readers ask it of each version: it need not be parsed for that.
        quick = _APPEND.search(self.data.partition(b"\n")[0])
        return quick[1].decode() if quick else self.commit.append_id or ""

    @property
    def configuration(self) -> Configuration | None:
        """The configuration of the versions after it, if it is a seal."""
        if _APPLICATION not in self.data:
            # Nearly all: they need not be parsed for it.
            return None
        return newest_configuration(self.commit.txns)


def is_whole(content: bytes) -> bool:
    """Whether a version's file is what its writer has made, as far as its checksum says; foreign writers have none."""
    first, _, rest = content.partition(b"\n")
    try:
        wanted = json.loads(first).get("commitInfo", {}).get(CHECKSUM_KEY)
    except (ValueError, AttributeError):
        return False
    return wanted is None or wanted == zlib.crc32(rest)


class LostFile(NamedTuple):
    """A data file that a log names and nobody has any more."""

    add: Add
    txns: Mapping[str, int]
    """Latest versions of the applications that have written the log."""

    @property
    def holes(self) -> dict[str, int]:
        """The application that says below which offset of the file's partition records may be missing."""
        last = (self.add.stats.get("maxValues") or {}).get("offset")
        if self.add.partition is None or last is None:
            # Of a control table, or a foreign writer's without statistics.
            return {}
        app = cleaner_app(self.add.partition, HOLES)
        return {app: max(int(last) + 1, self.txns.get(app, 0))}


def seal(configuration: Configuration, time_ms: int, lost: Sequence[LostFile] = ()) -> VersionFile:
    """A version that puts a configuration in force.

    Args:
        configuration: which one.
        time_ms: now, ms.
        lost: data files that nobody has any more, after an unclean election; it takes them out, and says that their
            records are missing.
    """
    holes: dict[str, int] = {}
    for file in lost:
        holes |= {app: max(below, holes.get(app, 0)) for app, below in file.holes.items()}
    wanted = CommitFile(
        version=0,
        time_ms=time_ms,
        operation=SEAL,
        append_id=uuid.uuid4().hex,
        removes=[file.add for file in lost],
        txns={application(configuration): configuration.epoch, **holes},
        note={"lost": [file.add.path for file in lost]} if lost else {},
    )
    return VersionFile(wanted.content())


def application(configuration: Configuration) -> str:
    """The Delta application that says a chain, such as `kafkalike.replicas:1,3.2,2`: broker 3's has life 2."""
    names = (f"{r.broker}.{r.life}" if r.life else str(r.broker) for r in configuration.chain)
    return APPLICATION + ",".join(names)


def newest_configuration(txns: Mapping[str, int]) -> Configuration | None:
    """The configuration of the highest epoch among a table's Delta transactions; None when there is none."""
    found = [(epoch, name) for name, epoch in txns.items() if name.startswith(APPLICATION)]
    if not found:
        return None
    epoch, name = max(found)
    return Configuration(epoch, tuple(map(_replica, name.removeprefix(APPLICATION).split(","))))


def _replica(name: str) -> Replica:
    broker, _, life = name.partition(".")
    return Replica(int(broker), int(life or 0))
