"""Transaction files: records of open transactions in staged files, with a folder for each transaction.

`__transactions/<producer id>-<epoch>-<number>/<n>.<topic id>`. Readers ignore them until a row of the groups' table
commits the transaction and names the files with their sizes and checksums.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalike.delta.damage import storage_errors
from kafkalike.delta.layout import TRANSACTIONS
from kafkalike.errors import CorruptRecordError, KafkaStorageError, LogCorruptError, ProducerFencedError
from kafkalike.log.runs.run_manifest import LAYOUT as RUNS
from kafkalike.log.runs.run_manifest import RunManifest, StagedRun, load_manifest
from kafkalike.log.topic.batch_payload import Loose, pack, partitions_in, unpack
from kafkalike.log.topic.transaction_append import DecidedPayload, DecidedRecords, Load, StagedFileError
from kafkalike.model.clock import Deadline, within
from kafkalike.model.transactions import transactional_id as txn
from kafkalike.storage.port import Entry, Storage, copies_of

if TYPE_CHECKING:
    from kafkalike.model.record_batch import RecordBatch


TRIES: Final = 3
"""How often a file is put before the storage counts as refusing it."""

HEAD_BYTES: Final = 1024 * 1024
"""Bytes read of a staged file to count its records."""

_FOLDER: Final = re.compile(r"(\d+)-(\d+)-(\d+)")
_FILE: Final = re.compile(r"(\d+)\.(.+)")


def folder_of(attempt: txn.TransactionAttempt) -> str:
    """Return the folder of a transaction, below `__transactions`."""
    return f"{attempt.producer_id}-{attempt.epoch}-{attempt.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesToStage:
    """Files with records of one topic, written by a job."""

    layout: str
    """Layout of the files; see `TransactionPart.layout`."""
    content: bytes
    """The manifest of the files. It is stored beside them, and the decision names it."""
    names: Sequence[str]
    """New names of the files."""
    counts: Mapping[int, int]
    """Number of records by partition."""
    move: Callable[[Storage], object]
    """Puts the files into the folder of the transaction; raises `OSError`."""


class Staging:
    """Staged files of a cluster.

    Args:
        root: the cluster's files.
    """

    def __init__(self, root: Storage) -> None:
        self._files = root.at(TRANSACTIONS)

    @property
    def far(self) -> bool:
        """True if requests should be made in parallel."""
        return self._files.scheduler.is_remote

    def put(
        self,
        attempt: txn.TransactionAttempt,
        number: int,
        topic_id: str,
        *,
        batch: RecordBatch,
        codec: str,
        deadline: Deadline | None,
    ) -> txn.StagedFile:
        """Store records in a staged file.

        Each try has a name of its own, so a file of a try whose answer was lost does no harm.

        Args:
            attempt: the transaction.
            number: first of the `TRIES` file numbers reserved for this call.
            topic_id: the topic of the records.
            batch: the records.
            codec: the producer's codec.
            deadline: until when to try.

        Raises:
            KafkaStorageError: the storage refused, or did not answer.
            ProducerFencedError: another process stages the same transaction.
        """
        return self.put_content(attempt, number, topic_id, pack(batch, codec, None), deadline)

    def put_content(
        self, attempt: txn.TransactionAttempt, number: int, topic_id: str, content: bytes, deadline: Deadline | None
    ) -> txn.StagedFile:
        """Store a file of any layout; see `put`."""
        folder = folder_of(attempt)
        failed: OSError | None = None
        with within(deadline) if deadline is not None else contextlib.nullcontext():
            for tried in range(number, number + TRIES):
                name = f"{tried}.{topic_id}"
                try:
                    if tried != number or not number:
                        self._files.make_folder(folder)
                    path = f"{folder}/{name}"
                    # "exists" may be the effect of this put, because storage clients retry.
                    if self._files.put_if_absent(path, content) or self._files.read(path) == content:
                        return txn.StagedFile(name, len(content), zlib.crc32(content))
                except OSError as cause:
                    failed = cause
                else:
                    raise ProducerFencedError(
                        f"{self._files.uri}/{folder}/{name} exists: a copy of this producer, made by a fork, wrote it"
                    )
        raise KafkaStorageError(
            f"{self._files.uri}: the storage refused the records of a transaction: {failed}"
        ) from failed

    def put_once(self, attempt: txn.TransactionAttempt, name: str, content: bytes, deadline: Deadline) -> bool:
        """Store a file under its only name; return False if it exists.

        Args:
            attempt: the transaction.
            name: the file's name, which belongs to its content alone, so the call may be repeated.
            content: its bytes.
            deadline: until when to try.

        Raises:
            KafkaStorageError: the storage refused, or did not answer; the file may be there.
        """
        folder = folder_of(attempt)
        with within(deadline), storage_errors(f"{self._files.uri}/{folder}"):
            try:
                return self._files.put_if_absent(f"{folder}/{name}", content)
            except OSError:
                # The folder may be missing.
                self._files.make_folder(folder)
                return self._files.put_if_absent(f"{folder}/{name}", content)

    def names(self, attempt: txn.TransactionAttempt) -> list[str]:
        """Return the names of the files of a transaction.

        Raises:
            KafkaStorageError: the storage does not answer.
        """
        with storage_errors(self._files.uri):
            return [entry.name for entry in self._files.at(folder_of(attempt)).list()]

    def contents(self, attempt: txn.TransactionAttempt, names: Sequence[str]) -> list[bytes]:
        """Return the content of files of a transaction.

        Raises:
            KafkaStorageError: the storage does not answer, or a file disappeared, because the transaction has ended.
        """
        folder = self._files.at(folder_of(attempt))
        try:
            with storage_errors(folder.uri):
                found: list[bytes] = folder.scheduler.beside([partial(folder.read, name) for name in names])
        except FileNotFoundError as cause:
            raise KafkaStorageError(f"{folder.uri}: a staged file disappeared: {cause}") from cause
        return found

    def place(self, attempt: txn.TransactionAttempt) -> Storage:
        """Return the folder of a transaction, which may not exist, for files that other code puts there."""
        return self._files.at(folder_of(attempt))

    def make_place(self, attempt: txn.TransactionAttempt) -> Storage:
        """Return the folder of a transaction, created if needed.

        Raises:
            OSError: the storage refused.
        """
        self._files.make_folder(folder_of(attempt))
        return self.place(attempt)

    def load(self, committed: txn.CommittedTransaction, part: txn.TransactionPart, file: txn.StagedFile) -> Loose:
        """Read a staged batch of a decision.

        Raises:
            StagedFileError: the file is missing or damaged.
            KafkaStorageError: the storage does not answer.
        """
        content = self.read(committed, part, file)
        try:
            return unpack(content)
        except CorruptRecordError as cause:
            raise self._wrong(committed, part, file, f"cannot be read: {cause}") from cause

    def read(self, committed: txn.CommittedTransaction, part: txn.TransactionPart, file: txn.StagedFile) -> bytes:
        """Return the content of a staged file of a decision, with its checksum verified.

        Raises: see `load`.
        """
        try:
            with storage_errors(self._files.uri):
                content = self._files.read(f"{folder_of(committed.attempt)}/{file.name}")
        except FileNotFoundError:
            raise self._wrong(committed, part, file, "is missing") from None
        if (len(content), zlib.crc32(content)) != (file.size, file.checksum):
            raise self._wrong(committed, part, file, "differs from the size or checksum in the decision")
        return content

    def _wrong(
        self, committed: txn.CommittedTransaction, part: txn.TransactionPart, file: txn.StagedFile, why: str
    ) -> StagedFileError:
        where = f"{self._files.uri}/{folder_of(committed.attempt)}/{file.name}"
        return StagedFileError.of(where, why, part.topic.name, committed.seq)

    def folders(self) -> list[txn.StagedFolder]:
        """Return all transactions that have staged files.

        Raises:
            KafkaStorageError: the storage does not answer.
        """
        found: dict[txn.TransactionAttempt, tuple[int, set[str]]] = {}
        with storage_errors(self._files.uri):
            entries = self._files.list(deep=True)
            now = self._files.coordination.now_ns() // 1_000_000 if entries else 0
        for entry in entries:
            folder, _, name = entry.name.rpartition("/")
            where, what = _FOLDER.fullmatch(folder), _FILE.fullmatch(name)
            if where is None:
                continue
            attempt = txn.TransactionAttempt(*map(int, where.groups()))
            since, topics = found.get(attempt, (entry.modified_ms, set()))
            found[attempt] = min(since, entry.modified_ms), topics | ({what[2]} if what else set())
        return [
            txn.StagedFolder(attempt, now - since, tuple(sorted(topics))) for attempt, (since, topics) in found.items()
        ]

    def heads(self, attempt: txn.TransactionAttempt, topic_ids: Collection[str]) -> list[tuple[str, str, bytes]]:
        """Return name, topic id and first bytes of each file of an open transaction, in any order.

        Args:
            attempt: the transaction.
            topic_ids: the topics; files of other topics are not read.

        Returns:
            Files that disappear meanwhile are left out.

        Raises:
            KafkaStorageError: the storage does not answer.
        """
        folder = self._files.at(folder_of(attempt))

        def head(entry: Entry, topic_id: str) -> list[tuple[str, str, bytes]]:
            try:
                with storage_errors(folder.uri):
                    return [
                        (entry.name, topic_id, bytes(folder.read_range(entry.name, 0, min(entry.size, HEAD_BYTES))))
                    ]
            except FileNotFoundError:
                return []

        with storage_errors(self._files.uri):
            entries = folder.list()
        named = ((entry, _FILE.fullmatch(entry.name)) for entry in entries)
        wanted = [(entry, what[2]) for entry, what in named if what and what[2] in topic_ids]
        return [one for found in folder.scheduler.beside([partial(head, *one) for one in wanted]) for one in found]

    def remove(self, producer_id: int, epoch: int, number: int | None, names: Collection[str] | None = None) -> None:
        """Remove the files of transactions. Maintenance removes the rest after a failure.

        Args:
            producer_id: the transactions' producer.
            epoch: the producer's epoch.
            number: the transaction; None for all of the epoch.
            names: the transaction's files if known; else they are listed.
        """
        with contextlib.suppress(OSError):
            if number is not None and names is not None:
                folder = folder_of(txn.TransactionAttempt(producer_id, epoch, number))
                self._remove([f"{folder}/{name}" for name in names])
                return
            head = f"{producer_id}-{epoch}-" + ("" if number is None else f"{number}/")
            self._remove([e.name for e in self._files.list(deep=True) if e.name.startswith(head)])

    def remove_empty(self) -> None:
        """Remove folders without files, left by producers killed before the first file or after the last one.

        A producer that is about to put a file creates its folder again.
        """
        if self._files.coordination.reach == "machine":
            with contextlib.suppress(OSError):
                self._remove_folders([name for name in self._files.folders() if _FOLDER.fullmatch(name)])

    def _remove(self, names: Collection[str]) -> None:
        self._files.scheduler.beside([partial(self._files.remove, name, quietly=True) for name in names])
        if self._files.coordination.reach == "machine":
            self._remove_folders({name.partition("/")[0] for name in names})

    def _remove_folders(self, folders: Collection[str]) -> None:
        for files in copies_of(self._files):
            for folder in folders:
                # Not empty if a fenced producer still stages files; the next maintenance run removes it.
                with contextlib.suppress(OSError):
                    os.rmdir(Path(files.uri, folder))  # noqa: PTH106 - a folder that may not be there


def records_of(
    staging: Staging, committed: txn.CommittedTransaction, part: txn.TransactionPart, load: Load
) -> DecidedRecords:
    """Return the records of a decision for a topic.

    Args:
        staging: the staged files.
        committed: the decision.
        part: its entry for the topic.
        load: reads a staged batch.

    Raises:
        LogCorruptError: a staged file is missing or damaged, or this release does not know the layout.
        KafkaStorageError: the storage does not answer.
    """
    if part.layout != RUNS:
        return DecidedPayload(part, load)
    # Imported late: it loads `pyarrow.compute`, 40 ms that most processes never need.
    from kafkalike.log.runs.run_payload import DecidedRuns

    return DecidedRuns(staging.place(committed.attempt), _manifests(staging, committed, part))


def check_part(staging: Staging, committed: txn.CommittedTransaction, part: txn.TransactionPart) -> None:
    """Check all staged files of a topic.

    Raises:
        StagedFileError: a file is missing, or differs from the decision. Files of Spark's tasks are checked only for
            presence and length.
        KafkaStorageError: the storage does not answer.
    """
    if part.layout != RUNS:
        for file in part.files:
            staging.load(committed, part, file)
        return
    place = staging.place(committed.attempt)
    for manifest in _manifests(staging, committed, part):
        for name in manifest.files:
            least = max(
                (run.stop for run in manifest.runs if isinstance(run, StagedRun) and run.file == name), default=0
            )
            try:
                with storage_errors(place.uri):
                    size = place.size(name)
            except FileNotFoundError:
                raise StagedFileError.of(f"{place.uri}/{name}", "is missing", part.topic.name, committed.seq) from None
            if size < least:
                raise StagedFileError.of(f"{place.uri}/{name}", "is truncated", part.topic.name, committed.seq)


def staged_counts(
    staging: Staging, attempt: txn.TransactionAttempt, topic_ids: Collection[str]
) -> dict[str, dict[int, int]]:
    """Return the staged records of an open transaction, by topic id and partition.

    Reads the beginning of each file. The counts are upper bounds, because a file whose writer got no answer may have
    been staged twice.

    Args:
        staging: the staged files.
        attempt: the transaction.
        topic_ids: the topics.

    Returns:
        Without topics that have a file whose beginning does not list its partitions, and without topics of a
        transaction that has ended meanwhile.

    Raises:
        KafkaStorageError: the storage does not answer.
    """
    found: dict[str, Counter[int]] = {}
    unclear: set[str] = set()
    for name, topic_id, content in staging.heads(attempt, topic_ids):
        counts = _counts(content, name)
        if counts is None:
            unclear.add(topic_id)
        else:
            found.setdefault(topic_id, Counter()).update(counts)
    return {topic_id: dict(counts) for topic_id, counts in found.items() if topic_id not in unclear}


def _counts(head: bytes, where: str) -> Mapping[int, int] | None:
    if not head.startswith(b"{"):
        return partitions_in(head)
    try:
        return load_manifest(head, where).counts()
    except LogCorruptError:
        # The manifest is damaged, or longer than the bytes read.
        return None


def _manifests(staging: Staging, committed: txn.CommittedTransaction, part: txn.TransactionPart) -> list[RunManifest]:
    return [load_manifest(staging.read(committed, part, file), file.name) for file in part.files]
