"""Certificate file: the certificate of a run that forgets keys, how a killed run resumes from it, and its check."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalike.delta.actions import Add, TableCommit, log_name, parse_commit
from kafkalike.delta.damage import storage_errors
from kafkalike.delta.layout import BROKERS, CONTROL_TABLES, LEASES, LOCKS, is_folder_of
from kafkalike.errors import CorruptRecordError, IllegalArgumentError, KafkaStorageError
from kafkalike.log.cluster.topic_lineage import relatives_of
from kafkalike.log.topic.segment_rows import read_segment
from kafkalike.log.topic.topic_commits import RUN_KEY, segment_of, sha256_of, versions
from kafkalike.maintenance.handles import lies_below
from kafkalike.maintenance.verify.key_traces import keys_left
from kafkalike.maintenance.verify.verify_report import Finding, VerifyReport
from kafkalike.model.clock import Clock, utc_text
from kafkalike.model.concurrency import OnError
from kafkalike.model.maintenance import record_removal
from kafkalike.version import user_and_host

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.segments import Segment
    from kafkalike.storage.port import Storage


_SALT_BYTES: Final = 32


class CertificateFile:
    """A certificate and its file.

    Args:
        certificate: the current certificate.
        path: the file; None keeps the certificate in memory.
        there: the file's content; None if it does not exist.
    """

    def __init__(self, certificate: record_removal.Certificate, path: Path | None, there: str | None = None) -> None:
        self.certificate = certificate
        self._path = path
        self._there = there

    def put(self, certificate: record_removal.Certificate) -> None:
        """Write the certificate atomically.

        Raises:
            IllegalArgumentError: another run has written to the file, and each run would overwrite the other's
                progress.
        """
        if self._path is None:
            self.certificate = certificate
            return
        text = certificate.to_json()
        beside = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex}.tmp")
        with _alone(self._path.parent):
            if _text_of(self._path) != self._there:
                raise IllegalArgumentError(f"another run writes to the certificate {self._path}; name another file")
            with OnError(partial(beside.unlink, missing_ok=True)):
                beside.write_text(text, encoding="utf-8")
                beside.replace(self._path)
            self.certificate, self._there = certificate, text


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Exclude other runs from the certificates in a folder, if the system has such locks."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _text_of(path: Path) -> str | None:
    """Return the content of a file as text; None if it does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def open_certificate_file(
    cluster: Cluster,
    given: str | os.PathLike[str] | None,
    *,
    keys: frozenset[bytes],
    topic: str,
    reason: str,
    clock: Clock,
) -> CertificateFile:
    """Return the certificate of a new run, or of an interrupted run that continues.

    Args:
        cluster: the cluster.
        given: the file; None keeps the certificate in memory.
        keys: the keys.
        topic: the keys' topic.
        reason: the reason of the run.
        clock: time.

    Raises:
        IllegalArgumentError: the file would lie below the root, or belongs to a finished or another run.
    """
    path = None if given is None else Path(given).absolute()
    if path is not None:
        if lies_below(path, cluster):
            raise IllegalArgumentError(f"the certificate {path} would lie below the root; it must be kept elsewhere")
        if path.is_dir() or not path.parent.is_dir():
            raise IllegalArgumentError(f"the certificate {path} cannot be written: name a file in a folder that exists")
        there = _text_of(path)
        if there is not None:
            return CertificateFile(_gone_on_with(there, path, cluster, keys, topic), path, there)
    salt = secrets.token_bytes(_SALT_BYTES)
    made = record_removal.Certificate(
        run=uuid.uuid4().hex,
        root=cluster.root,
        began_ms=clock.now_ms(),
        who="@".join(user_and_host()),
        reason=reason,
        salt=salt,
        fingerprints=tuple(sorted(record_removal.fingerprint(salt, key) for key in keys)),
    )
    paper = CertificateFile(made, path)
    paper.put(made)
    return paper


