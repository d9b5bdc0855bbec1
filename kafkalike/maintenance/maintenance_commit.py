"""Maintenance commit: one table version that drops or replaces segments, for retention, merging and other work.

This process commits in its turn among the topic's writers, within milliseconds and without a JVM; data files are read
and written before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafkalike.delta import table_change
from kafkalike.delta.actions import Add
from kafkalike.delta.table_change import EndsAt, FilesLive, LastOf, Requirement, Unchanged, maintenance_turn
from kafkalike.delta.table_state import TableState, end_app
from kafkalike.errors import KafkaStorageError, KafkaTimeoutError, TopicDeletedError
from kafkalike.log.topic.topic_commits import OPERATIONS, RUN_KEY, WORK_KEY
from kafkalike.model import faults
from kafkalike.model.clock import Deadline
from kafkalike.model.record_batch import CLEANER_APP, CORRECTIONS, HOLES, cleaner_app
from kafkalike.model.segments import Segment

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.storage.port import Storage

COMMIT_TIMEOUT_MS: Final = 60_000
"""How long a commit waits for producers that hold the topic, ms."""

CORRECTING: Final = frozenset({"forget", "undo"})
"""Kinds of work that remove records although no later record of their key replaces them."""

DELETE_AT_ONCE: Final = 250
"""Maximum number of segments that one table version drops, because producers wait while it is written and read."""

NOT_COMMITTED: Final = (KafkaStorageError, KafkaTimeoutError, TopicDeletedError)
"""Errors of `publish` after which no table version has the files of the change, so they may be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceCommit:
    """One table version of maintenance."""

    work: str
    """The kind of work, a key of `OPERATIONS`."""
    removes: Sequence[Segment] = ()
    adds: Sequence[Add] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts for people, in the commit's user metadata."""
    holes: Mapping[int, int] = field(default_factory=dict)
    """By partition: the offset below which it removes records, so that gaps below are legitimate."""
    ends: Mapping[int, int] = field(default_factory=dict)
    """Required log ends, by partition."""
    fenced: int | None = None
    """`TopicLog.fenced` before the first added file was written; None without added files."""
    data_change: bool = True
    """False if the added files hold the same records as the removed ones."""


