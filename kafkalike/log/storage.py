"""Storage: a root in, its files by relative name out; knows which storages keep several writers apart.

`file:` roots are read with the operating system's calls, all others through the object stores that `deltalake`
speaks. Data folders are never listed: Delta's log says which files there are.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from kafkalike.errors import KafkaConfigurationError, KafkaStorageError, UnsafeStorageError
from kafkalike.log.parquet import write_parquet

SAFE_SCHEMES: Final = {
    "abfs": "Azure Data Lake Gen2: rename without overwrite is atomic",
    "abfss": "Azure Data Lake Gen2: rename without overwrite is atomic",
    "gs": "Google Cloud Storage: put with a precondition is atomic",
    "hdfs": "HDFS: rename without overwrite is atomic",
}
"""Remote storages whose own Delta log store keeps several writers apart, and why."""

S3_SCHEMES: Final = ("s3", "s3a")
S3_LOCK_VARIABLE: Final = "AWS_S3_LOCKING_PROVIDER"
"""Set to `dynamodb` when every writer uses Delta's `S3DynamoDBLogStore`."""


_MISREAD: Final = re.compile(r"%[0-9a-fA-F]{2}" if os.sep == "\\" else r"%[0-9a-fA-F]{2}|\\")
"""What `deltalake` reads in another way than the operating system: escapes, and `\\` as a slash."""


def normalise_root(root: str, environ: dict[str, str] | None = None) -> tuple[str, bool]:
    """Turn what the user named into an absolute path or a URI.

    Returns:
        The root, and whether it is a local folder.

    Raises:
        UnsafeStorageError: the storage cannot keep several writers apart.
        KafkaConfigurationError: it looks like a Kafka broker's address, names no storage that is known, or is a folder
            whose name holds a backslash or something like `%20`.
    """
    environ = dict(os.environ) if environ is None else environ
    scheme = urlsplit(root).scheme if "://" in root or root.startswith("file:") else ""
    if scheme in {"", "file"}:
        if not scheme and _looks_like_broker(root):
            message = (
                f"bootstrap_servers={root!r} looks like a broker's address; kafkalike has no brokers: "
                f"name a storage root such as ./kafkalike-data (a folder of that very name: ./{root})"
            )
            raise KafkaConfigurationError(message)
        path = urlsplit(root).path if scheme else root
        if _MISREAD.search(path):
            message = (
                f"bootstrap_servers={root!r}: deltalake reads a percent sign with two digits, or a backslash, as "
                "another character; rename the folder"
            )
            raise KafkaConfigurationError(message)
        return str(Path(path).expanduser().absolute()), True
    if scheme in S3_SCHEMES:
        if environ.get(S3_LOCK_VARIABLE, "").lower() != "dynamodb":
            message = (
                f"{root}: Delta's default log store on S3 lets two drivers overwrite each other's commits, which loses "
                f"acknowledged records; use S3DynamoDBLogStore in every writer and set {S3_LOCK_VARIABLE}=dynamodb"
            )
            raise UnsafeStorageError(message)
        return root.rstrip("/"), False
    if scheme not in SAFE_SCHEMES:
        message = f"{root}: storage scheme {scheme!r} is not known; known are file, {', '.join(SAFE_SCHEMES)}, s3, s3a"
        raise KafkaConfigurationError(message)
    return root.rstrip("/"), False


def _looks_like_broker(root: str) -> bool:
    host, colon, port = root.rpartition(":")
    return root == "localhost" or (bool(colon) and port.isdigit() and "/" not in host)


REFUSALS: Final = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EMLINK}
)
"""Errors of a link that was surely not made; after any other, a network's say, it may be there or come later."""


class PutRefusedError(OSError):
    """A file was surely not made."""


class Files(Protocol):
    """Files of one table."""

    @property
    def uri(self) -> str:
        """The table's folder."""
        ...

    def read(self, name: str) -> bytes:
        """Content of a file.

        Raises:
            FileNotFoundError: there is none.
        """
        ...

    def parquet(self, name: str, buffer_size: int = 0) -> pq.ParquetFile:
        """Open a Parquet file.

        Times in INT96, as a Spark without kafkalike's settings writes them, are read as microseconds: as nanoseconds,
        the default, those after the year 2262 would come out wrong.

        Args:
            name: the file.
            buffer_size: bytes fetched at a time; 0 fetches the whole column of a row group.
        """
        ...

    def list_log(self) -> list[str]:
        """Names in the table's `_delta_log` folder; for people and recovery, not for the hot path."""
        ...

    def write(self, name: str, table: pa.Table, codec: str) -> int:
        """Write a Parquet file under a new name; returns its size in bytes.

        Raises:
            OSError, pa.ArrowException: the storage refused; on a local disk also when the table's folder is gone.
        """
        ...

    def open_output(self, name: str) -> pa.NativeFile:
        """A stream that makes a new file; for files that are written piece by piece."""
        ...

    def size(self, name: str) -> int:
        """Bytes of a file."""
        ...

    def discard(self, name: str) -> None:
        """Try to remove a data file that no commit names; failing is harmless, VACUUM finds it."""
        ...

    def remove(self, name: str) -> None:
        """Remove a data file that nobody needs; one that is gone already is fine."""
        ...