def _gone_on_with(
    text: str, path: Path, cluster: Cluster, keys: frozenset[bytes], topic: str
) -> record_removal.Certificate:
    """Return the certificate of an interrupted run.

    Raises:
        IllegalArgumentError: this run may not continue it.
    """
    found = record_removal.parse_certificate(text)
    if found.finished:
        raise IllegalArgumentError(f"the certificate {path} is of a run that is finished; name another file")
    if not found.about(sorted(keys)) or found.root != cluster.root:
        raise IllegalArgumentError(f"the certificate {path} is of another run, with other keys or at another root")
    topics = {one.topic for one in found.topics if one.source is None}
    if topics - {topic}:
        raise IllegalArgumentError(f"the certificate {path} is about topic {', '.join(sorted(topics))}, not {topic}")
    return found


def versions_of_run(log: TopicLog, run: str, known: Collection[int]) -> list[record_removal.VersionMade]:
    """Return the table versions of a run that was killed before it could record them.

    Args:
        log: the topic.
        run: id of the run.
        known: versions that are recorded.

    Raises:
        KafkaStorageError: a file that a version removed is missing, so its records are unknown.
    """
    files = log.files
    found: list[TableCommit] = []
    sources: dict[str, Add] = {}
    for version in versions(files):
        try:
            commit = parse_commit(version, files.read(log_name(version)), files.uri)
        except FileNotFoundError:
            # Log cleaning has removed it meanwhile.
            continue
        sources |= {add.path: add for add in commit.adds}
        if commit.note.get(RUN_KEY) == run and commit.removes and version not in known:
            found.append(commit)
    return [made for commit in found for made in _made(log, commit, sources)]


def _made(log: TopicLog, commit: TableCommit, sources: dict[str, Add]) -> Iterator[record_removal.VersionMade]:
    files = log.files
    try:
        before = [segment_of(sources[path], files) for path in commit.removes]
        after = [segment_of(add, files) for add in commit.adds]
        removed, added = _hashes(log, before), _hashes(log, after)
        for partition in sorted({s.partition for s in before}):
            kept = _offsets(log, [s for s in after if s.partition == partition])
            held = _offsets(log, [s for s in before if s.partition == partition])
            yield record_removal.VersionMade(
                version=commit.version,
                partition=partition,
                removed=removed,
                added=added,
                offsets=record_removal.runs_of(held - kept),
            )
    except (KeyError, FileNotFoundError, CorruptRecordError) as cause:
        raise KafkaStorageError(
            f"{log.info.name}: version {commit.version} is of this run, and its removed records are unknown: "
            f"{cause}; start again with a new certificate"
        ) from cause


def _hashes(log: TopicLog, segments: Collection[Segment]) -> tuple[record_removal.FileHash, ...]:
    return tuple(
        record_removal.FileHash(path=s.path, size=s.size_bytes, sha256=sha256_of(log.files, s.path)) for s in segments
    )


def _offsets(log: TopicLog, segments: Collection[Segment]) -> set[int]:
    tables = (table for s in segments for table in read_segment(log.files, s, ("offset",)))
    return {offset for table in tables for offset in table.column("offset").to_pylist()}


NO_RECORDS: Final = frozenset({*CONTROL_TABLES, LEASES, LOCKS, BROKERS})
"""Folders of the root that never hold records of topics. All others may hold waiting or removed records of any topic:
folders of transactions and jobs, deleted topics, files kept by repairs, files staged by mirrors."""