@contextlib.contextmanager
def only_run(cluster: Cluster, name: str) -> Iterator[bool]:
    """Admit one maintenance run at a time to a topic (or to other work that `name` stands for), if the root has locks.

    Yields:
        False at once if another process holds the lock. The kernel releases the lock of a killed process.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(cluster.store.coordination.turn(maintenance_turn(name), Deadline(cluster.clock, 0)))
        except KafkaTimeoutError:
            yield False
            return
        yield True


@contextlib.contextmanager
def without_maintenance(cluster: Cluster, topic: str) -> Iterator[None]:
    """Exclude maintenance runs from a topic, if the root has locks.

    Raises:
        KafkaTimeoutError: a run held the topic for a minute.
    """
    with cluster.store.coordination.turn(maintenance_turn(topic), Deadline(cluster.clock, COMMIT_TIMEOUT_MS)):
        yield


def publish(log: TopicLog, change: MaintenanceCommit, run: str) -> int | None:
    """Commit the table version, unless a file to remove is not live anymore, or a required log end has changed.

    Safe beside producers: their files are never touched, and a concurrent writer's version only costs another attempt.

    Args:
        log: the topic.
        change: the change.
        run: id of the maintenance run, for the table's history.

    Returns:
        The version; None if another run has replaced these files, or may have removed new ones, or a writer has
            appended to a partition with a required end. Then nothing was done.

    Raises:
        KafkaTimeoutError: producers held the topic for a minute; nothing was done.
        KafkaStorageError, UnknownOutcomeError, LogCorruptError, TopicDeletedError: see `TopicLog.append`.
    """
    deadline = Deadline(log.clock, COMMIT_TIMEOUT_MS)
    rests_on: list[Requirement] = [
        FilesLive([segment.path for segment in change.removes]),
        *(EndsAt(partition, end) for partition, end in change.ends.items()),
    ]

    tries = iter([change])

    def plan(state: TableState) -> table_change.Change | Unchanged[None]:
        # A fence may have removed files that were written before it, and a second plan means that one came between.
        late = next(tries, None) is None or change.fenced not in {None, state.fenced}
        if late or any(one.broken(state) for one in rests_on):
            return Unchanged(None)
        faults.point(f"{change.work}.before_commit")
        lasting, requires = _lasting(change, state, log.clock.now_ms())
        return table_change.Change(
            operation=OPERATIONS[change.work],
            time_ms=log.clock.now_ms(),
            adds=change.adds,
            removes=[_remove(s, data_change=change.data_change) for s in change.removes],
            txns={**lasting, **change.txns},
            note={WORK_KEY: change.work, RUN_KEY: run, **change.facts},
            requires=[*rests_on, *requires],
        )

    # Read earlier commits before producers have to wait.
    log.refresh()
    with log.exclusive(deadline):
        # The caller removes its files if they are not committed.
        landed = log.change(plan, deadline, discard=lambda _: None)
        faults.point(f"{change.work}.after_commit")
    return None if isinstance(landed, Unchanged) else landed.version


def publish_or_discard(log: TopicLog, change: MaintenanceCommit, run: str) -> int | None:
    """Commit like `publish`, and remove the added files if no version can have them.

    After an unknown outcome they stay.
    """
    try:
        landed = publish(log, change, run)
    except NOT_COMMITTED:
        discard_all(log.files, change.adds)
        raise
    if landed is None:
        discard_all(log.files, change.adds)
    return landed


def discard_all(files: Storage, adds: Iterable[Add]) -> None:
    """Try to remove files that no version names."""
    for add in adds:
        files.remove(add.path, quietly=True)


def _lasting(change: MaintenanceCommit, state: TableState, now_ms: int) -> tuple[dict[str, int], list[Requirement]]:
    """Return the notes that must outlive the removed records, and their requirements.

    The notes are the offsets below which gaps are legitimate, which another run may have raised meanwhile; the number
    of corrections; and log ends that the table has not recorded, because foreign writers have appended to these
    partitions.
    """
    txns: dict[str, int] = {CLEANER_APP: now_ms} if change.holes else {}
    requires: list[Requirement] = []
    for partition, below in change.holes.items():
        app = cleaner_app(partition, HOLES)
        known = state.txns.get(app)
        txns[app] = max(below, known or 0)
        requires.append(LastOf(app, known))
    if change.work in CORRECTING:
        # Tables that follow the topic by its offsets would keep the removed records.
        count = state.txns.get(CORRECTIONS)
        txns[CORRECTIONS] = (count or 0) + 1
        requires.append(LastOf(CORRECTIONS, count))
    for partition in sorted(state.unrecorded.intersection(old.partition for old in change.removes)):
        end = state.end(partition)
        txns[end_app(partition)] = end
        requires.append(EndsAt(partition, end))
    return txns, requires


def still_live(log: TopicLog, segments: Iterable[Segment]) -> bool:
    """Return whether all these files are live; otherwise another run may have replaced and removed them."""
    log.refresh()
    return all(log.is_live(segment) for segment in segments)


def _remove(segment: Segment, *, data_change: bool) -> Add:
    return Add(
        path=segment.path,
        partition=segment.partition,
        size=segment.size_bytes,
        modification_ms=segment.modification_ms,
        data_change=data_change,
        stats={},
    )


def delete_dead(log: TopicLog, run: str) -> list[Segment]:
    """Drop segments that lie completely below the log start, without reading a data file.

    Finishes the work of an interrupted run, or of `delete_records`. Files stay on disk until `vacuum`.

    Returns:
        The dropped segments; empty if there are none, or another run dropped them.
    """
    log.refresh()
    dead: list[Segment] = []
    for partition in log.info.partitions:
        start = log.log_start(partition)
        dead += [segment for segment in log.table_segments(partition) if segment.stop <= start]
    gone: list[Segment] = []
    for at in range(0, len(dead), DELETE_AT_ONCE):
        part = dead[at : at + DELETE_AT_ONCE]
        facts = {"segments": len(part), "records": sum(s.num_records for s in part)}
        if publish(log, MaintenanceCommit(work="retention", removes=part, facts=facts), run) is not None:
            gone += part
    return gone
