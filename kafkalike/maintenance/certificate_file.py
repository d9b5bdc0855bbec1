"""Certificate file: the certificate of a run that forgets keys, from which a killed run can be resumed."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import uuid
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalike.delta.actions import Add, TableCommit, log_name, parse_commit
from kafkalike.errors import CorruptRecordError, IllegalArgumentError, KafkaStorageError
from kafkalike.log.topic.segment_rows import read_segment
from kafkalike.log.topic.topic_commits import RUN_KEY, segment_of, sha256_of, versions
from kafkalike.maintenance.handles import lies_below
from kafkalike.model.clock import Clock
from kafkalike.model.concurrency import OnError
from kafkalike.model.maintenance.purge_certificate import Certificate, FileHash, VersionMade, parse_certificate
from kafkalike.model.maintenance.record_removal import fingerprint, runs_of
from kafkalike.version import user_and_host

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.segments import Segment


_SALT_BYTES: Final = 32


class CertificateFile:
    """A certificate, and the file that it is written to.

    Args:
        certificate: as it stands.
        path: where it is written; None keeps it in memory.
        there: what the file has; None where there is none.
    """

    def __init__(self, certificate: Certificate, path: Path | None, there: str | None = None) -> None:
        self.certificate = certificate
        self._path = path
        self._there = there

    def put(self, certificate: Certificate) -> None:
        """Write it down; who reads the file meanwhile finds the old one or the new one, whole.

        Raises:
            IllegalArgumentError: somebody else has written to the file: what two runs wrote there in turn would lack
                what the other one has done.
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
    """Keep other runs from writing to a folder's certificates, where the system has such locks."""
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
    """What a file has, as far as it is text; None where there is none."""
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
    """The certificate of a run that begins, or of one that was cut off and goes on.

    Args:
        cluster: where it runs.
        given: the file; None keeps it in memory.
        keys: the keys.
        topic: their topic.
        reason: why.
        clock: time.

    Raises:
        IllegalArgumentError: the file would lie below the root, or is the certificate of a finished run, or of another.
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
    made = Certificate(
        run=uuid.uuid4().hex,
        root=cluster.root,
        began_ms=clock.now_ms(),
        who="@".join(user_and_host()),
        reason=reason,
        salt=salt,
        fingerprints=tuple(sorted(fingerprint(salt, key) for key in keys)),
    )
    paper = CertificateFile(made, path)
    paper.put(made)
    return paper


def _gone_on_with(text: str, path: Path, cluster: Cluster, keys: frozenset[bytes], topic: str) -> Certificate:
    """The certificate of a run that was cut off.

    Raises:
        IllegalArgumentError: it is none that this run may go on with.
    """
    found = parse_certificate(text)
    if found.finished:
        raise IllegalArgumentError(f"the certificate {path} is of a run that is finished; name another file")
    if not found.about(sorted(keys)) or found.root != cluster.root:
        raise IllegalArgumentError(f"the certificate {path} is of another run, with other keys or at another root")
    topics = {one.topic for one in found.topics if one.source is None}
    if topics - {topic}:
        raise IllegalArgumentError(f"the certificate {path} is about topic {', '.join(sorted(topics))}, not {topic}")
    return found


def versions_of_run(log: TopicLog, run: str, known: Collection[int]) -> list[VersionMade]:
    """The table versions of a run that was killed before it could write them down.

    Args:
        log: the topic.
        run: id of the run.
        known: versions that are written down.

    Raises:
        KafkaStorageError: a file that one of them took out is gone: there is no saying any more what it held.
    """
    files = log.files
    found: list[TableCommit] = []
    sources: dict[str, Add] = {}
    for version in versions(files):
        try:
            commit = parse_commit(version, files.read(log_name(version)), files.uri)
        except FileNotFoundError:
            # Cleaned up meanwhile.
            continue
        sources |= {add.path: add for add in commit.adds}
        if commit.note.get(RUN_KEY) == run and commit.removes and version not in known:
            found.append(commit)
    return [made for commit in found for made in _made(log, commit, sources)]


def _made(log: TopicLog, commit: TableCommit, sources: dict[str, Add]) -> Iterator[VersionMade]:
    files = log.files
    try:
        before = [segment_of(sources[path], files) for path in commit.removes]
        after = [segment_of(add, files) for add in commit.adds]
        removed, added = _hashes(log, before), _hashes(log, after)
        for partition in sorted({s.partition for s in before}):
            kept = _offsets(log, [s for s in after if s.partition == partition])
            held = _offsets(log, [s for s in before if s.partition == partition])
            yield VersionMade(
                version=commit.version,
                partition=partition,
                removed=removed,
                added=added,
                offsets=runs_of(held - kept),
            )
    except (KeyError, FileNotFoundError, CorruptRecordError) as cause:
        raise KafkaStorageError(
            f"{log.info.name}: version {commit.version} is of this run, and what it took cannot be told any more: "
            f"{cause}; begin a new certificate"
        ) from cause


def _hashes(log: TopicLog, segments: Collection[Segment]) -> tuple[FileHash, ...]:
    return tuple(FileHash(path=s.path, size=s.size_bytes, sha256=sha256_of(log.files, s.path)) for s in segments)


def _offsets(log: TopicLog, segments: Collection[Segment]) -> set[int]:
    tables = (table for s in segments for table in read_segment(log.files, s, ("offset",)))
    return {offset for table in tables for offset in table.column("offset").to_pylist()}
