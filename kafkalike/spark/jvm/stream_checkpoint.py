"""The checkpoint folder of a Spark streaming query: the query's id, and the source offsets of each batch.

Spark writes a batch's offsets (`offsets/<batch>`) before it runs the batch and never changes them afterwards, so a
repeated batch reads the same records. When the batch is done, Spark writes `commits/<batch>`. This module reads only
parts that have been stable since Spark 2: the id in `metadata`, and the lines of an offsets file. The first line is a
version, the second belongs to Spark (only the batch's time is read from it), and each of the others to one source.
"""

from __future__ import annotations

import abc
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalike.errors import IllegalArgumentError, IllegalStateError, KafkaError, KafkaStorageError
from kafkalike.model.row_value import UNREADABLE, as_text
from kafkalike.model.segments import MARK
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.jvm.java_class import java_class
from kafkalike.spark.jvm.spark_connect import need_jvm
from kafkalike.storage.object_root import object_root
from kafkalike.storage.objects import open_objects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.model.config.storage_options import StorageOptions
    from kafkalike.storage.port import Storage

METADATA: Final = "metadata"
OFFSETS: Final = "offsets"
COMMITS: Final = "commits"

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

_HEAD_LINES: Final = 2
"""Number of lines in an offsets file before the sources' lines."""


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """The offsets of one batch: the text of `offsets/<batch>`."""

    batch_id: int
    """Number of the batch, from 0."""
    text: str
    """The whole text of the file."""

    @property
    def fingerprint(self) -> bytes:
        """Return a hash of the text (32 bytes), which differs if a batch was replanned, as its time and offsets do."""
        return hashlib.sha256(self.text.encode()).digest()

    @property
    def planned_ms(self) -> int:
        """Return when the batch's offsets were requested: ms by the clock of Spark's driver, 0 if unknown.

        It is the time of `current_timestamp()` in the batch, even if the batch is repeated.
        """
        head = self.text.splitlines()[1:_HEAD_LINES]
        try:
            return max(0, int(json.loads(head[0])["batchTimestampMs"]))
        except (IndexError, ValueError, KeyError, TypeError):
            return 0

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Return the next offset to read by partition, from all sources with offsets like Spark's Kafka source.

        If two sources read a partition, the lower offset counts. Sources of other kinds are ignored.
        """
        found: dict[TopicPartition, int] = {}
        for line in self.sources:
            for tp, offset in parse_ends(line).items():
                found[tp] = min(offset, found.get(tp, offset))
        return dict(sorted(found.items()))

    @property
    def partitions(self) -> dict[str, int]:
        """Return the number of partitions of each topic that the batch reads, as far as `ends` tells."""
        found: dict[str, int] = {}
        for tp in self.ends:
            found[tp.topic] = max(tp.partition + 1, found.get(tp.topic, 0))
        return found

    @property
    def sources(self) -> list[str]:
        """Return the sources' offsets, a line for each source."""
        return self.text.splitlines()[_HEAD_LINES:]

    @property
    def reads_tables(self) -> bool:
        """Return whether a source is Delta's."""
        return any('"reservoirId"' in line for line in self.sources)

    @property
    def tables(self) -> dict[str, int]:
        """Return the Delta tables of the sources by id, with the newest version that was read to its end."""
        found: dict[str, int] = {}
        for line in self.sources:
            read = parse_table(line)
            if read is not None:
                found[read[0]] = min(read[1], found.get(*read))
        return found


def parse_table(line: str) -> tuple[str, int] | None:
    """Return the Delta table of a source, and the newest version that was read to its end.

    A source that still reads the initial snapshot of the table has not read any version to its end, because those files
    have no order.

    >>> head = '{"sourceVersion":1,"reservoirId":"t","index":-1,'
    >>> parse_table(head + '"reservoirVersion":7,"isStartingVersion":false}')
    ('t', 6)
    >>> parse_table(head + '"reservoirVersion":7,"isStartingVersion":true}'), parse_table('{"orders": {"0": 23}}')
    (None, None)
    """
    try:
        given: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(given, dict) or given.get("isStartingVersion") is not False:
        return None
    table, version = given.get("reservoirId"), given.get("reservoirVersion")
    return (table, version - 1) if isinstance(table, str) and type(version) is int and version > 0 else None


def parse_ends(line: str) -> dict[TopicPartition, int]:
    """Parse the offsets of one source: `{"orders": {"0": 23}}`; empty for offsets of another form.

    >>> parse_ends('{"orders": {"0": 23}}')
    {TopicPartition(topic='orders', partition=0): 23}
    >>> parse_ends('{"orders": {"0": 23}, "kafkalike:offsets": {"version": 1}}')
    {TopicPartition(topic='orders', partition=0): 23}
    >>> parse_ends('{"logOffset": 3}'), parse_ends("-"), parse_ends("17")
    ({}, {}, {})
    """
    try:
        given: Any = json.loads(line)
    except ValueError:
        return {}
    if isinstance(given, dict):
        given.pop(MARK, None)
    if not isinstance(given, dict) or not all(isinstance(partitions, dict) for partitions in given.values()):
        return {}
    found = {}
    for topic, partitions in given.items():
        for partition, offset in partitions.items():
            if not str(partition).isdecimal() or type(offset) is not int or offset < 0:
                return {}
            found[TopicPartition(topic, int(partition))] = offset
    return found


