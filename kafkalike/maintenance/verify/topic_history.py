"""Topic history: appends, maintenance, and changes of settings of a topic, with time and author; its table commits.

The sources are the topic's table log, as far as it reaches back, and the rows of `__cluster_metadata`.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from kafkalike.delta.actions import TableCommit, log_name, parse_commit
from kafkalike.errors import CorruptRecordError, LogCorruptError
from kafkalike.log.topic.topic_commits import RUN_KEY, WORK_KEY, maintenance_of, segment_of, transaction_of, versions
from kafkalike.model.appends.taken_appends import ids_of, parts_of
from kafkalike.model.cluster_state import TOPIC, LogStartsMoved, TopicChange, moved_text, parse_row
from kafkalike.model.segments import Segment
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.topic import TopicInfo


METADATA: Final = "cluster metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event in a topic's history."""

    time_ms: int
    kind: str
    """`append`, `retention`, `compaction`, `merge`, `forget`, `undo`, `fork`, `forked`, `restore`, `log start`,
    `topic`, `configs`, `damaged`, `fence`, or the operation in the table's history, such as `create table`."""
    version: int | None
    """Table version; None for an event in the cluster's metadata."""
    by: str
    """Engine, and the id of a maintenance run."""
    who: str = ""
    """User, host and process of the commit, as far as it names them."""
    what: str
    """A description for people."""
    topic_id: str
    appends: tuple[str, ...] = ()
    """Ids of the appends in the commit, for `undo`."""

    def as_dict(self) -> dict[str, Any]:
        """Return the event as a dict for JSON."""
        names = ("time_ms", "kind", "version", "by", "who", "what", "topic_id")
        return {**{name: getattr(self, name) for name in names}, "appends": list(self.appends)}


def topic_history(cluster: Cluster, name: str) -> list[Event]:
    """Return the events of a topic, oldest first, including events of former topics of its name in the metadata.

    Events of one log keep its order, whatever the clocks of writers were; the metadata and the topic's table are merged
    by time.

    Args:
        cluster: the cluster.
        name: an existing topic.

    Raises:
        UnknownTopicOrPartitionError: the topic does not exist.
        LogCorruptError: the table's log cannot be read.
    """
    info = cluster.topic(name)
    sources = (_timed(_metadata_events(cluster, name)), _timed(_table_events(cluster, info)))
    return [event for _, event in heapq.merge(*sources, key=itemgetter(0))]


def _timed(events: Iterable[Event]) -> Iterator[tuple[int, Event]]:
    """Pair the events of one log with times that never fall: the latest time so far."""
    latest = 0
    for event in events:
        latest = max(latest, event.time_ms)
        yield latest, event


def _metadata_events(cluster: Cluster, name: str) -> Iterator[Event]:
    before: Mapping[str, str] = {}
    for row in cluster.metadata.rows:
        if row.topic != name:
            continue
        said = parse_row(row)
        if isinstance(said, LogStartsMoved):
            kind, what = "log start", f"{moved_text(said.moves)} by {said.reason}, run {said.run}"
        elif not isinstance(said, TopicChange):
            kind, what = row.kind, row.change
        else:
            configs = said.info.configs
            changed = _changed(before, configs)
            before = {} if said.deleted else configs
            kind = "configs" if row.change == "configs changed" else TOPIC
            what = f"{row.change}: {changed}" if changed else row.change
        yield Event(time_ms=row.time_ms, kind=kind, version=None, by=METADATA, what=what, topic_id=row.topic_id)


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    parts = [f"{name}={after[name]}" for name in sorted(after) if before.get(name) != after[name]]
    parts += [f"{name} removed" for name in sorted(before.keys() - after.keys())]
    return ", ".join(parts)


def _table_events(cluster: Cluster, info: TopicInfo) -> Iterator[Event]:
    files_of = getattr(cluster, "files_of", None)
    if files_of is None:
        return
    files: Storage = files_of(info)
    for version in versions(files):
        try:
            commit = parse_commit(version, files.read(log_name(version)), files.uri)
        except FileNotFoundError:
            # Log cleaning has removed it meanwhile.
            continue
        except LogCorruptError as damage:
            yield Event(
                time_ms=0, kind="damaged", version=version, by="?", what=str(damage), topic_id=str(info.topic_id)
            )
            continue
        kind, by, what = _described(commit, files)
        yield Event(
            time_ms=commit.timestamp_ms,
            kind=kind,
            version=version,
            by=by,
            who=commit.writer,
            what=what,
            topic_id=str(info.topic_id),
            appends=_ids(commit),
        )


def _ids(commit: TableCommit) -> tuple[str, ...]:
    if not commit.is_append or maintenance_of(commit):
        return ()
    parts = parts_of(commit.note)
    # The committing writer's own append has the id of the commit.
    return tuple(name or str(commit.append_id) for name, _, _ in parts) if parts else (str(commit.append_id),)


def _described(commit: TableCommit, files: Storage) -> tuple[str, str, str]:
    done = maintenance_of(commit)
    if done:
        facts = {k: v for k, v in done.items() if k not in {"kafkalikeAppend", WORK_KEY, RUN_KEY}}
        what = ", ".join(f"{name}: {value}" for name, value in facts.items())
        return str(done[WORK_KEY]), f"{commit.engine} run {done.get(RUN_KEY, '?')}", what
    if commit.is_append:
        number = transaction_of(commit)
        of = "" if number is None else f"transaction {number}: "
        return "append", commit.engine, of + _appended(commit, files)
    if commit.fences is not None:
        what = f"append {commit.fences} was not written: the storage did not answer in time"
    elif commit.adds or commit.removes:
        what = f"{len(commit.adds)} files added, {len(commit.removes)} removed"
    else:
        what = "no records"
    return commit.operation.lower(), commit.engine, what


def _appended(commit: TableCommit, files: Storage) -> str:
    try:
        segments = sorted((segment_of(add, files) for add in commit.adds), key=lambda s: (s.partition, s.start))
    except (LogCorruptError, CorruptRecordError) as error:
        return str(error)
    runs = ", ".join(f"{s.partition}: [{s.start}, {s.stop})" for s in segments)
    return f"{sum(s.num_records for s in segments)} records, {runs}" if segments else "no records"


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo:
    """A table commit of a topic, for `dump-log` and `verify`."""

    version: int
    timestamp_ms: int
    operation: str
    append_id: str | None
    added: tuple[Segment, ...]
    removed: tuple[str, ...]
    engine: str
    fences: str | None = None
    """Id of an append that was surely not written, because this commit took the version that it needed."""
    parts: tuple[str, ...] = ()
    """Ids of the appends of other writers that the commit includes."""
    transaction: int | None = None
    """Number of the transaction whose records it has, which is the row of its decision in `__consumer_offsets`."""


def list_commits(cluster: Cluster, topic: str) -> Iterator[CommitInfo]:
    """Yield the table commits in a topic's log, oldest first; none for a cluster in memory."""
    reading = getattr(cluster, "files_of", None)
    if reading is None:
        return
    files: Storage = reading(cluster.topic(topic))
    for version in versions(files):
        try:
            commit = parse_commit(version, files.read(log_name(version)), files.uri)
        except FileNotFoundError:
            # Log cleaning has removed it meanwhile.
            continue
        except LogCorruptError as cause:
            # Other commits are still listed; `find_flaws` names the damaged ones.
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
            parts=ids_of(commit.note),
            transaction=transaction_of(commit),
        )
