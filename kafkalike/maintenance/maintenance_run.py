"""Maintenance run: brings topics into the shape that their settings ask for, step by step, and reports what was done.

For each topic, one after another: the log start moves (a row of `__cluster_metadata`), segments below it leave the
table (one table version, no data file is read), the dirty part is compacted, small files are merged, files nobody needs
are removed. Each step is right by itself and finds in the tables what an earlier run has left, so a run may be killed
at any moment. One run at a time works on a topic. Plans are the model's (`kafkalike.model.retention`, `compaction`,
`merging`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, KafkaError, TopicDeletedError, UnknownTopicOrPartitionError
from kafkalike.maintenance.control_maintenance import maintain_control
from kafkalike.maintenance.file_tasks import Tasks
from kafkalike.maintenance.handles import tasks_of
from kafkalike.maintenance.maintenance_commit import only_run
from kafkalike.maintenance.maintenance_report import (
    BUSY,
    DONE,
    FAILED,
    GONE,
    UNFINISHED,
    MaintenanceReport,
    TopicReport,
)
from kafkalike.maintenance.topic_maintenance import RunSettings, TopicMaintenance
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.config.storage_options import Address, StorageOptionsLike
    from kafkalike.model.topic import TopicInfo


__all__ = ["WORKS", "MaintenanceReport", "TopicReport", "maintain"]

WORKS: Final = ("retention", "compaction", "merge", "vacuum", "control")
"""What a run does: `control` are transactions, the control tables, expired offsets of groups, and what killed deletions
and Spark writes have left."""

Progress = Callable[[str, str], None]
"""Called with a topic's name and what begins on it; the last call for a topic says `finished`."""


def maintain(
    bootstrap_servers: Address | None = None,
    topics: str | Iterable[str] | None = None,
    *,
    works: Iterable[str] = WORKS,
    dry_run: bool = False,
    timeout_ms: float | None = None,
    buffer_bytes: int | None = None,
    spark: SparkSession | None = None,
    run: str | None = None,
    progress: Progress = lambda _topic, _what: None,
    storage_options: StorageOptionsLike | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> MaintenanceReport:
    """Bring topics into the shape that their settings ask for.

    Safe at any time, beside producers, consumers and streams, twice at once, and after a run that was killed.

    Args:
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        topics: a name, or names; None takes all.
        works: some of `WORKS`.
        dry_run: say what is due, change nothing. Off by default, as a run does what the settings of topics ask for;
            calls that take records out at a person's word (`forget`, `undo`) are dry runs by default.
        timeout_ms: begin nothing new after so long, ms; None goes on to the end.
        buffer_bytes: memory for the keys of one compaction pass; None takes the server's
            `log.cleaner.dedupe.buffer.size`. With `spark`, each task has as much.
        spark: compaction and merging read and write data files in tasks of this session, several partitions at a time;
            table versions are made by this process all the same. None does all of it here, one after another.
        run: id of the run; a random one by default.
        progress: called with the topic and the piece of work that begins.
        storage_options: of an object store; see `kafkalike.connect.connect`.
        clock: the time that ages count from, and time and waiting.

    Returns:
        What was done, topic by topic. A topic that fails does not keep the others back.

    Raises:
        UnsafeStorageError: `spark` with a root that can only be read.
        IllegalArgumentError: an unknown kind of work, `timeout_ms` that is not above 0, or a session of Spark Connect.
        UnknownTopicOrPartitionError: a topic that is named does not exist; nothing was done.
    """
    wanted = _checked(works, timeout_ms)
    cluster = connect(bootstrap_servers, storage_options)
    known = cluster.topics()
    named = [topics] if isinstance(topics, str) else topics
    names = sorted(known) if named is None else list(dict.fromkeys(named))
    for name in names:
        if name not in known:
            raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist")
    started = clock.monotonic()
    report = MaintenanceReport(
        run=run or uuid.uuid4().hex, root=cluster.root, started_ms=clock.now_ms(), dry_run=dry_run
    )
    budget = Deadline(clock, timeout_ms)
    settings = RunSettings(
        run=report.run,
        works=wanted,
        dry_run=dry_run,
        clock=clock,
        budget=budget,
        buffer_bytes=buffer_bytes or int(cluster.server.get("log.cleaner.dedupe.buffer.size")),
        tasks=_tasks(cluster, spark),
    )
    for name in names:
        topic = TopicReport(topic=name)
        report.topics.append(topic)
        if budget.expired():
            topic.status = UNFINISHED
            continue
        begun = clock.monotonic()
        _one_topic(cluster, known[name], settings, topic, partial(progress, name))
        topic.seconds = round(clock.monotonic() - begun, 3)
        progress(name, "finished")
    if "control" in wanted and not budget.expired():
        maintain_control(cluster, report, clock)
    report.seconds = round(clock.monotonic() - started, 3)
    return report


def _tasks(cluster: Cluster, spark: SparkSession | None) -> Tasks:
    if spark is not None:
        cluster.store.coordination.check_writable()
    return tasks_of(spark)


def _one_topic(
    cluster: Cluster,
    info: TopicInfo,
    settings: RunSettings,
    report: TopicReport,
    progress: Callable[[str], None],
) -> None:
    work = TopicMaintenance(cluster, info, settings, report, progress)
    try:
        if settings.dry_run:
            work.go()
        else:
            with only_run(cluster, report.topic) as mine:
                if not mine:
                    report.status = BUSY
                    return
                work.go()
    except (TopicDeletedError, UnknownTopicOrPartitionError):
        report.status = GONE
        return
    except (KafkaError, OSError) as error:
        if _is_gone(cluster, report.topic, work.topic_id):
            # A step stumbled over files that went with the topic.
            report.status = GONE
            return
        report.status = FAILED
        report.problems.append(f"{type(error).__name__}: {error}")
        return
    if report.status not in {UNFINISHED, FAILED} and report.changed:
        report.status = DONE


def _is_gone(cluster: Cluster, topic: str, topic_id: str) -> bool:
    """Whether a topic was deleted since its work began, whatever has its name now."""
    try:
        now = cluster.topics().get(topic)
    except (KafkaError, OSError):
        return False
    return now is None or now.topic_id != topic_id


def _checked(works: Iterable[str], timeout_ms: float | None) -> frozenset[str]:
    wanted = frozenset(works)
    unknown = sorted(wanted - set(WORKS))
    if unknown or not wanted:
        raise IllegalArgumentError(
            f"unknown kind of maintenance {', '.join(map(repr, unknown))}; known are {', '.join(WORKS)}"
        )
    if timeout_ms is not None and not timeout_ms > 0:
        raise IllegalArgumentError(f"timeout_ms must be above 0, not {timeout_ms}")
    return wanted