class LocalFiles:
    """Files of a table on a local disk."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def path(self, name: str) -> str:
        """Absolute path of a file."""
        return f"{self.uri}/{name}"

    def read(self, name: str) -> bytes:
        """Content of a file."""
        with open(self.path(name), "rb") as stream:  # noqa: PTH123 - a poll does this; Path costs more than the open
            return stream.read()

    def parquet(self, name: str, buffer_size: int = 0) -> pq.ParquetFile:
        """Open a Parquet file."""
        path = self.path(name)
        try:
            return pq.ParquetFile(
                path,
                pre_buffer=False,
                buffer_size=buffer_size,
                coerce_int96_timestamp_unit="us",
                page_checksum_verification=True,
            )
        except UnicodeDecodeError as cause:
            # A damaged footer may still parse, with names in it that are no text.
            message = f"{path} has a damaged footer: {cause}"
            raise OSError(message) from cause

    def list_log(self) -> list[str]:
        """Names in `_delta_log`; none when there is no table."""
        try:
            return os.listdir(self.path("_delta_log"))  # noqa: PTH208
        except FileNotFoundError:
            return []

    def make_root(self) -> None:
        """Make the cluster's root when it is missing, for its owner's eyes only (mode 0700).

        Raises:
            KafkaStorageError: it cannot be made.
        """
        root = os.path.dirname(self.uri)  # noqa: PTH120
        try:
            os.makedirs(root, mode=0o700, exist_ok=True)  # noqa: PTH103
        except OSError as cause:
            message = f"the root {root} cannot be made: {cause}"
            raise KafkaStorageError(message) from cause

    def write(self, name: str, table: pa.Table, codec: str) -> int:
        """Write a Parquet file under a new name."""
        path = self.path(name)
        try:
            write_parquet(table, path, codec)
        except FileNotFoundError:
            self._make_folder_of(name)
            write_parquet(table, path, codec)
        return os.stat(path).st_size  # noqa: PTH116

    def open_output(self, name: str) -> pa.NativeFile:
        """A stream that makes a new file."""
        self._make_folder_of(name)
        return pa.OSFile(self.path(name), "wb")

    def _make_folder_of(self, name: str) -> None:
        """Make a partition's folder, never the table's: a late writer of a deleted topic must not bring that back.

        Raises:
            FileNotFoundError: the table's folder is gone.
        """
        folder = name.rpartition("/")[0]
        if folder:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path(folder))  # noqa: PTH102

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return os.stat(self.path(name)).st_size  # noqa: PTH116

    def discard(self, name: str) -> None:
        """Try to remove a data file that no commit names."""
        _unlink_quietly(self.path(name))

    def remove(self, name: str) -> None:
        """Remove a data file."""
        Path(self.path(name)).unlink(missing_ok=True)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Create a file with its whole content at once, unless it exists.

        A hard link to a finished temporary file either appears or fails with "exists"; readers never see half a file.

        Returns:
            Whether this call created it. False says only that there is one: a network file system that repeats a
            request meets the file that the first one made.

        Raises:
            PutRefusedError: the storage refused; the file is not there, and this call will not make it.
            OSError: the file may be there, or appear later.
        """
        target = self.path(name)
        folder, _, base = target.rpartition("/")
        temporary = f"{folder}/.{base}.{uuid.uuid4().hex}.tmp"
        try:
            try:
                with open(temporary, "xb") as stream:  # noqa: PTH123
                    stream.write(content)
            except OSError as cause:
                raise PutRefusedError(cause.errno, str(cause)) from cause
            os.link(temporary, target)
        except FileExistsError:
            return False
        except OSError as cause:
            if cause.errno in REFUSALS:
                raise PutRefusedError(cause.errno, str(cause)) from cause
            raise
        finally:
            _unlink_quietly(temporary)
        return True


def _unlink_quietly(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        # A leftover temporary file is invisible to readers; maintenance removes it.
        return


class RemoteFiles:
    """Files of a table in an object store."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def __reduce__(self) -> tuple[type[RemoteFiles], tuple[str]]:
        """On another machine the storage is opened anew."""
        return RemoteFiles, (self.uri,)

    @cached_property
    def _filesystem(self) -> pafs.PyFileSystem:
        """Opened when it is needed: a table that does not exist yet may have no folder either."""
        try:
            return pafs.PyFileSystem(DeltaStorageHandler(self.uri))
        except TableNotFoundError as cause:
            raise FileNotFoundError(self.uri) from cause

    def read(self, name: str) -> bytes:
        """Content of a file."""
        with self._filesystem.open_input_file(name) as stream:
            content: bytes = stream.read()
            return content

    def parquet(self, name: str, buffer_size: int = 0) -> pq.ParquetFile:
        """Open a Parquet file."""
        stream = self._filesystem.open_input_file(name)
        whole = not buffer_size
        return pq.ParquetFile(
            stream,
            pre_buffer=whole,
            buffer_size=buffer_size,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
        )

    def write(self, name: str, table: pa.Table, codec: str) -> int:
        """Write a Parquet file under a new name."""
        with self._filesystem.open_output_stream(name) as stream:
            write_parquet(table, stream, codec)
        return int(self._filesystem.get_file_info(name).size)

    def open_output(self, name: str) -> pa.NativeFile:
        """A stream that makes a new file."""
        return self._filesystem.open_output_stream(name)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return int(self._filesystem.get_file_info(name).size)

    def discard(self, name: str) -> None:
        """Leave it to VACUUM: an object nobody names costs its bytes only."""

    def remove(self, name: str) -> None:
        """Remove a data file."""
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.delete_file(name)

    def list_log(self) -> list[str]:
        """Names in `_delta_log`; none when there is no table."""
        selector = pafs.FileSelector("_delta_log", allow_not_found=True)
        try:
            return [info.base_name for info in self._filesystem.get_file_info(selector)]
        except FileNotFoundError:
            return []
