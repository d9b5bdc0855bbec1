"""Key traces: find records and files of a topic that still hold a key, and the other holders of such records.

Other holders are transactions with staged records that are not committed yet, and topics that share files with the
topic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from kafkalike.delta.commit_bundles import unpacked
from kafkalike.errors import CorruptRecordError, KafkaError, KafkaTimeoutError
from kafkalike.log.topic.batch_payload import unpack
from kafkalike.maintenance.deletion import Remover
from kafkalike.maintenance.verify.verify_report import Finding
from kafkalike.maintenance.works.vacuum import Delays, leftovers
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.maintenance.record_removal import Taking
from kafkalike.model.transactions.transaction_views import TransactionState as State
from kafkalike.storage.parquet import UNREADABLE, is_storage_error, open_parquet
from kafkalike.storage.port import TABLE_LOG, Storage

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog


PART_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a file to search at a time."""

SHORTEST: Final = 8
"""Minimum size, bytes, of keys to search for outside of key columns, because shorter keys occur anywhere by chance."""

MOST_WHOLE: Final = 64 * 1024 * 1024
"""Maximum size, bytes, of a file to read as a whole; waiting appends and commit bundles are smaller."""


def keys_left(
    files: Storage,
    topic: str | None,
    keys: Collection[bytes],
    spared: Collection[tuple[int, int]] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Finding]:
    """Search for keys in all files of a folder, including the files of a table's log.

    Args:
        files: the folder.
        topic: for the findings; None if the folder belongs to no topic.
        keys: in clear.
        spared: partition and offset of records that may have a key.
        progress: called with the bytes of each file.

    Raises:
        OSError: the storage does not answer.
    """
    entries = [(entry.name, entry.size) for entry in files.list(deep=True)]
    entries += [(f"{TABLE_LOG}/{entry.name}", entry.size) for entry in files.list(TABLE_LOG)]
    search = _Search(files, keys, spared)
    for name, size in sorted(entries):
        try:
            yield from search.found(name, size, topic)
        except FileNotFoundError:
            # Maintenance has removed it meanwhile; a missing root raises when it is asked for the size.
            with contextlib.suppress(FileNotFoundError):
                files.size(name)
            continue
        finally:
            progress(size)


def has_record(files: Storage, name: str, keys: Collection[bytes]) -> bool:
    """Return whether a data file has a record with any of the keys, or cannot be read.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError: the storage does not answer.
    """
    search = _Search(files, keys, ())
    try:
        with open_parquet(files, name) as file:
            return any("key" in b.schema.names and search.among(b.column("key")) for b in file.iter_batches())
    except FileNotFoundError:
        raise
    except UNREADABLE as cause:
        if is_storage_error(cause):
            raise
        return True


class _Search:
    """A search for keys in the files of a folder.

    Args:
        files: the folder.
        keys: in clear.
        spared: see `keys_left`.
    """

    def __init__(self, files: Storage, keys: Collection[bytes], spared: Collection[tuple[int, int]]) -> None:
        self._files = files
        self._keys = frozenset(keys)
        self._wanted = pa.array(sorted(self._keys), pa.binary())
        self._long = [key for key in sorted(self._keys) if len(key) >= SHORTEST]
        self._spared = frozenset(spared)

    def found(self, name: str, size: int, topic: str | None) -> Iterator[Finding]:
        """Yield the findings about a file."""
        records, decoded, has_spared = self._decoded(name, size)
        if records:
            message = f"records with such a key in {self._files.uri}/{name}: {records}"
            yield Finding(kind="key-not-gone", message=message, topic=topic)
        elif not has_spared and (decoded or self._raw(name)):
            message = f"{self._files.uri}/{name} has the bytes of such a key, in a value, a header or another key"
            yield Finding(kind="key-bytes", message=message, topic=topic, warning=True)

    def among(self, column: pa.Array) -> bool:
        """Return whether a column of keys has any of the keys."""
        return bool(pc.any(pc.is_in(column.cast(pa.binary()), value_set=self._wanted)).as_py())

    def _raw(self, name: str) -> bool:
        """Return whether the raw bytes of a file contain a key."""
        if not self._long:
            return False
        kept = max(map(len, self._long)) - 1
        before = b""
        with self._files.open_input(name) as stream:
            while part := stream.read(PART_BYTES):
                before += part
                if any(key in before for key in self._long):
                    return True
                before = before[-kept:]
        return False

    def _decoded(self, name: str, size: int) -> tuple[int, bool, bool]:
        """Return the number of records with a key, whether its bytes occur at all, and whether a tombstone has it."""
        try:
            if name.endswith(".commits"):
                return 0, self._in_commits(name), False
            begins = bytes(self._files.read_range(name, 0, min(size, 6)))
            if begins[:4] == b"PAR1":
                with open_parquet(self._files, name) as file:
                    return self._in_tables(name, file.iter_batches())
            if begins == b"ARROW1":
                with self._files.open_input(name) as stream, ipc.open_file(stream) as file:
                    return self._in_tables(name, (file.get_batch(at) for at in range(file.num_record_batches)))
            if size <= MOST_WHOLE and not name.startswith(f"{TABLE_LOG}/"):
                batch = unpack(self._files.read(name))[0]
                return sum(key in self._keys for key in batch.keys if key is not None), False, False
        except FileNotFoundError:
            raise
        except (*UNREADABLE, CorruptRecordError) as cause:
            if is_storage_error(cause):
                raise
            # A foreign or damaged file: search its raw bytes.
        return 0, False, False

    def _in_commits(self, name: str) -> bool:
        return any(key in content for content in unpacked(self._files.read(name)).contents for key in self._long)

    def _in_tables(self, name: str, batches: Any) -> tuple[int, bool, bool]:  # noqa: ANN401 - an iterator of pyarrow's
        folder = name.rpartition("/")[0].rpartition("/")[2].removeprefix("partition=")
        partition = int(folder) if folder.isdigit() else -1
        records, anywhere, has_spared = 0, False, False
        for batch in batches:
            names = batch.schema.names
            if "key" in names:
                hits = pc.is_in(batch.column("key").cast(pa.binary()), value_set=self._wanted)
                offsets = pc.filter(batch.column("offset"), hits).to_pylist() if "offset" in names else []
                kept = sum((partition, offset) in self._spared for offset in offsets)
                has_spared = has_spared or kept > 0
                records += int(pc.sum(hits.cast(pa.int64())).as_py() or 0) - kept
            anywhere = anywhere or any(self._in_column(column) for column in batch.columns)
        return records, anywhere, has_spared

    def _in_column(self, column: pa.Array) -> bool:
        """Return whether the texts and bytes of a column contain a key."""
        if not self._long:
            return False
        kind = column.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return self._in_column(column.flatten())
        if pa.types.is_struct(kind):
            return any(self._in_column(part) for part in column.flatten())
        if pa.types.is_dictionary(kind):
            return self._in_column(column.dictionary)
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            content = column.buffers()[2]
            data = b"" if content is None else bytes(content)
            return any(key in data for key in self._long)
        return False


