"""Manifest: what a pass of a mirror brings to all of its topics and groups ↔ the file that whoever comes can go by.

`__mirrors/<run>.pass`, and `__mirrors/<run>.<n>.checkpoint` for a topic that begins anew at a checkpoint. The rows of
the metadata that name a run are its decision: nobody brings anything of a pass that no row names, and a pass that one
names is brought to its end, by whoever comes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from kafkalike.errors import LogCorruptError, UnsupportedVersionError
from kafkalike.model.mirrors.offsets import MirroredOffset

FORMAT: Final = 1


def pass_name(run: str) -> str:
    """The file of a pass, in the folder of mirrors."""
    return f"{run}.pass"


def checkpoint_file(run: str, number: int) -> str:
    """The file of a checkpoint that a pass brings."""
    return f"{run}.{number}.checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a pass brings to one topic."""

    name: str
    topic_id: str
    location: str
    """Folder of the mirror's table."""
    first: int
    """Number of the first version in `versions`."""
    versions: tuple[str, ...]
    """Contents of versions; with a checkpoint, that of its version alone."""
    checkpoint: str = ""
    """File of a checkpoint of version `first`; empty where the versions follow on from what is there."""
    checksum: int = 0
    """Its CRC-32."""
    actions: int = 0
    """How many actions it has."""
    after: int = -1
    """With a checkpoint, the last version that the topic had before it."""
    durable: bool = False
    """Whether commits of the topic must survive a power failure."""

    @property
    def last(self) -> int:
        """The version that the topic has then."""
        return self.first + len(self.versions) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a pass brings."""

    run: str
    parts: Sequence[Part]
    offsets: Sequence[MirroredOffset]
    groups_version: int
    """Version of the source's table that the offsets are of."""

    def dump(self) -> bytes:
        """Its file: a line with a checksum of the second one, which says all."""
        said = {
            "v": FORMAT,
            "run": self.run,
            "parts": [asdict(part) for part in self.parts],
            "offsets": [list(offset) for offset in self.offsets],
            "groups_version": self.groups_version,
        }
        body = json.dumps(said, separators=(",", ":")).encode()
        return b'{"crc":%d}\n%b' % (zlib.crc32(body), body)


def load_manifest(content: bytes, where: str) -> Manifest:
    """The manifest of a file.

    Raises:
        LogCorruptError: it is damaged.
        UnsupportedVersionError: a newer release wrote it.
    """
    head, _, body = content.partition(b"\n")
    said: dict[str, Any] = {}
    try:
        if json.loads(head)["crc"] == zlib.crc32(body):
            said = json.loads(body)
    except (ValueError, KeyError, TypeError):
        said = {}
    if not said:
        raise LogCorruptError(f"{where} is damaged: what a mirror has decided to bring cannot be read")
    if said["v"] > FORMAT:
        raise UnsupportedVersionError(f"{where} was written by a newer kafkalike; upgrade this client")
    return Manifest(
        run=said["run"],
        parts=tuple(Part(**{**part, "versions": tuple(part["versions"])}) for part in said["parts"]),
        offsets=tuple(MirroredOffset(*offset) for offset in said["offsets"]),
        groups_version=said["groups_version"],
    )
