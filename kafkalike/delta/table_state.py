"""Table state: a table at a version, as loaded from its log and kept up commit by commit.

A state is changed in place by its owner, and only while nobody else can see it (`Table`): a change that is interrupted
leaves a state that nobody holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final

from kafkalike.delta.actions import Add, TableCommit, is_closed, log_name, parse_commit
from kafkalike.delta.damage import Damage, DamagedFileError
from kafkalike.delta.snapshot import LogSnapshot, load_snapshot
from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.model.row_value import UNREADABLE
from kafkalike.model.segments import Segment, SegmentIndex
from kafkalike.model.waiting_appends import PARTS_KEY, Placed, TakenAppends, from_note
from kafkalike.storage.port import Storage

SEAL: Final = "REPLICAS"
"""Operation of a version that says who takes the versions after it; see `replicas`."""

REPLICAS: Final = "kafkalike.replicas:"
"""Beginning of the Delta transaction's application that says a configuration of replicas; its version is the epoch.

It stays in checkpoints, other engines pass over it, and there is one for each chain that there has been.
"""

FENCE: Final = "FENCE"
"""Operation of a commit that holds nothing. It takes a version that a commit in doubt could still get, and makes
writers who have planned before it plan anew."""

CLOSE: Final = "UPGRADE PROTOCOL"
OPEN: Final = "DROP FEATURE"
"""Operations of commits that close a table to foreign writers, or open it to them; Delta's names for such changes."""

REPAIR: Final = "REPAIR"
"""Operation of a commit that stands in the place of a damaged one, or that ends a repair. Whoever follows the table
loads it anew: what they know may be what was lost."""

APPEND_ONLY: Final = "delta.appendOnly"
"""Property of a table from which no record may be taken out; every writer of our Delta protocol has to heed it."""

END_APP: Final = "kafkalike.end/"
"""Applications of this name, followed by a partition's number, have the partition's log end as their version: so it
outlives its records, whoever deletes them."""


def end_app(partition: int) -> str:
    """The Delta application whose version is a partition's log end."""
    return f"{END_APP}{partition}"


REWINDING: Final = frozenset({"RESTORE", "CREATE OR REPLACE TABLE", "REPLACE TABLE AS SELECT", "TRUNCATE"})
"""Operations of foreign writers that may take the log end back, so that offsets would be given out twice."""


def rewinds(commit: TableCommit) -> bool:
    """Whether a commit may have taken the log end of a topic back."""
    return commit.operation in REWINDING


def _goes_on(commit: TableCommit) -> bool:
    """Whether a commit is a change of ours that is made on no table whose log end was taken back.

    A fence or a repair may be.
    """
    return commit.append_id is not None and commit.operation not in {FENCE, REPAIR, SEAL}


def records_ends(commit: TableCommit) -> bool:
    """Whether a commit is an append that recorded log ends: of its partitions, and of all that were not recorded."""
    return commit.is_append and any(app_id.startswith(END_APP) for app_id in commit.txns)


def took(commit: TableCommit) -> dict[str, Placed] | None:
    """The appends of others that a commit took, by writer; None where its writer has not looked for any."""
    if PARTS_KEY not in commit.note:
        return None
    return from_note(commit.version, commit.note, commit.timestamp_ms)


