"""Roll forward: applies the manifest of a mirror's pass: settings, partitions, log starts, records and groups.

The manifest lies in `__mirrors/<run>.pass`, with `__mirrors/<run>.<n>.checkpoint` for each topic that restarts at a
checkpoint. A pass is decided once a row of the metadata names its run: no client applies an undecided pass, and any
client may roll a decided one forward, or resume it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kafkalike.delta.actions import log_name, parse_commit
from kafkalike.delta.checkpoint import name_last
from kafkalike.delta.commit_file import CommitFile
from kafkalike.delta.damage import storage_errors
from kafkalike.delta.layout import MIRRORS
from kafkalike.delta.log_files import LogFiles, checkpoint_name, last_checkpoint
from kafkalike.delta.table_state import REPAIR
from kafkalike.errors import KafkaError, LogCorruptError, MirrorError, UnsupportedVersionError
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.cluster_state import ClusterState, MetadataRow, log_start_row, mirror_row, topic_row
from kafkalike.model.mirror import Phase
from kafkalike.model.replication.mirror_offsets import MirroredOffset, offset_rows

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.group_rows import GroupRow
    from kafkalike.model.group_state import GroupsState
    from kafkalike.model.topic import TopicInfo
    from kafkalike.storage.port import Storage


LONG_SECONDS: Final = 600.0
"""A client that paused this long between a look and a put may have put a version below a checkpoint."""


def finish_all(target: Cluster, problems: dict[str, KafkaError]) -> Iterator[str]:
    """Apply all decided passes of a cluster's mirrors.

    Args:
        target: the cluster with the mirrors.
        problems: receives failures by topic; other topics continue.

    Yields:
        A word after each step.
    """
    with storage_errors(target.store.uri):
        state = target.metadata.refresh()
        for run in sorted({mirrored.run for mirrored in state.mirrors.values() if mirrored.run}):
            content = target.mirror_root.at(MIRRORS).look(pass_name(run))
            if content is not None:
                try:
                    manifest = load_manifest(content, f"{target.mirror_root.uri}/{MIRRORS}/{pass_name(run)}")
                except LogCorruptError as cause:
                    _note_lost(state, run, str(cause), problems)
                    continue
                yield from finish(target, manifest, problems)


def find_lost(target: Cluster, problems: dict[str, KafkaError]) -> None:
    """Find the mirrors with a decided pass that can never be applied, because its file is missing.

    Args:
        target: the cluster with the mirrors.
        problems: receives them, by topic.
    """
    with storage_errors(target.store.uri):
        state = target.metadata.refresh()
        for name, info in state.topics.items():
            mirror = info.mirror
            if name in problems or mirror is None or not mirror.run:
                continue
            # In this order, because the client that finishes a pass removes its file last.
            if target.mirror_root.at(MIRRORS).look(pass_name(mirror.run)) is not None:
                continue
            if not has_version(target.mirror_files(info), max(mirror.version, 0)):
                problems[name] = _lost(name, f"{target.mirror_root.uri}/{MIRRORS}/{pass_name(mirror.run)} is missing")


def has_version(files: Storage, version: int) -> bool:
    """Return whether a mirror's table has a version, or a later checkpoint."""
    if files.look(log_name(version)) is not None:
        return True
    return max(LogFiles.listed(files, version).checkpoints, default=-1) >= version


def _note_lost(state: ClusterState, run: str, why: str, problems: dict[str, KafkaError]) -> None:
    for name, info in state.topics.items():
        if info.mirror is not None and info.mirror.run == run:
            problems[name] = _lost(name, why)


def _lost(name: str, why: str) -> LogCorruptError:
    return LogCorruptError(
        f"{name}: a decided pass cannot be applied to this mirror: {why}. Delete it and mirror the topic again, or "
        "promote it as it is with --force"
    )


