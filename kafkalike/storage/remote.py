"""RemoteStore: a remote storage that can be read (HDFS). Writing to one is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from kafkalike.errors import UnsafeStorageError
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.config.storage import SentOptions
from kafkalike.model.leases import Leases
from kafkalike.storage.near import NearStore
from kafkalike.storage.port import Entry, Reach, Store

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline


class RemoteStore(NearStore):
    """Files of a remote storage, through the clients that `deltalake` has; `Store` says what each method guarantees.

    Args:
        uri: its root.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def __reduce__(self) -> tuple[type[RemoteStore], tuple[str]]:
        """On another machine the storage is opened anew."""
        return RemoteStore, (self.uri,)

    @property
    def reach(self) -> Reach:
        """Every machine."""
        return "everywhere"

    def check_writable(self) -> None:
        """Refused."""
        self._refuse("")

    def try_out(self) -> None:
        """It is never written to."""

    def at(self, folder: str) -> RemoteStore:
        """The store of a folder below."""
        return RemoteStore(f"{self.uri}/{folder}")

    def for_tasks(self) -> RemoteStore:
        """On another machine it is opened anew in any case."""
        return self

    @cached_property
    def _filesystem(self) -> pafs.PyFileSystem:
        """Opened when it is needed: a table that does not exist yet may have no folder either."""
        try:
            return pafs.PyFileSystem(DeltaStorageHandler(self.uri))
        except TableNotFoundError as cause:
            raise FileNotFoundError(self.uri) from cause

    def sent_options(self) -> SentOptions | None:
        """None."""
        return None

    def hadoop_settings(self) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def read(self, name: str) -> bytes:
        """Content of a file."""
        with self._filesystem.open_input_file(name) as stream:
            content: bytes = stream.read()
            return content

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for reading."""
        del buffer_size
        return self._filesystem.open_input_file(name)

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Bytes of a file."""
        with self.open_input(name) as stream:
            stream.seek(start)
            return stream.read_buffer(stop - start)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        found = self._filesystem.get_file_info(name)
        if found.type == pafs.FileType.NotFound:
            raise FileNotFoundError(f"{self.uri}/{name}")
        return int(found.size)

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """Files of a folder."""
        selector = pafs.FileSelector(folder, allow_not_found=True, recursive=deep)
        try:
            found = self._filesystem.get_file_info(selector)
        except FileNotFoundError:
            return []
        prefix = f"{folder}/" if folder else ""
        entries = [
            Entry(info.path.removeprefix(prefix), info.size, (info.mtime_ns or 0) // 1_000_000)
            for info in found
            if info.type == pafs.FileType.File
        ]
        return [entry for entry in entries if entry.name > after]

    def folders(self) -> Sequence[str]:
        """Names of the folders below."""
        found = self._filesystem.get_file_info(pafs.FileSelector("", allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == pafs.FileType.Directory)

    def forget_turns(self, names: Iterable[str]) -> int:
        """There are no queues."""
        del names
        return 0

    def leases(self) -> Leases:
        """Refused: a member writes its heartbeats."""
        self._refuse("__leases")

    def now_ns(self) -> int:
        """The machine's clock: the storage's is not asked."""
        return SYSTEM_CLOCK.now_ms() * 1_000_000

    # --- refused -------------------------------------------------------------------------------

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Refused."""
        del content, durable
        self._refuse(name)

    def replace(self, name: str, content: bytes) -> None:
        """Refused."""
        del content
        self._refuse(name)

    def open_output(self, name: str) -> pa.NativeFile:
        """Refused."""
        self._refuse(name)

    def make_folder(self, folder: str) -> None:
        """Refused."""
        self._refuse(folder)

    def copy(self, source: str, target: Store, name: str) -> bool:
        """Refused."""
        del source, target
        self._refuse(name)

    def discard(self, name: str) -> None:
        """Refused."""
        self._refuse(name)

    def remove(self, name: str) -> None:
        """Refused."""
        self._refuse(name)

    def sync(self, name: str) -> None:
        """Refused."""
        self._refuse(name)

    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Refused."""
        del deadline, meanwhile
        self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        raise UnsafeStorageError(
            f"{self.at(name).uri.rstrip('/')} was not written: roots of this kind are read and not "
            "written, since nothing there keeps several writers apart; write to a local disk or to S3, Azure or Google"
        )
