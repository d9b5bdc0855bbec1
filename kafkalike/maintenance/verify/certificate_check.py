"""Certificate check: what is not, or not yet, as the certificate of a run that forgot keys says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkalike.delta.damage import storage_errors
from kafkalike.delta.layout import BROKERS, CONTROL_TABLES, LEASES, LOCKS, is_folder_of
from kafkalike.errors import CorruptRecordError, IllegalArgumentError
from kafkalike.log.cluster.topic_lineage import relatives_of
from kafkalike.log.topic.segment_rows import read_segment
from kafkalike.log.topic.topic_commits import sha256_of
from kafkalike.maintenance.verify.key_traces import keys_left
from kafkalike.maintenance.verify.verify_report import Finding, Report
from kafkalike.model.clock import utc_text
from kafkalike.model.maintenance.purge_certificate import Certificate, TopicForgotten
from kafkalike.model.maintenance.record_removal import runs_of, within

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.storage.port import Storage

NO_RECORDS: Final = frozenset({*CONTROL_TABLES, LEASES, LOCKS, BROKERS})
"""Folders of the root that are no topic's, and never have a record. In all others records of any topic may wait, to
come or to go, or lie aside: those of transactions and jobs, deleted topics, what a repair kept, what mirrors staged."""


def check_certificate(
    cluster: Cluster,
    certificate: Certificate,
    keys: Collection[bytes] = (),
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Report:
    """Check that what a certificate says has come about.

    That is: none of the files is left that held the records; no offset of theirs has a record; the files that took
    their place are as they were, as far as they are still there. With the keys, also: no record with one is left in any
    file below the folders of the topics, of their copies and of those they are copies of, live or not, nor in any
    folder that is no topic's; and their bytes stand nowhere there, which is a warning, as values and other keys may
    have them. Of several roots each is looked at, whether it has a replica or had one; one that gives no answer is an
    error.

    Args:
        cluster: where the topics are.
        certificate: what was written down.
        keys: the keys, all of them, in clear; none leaves that search out.
        progress: called with the bytes of each file that was searched.

    Raises:
        IllegalArgumentError: the keys are not those of the certificate, or it is of another root.
        KafkaStorageError: the storage does not answer.
    """
    # A cluster may have got other roots since; no root is ever of two.
    if not set(certificate.root.split(",")) & set(cluster.root.split(",")):
        raise IllegalArgumentError(f"the certificate is about {certificate.root}, not {cluster.root}")
    if keys and not certificate.about(sorted(set(keys))):
        raise IllegalArgumentError("these are not the keys of the certificate, or not all of them")
    report = Report()
    if not certificate.finished:
        message = "the run is not finished: give its file to `kafkalike forget` again"
        report.findings.append(Finding(kind="certificate-unfinished", message=message))
    with storage_errors(cluster.root):
        _check(cluster, certificate, keys, report, progress)
    return report


def _check(
    cluster: Cluster,
    certificate: Certificate,
    keys: Collection[bytes],
    report: Report,
    progress: Callable[[int], None],
) -> None:
    brokers = {broker.id for broker in cluster.replication.brokers()}
    # All of them are known from here on, and asked.
    away = {broker for broker in brokers if not cluster.replication.alive(broker)}
    roots = cluster.roots_by_broker()
    checked = _Checked(certificate, [_Root(store, store.folders()) for store in roots.values()])
    known = cluster.topics()
    copies = {name: known[name].location for name in _relatives_now(cluster, certificate) if name in known}
    for topic in certificate.topics:
        _check_topic(cluster, checked, topic, copies, report)
    if keys:
        owners = {topic.location: topic.topic for topic in certificate.topics}
        owners |= {location: name for name, location in copies.items()}
        others = [*NO_RECORDS, *(info.location for info in known.values() if info.location not in owners)]
        for folder, location in checked.searched(owners, others):
            spared = _tombstones(certificate, location)
            report.findings += keys_left(folder, owners.get(location), keys, spared, progress)
    # One that went away meanwhile may have looked empty.
    away |= brokers - roots.keys() | {broker for broker in brokers if not cluster.replication.alive(broker)}
    report.findings += [_unheard(broker) for broker in sorted(away)]


@dataclass(frozen=True, slots=True)
class _Root:
    """A root, and the folders that it has."""

    store: Storage
    folders: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Checked:
    """A certificate, and where it is checked."""

    certificate: Certificate
    roots: Sequence[_Root]

    def folders(self, location: str) -> Iterator[tuple[_Root, str]]:
        """Where a table has, or had, its files."""
        for root in self.roots:
            for folder in root.folders:
                if is_folder_of(folder, location):
                    yield root, folder

    def searched(self, owned: Collection[str], others: Collection[str]) -> Iterator[tuple[Storage, str]]:
        """The folders of some tables, each with the table's location, and all that are no table's, with an empty one.

        Args:
            owned: locations of the tables.
            others: those of other ones, which are left out.
        """
        for root in self.roots:
            for folder in root.folders:
                if not any(is_folder_of(folder, location) for location in others):
                    of = next((location for location in owned if is_folder_of(folder, location)), "")
                    yield root.store.at(folder), of


def _unheard(broker: int) -> Finding:
    return Finding(kind="broker-away", message=f"broker {broker} gives no answer: nobody knows what its root has")


def _relatives_now(cluster: Cluster, certificate: Certificate) -> set[str]:
    """The topics that have files in common with those of a certificate: at that time, or since then."""
    now = relatives_of(cluster, [topic.topic_id for topic in certificate.topics])
    return {*certificate.copies, *certificate.origins, *now.names}


def _check_topic(
    cluster: Cluster,
    checked: _Checked,
    topic: TopicForgotten,
    copies: Mapping[str, str],
    report: Report,
) -> None:
    report.topics += 1
    report.findings += _files_left(checked, topic, copies)
    info = cluster.topics().get(topic.topic)
    if info is None or info.table_id != topic.topic_id:
        # With the topic all of its records went.
        return
    log = cluster.log(topic.topic)
    log.refresh()
    if topic.versions and log.version < max(made.version for made in topic.versions):
        message = f"its table is at version {log.version}, older than what the certificate says: it was taken back"
        report.findings.append(Finding(kind="certificate-version", message=message, topic=topic.topic))
    for made in topic.versions:
        for segment in _live(log, made.partition, made.offsets):
            report.segments += 1
            try:
                held = {
                    offset
                    for table in read_segment(log.files, segment, ("offset",))
                    for offset in table.column("offset").to_pylist()
                }
            except CorruptRecordError as error:
                report.findings.append(
                    Finding(kind="damaged-file", message=str(error), topic=topic.topic, partition=made.partition)
                )
                continue
            back = [run for taken in within(made.offsets, segment.offsets) for run in runs_of(held.intersection(taken))]
            report.findings += [
                Finding(
                    kind="record-not-gone",
                    message=f"there are records again, in {segment.path}",
                    topic=topic.topic,
                    partition=made.partition,
                    offsets=run,
                )
                for run in back
            ]
        report.findings += [
            Finding(
                kind="file-changed",
                message=f"{file.path} is not what the run has written",
                topic=topic.topic,
                partition=made.partition,
            )
            for file in made.added
            if _hash_now(log.files, file.path) not in {None, file.sha256}
        ]


def _files_left(checked: _Checked, topic: TopicForgotten, copies: Mapping[str, str]) -> Iterator[Finding]:
    """Files that held the records and are there still: the topic's, or by the same names those of its relatives."""
    owners: dict[str, str | None] = dict.fromkeys([topic.location])
    owners |= {location: name for name, location in copies.items() if location != topic.location}
    for made in topic.versions:
        for file in made.removed:
            for location, other in owners.items():
                for root, folder in checked.folders(location):
                    if not _is_there(root.store.at(folder), file.path):
                        continue
                    why = f"maintenance removes it from {utc_text(checked.certificate.gone_after_ms)} on"
                    if other is not None:
                        why = f"forget the keys in {other} too"
                    place = folder if len(checked.roots) == 1 else f"{root.store.uri}/{folder}"
                    message = f"{place}/{file.path} is there still: {why}"
                    yield Finding(kind="file-not-gone", message=message, topic=topic.topic, partition=made.partition)


def _live(log: TopicLog, partition: int, offsets: Sequence[range]) -> list[Any]:
    found = {s.path: s for run in offsets for s in log.segments_within(partition, run)}
    return list(found.values())


def _is_there(files: Storage, path: str) -> bool:
    try:
        files.size(path)
    except FileNotFoundError:
        return False
    return True


def _hash_now(files: Storage, path: str) -> str | None:
    """SHA-256 of a file; None where it is gone, as maintenance has put its records into another one."""
    try:
        return sha256_of(files, path)
    except FileNotFoundError:
        return None


def _tombstones(certificate: Certificate, folder: str) -> frozenset[tuple[int, int]]:
    """Partition and offset of records that have a key on purpose."""
    return frozenset(
        (partition, offset)
        for topic in certificate.topics
        if topic.location == folder
        for partition, runs in topic.tombstones.items()
        for run in runs
        for offset in run
    )
