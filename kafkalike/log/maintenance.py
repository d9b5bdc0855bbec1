"""Maintenance: segments to drop or replace in, one table version out; what retention, merging and compaction share.

On a local root these are commits of this process under the topic's lock, milliseconds each and without a JVM; data
files are read and written before the lock is taken. Elsewhere the commit is made by Delta in Spark's JVM, whose log
store keeps writers apart (`kafkalike.log.maintenance_spark`).
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafkalike import faults
from kafkalike.clock import Deadline
from kafkalike.errors import KafkaStorageError, KafkaTimeoutError, TopicDeletedError
from kafkalike.log.commits import APPEND_KEY, Add, append_info
from kafkalike.log.storage import LocalFiles
from kafkalike.log.writer import Commit
from kafkalike.model.segments import Segment

if TYPE_CHECKING:
    from kafkalike.log.delta_cluster import DeltaCluster
    from kafkalike.log.topic_log import DeltaTopicLog

WORK_KEY: Final = "maintenance"
"""Key, in a commit's user metadata, of what maintenance did: `retention`, `merge`, `compaction`."""

RUN_KEY: Final = "run"
"""Key of the id of the maintenance run."""

COMMIT_TIMEOUT_MS: Final = 60_000
"""How long a commit waits for producers that hold the topic, ms."""

DELETE_AT_ONCE: Final = 250
"""Segments that one table version takes out at most: producers wait while it is written, and while they read it."""

OPERATIONS: Final = {"retention": "DELETE", "merge": "OPTIMIZE", "compaction": "REWRITE", "restore": "CLONE"}
"""What the table's history calls them."""

NOT_COMMITTED: Final = (KafkaStorageError, KafkaTimeoutError, TopicDeletedError)
"""Errors of `publish` after which the files of the change are surely in no table version, and may be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One table version that maintenance makes."""

    work: str
    """A key of `OPERATIONS`."""
    removes: Sequence[Segment] = ()
    adds: Sequence[Add] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    """For people, in the commit's user metadata."""
    data_change: bool = True
    """False when the added files hold the same records as the removed ones."""


def maintenance_of(user_metadata: str | None) -> dict[str, Any]:
    """What maintenance wrote into a commit's user metadata; empty when the commit is not its own."""
    info = append_info(user_metadata)
    return info if WORK_KEY in info else {}


@contextlib.contextmanager
def only_run(cluster: DeltaCluster, name: str) -> Iterator[bool]:
    """Be the only maintenance run of a topic (or of what else `name` stands for), where the root has locks.

    Yields:
        False at once when another process is at it. The kernel drops the lock of a process that is killed.
    """
    lock = cluster.maintenance_lock(name)
    if lock is None:
        yield True
        return
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(lock.held(Deadline(cluster.clock, 0)))
        except KafkaTimeoutError:
            yield False
            return
        yield True


def publish(log: DeltaTopicLog, change: Change, run: str) -> int | None:
    """Make the table version, unless a file that it removes is gone already.

    Safe beside producers: their files are never touched, and a rival's version only means a second try.

    Args:
        log: the topic.
        change: what to do.
        run: id of the maintenance run, for the table's history.

    Returns:
        The version; None when another run has been at these files, and nothing was done.

    Raises:
        KafkaTimeoutError: producers held the topic for a minute; nothing was done.
        KafkaStorageError, UnknownOutcomeError, LogCorruptError, TopicDeletedError: see `DeltaTopicLog.append`.
    """
    deadline = Deadline(log.clock, COMMIT_TIMEOUT_MS)
    append_id = uuid.uuid4().hex
    attempt = 0
    # What was committed since the work began is read before producers have to wait.
    log.refresh()
    with log.exclusive(deadline):
        while True:
            log.ready_to_append()
            if not all(log.is_live(s) for s in change.removes):
                return None
            wanted = _commit(log, change, run, append_id)
            faults.point(f"{change.work}.before_commit")
            if _landed(log, wanted):
                faults.point(f"{change.work}.after_commit")
                return log.version
            attempt += 1
            log.back_off(attempt, deadline)


def _landed(log: DeltaTopicLog, wanted: Commit) -> bool:
    if isinstance(log.files, LocalFiles):
        return log.commit_files(wanted)
    from kafkalike.log.maintenance_spark import commit_through_spark

    return commit_through_spark(log, wanted)


def _commit(log: DeltaTopicLog, change: Change, run: str, append_id: str) -> Commit:
    info = {APPEND_KEY: append_id, WORK_KEY: change.work, RUN_KEY: run, **change.facts}
    return Commit(
        version=log.version + 1,
        time_ms=log.clock.now_ms(),
        operation=OPERATIONS[change.work],
        append_id=append_id,
        adds=change.adds,
        removes=[_remove(s, data_change=change.data_change) for s in change.removes],
        txns=change.txns,
        user_metadata=json.dumps(info, separators=(",", ":")),
    )


def _remove(segment: Segment, *, data_change: bool) -> Add:
    return Add(
        path=segment.path,
        partition=segment.partition,
        size=segment.size_bytes,
        modification_ms=segment.modification_ms,
        data_change=data_change,
        stats={},
    )


def dead_segments(log: DeltaTopicLog) -> list[Segment]:
    """Data files that lie wholly below the log start, as of the last `refresh`."""
    return [s for p in log.info.partitions for s in log.table_segments(p) if s.stop <= log.log_start(p)]


def delete_dead(log: DeltaTopicLog, run: str) -> list[Segment]:
    """Take what lies wholly below the log start out of the table, without reading a data file.

    Finishes what a run that was cut off, or `delete_records`, has left. Files stay on disk until `vacuum`.

    Returns:
        What was taken out; empty when there was nothing, or another run was faster.
    """
    log.refresh()
    dead = dead_segments(log)
    gone: list[Segment] = []
    for at in range(0, len(dead), DELETE_AT_ONCE):
        part = dead[at : at + DELETE_AT_ONCE]
        facts = {"segments": len(part), "records": sum(s.num_records for s in part)}
        if publish(log, Change(work="retention", removes=part, facts=facts), run) is not None:
            gone += part
    return gone
