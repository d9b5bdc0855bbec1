"""Maintenance run: apply the settings of topics step by step, and report the results.

For each topic in turn: the log start moves (a row of `__cluster_metadata`), segments below it are dropped (one table
version; no data file is read), the dirty part is compacted, small files are merged, unneeded files are removed. Each
step is correct by itself and finds the results of earlier runs in the tables, so a run may be killed at any time. One
run at a time works on a topic. The model makes the plans (`kafkalike.model.retention`, `compaction`, `merging`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, KafkaError, TopicDeletedError, UnknownTopicOrPartitionError
from kafkalike.maintenance import maintenance_report
from kafkalike.maintenance.file_tasks import IN_PROCESS, Tasks
from kafkalike.maintenance.handles import tasks_of
from kafkalike.maintenance.maintenance_commit import only_run
from kafkalike.maintenance.maintenance_report import MaintenanceReport, TopicReport
from kafkalike.maintenance.works.control_maintenance import maintain_control
from kafkalike.maintenance.works.topic_maintenance import RunSettings, TopicMaintenance
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.config.storage_options import Address, StorageOptionsLike
    from kafkalike.model.topic import TopicInfo


__all__ = ["WORKS", "MaintenanceReport", "TopicReport", "maintain"]

WORKS: Final = ("retention", "compaction", "merge", "vacuum", "control")
"""The kinds of work. `control` covers transactions, the control tables, expired offsets of groups, and leftovers of
killed deletions and Spark writes."""

Progress = Callable[[str, str], None]
"""Called with a topic's name and the work that starts on it; the last call for a topic has `finished`."""


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
    """Apply retention, compaction, merging and vacuum as the settings of topics require.

    Safe at any time: beside producers, consumers and streams, in two processes at once, and after a killed run.

    Args:
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        topics: a name, or names; None: all topics.
        works: some of `WORKS`.
        dry_run: whether to report only. Off by default, because a run applies the settings of topics; calls that remove
            records on request (`forget`, `undo`) are dry runs by default.
        timeout_ms: start nothing new after this time, ms; None: no limit.
        buffer_bytes: memory for the keys of one compaction pass; None: the server's `log.cleaner.dedupe.buffer.size`.
            With `spark`, each task has this much.
        spark: a session whose tasks read and write data files of compaction and merging, several partitions at a time;
            this process still commits the table versions. None: this process does all work in turn.
        run: id of the run; None: a random one.
        progress: called with the topic and the work that starts.
        storage_options: options of an object store; see `kafkalike.connect.connect`.
        clock: time and waiting.

    Returns:
        The results by topic. A failing topic does not stop the others.

    Raises:
        UnsafeStorageError: `spark` is given, and the root is read-only here.
        IllegalArgumentError: an unknown kind of work, `timeout_ms` that is not above 0, or a session of Spark Connect.
        UnknownTopicOrPartitionError: a named topic does not exist; nothing was done.

    Example:
        >>> from kafkalike import KafkaProducer
        >>> from kafkalike.testing import MemoryCluster
        >>> cluster = MemoryCluster()
        >>> with KafkaProducer(bootstrap_servers=cluster) as producer:
        ...     _ = producer.send("orders", b"tea")
        >>> report = maintain(cluster)
        >>> [(topic.topic, topic.status) for topic in report.topics]
        [('orders', 'nothing to do')]
    """
    wanted = _checked(works, timeout_ms)
    cluster = connect(bootstrap_servers, storage_options)
    known = cluster.metadata.refresh().topics
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
            topic.status = maintenance_report.UNFINISHED
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
    if spark is None:
        return IN_PROCESS
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
                    report.status = maintenance_report.BUSY
                    return
                work.go()
    except (TopicDeletedError, UnknownTopicOrPartitionError):
        report.status = maintenance_report.GONE
        return
    except (KafkaError, OSError) as error:
        if _is_gone(cluster, report.topic, work.topic_id):
            # The step failed because the topic's files were deleted with it.
            report.status = maintenance_report.GONE
            return
        report.status = maintenance_report.FAILED
        report.problems.append(f"{type(error).__name__}: {error}")
        return
    if report.status not in {maintenance_report.UNFINISHED, maintenance_report.FAILED} and report.changed:
        report.status = maintenance_report.DONE


def _is_gone(cluster: Cluster, topic: str, topic_id: str) -> bool:
    """Return whether a topic was deleted since its work began, even if another one has its name."""
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
