"""Forget: remove the records of keys from topics, with a certificate that can be checked later."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kafkalike.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from kafkalike.log.cluster.topic_lineage import Relatives, relatives_of
from kafkalike.maintenance import deletion
from kafkalike.maintenance.correction_report import ForgetReport, Parts
from kafkalike.maintenance.handles import check_in_sync, opened, tasks_of
from kafkalike.maintenance.maintenance_commit import COMMIT_TIMEOUT_MS, without_maintenance
from kafkalike.maintenance.verify import key_traces
from kafkalike.maintenance.verify.certificate_file import CertificateFile, open_certificate_file, versions_of_run
from kafkalike.maintenance.works.vacuum import ORPHAN_MS, WAITING_MS
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.config.maintenance_config import MaintenanceConfig
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.dead_letter import SUFFIX
from kafkalike.model.maintenance import record_removal
from kafkalike.model.names import check_topic_name
from kafkalike.model.record_batch import RecordBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOptions:
    """Extent and waiting time of a run that forgets keys."""

    tombstone: bool = False
    """Write a tombstone first to each partition with a key, so that readers forget it, too. The tombstone
    holds the key and stays until compaction or another run removes it."""
    dead_letters: Iterable[str] | None = None
    """Dead-letter topics to examine for letters of the topic; None: `<topic>.dlq`, if it exists."""
    now: bool = False
    """Remove the files at once. Consumers of kafkalike continue; running queries of other engines may fail.
    """
    certificate: str | os.PathLike[str] | None = None
    """A file for the certificate, outside of the root, written during the run. If an unfinished run with the same keys
    has left one, this run resumes it."""
    wait_ms: float = 0
    """How long, ms, to wait for open transactions with records for the topics, so that their records are forgotten,
    too; if one stays open, nothing is done. By default they are only reported."""


DEFAULT_OPTIONS: Final = ForgetOptions()


def forget(
    topic: str,
    bootstrap_servers: Address | None = None,
    *,
    keys: bytes | str | Iterable[bytes | str],
    dry_run: bool = True,
    options: ForgetOptions = DEFAULT_OPTIONS,
    reason: str = "",
    timeout_ms: float | None = None,
    spark: SparkSession | None = None,
    storage_options: StorageOptionsLike | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> ForgetReport:
    """Remove all records with some keys from a topic and from its dead letters. A dry run by default.

    The offsets of all other records stay; removed records leave gaps, as after compaction. Producers, consumers, groups
    and streams continue. Maintenance removes the files that held the records after `kafkalike.replaced.file.delay.ms`.

    All partitions are searched, because a key's partition depends on the client that wrote it. Only records that were
    in the topic at the start of the run are removed. A run that was interrupted, or failed, can
    be repeated.

    Args:
        topic: the topic's name.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        keys: one key or several, as bytes, or as text that is encoded in UTF-8.
        dry_run: whether to report only; on by default, because removed records cannot be restored.
        options: extent and waiting time of the run.
        reason: the reason, for the table's history.
        timeout_ms: start nothing new after this time, ms; None: no limit.
        spark: a session whose tasks read and write the files; None: this process does.
        storage_options: credentials of an object store; see `kafkalike.connect.connect`.
        clock: time.

    Returns:
        The removed records, or in a dry run the planned ones.

    Raises:
        IllegalArgumentError: no key, a key that is neither bytes nor text, or a certificate that is finished, belongs
            to another run, or lies below the root.
        UnknownTopicOrPartitionError, InvalidTopicError: the topic does not exist, or its name is invalid.
        BrokerNotAvailableError: a root with a replica does not answer, or its replica is not in sync and would keep the
            records. Nothing was done.
        PolicyViolationError: the table is append-only.
        UnsupportedVersionError, LogCorruptError: foreign writers have changed the table so that kafkalike does not
            write to it.
        CorruptRecordError: names a damaged data file. Earlier changes stay.
        KafkaTimeoutError: transactions were still open after `wait_ms`, and nothing was done; time ran out; or another
            maintenance run held the topic for a minute.
        KafkaStorageError, UnknownOutcomeError: the storage refused, or did not answer. Run it again.

    Example:
        >>> from kafkalike import KafkaProducer
        >>> from kafkalike.testing import MemoryCluster
        >>> cluster = MemoryCluster()
        >>> with KafkaProducer(bootstrap_servers=cluster) as producer:
        ...     for key in (b"alice", b"bob", b"alice"):
        ...         _ = producer.send("orders", b"tea", key=key)
        >>> planned = forget("orders", cluster, keys=b"alice")  # a dry run
        >>> [(part.partition, part.records) for part in planned.parts]
        [(0, 2)]
        >>> forget("orders", cluster, keys=b"alice", dry_run=False).executed
        True
    """
    wanted = _checked(keys)
    cluster = opened(bootstrap_servers, storage_options, writes=not dry_run)
    known = cluster.topics()
    names = [check_topic_name(topic), *_letter_topics(topic, known, options.dead_letters)]
    for name in names:
        if name not in known:
            raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist")
    if not dry_run:
        check_in_sync(cluster, names)
    if options.wait_ms and not dry_run:
        key_traces.wait_for_open(cluster, names, Deadline(clock, options.wait_ms), clock)
    paper = (
        open_certificate_file(cluster, options.certificate, keys=wanted, topic=topic, reason=reason, clock=clock)
        if not dry_run
        else None
    )
    run = _Run(
        cluster=cluster,
        choice=key_traces.KeySelection(keys=wanted, source=topic),
        tombstone=options.tombstone,
        paper=paper,
        id=uuid.uuid4().hex if paper is None else paper.certificate.run,
        budget=Deadline(clock, timeout_ms),
        spark=spark,
        reason=reason,
        now=options.now,
    )
    return run.go(names)


def _add_keys(by_key: dict[int, dict[bytes, record_removal.KeyFound]], piece: deletion.Removed) -> None:
    """Add the keys of the next piece of a partition, by partition."""
    partition = piece.replacement.partition
    by_key[partition] = deletion.merged_keys(by_key.get(partition, {}), piece.keys)


def _checked(keys: object) -> frozenset[bytes]:
    several = [keys] if isinstance(keys, bytes | str) else keys
    if not isinstance(several, Iterable):
        raise IllegalArgumentError(f"keys are needed, as bytes or text, not {keys!r}")
    found = set[bytes]()
    for key in several:
        if not isinstance(key, bytes | str):
            raise IllegalArgumentError(f"a key must be bytes or text, not {key!r}")
        found.add(key.encode() if isinstance(key, str) else key)
    if not found:
        raise IllegalArgumentError("at least one key is needed")
    return frozenset(found)


def _letter_topics(topic: str, known: Mapping[str, Any], named: Iterable[str] | None) -> list[str]:
    if named is None:
        return [f"{topic}{SUFFIX}"] if f"{topic}{SUFFIX}" in known else []
    several = [named] if isinstance(named, str) else list(named)
    return [check_topic_name(name) for name in dict.fromkeys(several) if name != topic]


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run over all topics."""

    cluster: Cluster
    choice: key_traces.KeySelection
    tombstone: bool
    paper: CertificateFile | None
    """None in a dry run."""
    id: str
    budget: Deadline
    spark: SparkSession | None
    reason: str
    now: bool

    parts: Parts = field(default_factory=Parts)
    looked_at: dict[str, tuple[int, ...]] = field(default_factory=dict)
    tombstones: int = 0
    files_removed: int = 0
    gone_after_ms: int = 0

    def go(self, names: Sequence[str]) -> ForgetReport:
        """Plan or carry out the run for all topics."""
        logs = [self.cluster.log(name) for name in names]
        for log in logs:
            if self.paper is not None:
                deletion.ready_to_remove(log)
            log.refresh()
        if self.paper is not None:
            # A decided transaction's records belong to the topic, even if its producer has not applied them yet.
            self.cluster.transactions.cut(names, Deadline(self.cluster.clock, COMMIT_TIMEOUT_MS))
        for log in logs:
            if self.paper is None:
                self._plan(log)
                continue
            with without_maintenance(self.cluster, log.info.name):
                self._forget(log, self.paper)
        # Afterwards: a topic that was forked meanwhile has the earlier records.
        relatives = relatives_of(self.cluster, [str(log.info.table_id) for log in logs])
        letters = [str(log.info.table_id) for log in logs if log.info.name != self.choice.source]
        of_letters = relatives_of(self.cluster, letters).names if letters else ()
        held = {
            name: key_traces.still_held(self.cluster, name, self.choice, self.budget, of_letters=name in of_letters)
            for name in relatives.names
        }
        return self._report(
            relatives, held, tuple(sorted({one.id for one in key_traces.list_open_transactions(self.cluster, names)}))
        )

    def _report(self, relatives: Relatives, held: Mapping[str, int | None], waiting: tuple[str, ...]) -> ForgetReport:
        finished: record_removal.Certificate | None = None
        if self.paper is not None:
            finished = replace(
                self.paper.certificate,
                finished=True,
                ended_ms=self.cluster.clock.now_ms(),
                gone_after_ms=self.gone_after_ms,
                open_transactions=waiting,
                copies=relatives.copies,
                origins=relatives.origins,
                held=held,
            )
            self.paper.put(finished)
        done = () if finished is None else finished.topics
        return ForgetReport(
            topic=self.choice.source,
            run=self.id,
            executed=finished is not None,
            keys=len(self.choice.keys),
            parts=self.parts.all(),
            looked_at=self.looked_at,
            versions={one.topic: tuple(sorted({v.version for v in one.versions})) for one in done if one.versions},
            tombstones=self.tombstones,
            gone_after_ms=self.gone_after_ms,
            files_removed=self.files_removed,
            open_transactions=waiting,
            copies=relatives.copies,
            origins=relatives.origins,
            held=held,
            certificate=finished,
        )

    # --- one topic -----------------------------------------------------------------------------

    def _takings(self, log: TopicLog) -> dict[int, record_removal.Taking]:
        """Return the records to remove, by partition, among the current ones."""
        name, choice = log.info.name, self.choice
        found = choice.takings(log, of_letters=name != choice.source)
        self.looked_at[name] = tuple(sorted(found))
        return {p: taking for p, taking in found.items() if taking.below}

    def _remover(self, log: TopicLog) -> deletion.Remover:
        facts: dict[str, Any] = {"keys": len(self.choice.keys)}
        if self.paper is not None:
            # Neither keys nor unsalted hashes of them: the salt is only in the certificate.
            facts["digest"] = self.paper.certificate.digest
        if self.reason:
            facts["reason"] = self.reason
        return deletion.Remover(
            log, self.id, work="forget", facts=facts, budget=self.budget, tasks=tasks_of(self.spark)
        )

    def _plan(self, log: TopicLog) -> None:
        by_key: dict[int, dict[bytes, record_removal.KeyFound]] = {}
        for piece in self._remover(log).found(self._takings(log), by_key=self._writes_tombstones(log)):
            self.parts.count(log.info.name, piece)
            _add_keys(by_key, piece)
        self.tombstones += sum(sum(record_removal.tombstones_wanted(found).values()) for found in by_key.values())

    def _writes_tombstones(self, log: TopicLog) -> bool:
        return self.tombstone and log.info.name == self.choice.source

    def _forget(self, log: TopicLog, paper: CertificateFile) -> None:
        log.refresh()
        # Before any work, because it raises if another run uses the file.
        paper.put(paper.certificate)
        takings = self._takings(log)
        about = self._begun(log, paper)
        about = replace(about, looked_at=dict(about.looked_at) | {p: taking.below for p, taking in takings.items()})
        remover = self._remover(log)
        if self._writes_tombstones(log):
            takings, about = self._with_tombstones(log, remover, takings, about)
        paper.put(paper.certificate.with_topic(about))
        for version, piece in remover.removed(takings):
            self.parts.count(log.info.name, piece)
            made = record_removal.VersionMade(
                version=version,
                partition=piece.replacement.partition,
                removed=piece.before,
                added=piece.after,
                offsets=piece.offsets,
            )
            about = replace(about, versions=(*about.versions, made))
            paper.put(paper.certificate.with_topic(about))
        config = MaintenanceConfig.from_properties(self.cluster.server.effective(log.info.configs))
        usual = max(config.replaced_delay_ms, config.file_delete_delay_ms)
        delay = 0 if self.now else usual
        if delay < ORPHAN_MS:
            before, unnamed = key_traces.untracked_files_with(log, self.choice.keys, self.cluster.clock.now_ms())
            if self.now:
                taken = {file.path for made in about.versions for file in made.removed}
                self.files_removed += len(deletion.remove_files(log, sorted(taken | before)))
            if unnamed:
                # A writer may be about to commit them.
                delay = max(usual, ORPHAN_MS)
        if self.cluster.store.scheduler.is_remote:
            # Appends that waited beside the table, and were not removed by the writer that committed them.
            delay = max(delay, WAITING_MS)
        self.gone_after_ms = max(self.gone_after_ms, self.cluster.clock.now_ms() + delay)
        log.clean_log()

    def _begun(self, log: TopicLog, paper: CertificateFile) -> record_removal.TopicForgotten:
        """Return the certificate's entry of a topic, completed with versions that a killed run could not record."""
        info = log.info
        known = paper.certificate.topic(info.table_id)
        if known is None:
            return record_removal.TopicForgotten(
                topic=info.name,
                topic_id=str(info.table_id),
                location=info.location,
                source=self.choice.source if info.name != self.choice.source else None,
            )
        more = versions_of_run(log, self.id, {made.version for made in known.versions})
        return replace(known, versions=(*known.versions, *more))

    def _with_tombstones(
        self,
        log: TopicLog,
        remover: deletion.Remover,
        takings: Mapping[int, record_removal.Taking],
        about: record_removal.TopicForgotten,
    ) -> tuple[dict[int, record_removal.Taking], record_removal.TopicForgotten]:
        """Write tombstones before records are removed, so that readers learn of them even after an interrupt."""
        by_key: dict[int, dict[bytes, record_removal.KeyFound]] = {}
        for piece in remover.found(takings, by_key=True):
            _add_keys(by_key, piece)
        batch, kept, now = RecordBatch(), dict[int, list[int]](), self.cluster.clock.now_ms()
        for p, found in sorted(by_key.items()):
            for key, new in sorted(record_removal.tombstones_wanted(found).items()):
                if new:
                    batch.add(p, key, None, now)
                else:
                    kept.setdefault(p, []).append(found[key].last)
        runs = {p: record_removal.runs_of(offsets) for p, offsets in kept.items()}
        if len(batch):
            for p, run in log.append(batch).ranges.items():
                runs[p] = record_removal.joined(runs.get(p, ()), [run])
        self.tombstones += len(batch)
        tombstones = {p: record_removal.joined(about.tombstones.get(p, ()), run) for p, run in runs.items()}
        spared = {p: replace(one, spared=frozenset(kept.get(p, ()))) for p, one in takings.items()}
        return spared, replace(about, tombstones={**about.tombstones, **tombstones})
