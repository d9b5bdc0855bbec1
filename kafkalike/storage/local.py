"""LocalStorage: a storage in a folder of a local disk."""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from io import FileIO
from typing import IO, TYPE_CHECKING, Final

import pyarrow as pa

from kafkalike.errors import KafkaStorageError
from kafkalike.storage.leases import LocalLeases
from kafkalike.storage.parquet import LocalFile
from kafkalike.storage.port import TABLE_LOG, Coordination, Entry, NotStoredError, Reach, Storage
from kafkalike.storage.root_uri import allowed_network
from kafkalike.storage.table_lock import TableLock
from kafkalike.storage.timeouts import PART_BYTES, extend_timeout

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline
    from kafkalike.model.groups.sessions import Leases

LOCKS: Final = "__locks"
"""Folder of the root's lock files."""

LEASES: Final = "__leases"
"""Folder of the heartbeats of group members."""

REFUSALS: Final = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EMLINK,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOSPC,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)
"""Errors of a disk that mean that the link was not created, and will not be."""


_tried: Final[set[str]] = set()
"""Roots on network file systems that this process has probed."""


class FolderCoordination(Coordination):
    """Coordinates the processes of this machine that use a root's folder.

    Args:
        uri: the root's absolute path.
    """

    reach: Reach = "machine"

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.has_locks = False
        """True once the folder of locks was seen."""
        self.synced: set[str] = set()
        """Folders whose own names, up to the root, survive a power failure."""

    def check_writable(self, *, required: bool = True) -> None:
        """Probe a network file system that the user allows, once per process; local disks are known to be safe."""
        del required
        if self.uri not in _tried and allowed_network(self.uri):
            from kafkalike.storage.probe import probe_folder  # it needs filelock, and local disks are not probed

            probe_folder(self.uri)
            _tried.add(self.uri)

    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Hold the lock of that name; the kernel drops it when its holder dies.

        The folder of locks is created once. If it vanishes, its root has vanished, too. A new lock below a mount point
        whose disk was unmounted would exclude nobody.
        """
        folder = f"{self.uri}/{LOCKS}"
        # Read before the check, because another thread may create the folder and set the flag in between.
        was_there = self.has_locks
        if os.path.isdir(folder):  # noqa: PTH112
            self.has_locks = True
        elif was_there:
            raise KafkaStorageError(
                f"the folder of locks {folder} has vanished, so nothing was written; check that the root is still "
                "mounted"
            )
        return TableLock(folder, name).held(deadline, meanwhile)

    def forget_turns(self, names: Iterable[str]) -> int:
        """Remove the lock files of these names."""
        folder = f"{self.uri}/{LOCKS}"
        try:
            found = set(os.listdir(folder))  # noqa: PTH208
        except OSError:
            return 0
        locks = (TableLock(folder, name) for name in names)
        return sum(lock.discard() for lock in locks if not found.isdisjoint(lock.files))

    def leases(self) -> Leases:
        """Return heartbeats in the form of file times."""
        return LocalLeases(f"{self.uri}/{LEASES}")

    def watch(self, folder: str, add: Callable[[str], object]) -> None:
        """Name the folder, unless other machines may write to it."""
        if not allowed_network(folder):
            add(folder)


class LocalStorage(Storage):
    """A folder of a local disk; `Storage` documents the guarantees of each method.

    Args:
        uri: its absolute path.
        root: coordination of the cluster's root; None: the folder itself is the root.
    """

    uri: str = ""

    def __init__(self, uri: str, root: FolderCoordination | None = None) -> None:
        self.uri = uri
        self.coordination: FolderCoordination = FolderCoordination(uri) if root is None else root
        self._own: set[str] = set()
        """Folders that are not symbolic links, so data files may be created in them."""

    def __repr__(self) -> str:
        """Class and path, for error messages."""
        return f"LocalStorage({self.uri!r})"

    def at(self, folder: str) -> LocalStorage:
        """Return the storage of a folder below."""
        return LocalStorage(f"{self.uri}/{folder}", self.coordination)

    def path(self, name: str) -> str:
        """Return the absolute path of a file."""
        return f"{self.uri}/{name}"

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        # `open` would ask whether this is a terminal, and reserve a buffer: twice the time for a small file.
        with FileIO(f"{self.uri}/{name}") as stream:
            if os.fstat(stream.fileno()).st_size < PART_BYTES:
                return stream.readall()
            parts = [b""]
            while part := stream.read(PART_BYTES):
                extend_timeout()
                parts.append(part)
            return b"".join(parts)

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create a file with its whole content at once, unless it exists.

        A hard link to a finished temporary file either appears or fails with "exists", so readers never see half a
        file.
        """
        target = f"{self.uri}/{name}"
        folder, _, base = target.rpartition("/")
        temporary = f"{folder}/.{base}.{uuid.uuid4().hex}.tmp"
        try:
            try:
                with open(temporary, "xb") as stream:  # noqa: PTH123
                    if len(content) <= PART_BYTES:
                        stream.write(content)
                    else:
                        _write_parts(stream, content)
                    if durable:
                        stream.flush()
                        os.fsync(stream.fileno())
            except OSError as cause:
                raise NotStoredError(cause.errno, cause.strerror, temporary) from cause
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            except OSError as cause:
                if cause.errno in REFUSALS:
                    raise NotStoredError(cause.errno, cause.strerror, target) from cause
                raise
            if durable:
                self._sync_names(folder)
        finally:
            _unlink_quietly(temporary)
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Create or overwrite a file."""
        target = self.path(name)
        folder, _, base = target.rpartition("/")
        temporary = f"{folder}/.{base}.{uuid.uuid4().hex}.tmp"
        try:
            with open(temporary, "xb") as stream:  # noqa: PTH123
                _write_parts(stream, content)
            os.replace(temporary, target)  # noqa: PTH105
        finally:
            _unlink_quietly(temporary)

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for random access."""
        del buffer_size
        return pa.OSFile(f"{self.uri}/{name}", "rb")

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Map bytes of a file into memory instead of reading them."""
        with pa.memory_map(self.path(name)) as mapped:
            mapped.seek(start)
            return _whole(mapped.read_buffer(stop - start), stop - start, self.path(name))

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a stream that creates a new file."""
        if (folder := name.rpartition("/")[0]) and folder not in self._own:
            self._refuse_link(folder)
        try:
            return LocalFile(f"{self.uri}/{name}", "wb")
        except FileNotFoundError:
            self._make_folder_of(name)
            return LocalFile(self.path(name), "wb")

    def _refuse_link(self, folder: str) -> None:
        """Refuse to write through a symbolic link, which may lead out of the root; each folder is checked once."""
        if os.path.islink(self.path(folder)):  # noqa: PTH114
            message = f"{self.path(folder)} is a symbolic link; data files are written below the root only"
            raise OSError(errno.ELOOP, message)
        self._own.add(folder)

    def _make_folder_of(self, name: str) -> None:
        """Create a partition's folder, but never the table's: a late writer must not bring a deleted topic back."""
        folder = name.rpartition("/")[0]
        if folder:
            with contextlib.suppress(FileExistsError):
                self.coordination.synced.discard(self.path(folder))
                os.mkdir(self.path(folder))  # noqa: PTH102

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return os.stat(f"{self.uri}/{name}").st_size  # noqa: PTH116

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """List the files of a folder."""
        entries: builtins.list[Entry] = []
        left = [("", folder)]
        for prefix, place in left:
            where = f"{self.uri}/{place}" if place else self.uri
            try:
                found = os.scandir(where)
            except (FileNotFoundError, NotADirectoryError):
                continue
            with found:
                # One item at a time, because a log may have a hundred thousand files.
                for item in found:
                    name = f"{prefix}{item.name}"
                    try:
                        if item.is_dir(follow_symlinks=False):
                            if deep and item.name != TABLE_LOG:
                                left.append((f"{name}/", f"{place}/{item.name}" if place else item.name))
                        # Filter before `stat`, because callers want only the end of a long log.
                        elif name > after:
                            status = item.stat()
                            entries.append(Entry(name, status.st_size, status.st_mtime_ns // 1_000_000))
                    except FileNotFoundError:
                        continue
        return entries

    def folders(self) -> Sequence[str]:
        """List the names of the folders below."""
        try:
            return sorted(item.name for item in os.scandir(self.uri) if item.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def make_folder(self, folder: str) -> None:
        """Create a folder that only its owner can access (mode 0700)."""
        self.coordination.synced.discard(self.path(folder))
        os.makedirs(self.path(folder) if folder else self.uri, mode=0o700, exist_ok=True)  # noqa: PTH103

    def copy(self, source: str, target: Storage, name: str) -> bool:
        """Share a file by a hard link if the disk allows it, else copy it; keep an existing whole copy.

        The name appears with the whole file, or not at all: a killed copy leaves only a temporary file. A file of
        another size under that name is part of an older copy, and is replaced.
        """
        if not isinstance(target, LocalStorage):
            return super().copy(source, target, name)
        if (folder := name.rpartition("/")[0]) and folder not in target._own:  # noqa: SLF001 - the same class
            target._refuse_link(folder)  # noqa: SLF001
        target._make_folder_of(name)  # noqa: SLF001
        origin, final = self.path(source), target.path(name)
        try:
            os.link(origin, final)
        except OSError:
            # The target exists, or this file system lacks hard links.
            if not _is_copy(final, os.stat(origin).st_size):  # noqa: PTH116
                _copy_whole(origin, final)
            return False
        return True

    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Remove a file, if it exists."""
        try:
            os.unlink(self.path(name))  # noqa: PTH108
        except FileNotFoundError:
            return
        except (OSError, ValueError):
            if not quietly:
                raise

    def sync(self, name: str) -> None:
        """Make a file and its name survive a power failure."""
        path = self.path(name)
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        self._sync_names(path.rpartition("/")[0])

    def _sync_names(self, folder: str) -> None:
        """Make the names in a folder survive a power failure; the first time, the folder's own name, too."""
        _sync_folder(folder)
        if folder in self.coordination.synced:
            return
        above = folder
        while above.startswith(f"{self.coordination.uri}/"):
            above = above.rpartition("/")[0]
            _sync_folder(above)
        self.coordination.synced.add(folder)


def _whole(content: pa.Buffer, length: int, path: str) -> pa.Buffer:
    if content.size != length:
        raise OSError(errno.EIO, f"{content.size} bytes are left where {length} were asked for", path)
    return content


def _is_copy(path: str, size: int) -> bool:
    """Return True if a file of that size exists."""
    try:
        return os.stat(path).st_size == size  # noqa: PTH116
    except FileNotFoundError:
        return False


def _copy_whole(origin: str, target: str) -> None:
    """Copy a file to a temporary name, and rename the complete copy."""
    folder, _, base = target.rpartition("/")
    temporary = f"{folder}/.{base}.{uuid.uuid4().hex}.tmp"
    import shutil  # most processes copy nothing

    try:
        shutil.copyfile(origin, temporary)
        os.replace(temporary, target)  # noqa: PTH105
    finally:
        _unlink_quietly(temporary)


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unlink_quietly(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        # A leftover temporary file is invisible to readers; maintenance removes it.
        return


def _write_parts(stream: IO[bytes], content: bytes) -> None:
    """Write a file's content part by part."""
    whole = memoryview(content)
    for start in range(0, len(content), PART_BYTES):
        stream.write(whole[start : start + PART_BYTES])
        extend_timeout()