def finish(target: Cluster, manifest: MirrorManifest, problems: dict[str, KafkaError]) -> Iterator[str]:
    """Apply a decided pass: versions, then committed offsets; then remove its files.

    Each step takes effect once, however many clients repeat it.
    """
    failed = False
    for part in manifest.parts:
        info = mirror_of(target.metadata.state, part)
        if info is None:
            # Deleted, or promoted, in which case it already has this pass.
            continue
        try:
            yield from _publish(target, info, part)
        except KafkaError as error:
            problems[part.name] = error
            failed = True
    faults.point("mirror.before_offsets")
    yield "published"
    _bring_offsets(target, manifest)
    yield "offsets"
    if failed:
        return
    faults.point("mirror.before_removal")
    mirrors = target.mirror_root.at(MIRRORS)
    for part in manifest.parts:
        if part.checkpoint:
            mirrors.remove(part.checkpoint)
    mirrors.remove(pass_name(manifest.run))
    yield "removed"


def mirror_of(state: ClusterState, part: TopicPart) -> TopicInfo | None:
    """Return the topic of a part, as long as it is a mirror."""
    info = state.topics.get(part.name)
    if info is None or info.mirror is None:
        return None
    # A topic that was deleted and mirrored again has the same id and another folder.
    return info if (info.topic_id, info.location) == (part.topic_id, part.location) else None


def _bring_offsets(target: Cluster, manifest: MirrorManifest) -> None:
    if not manifest.offsets:
        return

    def plan(state: GroupsState) -> Sequence[GroupRow]:
        mirrors = target.metadata.refresh().mirrors
        began: Mapping[str, int] = {topic_id: mirrored.began_ms for topic_id, mirrored in mirrors.items()}
        return offset_rows(state, manifest.offsets, began, manifest.groups_version)

    target.groups.transact(plan)


def _publish(target: Cluster, info: TopicInfo, part: TopicPart) -> Iterator[str]:
    files = target.mirror_files(info)
    looked = SYSTEM_CLOCK.monotonic()
    found = LogFiles.listed(files)
    end = max((*found.commits, *found.checkpoints), default=-1)
    if part.checkpoint and end <= part.last:
        yield from _restart(target, files, part)
    for version, content in enumerate(part.versions, start=part.first):
        # Compare the last version; earlier ones were put before it.
        if version < end:
            continue
        faults.point("mirror.before_version")
        try:
            if files.put_if_absent(log_name(version), content.encode(), durable=part.durable):
                _drop_if_late(files, version, looked)
            elif files.look(log_name(version)) != content.encode():
                _check_not_promoted(target, info, part, version)
                return
        except FileNotFoundError:
            # The topic and its folder were deleted meanwhile.
            return
        yield "version"
    if part.checkpoint and part.after + 1 < part.first:
        # Readers that follow the table look only for this version, and it makes them load the table again.
        files.put_if_absent(log_name(part.after + 1), _jump(part), durable=part.durable)
        yield "jumped"
    if part.checkpoint and last_checkpoint(files) < part.first:
        name_last(files, part.first, part.actions)
        yield "named"


def _restart(target: Cluster, files: Storage, part: TopicPart) -> Iterator[str]:
    """Put a checkpoint; readers that follow the table see its version and load the table again."""
    mirrors = target.mirror_root.at(MIRRORS)
    content = mirrors.look(part.checkpoint)
    if content is None:
        # Another client has finished the pass and removed its files.
        if checkpoint_name(part.first).rpartition("/")[2] in {e.name for e in files.list("_delta_log")}:
            return
        raise LogCorruptError(f"{mirrors.uri}/{part.checkpoint} is missing: {part.name} cannot continue")
    if zlib.crc32(content) != part.checksum:
        raise LogCorruptError(f"{mirrors.uri}/{part.checkpoint} is damaged: {part.name} cannot continue")
    faults.point("mirror.before_checkpoint")
    files.replace(checkpoint_name(part.first), content)
    yield "checkpoint"


def _jump(part: TopicPart) -> bytes:
    """Return a substitute for the first version that a mirror skips; readers ignore it below a checkpoint."""
    time_ms = parse_commit(part.first, part.versions[0].encode(), part.name).timestamp_ms
    note = {"mirror": f"goes on at version {part.first}"}
    version = part.after + 1
    return CommitFile(
        version=version, time_ms=time_ms, operation=REPAIR, append_id=part.checkpoint, note=note
    ).content()


