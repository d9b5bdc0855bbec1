"""Voters of the metadata as folders: clients that change the table, may die between two requests, and lose roots."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kafkalike.admin.testing import ManualClock
from kafkalike.delta.actions import log_name
from kafkalike.delta.control_log import ControlLog
from kafkalike.delta.layout import CLUSTER_METADATA, METADATA_SCHEMA, METADATA_TABLE_PROPERTIES
from kafkalike.delta.log_cleaner import Helpers
from kafkalike.delta.row_table import RowTable
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.cluster_state import ClusterState, MetadataRow, topic_row
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.topic import TopicInfo
from kafkalike.replication.cluster.controller import found_voter
from kafkalike.replication.tables.quorum_storage import QuorumStorage
from kafkalike.replication.tables.voter_files import Voter
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.port import NotStoredError, Storage
from tests.tools.clusters import UnqueuedCoordination


class KilledError(BaseException):
    """The process is gone."""


class Life:
    """How many requests a process makes before it is killed, and whether the last one still happens."""

    def __init__(self, requests: int, *, last_happens: bool) -> None:
        self.left, self.last_happens = requests, last_happens

    def ask(self, request: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left < 0:
            raise KilledError
        if self.left == 0:
            if self.last_happens:
                request()
            raise KilledError
        return request()


class QuickStore(LocalStorage):
    """A folder that need not survive a power failure."""

    def at(self, folder: str) -> QuickStore:
        return QuickStore(f"{self.uri}/{folder}", self.coordination)

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        del durable
        return super().put_if_absent(name, content)

    def sync(self, name: str) -> None:
        """Not in tests."""


class SlowStore(QuickStore):
    """A folder whose disk takes a time for each put and look."""

    def __init__(self, uri: str, clock: ManualClock, seconds: float, root: Any = None) -> None:
        super().__init__(uri, root)
        self._clock, self._seconds = clock, seconds

    def at(self, folder: str) -> SlowStore:
        return SlowStore(f"{self.uri}/{folder}", self._clock, self._seconds, self.coordination)

    def read(self, name: str) -> bytes:
        self._clock.sleep(self._seconds)
        return super().read(name)

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        self._clock.sleep(self._seconds)
        return super().put_if_absent(name, content, durable=durable)


class FullStore(QuickStore):
    """A folder whose disk is full: a new file has a name and no content."""

    def at(self, folder: str) -> FullStore:
        return FullStore(f"{self.uri}/{folder}", self.coordination)

    def open_output(self, name: str) -> Any:
        super().open_output(name).close()
        raise OSError(errno.ENOSPC, "No space left on device", name)

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        del content, durable
        raise NotStoredError(errno.ENOSPC, "No space left on device", name)

    def replace(self, name: str, content: bytes) -> None:
        del content
        raise OSError(errno.ENOSPC, "No space left on device", name)


class MortalStore(LocalStorage):
    """A folder that a process asks for as long as it lives."""

    def __init__(self, uri: str, life: Life, root: Any = None) -> None:
        super().__init__(uri, root)
        self._life = life

    def at(self, folder: str) -> MortalStore:
        return MortalStore(f"{self.uri}/{folder}", self._life, self.coordination)

    def read(self, name: str) -> bytes:
        found: bytes = self._life.ask(lambda: super(MortalStore, self).read(name))
        return found

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        del durable
        return bool(self._life.ask(lambda: super(MortalStore, self).put_if_absent(name, content)))

    def replace(self, name: str, content: bytes) -> None:
        self._life.ask(lambda: super(MortalStore, self).replace(name, content))

    def open_output(self, name: str) -> Any:
        return self._life.ask(lambda: super(MortalStore, self).open_output(name))

    def remove(self, name: str, *, quietly: bool = False) -> None:
        self._life.ask(lambda: super(MortalStore, self).remove(name, quietly=quietly))

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Any]:
        found: list[Any] = self._life.ask(lambda: super(MortalStore, self).list(folder, deep=deep, after=after))
        return found

    def sync(self, name: str) -> None:
        """Not in tests."""


class VoterClient:
    """A process that changes the metadata."""

    def __init__(self, roots: Mapping[int, Storage], clock: Clock = SYSTEM_CLOCK) -> None:
        folders = {broker: root.at(CLUSTER_METADATA) for broker, root in roots.items()}
        self.store = QuorumStorage(folders, lambda voter: QuickStore(voter.uri).at(CLUSTER_METADATA), clock)
        table: RowTable[ClusterState, MetadataRow] = RowTable(
            _Root(self.store), CLUSTER_METADATA, METADATA_SCHEMA, MetadataRow, ClusterState, clock=clock
        )
        self.log = ControlLog(table, helpers=Helpers(), patience=0.05, properties=METADATA_TABLE_PROPERTIES)

    def create(self, name: str) -> None:
        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            if name in state.topics:
                return []
            info = TopicInfo(
                name=TopicName(name),
                topic_id=TopicId(name),
                location=name,
                num_partitions=1,
                configs={},
                created_ms=0,
            )
            return [topic_row(state.seq + 1, 0, info, "created")]

        self.log.transact(plan, 20_000)

    def topics(self) -> list[str]:
        return sorted(self.log.refresh().topics)


class VoterFolders:
    """Three roots."""

    def __init__(self, path: Path, *, made: bool = False) -> None:
        self.path = path
        self.uris = {broker: str(path / f"root{broker}") for broker in (1, 2, 3)}
        for broker, uri in () if made else self.uris.items():
            found_voter(LocalStorage(uri), broker, self.uris, list(self.uris))

    def client(self) -> VoterClient:
        return VoterClient({broker: QuickStore(uri) for broker, uri in self.uris.items()})

    def with_full(self, broker: int) -> VoterClient:
        roots: dict[int, Storage] = {n: QuickStore(uri) for n, uri in self.uris.items()}
        return VoterClient({**roots, broker: FullStore(self.uris[broker])})

    def with_slow(self, broker: int, clock: ManualClock, seconds: float) -> VoterClient:
        roots: dict[int, Storage] = {n: QuickStore(uri) for n, uri in self.uris.items()}
        return VoterClient({**roots, broker: SlowStore(self.uris[broker], clock, seconds)}, clock)

    def mortal(self, requests: int, *, last_happens: bool) -> VoterClient:
        life = Life(requests, last_happens=last_happens)
        return VoterClient({broker: MortalStore(uri, life) for broker, uri in self.uris.items()})

    def take_away(self, broker: int) -> None:
        (self.path / f"root{broker}").rename(self.path / f"away{broker}")

    def give_back(self, broker: int) -> None:
        (self.path / f"away{broker}").rename(self.path / f"root{broker}")

    def table(self, broker: int) -> Mapping[str, bytes]:
        """All files that a reader of Delta may see."""
        folder = self.path / f"root{broker}" / CLUSTER_METADATA
        found = (f for pattern in ("*.parquet", "_delta_log/0*") for f in folder.glob(pattern))
        return {str(f.relative_to(folder)): f.read_bytes() for f in found}

    def last(self, broker: int) -> int:
        version = 0
        while (self.path / f"root{broker}" / CLUSTER_METADATA / log_name(version)).exists():
            version += 1
        return version - 1

    def voter(self, broker: int, epoch: int = 0) -> Voter:
        return Voter(broker, f"{epoch}.{broker}", self.uris[broker])


class _Root(LocalStorage):
    """A root whose metadata are elsewhere."""

    def __init__(self, table: QuorumStorage) -> None:
        super().__init__(table.uri, UnqueuedCoordination(table.uri))
        self._table = table

    def at(self, folder: str) -> Any:
        assert folder == CLUSTER_METADATA
        return self._table
