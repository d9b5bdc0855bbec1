"""Mirror manifest: the file that says what a pass brings to all of its topics and groups, and the rows that decide it.

The files are `__mirrors/<run>.pass`, and `__mirrors/<run>.<n>.checkpoint` for a topic that restarts at a checkpoint.
The rows of the metadata that name a run are its decision: nobody applies a pass that no row names, and any client rolls
forward a pass that a row names.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kafkalike.errors import LogCorruptError, UnsupportedVersionError
from kafkalike.model.metadata_rows import MetadataRow, log_start_row, mirror_row, topic_row
from kafkalike.model.mirror import Phase
from kafkalike.model.mirror_offsets import MirroredOffset

if TYPE_CHECKING:
    from kafkalike.model.cluster_state import ClusterState
    from kafkalike.model.topic import TopicInfo


FORMAT: Final = 1


def pass_name(run: str) -> str:
    """The file of a pass, in the folder of mirrors."""
    return f"{run}.pass"


def checkpoint_file(run: str, number: int) -> str:
    """The file of a checkpoint that a pass brings."""
    return f"{run}.{number}.checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPart:
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
class MirrorManifest:
    """What a pass brings."""

    run: str
    parts: Sequence[TopicPart]
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


def load_manifest(content: bytes, where: str) -> MirrorManifest:
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
    return MirrorManifest(
        run=said["run"],
        parts=tuple(TopicPart(**{**part, "versions": tuple(part["versions"])}) for part in said["parts"]),
        offsets=tuple(MirroredOffset(*offset) for offset in said["offsets"]),
        groups_version=said["groups_version"],
    )


def as_seen(state: ClusterState, seen: Mapping[str, TopicInfo]) -> bool:
    """Whether mirrors stand as they did: neither promoted, nor brought further by another mirror."""
    for name, info in seen.items():
        known = state.topics.get(name)
        if known is None or known.mirror is None or info.mirror is None:
            return False
        if (known.topic_id, known.location) != (info.topic_id, info.location):
            # Deleted, and made anew: what was copied is in another folder.
            return False
        if known.mirror.phase is not Phase.FOLLOWING or known.mirror.run != info.mirror.run:
            return False
    return True


def decision(
    state: ClusterState,
    mirrors: Iterable[str],
    theirs: Mapping[str, TopicInfo],
    manifest: MirrorManifest,
    now_ms: int,
) -> list[MetadataRow]:
    """The rows that decide a pass for some topics, with what has changed of their metadata.

    Args:
        state: of the target.
        mirrors: names of the topics.
        theirs: the topics of the source, by name.
        manifest: what the pass brings.
        now_ms: the target's time.
    """
    last = {part.name: part.last for part in manifest.parts}
    rows: list[MetadataRow] = []
    for name in mirrors:
        info = state.topics[name]
        assert info.mirror is not None
        rows += _rows(state.seq + len(rows) + 1, info, theirs[name], now_ms)
        brought = replace(
            info.mirror,
            run=manifest.run,
            version=max(last.get(name, -1), info.mirror.version),
            groups_version=manifest.groups_version,
            time_ms=now_ms,
        )
        what = f"mirrored up to version {brought.version}"
        rows.append(mirror_row(state.seq + len(rows) + 1, info, brought, what))
    return rows


def differs(mine: TopicInfo, theirs: TopicInfo) -> bool:
    """Whether the metadata of a mirror are not its source's."""
    same = mine.num_partitions == theirs.num_partitions and dict(mine.configs) == dict(theirs.configs)
    return not same or any(theirs.log_start(p) > mine.log_start(p) for p in theirs.log_starts)


def _rows(first: int, mine: TopicInfo, theirs: TopicInfo, now_ms: int) -> list[MetadataRow]:
    """Rows that make the metadata of a mirror its source's."""
    rows: list[MetadataRow] = []
    if mine.num_partitions != theirs.num_partitions or dict(mine.configs) != dict(theirs.configs):
        total = max(mine.num_partitions, theirs.num_partitions)
        after = replace(mine, num_partitions=total, configs=theirs.configs)
        rows.append(topic_row(first, now_ms, after, "changed as its source"))
    moved: dict[tuple[str, str], dict[int, int]] = {}
    for partition, start in theirs.log_starts.items():
        if start.offset > mine.log_start(partition):
            moved.setdefault((start.reason, start.run), {})[partition] = start.offset
    for (reason, run), starts in sorted(moved.items()):
        rows.append(log_start_row(first + len(rows), now_ms, mine, starts, reason=reason, run=run))
    return rows
