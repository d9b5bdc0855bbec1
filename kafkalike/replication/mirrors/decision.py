"""Decision: a pass and the target's metadata in; the rows that decide it, if nobody was faster, out (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalike.model.metadata_rows import MetadataRow, log_start_row, mirror_row, topic_row
from kafkalike.model.mirrored import Phase
from kafkalike.replication.mirrors.manifest import Manifest

if TYPE_CHECKING:
    from kafkalike.model.cluster_state import ClusterState
    from kafkalike.model.topic import TopicInfo


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
    manifest: Manifest,
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