class CheckpointFiles(abc.ABC):
    """A query's checkpoint, in any storage.

    Args:
        location: the caller's name of it.
    """

    def __init__(self, location: str) -> None:
        self.location = location

    @abc.abstractmethod
    def _read(self, *names: str) -> str | None:
        """Return the text of a file, None if it does not exist.

        Raises:
            KafkaStorageError: the file cannot be read, or is not UTF-8.
        """

    def _unreadable(self, cause: Exception) -> KafkaStorageError:
        return KafkaStorageError(f"{self.location}: the checkpoint cannot be read: {cause}")

    def query_id(self) -> str | None:
        """Return the id of the query that owns the checkpoint; None before its first start.

        Raises:
            KafkaStorageError: the checkpoint cannot be read, or is damaged.
        """
        text = self._read(METADATA)
        if text is None:
            return None
        try:
            return as_text(json.loads(text)["id"], "id")
        except UNREADABLE as cause:
            raise KafkaStorageError(
                f"{self.location}: the checkpoint is damaged: its file {METADATA} holds no id of a query: {cause!r}. "
                "Restore the checkpoint, or start the query with a new one"
            ) from cause

    def offsets(self, batch_id: int) -> BatchOffsets:
        """Return the offsets of a batch.

        Raises:
            IllegalStateError: the checkpoint has no such batch.
        """
        text = self._read(OFFSETS, str(batch_id))
        if text is None:
            raise IllegalStateError(f"{self.location}: the checkpoint has no offsets of batch {batch_id}")
        return BatchOffsets(batch_id, text)


def check_location(location: str) -> None:
    """Refuse a location that cannot be read without Spark.

    Raises:
        IllegalArgumentError: the location is neither a folder of this machine nor in an object store.
    """
    if not _in_objects(location):
        LocalCheckpoint(location)


def checkpoint_at(location: str, storage: StorageOptions | None) -> CheckpointFiles:
    """Open a checkpoint to read it without Spark.

    Args:
        location: a path, or a URI of the scheme `file` or of an object store.
        storage: credentials and endpoint of the object store; environment variables supply the missing ones.

    Raises:
        IllegalArgumentError: a URI of another scheme.
        KafkaConfigurationError: credentials of the object store are missing.
    """
    store = open_objects(location, storage) if _in_objects(location) else None
    return LocalCheckpoint(location) if store is None else StoredCheckpoint(location, store)


def _in_objects(location: str) -> bool:
    try:
        return object_root(location) is not None
    except KafkaError as cause:
        raise IllegalArgumentError(f"the checkpoint {location} cannot be read: {cause}") from cause


class StoredCheckpoint(CheckpointFiles):
    """A checkpoint in an object store, read without Spark.

    Args:
        location: the caller's name of it.
        files: the store below that location.
    """

    def __init__(self, location: str, files: Storage) -> None:
        super().__init__(location)
        self._files = files

    def _read(self, *names: str) -> str | None:
        try:
            return self._files.read("/".join(names)).decode()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as cause:
            raise self._unreadable(cause) from cause


class LocalCheckpoint(CheckpointFiles):
    """A checkpoint in a folder of this machine, read without Spark.

    Args:
        location: a path, or a URI of the scheme `file`.

    Raises:
        IllegalArgumentError: a URI of another scheme.
    """

    def __init__(self, location: str) -> None:
        super().__init__(location)
        scheme, _, path = location.rpartition(":") if _URI.match(location) else ("file", "", location)
        if scheme != "file":
            raise IllegalArgumentError(
                f"the checkpoint {location} is not in a folder of this machine, nor in an object store"
            )
        # For Hadoop, `file:/a` and `file:///a` are the same.
        self._base = Path("/" + path.lstrip("/") if path.startswith("/") else path)

    def _read(self, *names: str) -> str | None:
        try:
            return Path(self._base, *names).read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as cause:
            raise self._unreadable(cause) from cause


class StreamCheckpoint(CheckpointFiles):
    """A query's checkpoint, read through Hadoop's file systems, like Spark itself."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        super().__init__(location)
        need_jvm(spark, "reading a checkpoint through Hadoop")
        session: Any = spark._jsparkSession  # noqa: SLF001
        self._path = java_class("org.apache.hadoop.fs.Path")
        self._text = java_class("org.apache.commons.io.IOUtils").toString
        self._base = self._path(location)
        self._files = self._base.getFileSystem(session.sessionState().newHadoopConf())

    def last_done(self) -> BatchOffsets | None:
        """Return the newest batch that is done, None before the first one."""
        return self.last(COMMITS)

    def last(self, folder: str) -> BatchOffsets | None:
        """Return the newest batch of `OFFSETS`, where it is planned, or `COMMITS`, where it is done; None without."""
        numbers = self._numbers(folder)
        return self.offsets(max(numbers)) if numbers else None

    def _read(self, *names: str) -> str | None:
        path = self._path(self._base, "/".join(names))
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return str(self._text(stream, "UTF-8"))
        finally:
            stream.close()

    def _numbers(self, folder: str) -> Sequence[int]:
        path = self._path(self._base, folder)
        if not self._files.exists(path):
            return []
        names = [str(status.getPath().getName()) for status in self._files.listStatus(path)]
        return [int(name) for name in names if name.isdecimal()]
