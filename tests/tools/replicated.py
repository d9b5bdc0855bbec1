"""A table with replicas in folders: brokers that can be taken away, a controller in a folder, writers and helpers."""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from kafkalike.delta.actions import Add, log_name
from kafkalike.delta.commit_file import CommitFile, creation
from kafkalike.delta.layout import delta_schema
from kafkalike.delta.replica_files import VersionFile, seal
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.replication import isr_changes
from kafkalike.model.replication import replica_protocol as protocol
from kafkalike.model.replication.registration import (
    Configuration,
    FellBehindError,
    Registration,
    Replica,
    ReplicaError,
    UncleanElection,
    View,
)
from kafkalike.replication.tables.protocol_runner import ProtocolRunner
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.port import Storage
from tests.tools.away import away, back

SCHEMA = pa.schema([("partition", pa.int32()), ("word", pa.string())])


class FolderController:
    """A controller: one file for each change, put if absent."""

    def __init__(self, folder: Path, first: Registration | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.store = LocalStorage(str(folder))
        if first is not None:
            assert self.store.put_if_absent("0", _written(first))

    def look(self) -> Registration:
        return self._last()[1]

    def change(self, before: Registration, after: Registration) -> bool:
        number, found = self._last()
        return found == before and self.store.put_if_absent(str(number + 1), _written(after))

    def _last(self) -> tuple[int, Registration]:
        number = max(int(entry.name) for entry in self.store.list() if not entry.name.startswith("."))
        return number, _read(self.store.read(str(number)))


def _written(registration: Registration) -> bytes:
    return json.dumps(registration).encode()


def _read(content: bytes) -> Registration:
    epoch, chain, newcomer, life, losses, renamed = json.loads(content)
    return Registration(
        epoch,
        tuple(Replica(*r) for r in chain),
        Replica(*newcomer) if newcomer else None,
        life,
        tuple(
            UncleanElection(e, Replica(*r), kept, tuple(Replica(*c) for c in old), *f) for e, r, kept, old, *f in losses
        ),
        tuple(Replica(*r) for r in renamed),
    )


class Disk(LocalStorage):
    """A broker's folder, which nobody makes anew while it is away."""

    def at(self, folder: str) -> Disk:
        return Disk(f"{self.uri}/{folder}", self.coordination)

    def make_folder(self, folder: str) -> None:
        for path in (self.uri, self.path(folder)):
            with contextlib.suppress(FileExistsError):
                Path(path).mkdir()


class Brokers:
    """Folders, one for each broker, with a replica of one table each."""

    def __init__(self, folder: Path, brokers: Sequence[int]) -> None:
        self.folder = folder
        chain = tuple(Replica(broker) for broker in brokers)
        configuration = Configuration(0, chain)
        self.controller = FolderController(folder / "controller", Registration(0, chain))
        created = creation(
            str(uuid.uuid4()), delta_schema(SCHEMA), partition_by=["partition"], properties={}, time_ms=1
        )
        first = seal(configuration, 1)
        roots = self.client().roots
        for replica in chain:
            (folder / str(replica.broker)).mkdir()
            roots.make_replica(replica)
            store = self.store_of(replica)
            assert store.put_if_absent(log_name(0), created)
            assert store.put_if_absent(log_name(1), first.data)

    def store_of(self, replica: Replica) -> Storage:
        return Disk(str(self.folder / str(replica.broker))).at(f"t~{replica.life}" if replica.life else "t")

    def client(self, lag_ms: int = 0) -> Client:
        return Client(self, lag_ms)

    def take_away(self, broker: int) -> None:
        away(self.folder / str(broker))

    def give_back(self, broker: int) -> None:
        back(self.folder / str(broker))

    def words(self, broker: int) -> list[str]:
        """What Delta's own reader finds at a broker."""
        rows = DeltaTable(str(self.folder / str(broker) / "t")).to_pyarrow_table()
        return sorted(rows.column("word").to_pylist())

    def files(self, broker: int) -> dict[str, bytes]:
        """The versions and data files of a broker's replica."""
        table = self.folder / str(broker) / "t"
        kept = [*table.glob("_delta_log/*.json"), *table.glob("partition=*/*.parquet")]
        return {str(path.relative_to(table)): path.read_bytes() for path in kept}


class Client:
    """A process that writes, and brings replicas back."""

    def __init__(self, brokers: Brokers, lag_ms: int) -> None:
        self.brokers = brokers
        self.roots = ProtocolRunner(brokers.store_of, brokers.controller, SYSTEM_CLOCK, lag_ms=lag_ms)
        self.view: View | None = None

    def append(self, word: str) -> int:
        """Append a word; the version that has it."""
        content = self.version(word)
        while True:
            seen: dict[int, Any] = {}
            try:
                if self.view is None:
                    self.view, _, _ = self.roots.carry_out(protocol.opening(seen, repair=True))
                self.view, done = self.roots.carry_out(protocol.appending(self.view, content, seen))
            except FellBehindError:
                self.view = None
                continue
            for version, found in seen.items():
                if found.append_id == content.append_id:
                    done = True
                    return version
            assert not done

    def version(self, word: str) -> VersionFile:
        path = f"partition=0/{uuid.uuid4().hex}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"word": [word]}), sink)
        content = sink.getvalue().to_pybytes()
        self.roots.supplies.made(path, content)
        add = Add(path=path, partition=0, size=len(content), modification_ms=1, data_change=True, stats={})
        wanted = CommitFile(version=0, time_ms=1, operation="WRITE", append_id=uuid.uuid4().hex, adds=[add])
        return VersionFile(wanted.content())

    def bring_back(self, broker: int, *, leads: bool = False) -> None:
        """Let a broker's replica in, however many tries it takes."""
        while True:
            registered = self.brokers.controller.look()
            if registered.joining is None and any(r.broker == broker for r in registered.chain):
                return
            self.roots.make_replica(Replica(broker, registered.life))
            seen: dict[int, Any] = {}
            view = self.opened()
            registered = self.brokers.controller.look()
            try:
                joined = self.roots.carry_out(isr_changes.joining(broker, registered, view, seen, leads=leads))
            except FellBehindError:
                continue
            except ReplicaError as failed:
                self.roots.carry_out(protocol.mending(view, failed, seen))
                continue
            self.view = None
            if joined is None:
                # The log must go on, past what only that replica has.
                self.roots.carry_out(protocol.appending(view, self.empty(), {}))

    def opened(self) -> View:
        while True:
            try:
                return self.roots.carry_out(protocol.opening({}, repair=True))[0]
            except FellBehindError:
                continue

    @staticmethod
    def empty() -> VersionFile:
        return VersionFile(CommitFile(version=0, time_ms=1, operation="FENCE", append_id=uuid.uuid4().hex).content())

    def move_leader(self, broker: int) -> None:
        """Let a broker's replica lead."""
        view = self.opened()
        registered = self.brokers.controller.look()
        replica = next(r for r in registered.chain if r.broker == broker)
        assert self.roots.carry_out(isr_changes.leaving(replica, registered, view, {})) is not None
        self.bring_back(broker, leads=True)


def in_threads(works: Sequence[Any]) -> None:
    """Run all side by side, and raise what one of them raised."""
    failed: list[BaseException] = []

    def run(work: Any) -> None:
        try:
            work()
        except BaseException as cause:  # noqa: BLE001
            failed.append(cause)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