def _drop_if_late(files: Storage, version: int, looked: float) -> None:
    """Remove a version that was put below a checkpoint, where log cleaning had made room for it."""
    if SYSTEM_CLOCK.monotonic() - looked < LONG_SECONDS:
        return
    found = LogFiles.listed(files, max(version - 1, 0))
    if version - 1 not in found.commits and any(checkpoint > version for checkpoint in found.checkpoints):
        files.remove(log_name(version), quietly=True)


def _check_not_promoted(target: Cluster, info: TopicInfo, part: TopicPart, version: int) -> None:
    """Reject a mirror with foreign writes; ignore a mirror promoted meanwhile.

    Raises:
        MirrorError: the next version differs from the source's.
    """
    if mirror_of(target.metadata.refresh(), part) is not None:
        raise diverged(info, version)


def diverged(info: TopicInfo, version: int) -> MirrorError:
    """Return the error for a mirror that differs from its source."""
    assert info.mirror is not None
    return MirrorError(
        f"{info.name}: version {version} of the mirror's table is not that of {info.mirror.source}: the table there "
        "was repaired or restored, or another program has written to the mirror. Promote it to keep its records, or "
        "delete it and mirror the topic again"
    )


FORMAT: Final = 1


def pass_name(run: str) -> str:
    """Return the name of a pass's file in the folder of mirrors."""
    return f"{run}.pass"


def checkpoint_file(run: str, number: int) -> str:
    """Return the name of a checkpoint's file in the folder of mirrors."""
    return f"{run}.{number}.checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPart:
    """The part of a pass for one topic."""

    name: str
    topic_id: str
    location: str
    """Folder of the mirror's table."""
    first: int
    """Number of the first version in `versions`."""
    versions: tuple[str, ...]
    """Contents of versions; with a checkpoint, only that of its own version."""
    checkpoint: str = ""
    """File of a checkpoint of version `first`; empty if the versions follow the mirror's."""
    checksum: int = 0
    """CRC-32 of the checkpoint."""
    actions: int = 0
    """Number of actions in the checkpoint."""
    after: int = -1
    """With a checkpoint, the mirror's last version before it."""
    durable: bool = False
    """True if commits of the topic must survive a power failure."""

    @property
    def last(self) -> int:
        """The mirror's version after the pass."""
        return self.first + len(self.versions) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorManifest:
    """The content of a pass."""

    run: str
    parts: Sequence[TopicPart]
    offsets: Sequence[MirroredOffset]
    groups_version: int
    """Version of the source's table to which the offsets belong."""

    def dump(self) -> bytes:
        """Return the content of its file: a line with the checksum of the second line, and a line with all data."""
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
    """Parse the file of a pass.

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
        raise LogCorruptError(f"{where} is damaged: the decided pass of a mirror cannot be read")
    if said["v"] > FORMAT:
        raise UnsupportedVersionError(f"{where} was written by a newer kafkalike; upgrade this client")
    return MirrorManifest(
        run=said["run"],
        parts=tuple(TopicPart(**{**part, "versions": tuple(part["versions"])}) for part in said["parts"]),
        offsets=tuple(MirroredOffset(*offset) for offset in said["offsets"]),
        groups_version=said["groups_version"],
    )


def as_seen(state: ClusterState, seen: Mapping[str, TopicInfo]) -> bool:
    """Return whether mirrors are unchanged: neither promoted, nor updated by another pass."""
    for name, info in seen.items():
        known = state.topics.get(name)
        if known is None or known.mirror is None or info.mirror is None:
            return False
        if (known.topic_id, known.location) != (info.topic_id, info.location):
            # Deleted and mirrored again: the copied files are in another folder.
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
    """Return the rows that decide a pass for some topics, with changes of their metadata.

    Args:
        state: the target's state.
        mirrors: names of the topics.
        theirs: the topics of the source, by name.
        manifest: the content of the pass.
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
    """Return whether the metadata of a mirror differ from its source's."""
    same = mine.num_partitions == theirs.num_partitions and dict(mine.configs) == dict(theirs.configs)
    return not same or any(theirs.log_start(p) > mine.log_start(p) for p in theirs.log_starts)


def _rows(first: int, mine: TopicInfo, theirs: TopicInfo, now_ms: int) -> list[MetadataRow]:
    """Return rows that copy the source's metadata to a mirror."""
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
