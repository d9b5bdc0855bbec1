"""Table loader: reads the state of a table at its newest version, at an older one, or at the last sound one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafkalike.delta.actions import Add, is_closed, log_name, parse_commit
from kafkalike.delta.damage import Damage, DamagedFileError
from kafkalike.delta.snapshot import LogSnapshot, load_snapshot
from kafkalike.delta.table_state import TableState
from kafkalike.errors import LogCorruptError
from kafkalike.model.row_value import UNREADABLE
from kafkalike.model.segments import Segment, SegmentIndex
from kafkalike.storage.port import Storage

ToSegment = Callable[[Add, Storage], Segment]
"""What a data file of a table covers; reads the file where the log does not say it."""


def load_table(store: Storage, to_segment: ToSegment, version: int | None = None) -> TableState:
    """The state of a table at a version.

    Args:
        store: the table.
        to_segment: see `ToSegment`.
        version: None for the newest one.

    Raises:
        FileNotFoundError: there is no table.
        LogCorruptError: its log is damaged, or has no such version (any more, or yet).
    """
    return load_with_base(store, to_segment, version)[0]


def load_with_base(
    store: Storage, to_segment: ToSegment, version: int | None = None, *, rare: bool = False
) -> tuple[TableState, LogSnapshot]:
    """The same, and the snapshot that the state was made from. See `load_snapshot`."""
    snapshot = load_snapshot(store, version, rare=rare)
    with _damaged_checkpoint(snapshot.version, store):
        closed = any(is_closed(protocol, store.uri) for protocol in snapshot.of_kind("protocol"))
        metadata = next(snapshot.of_kind("metaData"), {})
        txns = {str(txn["appId"]): int(txn["version"]) for txn in snapshot.of_kind("txn")}
    state = TableState(
        version=snapshot.version,
        fenced=snapshot.version,
        checkpoint=snapshot.version,
        table_id=str(metadata.get("id", "")),
        index=SegmentIndex(to_segment(add, store) for add in _adds(snapshot, store)),
        txns=txns,
        properties=metadata.get("configuration") or {},
        schema=str(metadata.get("schemaString", "")),
        closed=closed,
        damage=snapshot.damage,
        carried=snapshot.carried,
    )
    for commit in snapshot.committed:
        state.apply(commit, lambda add: to_segment(add, store))
    return state, snapshot


def _adds(snapshot: LogSnapshot, store: Storage) -> Iterator[Add]:
    """The checkpoint's data files, one after the other: what is said of all of them is much."""
    with _damaged_checkpoint(snapshot.version, store):
        yield from snapshot.adds()


@contextmanager
def _damaged_checkpoint(version: int, store: Storage) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as cause:
        raise LogCorruptError(
            f"the checkpoint {version} of {store.uri} is damaged: {type(cause).__name__}: {cause}"
        ) from cause


def last_good(
    store: Storage,
    to_segment: ToSegment,
    accept: Callable[[TableState], None],
    newest: TableState,
    cause: DamagedFileError,
) -> TableState:
    """The newest version that names no damaged data file, with the damage noted.

    Args:
        store: the table.
        to_segment: see `ToSegment`.
        accept: reads the data files of a version.
        newest: the version that names a damaged one.
        cause: which `accept` has found in it.

    Raises:
        DamagedFileError: the log does not reach back so far.
    """
    older, found = newest, cause
    while True:
        version = _added_at(store, found.path, older.version) - 1
        if version < 0:
            raise cause
        try:
            older = load_table(store, to_segment, version)
        except LogCorruptError:
            raise cause from None
        if not len(older.index):
            # An empty table is no better than an error: it looks like one that was never written to.
            raise cause
        try:
            accept(older)
        except DamagedFileError as another:
            found = another
            continue
        older.damage = newest.damage or Damage(
            where=store.uri,
            file=cause.path,
            why=cause.why,
            commit=None,
            good=version,
            newest=newest.version,
            size=size_of(store, cause.path),
        )
        older.damage.warn()
        return older


def _added_at(store: Storage, path: str, version: int) -> int:
    """The version that added a data file, from a version on downwards; 0 when the log no longer says."""
    for at in range(version, -1, -1):
        try:
            commit = parse_commit(at, store.read(log_name(at)), store.uri)
        except (FileNotFoundError, LogCorruptError):
            return 0
        if any(add.path == path for add in commit.adds):
            return at
    return 0


def size_of(store: Storage, name: str) -> int:
    """Bytes of a file; -1 when they cannot be found out."""
    try:
        return store.size(name)
    except OSError:
        return -1