@dataclass(slots=True, kw_only=True)
class TableState:
    """A table at a version."""

    version: int
    table_id: str
    index: SegmentIndex
    txns: dict[str, int]
    """Latest version of each application that has written."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The table's configuration."""
    schema: str = ""
    """Its Delta schema as JSON."""
    closed: bool = False
    """Whether the table's protocol keeps foreign writers out."""
    unrecorded: set[int] = field(default_factory=set)
    """Partitions whose log end is above what the table has recorded: tables of earlier releases, and foreign writers'
    files."""
    fenced: int = -1
    """The latest version that was a fence; that of the checkpoint which was loaded, if none is known above it."""
    checkpoint: int = -1
    """Version of the checkpoint that was loaded; -1 for none."""
    last_commit_ms: int = 0
    """Time of the latest commit that was seen, ms."""
    rewound: TableCommit | None = None
    """The latest commit that may have taken log ends back, if any of ours has not followed it."""
    damage: Damage | None = None
    """Why it is not of the newest version, if that cannot be read: then nothing may be written."""
    carried: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of data files that came with the log, as long as the state is being loaded."""

    went_on: bool = False
    """Whether a change of ours has been seen, which is made on no table whose log end was taken back."""
    ends_recorded: bool = False
    """Whether an append has been seen that recorded log ends: then the table has all those below it."""

    taken: TakenAppends = field(init=False)
    """The appends that the commits since the state was loaded took for others."""
    deaf: bool = False
    """Whether the latest version is an append whose writer has not looked for appends that wait."""
    appended: str | None = None
    """Id of the latest append that was seen since."""

    def __post_init__(self) -> None:
        """Nothing is known of what commits up to here took."""
        self.taken = TakenAppends(self.version)

    @property
    def removal_refusal(self) -> str | None:
        """Why no record may be taken out of the table; None when that is allowed."""
        if self.properties.get(APPEND_ONLY, "").lower() != "true":
            return None
        return (
            f"the table property {APPEND_ONLY}=true forbids to remove files, and maintenance does that; take it away, "
            f"or leave the topic out: ALTER TABLE … UNSET TBLPROPERTIES ('{APPEND_ONLY}')"
        )

    def end(self, partition: int) -> int:
        """Offset after the last one that was ever given out in a partition; 0 when there is none."""
        return max(self.index.end(partition), self.txns.get(f"{END_APP}{partition}", 0))

    def apply(self, commit: TableCommit, added: Sequence[Segment]) -> None:
        """Take in the next commit. Caller: `TailedTable`, which has taken the state out of everybody's sight.

        It calls little: whoever opens a table applies each commit of its log.

        Args:
            commit: the next one.
            added: the segments that its added files are.
        """
        index, txns, operation = self.index, self.txns, commit.operation
        for path in commit.removes:
            index.remove(path)
        txns.update(commit.txns)
        for segment in added:
            index.add(segment)
            # As `note_recorded` does it.
            if index.ends[segment.partition] > txns.get(f"{END_APP}{segment.partition}", 0):
                self.unrecorded.add(segment.partition)
            else:
                self.unrecorded.discard(segment.partition)
        if commit.note:
            self._note_own(commit)
        else:
            self.deaf = False
        if commit.table_id is not None or commit.closed is not None or commit.properties is not None:
            self._note_table(commit)
        self.last_commit_ms = max(self.last_commit_ms, commit.timestamp_ms)
        if operation == FENCE:
            self.fenced = commit.version
        elif operation in REWINDING:
            self.rewound = commit
        self.version = commit.version

    def _note_table(self, commit: TableCommit) -> None:
        if commit.table_id is not None:
            self.table_id = commit.table_id
        if commit.properties is not None:
            self.properties = commit.properties
        if commit.schema is not None:
            self.schema = commit.schema
        if commit.closed is not None:
            self.closed = commit.closed

    def _note_own(self, commit: TableCommit) -> None:
        """Take in the user metadata of a commit of ours."""
        placed = took(commit) if PARTS_KEY in commit.note else None
        self.deaf = placed is None and commit.is_append
        if placed:
            self.taken = self.taken.after(placed)
        if commit.is_append:
            self.appended = commit.append_id
            self.ends_recorded = self.ends_recorded or (bool(commit.txns) and records_ends(commit))
        if commit.is_append or (_goes_on(commit) and not rewinds(commit)):
            self.rewound, self.went_on = None, True

    def note_recorded(self, partitions: Iterable[int]) -> None:
        """Note for which of these partitions the table has recorded the log end, and for which not."""
        ends, txns = self.index.ends, self.txns
        for partition in partitions:
            if ends.get(partition, 0) > txns.get(f"{END_APP}{partition}", 0):
                self.unrecorded.add(partition)
            else:
                self.unrecorded.discard(partition)

    def saw_below(self, commit: TableCommit, to_segment: Callable[[Add], Segment], rewind_possible: bool) -> bool:  # noqa: FBT001
        """Take in what a commit below the loaded checkpoint says, newest first. Caller: whoever has just loaded it.

        Args:
            commit: the next older one.
            to_segment: what a data file covers.
            rewind_possible: whether no commit of ours has been seen above it.

        Returns:
            The same for the next one.
        """
        self.last_commit_ms = max(self.last_commit_ms, commit.timestamp_ms)
        for add in commit.adds:
            if not self.index.has(add.path):
                with contextlib.suppress(KafkaError):
                    # A foreign writer's file that is gone by now may have left no statistics.
                    self.index.raise_end(to_segment(add))
        if rewind_possible and rewinds(commit):
            self.rewound = commit
        return rewind_possible and not rewinds(commit) and not _goes_on(commit)


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
    closed, metadata, txns = False, dict[str, Any](), dict[str, int]()
    if snapshot.version >= 0:
        with _damaged_checkpoint(snapshot.version, store):
            closed = any(is_closed(protocol, store.uri) for protocol in snapshot.of_kind("protocol"))
            metadata = next(snapshot.of_kind("metaData"), {})
            txns = {str(txn["appId"]): int(txn["version"]) for txn in snapshot.of_kind("txn")}
    state = TableState(
        version=snapshot.version,
        fenced=snapshot.version,
        checkpoint=snapshot.version,
        table_id=str(metadata.get("id", "")),
        index=SegmentIndex(map(to_segment, _adds(snapshot, store), repeat(store)) if snapshot.version >= 0 else ()),
        txns=txns,
        properties=metadata.get("configuration") or {},
        schema=str(metadata.get("schemaString", "")),
        closed=closed,
        damage=snapshot.damage,
        carried=snapshot.carried,
    )
    for commit in snapshot.committed:
        state.apply(commit, list(map(to_segment, commit.adds, repeat(store))))
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
