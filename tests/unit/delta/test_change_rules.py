"""What the change loop heeds of the table's newest version when it puts a change that was planned on an older one."""

from __future__ import annotations

import errno
from collections.abc import Mapping

import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.delta.actions import Add, log_name
from kafkalike.delta.commit_file import creation, lines_of
from kafkalike.delta.table import Table
from kafkalike.delta.table_change import Change, Landed, Unchanged
from kafkalike.delta.table_state import CLOSE, TableState
from kafkalike.errors import KafkaStorageError, PolicyViolationError
from kafkalike.model.clock import Deadline
from kafkalike.model.segments import Segment
from kafkalike.storage.memory import MemoryStorage
from kafkalike.storage.port import Storage
from kafkalike.storage.scheduler import Pace

SCHEMA = {"type": "struct", "fields": []}


class SyncedStore(MemoryStorage):
    """Knows which files were made durable; refuses where a disk would be full."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []
        self.full = False

    def sync(self, name: str) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left")
        self.synced.append(name)


def segment_of(add: Add, _: Storage) -> Segment:
    return Segment(add.partition or 0, 0, 1, 1, 0, 0, add.size, add.path)


def file_of(path: str, *, data_change: bool = True) -> Add:
    return Add(path=path, partition=0, size=7, modification_ms=0, data_change=data_change, stats={})


@pytest.fixture
def store() -> SyncedStore:
    made = SyncedStore()
    made.make_folder("_delta_log")
    made.put_if_absent(log_name(0), creation("id", SCHEMA, partition_by=["partition"], properties={}, time_ms=0))
    return made


@pytest.fixture
def table(store: SyncedStore) -> Table:
    return Table(store, ManualClock(), to_segment=segment_of, jitter=lambda: 0.0)


def foreign_version(store: SyncedStore, version: int, properties: Mapping[str, str]) -> None:
    """Another writer's, which changes nothing but the table's properties."""
    metadata = {"id": "id", "schemaString": "{}", "configuration": dict(properties)}
    assert store.put_if_absent(log_name(version), lines_of({"operation": "SET"}, [{"metaData": metadata}]))


def change_while_another_writes(
    table: Table,
    store: SyncedStore,
    change: Change,
    *,
    durable: bool = False,
    properties: Mapping[str, str] | None = None,
) -> Landed:
    """Plan a change at version 1, which is taken by then; the table is durable or not from the second look on."""
    tries = iter(range(10))

    def refresh(pace: Pace) -> None:
        table.durable = durable and next(tries) > 0
        table.refresh(pace)

    def plan(state: TableState) -> Change:
        for add in change.adds:
            store.replace(add.path, b"records")
        foreign_version(store, state.version + 1, properties or {})
        return change

    landed: Landed | Unchanged[None] = table.change(plan, Deadline(ManualClock(), 60_000), refresh)
    assert isinstance(landed, Landed)
    return landed


@pytest.mark.parametrize(("closes", "closed"), [(True, True), (False, False), (None, True)])
def test_change_of_the_protocol_is_read_by_other_clients(
    table: Table,
    store: SyncedStore,
    *,
    closes: bool | None,
    closed: bool,
) -> None:
    """Before it, the table is closed; None leaves it so."""
    for wanted in (True, closes):
        change = Change(operation=CLOSE, time_ms=0, closes=wanted)
        table.change(lambda _, change=change: change, Deadline(ManualClock(), 60_000))  # type: ignore[misc]

    other = Table(store, ManualClock(), to_segment=segment_of, jitter=lambda: 0.0)

    assert (other.state.version, other.state.closed) == (2, closed)


@pytest.mark.parametrize("data_change", [False, True])
def test_a_table_that_became_append_only_since_the_plan_loses_no_record(
    table: Table, store: SyncedStore, *, data_change: bool
) -> None:
    """Records may still be moved to other files."""
    change = Change(
        operation="DELETE",
        time_ms=0,
        adds=[file_of("new", data_change=data_change)],
        removes=[file_of("old", data_change=data_change)],
    )
    properties = {"delta.appendOnly": "true"}

    if data_change:
        with pytest.raises(PolicyViolationError, match="appendOnly=true forbids"):
            change_while_another_writes(table, store, change, properties=properties)
        assert table.state.version == 1
        with pytest.raises(FileNotFoundError):
            store.read("new")
    else:
        assert change_while_another_writes(table, store, change, properties=properties).version == 2


def test_a_plan_that_was_made_before_flushing_was_switched_on_is_flushed_too(table: Table, store: SyncedStore) -> None:
    """What a durable version names must be on the disk before it."""
    change = Change(operation="WRITE", time_ms=0, adds=[file_of("new")])

    landed = change_while_another_writes(table, store, change, durable=True)

    assert landed.version == 2
    assert store.synced == ["new"]


def test_files_that_cannot_be_flushed_are_removed_and_no_version_names_them(table: Table, store: SyncedStore) -> None:
    """The disk may be full."""
    store.full = table.durable = True

    def plan(_: TableState) -> Change:
        store.replace("new", b"records")
        return Change(operation="WRITE", time_ms=0, adds=[file_of("new")])

    with pytest.raises(KafkaStorageError, match="could not flush the records"):
        table.change(plan, Deadline(ManualClock(), 60_000))

    with pytest.raises(FileNotFoundError):
        store.read("new")
    with pytest.raises(FileNotFoundError):
        store.read(log_name(1))
