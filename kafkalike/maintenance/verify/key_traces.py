"""Key traces: files of a topic, in its table or beside it, that have a record with a key or its bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from kafkalike.delta.commit_bundles import unpacked
from kafkalike.errors import CorruptRecordError
from kafkalike.log.topic.batch_payload import unpack
from kafkalike.maintenance.vacuum import Delays, leftovers
from kafkalike.maintenance.verify.verify_report import Finding
from kafkalike.storage.parquet import UNREADABLE, is_storage_error, open_parquet
from kafkalike.storage.port import TABLE_LOG

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.storage.port import Storage


PART_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a file that are searched at a time."""

SHORTEST: Final = 8
"""Bytes of the shortest key that is looked for outside of the column of keys: shorter ones stand anywhere by chance."""

MOST_WHOLE: Final = 64 * 1024 * 1024
"""Largest file, bytes, that is read whole: appends that wait, and joined commits, have less."""


def keys_left(
    files: Storage,
    topic: str | None,
    keys: Collection[bytes],
    spared: Collection[tuple[int, int]] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Finding]:
    """Look for keys in all files of a folder, those of a table's log too.

    Args:
        files: the folder.
        topic: for the findings; None where it is no topic's.
        keys: in clear.
        spared: partition and offset of records that may have one.
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
            # Maintenance was there meanwhile; a root that is gone says so when it is asked for a size.
            with contextlib.suppress(FileNotFoundError):
                files.size(name)
            continue
        finally:
            progress(size)


def has_record(files: Storage, name: str, keys: Collection[bytes]) -> bool:
    """Whether a data file has a record with one of some keys; one that cannot be read may have.

    Raises:
        FileNotFoundError: it is gone.
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
    """One search.

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
        """What one file has."""
        records, decoded, has_spared = self._decoded(name, size)
        if records:
            message = f"{self._files.uri}/{name} has {records} records with such a key"
            yield Finding(kind="key-not-gone", message=message, topic=topic)
        elif not has_spared and (decoded or self._raw(name)):
            message = f"{self._files.uri}/{name} has the bytes of such a key, in a value, a header or another key"
            yield Finding(kind="key-bytes", message=message, topic=topic, warning=True)

    def among(self, column: pa.Array) -> bool:
        """Whether a column of keys has one."""
        return bool(pc.any(pc.is_in(column.cast(pa.binary()), value_set=self._wanted)).as_py())

    def _raw(self, name: str) -> bool:
        """Whether a file has the bytes of a key as it is."""
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
        """Records with a key; whether its bytes are anywhere; whether a record may have one on purpose."""
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
            # No file of ours, or a damaged one: it is searched as it is.
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
        """Whether the texts and bytes of a column have the bytes of a key."""
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
    """Files with such records that merging or compaction has replaced, or that a killed process has written.

    Args:
        log: the topic.
        keys: in clear.
        now_ms: the time, ms.

    Returns:
        Those that were part of the table, and those of which nobody knows: a writer may be about to commit one.

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
