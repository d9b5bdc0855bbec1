"""Commits: a topic in, its table commits for people out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalike.delta.actions import append_info, log_name, parse_commit
from kafkalike.errors import LogCorruptError
from kafkalike.log.topic.segment_files import segment_of, versions
from kafkalike.log.topic.topic_history import transaction_of
from kafkalike.model.group_commit.waiting_appends import ids_of
from kafkalike.model.segments import Segment
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo:
    """A table commit of a topic, for people: `dump-log` and `verify`."""

    version: int
    timestamp_ms: int
    operation: str
    append_id: str | None
    added: tuple[Segment, ...]
    removed: tuple[str, ...]
    engine: str
    fences: str | None = None
    """Id of the append that was surely not written, as this commit has the version that it could have got."""
    parts: tuple[str, ...] = ()
    """Ids of the appends of several writers that it took, of those that waited beside the table."""
    transaction: int | None = None
    """Number of the transaction whose records it brought: of its decision's row in `__consumer_offsets`."""


def list_commits(cluster: Cluster, topic: str) -> Iterator[CommitInfo]:
    """The table commits of a topic that its log still holds, oldest first; none for a cluster in memory."""
    reading = getattr(cluster, "files_of", None)
    if reading is None:
        return
    files: Storage = reading(cluster.topic(topic))
    for version in versions(files):
        try:
            commit = parse_commit(version, files.read(log_name(version)), files.uri)
        except FileNotFoundError:
            # Cleaned up meanwhile.
            continue
        except LogCorruptError as cause:
            # The other commits are listed; `find_flaws` names the damaged ones.
            _log.warning("%s", cause)
            continue
        yield CommitInfo(
            version=version,
            timestamp_ms=commit.timestamp_ms,
            operation=commit.operation,
            append_id=commit.append_id,
            added=tuple(segment_of(a, files) for a in commit.adds),
            removed=commit.removes,
            engine=commit.engine,
            fences=commit.fences,
            parts=ids_of(append_info(commit.user_metadata)),
            transaction=transaction_of(commit.user_metadata),
        )
