"""Roll forward: applies decided passes to all of their topics and groups; any client may do it, and resume it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkalike.delta.actions import log_name, parse_commit
from kafkalike.delta.checkpoint import checkpoint_name, name_last
from kafkalike.delta.commit_file import CommitFile
from kafkalike.delta.damage import storage_errors
from kafkalike.delta.layout import MIRRORS
from kafkalike.delta.log_files import LogFiles, last_checkpoint
from kafkalike.delta.table_state import REPAIR
from kafkalike.errors import KafkaError, LogCorruptError, MirrorError
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.mirror_offsets import offset_rows
from kafkalike.replication.mirrors.mirror_manifest import MirrorManifest, TopicPart, load_manifest, pass_name

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.cluster_state import ClusterState
    from kafkalike.model.group_state import GroupRow, GroupsState
    from kafkalike.model.topic import TopicInfo
    from kafkalike.storage.port import Storage

LONG_SECONDS: Final = 600.0
"""A helper that was stopped for so long between a look and a put may have put below a checkpoint."""


def finish_all(target: Cluster, problems: dict[str, KafkaError]) -> Iterator[str]:
    """Bring all decided passes of a cluster's mirrors to their end.

    Args:
        target: the cluster with the mirrors.
        problems: gets, by topic, what went wrong; the other topics go on.

    Yields:
        A word after each act.
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
    """Name the mirrors of which a decided pass can never be brought, as its file is gone.

    Args:
        target: the cluster with the mirrors.
        problems: gets them.
    """
    with storage_errors(target.store.uri):
        state = target.metadata.refresh()
        for name, info in state.topics.items():
            mirror = info.mirror
            if name in problems or mirror is None or not mirror.run:
                continue
            # In this order: who brings a pass to its end removes its file last.
            if target.mirror_root.at(MIRRORS).look(pass_name(mirror.run)) is not None:
                continue
            if not has_version(target.mirror_files(info), max(mirror.version, 0)):
                problems[name] = _lost(name, f"{target.mirror_root.uri}/{MIRRORS}/{pass_name(mirror.run)} is gone")


def has_version(files: Storage, version: int) -> bool:
    """Whether a mirror's table has a version, or a later checkpoint."""
    if files.look(log_name(version)) is not None:
        return True
    return max(LogFiles.listed(files, version).checkpoints, default=-1) >= version


def _note_lost(state: ClusterState, run: str, why: str, problems: dict[str, KafkaError]) -> None:
    for name, info in state.topics.items():
        if info.mirror is not None and info.mirror.run == run:
            problems[name] = _lost(name, why)


def _lost(name: str, why: str) -> LogCorruptError:
    return LogCorruptError(
        f"{name}: what was decided for this mirror cannot be brought: {why}. Delete it and mirror the topic anew, or "
        "promote it as it is, by force"
    )


def finish(target: Cluster, manifest: MirrorManifest, problems: dict[str, KafkaError]) -> Iterator[str]:
    """Bring a decided pass to its end: versions, then committed offsets, then its files go.

    Each step is done once, however many do it, and however often.
    """
    failed = False
    for part in manifest.parts:
        info = mirror_of(target.metadata.state, part)
        if info is None:
            # Deleted, or promoted: then it had this pass before.
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
    """The topic of a part, as long as it is a mirror."""
    info = state.topics.get(part.name)
    if info is None or info.mirror is None:
        return None
    # One that was deleted and made anew has the same id, and another folder.
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
        # The one that it ends with is compared; those before it were put before it.
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
            # The topic was deleted meanwhile, with its folder.
            return
        yield "version"
    if part.checkpoint and part.after + 1 < part.first:
        # Who follows the table looks for this version alone, and loads the table anew because of it.
        files.put_if_absent(log_name(part.after + 1), _jump(part), durable=part.durable)
        yield "jumped"
    if part.checkpoint and last_checkpoint(files) < part.first:
        name_last(files, part.first, part.actions)
        yield "named"


def _restart(target: Cluster, files: Storage, part: TopicPart) -> Iterator[str]:
    """Put a checkpoint; those who follow the table see that its version is there, and load anew."""
    mirrors = target.mirror_root.at(MIRRORS)
    content = mirrors.look(part.checkpoint)
    if content is None:
        # Somebody else has finished the pass, and cleaned up.
        if checkpoint_name(part.first).rpartition("/")[2] in {e.name for e in files.list("_delta_log")}:
            return
        raise LogCorruptError(f"{mirrors.uri}/{part.checkpoint} is gone: {part.name} cannot go on")
    if zlib.crc32(content) != part.checksum:
        raise LogCorruptError(f"{mirrors.uri}/{part.checkpoint} is damaged: {part.name} cannot go on")
    faults.point("mirror.before_checkpoint")
    files.replace(checkpoint_name(part.first), content)
    yield "checkpoint"


def _jump(part: TopicPart) -> bytes:
    """A version in the place of the first one that a mirror jumps over; below a checkpoint, it counts no more."""
    time_ms = parse_commit(part.first, part.versions[0].encode(), part.name).timestamp_ms
    note = {"mirror": f"goes on at version {part.first}"}
    version = part.after + 1
    return CommitFile(
        version=version, time_ms=time_ms, operation=REPAIR, append_id=part.checkpoint, note=note
    ).content()


def _drop_if_late(files: Storage, version: int, looked: float) -> None:
    """Take a version back that was put below a checkpoint, where clean-up had made room for it."""
    if SYSTEM_CLOCK.monotonic() - looked < LONG_SECONDS:
        return
    found = LogFiles.listed(files, max(version - 1, 0))
    if version - 1 not in found.commits and any(checkpoint > version for checkpoint in found.checkpoints):
        files.remove(log_name(version), quietly=True)


def _check_not_promoted(target: Cluster, info: TopicInfo, part: TopicPart, version: int) -> None:
    """Refuse a mirror that somebody has written to; one that was promoted meanwhile goes its own way.

    Raises:
        MirrorError: the next version is not the source's.
    """
    if mirror_of(target.metadata.refresh(), part) is not None:
        raise diverged(info, version)


def diverged(info: TopicInfo, version: int) -> MirrorError:
    """The error for a mirror that has something else than its source."""
    assert info.mirror is not None
    return MirrorError(
        f"{info.name}: version {version} of the mirror's table is not that of {info.mirror.source}: the table there "
        "was repaired or restored, or somebody has written to the mirror. Promote it if it has what is wanted, or "
        "delete it and mirror the topic anew"
    )
