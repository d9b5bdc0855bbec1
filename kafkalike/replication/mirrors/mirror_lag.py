"""Mirror lag: how far each mirror of a cluster is behind its source."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.delta.actions import log_name, parse_commit
from kafkalike.delta.damage import storage_errors
from kafkalike.delta.layout import MIRRORS
from kafkalike.delta.log_files import LogFiles
from kafkalike.errors import KafkaError

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.topic import TopicInfo
    from kafkalike.storage.port import Storage

COUNTED: Final = 2_000
"""Maximum number of versions whose bytes are counted, because each one has to be read."""


@dataclass(slots=True, kw_only=True)
class MirrorLag:
    """The state of a mirror and its distance from its source."""

    topic: str
    source: str
    """Root of the source cluster."""
    phase: str
    """`following` or `promoting`."""
    version: int
    """Version of the source's table that the mirror has; -1 before the first pass."""
    changed_ms: int
    """When it reached that version, ms."""
    seen_ms: int | None
    """When a pass last found the mirror complete, ms; a promotion loses later records."""
    problem: str
    """The problem that the last pass reported; empty if there was none."""
    source_version: int | None = None
    """Newest version of the source; None if the source was not asked, or does not answer."""
    lag_versions: int | None = None
    lag_bytes: int | None = None
    """Bytes of data files in the missing versions; None if there are more than `COUNTED` of them."""
    lag_seconds: float | None = None
    """Age of the oldest missing version; 0 if none is missing."""


def mirror_lags(
    target: Cluster, source: Cluster | None = None, wanted: Callable[[str], bool] = lambda _: True
) -> list[MirrorLag]:
    """Return the state of mirrors, by name.

    Args:
        target: the cluster with the mirrors.
        source: the source cluster, to measure lag; None: lag is not measured.
        wanted: selects topics by name.

    Raises:
        KafkaStorageError, LogCorruptError: the target cannot be read.
    """
    seen, problems, away = dict[str, int](), dict[str, str](), ""
    try:
        seen, problems = _seen(target.mirror_root.at(MIRRORS))
    except KafkaError as error:
        # The root with the mirrors may be unreachable: report that with the mirrors, instead of failing.
        away = str(error)
    found = []
    for name, info in sorted(target.topics().items()):
        mirror = info.mirror
        if mirror is None or not wanted(name):
            continue
        standing = MirrorLag(
            topic=name,
            source=mirror.source,
            phase=mirror.phase.value,
            version=mirror.version,
            changed_ms=mirror.time_ms,
            seen_ms=seen.get(name),
            problem=problems.get(name, away),
        )
        if source is not None and source.root == mirror.source:
            _ask(standing, source, info, target.clock.now_ms())
        found.append(standing)
    return found


def _seen(files: Storage) -> tuple[dict[str, int], dict[str, str]]:
    """Return when passes last found each mirror complete, and the problem that the newest pass of each reported."""
    seen: dict[str, int] = {}
    said: dict[str, tuple[int, str]] = {}
    with storage_errors(files.uri):
        entries = [entry for entry in files.list() if entry.name.endswith(".seen")]
        contents = [files.look(entry.name) for entry in entries]
    for content in contents:
        try:
            found = json.loads(content or b"")
            when = int(found["time_ms"])
            for name, (_, time_ms) in found["topics"].items():
                seen[name] = max(seen.get(name, 0), int(time_ms))
                said[name] = max(said.get(name, (0, "")), (when, ""))
            for name, problem in found["problems"].items():
                said[name] = max(said.get(name, (0, "")), (when, str(problem)))
        except (ValueError, KeyError, TypeError, AttributeError):
            # The file is only informative, and the next pass writes it again.
            continue
    return seen, {name: problem for name, (_, problem) in said.items() if problem}


def _ask(standing: MirrorLag, source: Cluster, info: TopicInfo, now_ms: int) -> None:
    """Measure the lag at the source; if the source does not answer, report that as the problem."""
    try:
        theirs = source.topics().get(info.name)
        if theirs is None or theirs.table_id != info.table_id:
            standing.problem = standing.problem or "the topic was deleted at the source"
            return
        files = source.files_of(theirs)
        with storage_errors(files.uri):
            newest = max(LogFiles.listed(files, max(standing.version, 0)).commits, default=standing.version)
            standing.source_version = newest
            standing.lag_versions = max(newest - standing.version, 0)
            _measure(standing, files, newest, now_ms)
    except KafkaError as error:
        standing.problem = standing.problem or f"the source gives no answer: {error}"


def _measure(standing: MirrorLag, files: Storage, newest: int, now_ms: int) -> None:
    standing.lag_bytes, standing.lag_seconds = 0, 0.0
    first = standing.version + 1
    for version in range(first, min(newest, first + COUNTED) + 1):
        content = files.look(log_name(version))
        if content is None:
            # Log cleaning at the source has removed it.
            standing.lag_bytes = None
            continue
        commit = parse_commit(version, content, files.uri)
        if not standing.lag_seconds:
            standing.lag_seconds = max(now_ms - commit.timestamp_ms, 1) / 1000
        if standing.lag_bytes is not None:
            standing.lag_bytes += sum(add.size for add in commit.adds)
    if newest >= first + COUNTED:
        standing.lag_bytes = None