def untracked_files_with(log: TopicLog, keys: Collection[bytes], now_ms: int) -> tuple[set[str], set[str]]:
    """Return files with such records that merging or compaction has replaced, or that a killed process has left.

    Args:
        log: the topic.
        keys: in clear.
        now_ms: the time, ms.

    Returns:
        Files that were part of the table; and files that no commit has named, which a writer may be about to commit.

    Raises:
        LogCorruptError, OSError: the table's log cannot be read, or the storage does not answer.
    """
    log.refresh()
    idle = leftovers(log.files, log.live_paths, now_ms, Delays(deleted_ms=0, replaced_ms=0), orphan_ms=0)
    found: tuple[set[str], set[str]] = set(), set()
    for file in idle:
        if not file.path.endswith(".parquet"):
            continue
        with contextlib.suppress(FileNotFoundError):
            if has_record(log.files, file.path, keys):
                found[0 if file.was_live else 1].add(file.path)
    return found


LOOK_SECONDS: Final = 0.2
"""Interval between checks of open transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTransaction:
    """A transaction with records that are not readable yet."""

    id: str
    producer_id: int
    epoch: int
    number: int


def list_open_transactions(cluster: Cluster, topics: Collection[str]) -> set[PendingTransaction]:
    """Return open transactions with records for topics, and decided transactions that they lack."""
    transactions = cluster.transactions
    wanted = set(topics)
    found = [one for one in transactions.open_for() if wanted.intersection(one.topics)]
    # A transaction that was just decided is applied by its producer.
    decided = [one.transactional_id for one in transactions.listed() if one.state is State.PREPARE_COMMIT]
    described = transactions.described(decided).values() if decided else ()
    found += [one for one in described if wanted.intersection(one.unapplied)]
    return {
        PendingTransaction(id=one.transactional_id, producer_id=one.producer_id, epoch=one.epoch, number=one.number)
        for one in found
    }


def wait_for_open(cluster: Cluster, topics: Collection[str], deadline: Deadline, clock: Clock) -> None:
    """Wait until all currently open transactions have ended; later ones are ignored.

    Raises:
        KafkaTimeoutError: some are still open.
    """
    begun = list_open_transactions(cluster, topics)
    while begun:
        if deadline.expired():
            ids = ", ".join(sorted({repr(one.id) for one in begun}))
            raise KafkaTimeoutError(
                f"transactions {ids} have records for {', '.join(topics)} and are open still; nothing was done. "
                "`kafkalike transactions find-hanging` shows which ones were left, `abort` ends one"
            )
        clock.sleep(LOOK_SECONDS)
        begun &= list_open_transactions(cluster, topics)


def still_held(cluster: Cluster, topic: str, choice: KeySelection, budget: Deadline, *, of_letters: bool) -> int | None:
    """Count the records with the keys in another topic.

    Returns:
        The number; None if the topic cannot be read, which does not make the run fail.
    """
    try:
        log = cluster.log(topic)
        log.refresh()
        takings = {p: one for p, one in choice.takings(log, of_letters=of_letters).items() if one.below}
        found = Remover(log, "", work="forget", facts={}, budget=budget).found(takings)
        return sum(len(run) for piece in found for run in piece.offsets)
    except KafkaError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySelection:
    """Selects the records of keys to forget."""

    keys: frozenset[bytes]
    source: str
    """The keys' topic; dead letters of other topics stay."""

    def takings(self, log: TopicLog, *, of_letters: bool) -> dict[int, Taking]:
        """Return the current records to remove, by partition; `below` is 0 in an empty partition.

        Args:
            log: the topic, refreshed.
            of_letters: whether it has dead letters; then only letters of `source` are removed.
        """
        source = self.source if of_letters else None
        return {p: Taking(below=log.log_end(p), keys=self.keys, source=source) for p in log.info.partitions}