def check_certificate(
    cluster: Cluster,
    certificate: record_removal.Certificate,
    keys: Collection[bytes] = (),
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> VerifyReport:
    """Check that a certificate still holds.

    No file that held the records exists; no record has their offsets; existing replacement files are
    unchanged. With the keys, also: no file, live or not, below the folders of the topics, their copies and their
    origins, or in a folder without a topic, has a record with such a key. If the keys' bytes occur elsewhere in
    these files, this is a warning, because values and other keys may contain them. All roots are checked, whether they
    have a replica or had one; a root that does not answer is an error.

    Args:
        cluster: the cluster with the topics.
        certificate: the certificate.
        keys: all keys, in clear; none skips the search for keys.
        progress: called with the bytes of each searched file.

    Raises:
        IllegalArgumentError: the keys differ from the certificate's, or it belongs to another root.
        KafkaStorageError: the storage does not answer.
    """
    # The cluster may have gained roots; a root never belongs to two clusters.
    if not set(certificate.root.split(",")) & set(cluster.root.split(",")):
        raise IllegalArgumentError(f"the certificate is about {certificate.root}, not {cluster.root}")
    if keys and not certificate.about(sorted(set(keys))):
        raise IllegalArgumentError("these are not the keys of the certificate, or not all of them")
    report = VerifyReport()
    if not certificate.finished:
        message = "the run is not finished: give its file to `kafkalike forget` again"
        report.findings.append(Finding(kind="certificate-unfinished", message=message))
    with storage_errors(cluster.root):
        _check(cluster, certificate, keys, report, progress)
    return report


def _check(
    cluster: Cluster,
    certificate: record_removal.Certificate,
    keys: Collection[bytes],
    report: VerifyReport,
    progress: Callable[[int], None],
) -> None:
    brokers = {broker.id for broker in cluster.replication.brokers()}
    # From here on, all roots are known and checked.
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
    # A root that went away meanwhile may have looked empty.
    away |= brokers - roots.keys() | {broker for broker in brokers if not cluster.replication.alive(broker)}
    report.findings += [_unheard(broker) for broker in sorted(away)]


@dataclass(frozen=True, slots=True)
class _Root:
    """A root and its folders."""

    store: Storage
    folders: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Checked:
    """A certificate, and the roots to check."""

    certificate: record_removal.Certificate
    roots: Sequence[_Root]

    def folders(self, location: str) -> Iterator[tuple[_Root, str]]:
        """Yield the folders with current or former files of a table."""
        for root in self.roots:
            for folder in root.folders:
                if is_folder_of(folder, location):
                    yield root, folder

    def searched(self, owned: Collection[str], others: Collection[str]) -> Iterator[tuple[Storage, str]]:
        """Yield the folders of tables with their locations, and folders without a table with an empty one.

        Args:
            owned: locations of the tables to search.
            others: locations of tables to skip.
        """
        for root in self.roots:
            for folder in root.folders:
                if not any(is_folder_of(folder, location) for location in others):
                    of = next((location for location in owned if is_folder_of(folder, location)), "")
                    yield root.store.at(folder), of


def _unheard(broker: int) -> Finding:
    return Finding(kind="broker-away", message=f"broker {broker} gives no answer: nobody knows what its root has")


def _relatives_now(cluster: Cluster, certificate: record_removal.Certificate) -> set[str]:
    """Return the topics that have shared files with the topics of a certificate, then or since."""
    now = relatives_of(cluster, [topic.topic_id for topic in certificate.topics])
    return {*certificate.copies, *certificate.origins, *now.names}


def _check_topic(
    cluster: Cluster,
    checked: _Checked,
    topic: record_removal.TopicForgotten,
    copies: Mapping[str, str],
    report: VerifyReport,
) -> None:
    report.topics += 1
    report.findings += _files_left(checked, topic, copies)
    info = cluster.topics().get(topic.topic)
    if info is None or info.table_id != topic.topic_id:
        # All of its records were deleted with the topic.
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
                held = _offsets(log, [segment])
            except CorruptRecordError as error:
                report.findings.append(
                    Finding(kind="damaged-file", message=str(error), topic=topic.topic, partition=made.partition)
                )
                continue
            back = [
                run
                for taken in record_removal.within(made.offsets, segment.offsets)
                for run in record_removal.runs_of(held.intersection(taken))
            ]
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


def _files_left(
    checked: _Checked, topic: record_removal.TopicForgotten, copies: Mapping[str, str]
) -> Iterator[Finding]:
    """Find files that held the records and still exist, in the topic or under the same names in its relatives."""
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
    """Return the SHA-256 of a file; None if maintenance has replaced it since."""
    try:
        return sha256_of(files, path)
    except FileNotFoundError:
        return None


def _tombstones(certificate: record_removal.Certificate, folder: str) -> frozenset[tuple[int, int]]:
    """Return partition and offset of the tombstones that a run has written or kept."""
    return frozenset(
        (partition, offset)
        for topic in certificate.topics
        if topic.location == folder
        for partition, runs in topic.tombstones.items()
        for run in runs
        for offset in run
    )
