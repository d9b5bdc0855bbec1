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
from kafkalike.model.appends.producer_sequences import BATCHES_KEY, ProducerSequences
from kafkalike.model.appends.taken_appends import PARTS_KEY, Placed, TakenAppends, from_note
from kafkalike.model.row_value import UNREADABLE
from kafkalike.model.segments import Segment, SegmentIndex
from kafkalike.storage.port import Storage

SEAL: Final = "REPLICAS"
"""Operation of a version that names the configuration of replicas for the versions after it."""

REPLICAS: Final = "kafkalike.replicas:"
"""Prefix of the Delta transaction that names a configuration of replicas; its version is the epoch.

It stays in checkpoints, other engines ignore it, and each chain that ever existed has one.
"""

FENCE: Final = "FENCE"
"""Operation of an empty commit. It takes a version that a commit in doubt could still get, and makes writers with an
older plan plan again."""

CLOSE: Final = "UPGRADE PROTOCOL"
OPEN: Final = "DROP FEATURE"
"""Operations of commits that close a table to foreign writers, or open it to them; Delta's names for such changes."""

REPAIR: Final = "REPAIR"
"""Operation of a commit that replaces a damaged one, or ends a repair. Readers load the table again, because their
state may rest on lost commits."""

APPEND_ONLY: Final = "delta.appendOnly"
"""Property of a table that forbids the removal of records; every writer of our Delta protocol must respect it."""

END_APP: Final = "kafkalike.end/"
"""Prefix of an application whose version is the log end of a partition: `kafkalike.end/` and the partition's number. So
the log end outlives its records, whoever deletes them."""


def end_app(partition: int) -> str:
    """Return the Delta application whose version is a partition's log end."""
    return f"{END_APP}{partition}"


REWINDING: Final = frozenset({"RESTORE", "CREATE OR REPLACE TABLE", "REPLACE TABLE AS SELECT", "TRUNCATE"})
"""Operations of foreign writers that may lower the log end, so that offsets would be given out twice."""


def rewinds(commit: TableCommit) -> bool:
    """Return True if a commit may have lowered the log end of a topic."""
    return commit.operation in REWINDING


def _goes_on(commit: TableCommit) -> bool:
    """Return True if a commit of ours proves that the log end before it was not lowered.

    Fences, repairs and seals prove nothing: they are also made on lowered tables.
    """
    return commit.append_id is not None and commit.operation not in {FENCE, REPAIR, SEAL}


def records_ends(commit: TableCommit) -> bool:
    """Return True for an append that recorded log ends: of its partitions, and of all partitions unrecorded before."""
    return commit.is_append and any(app_id.startswith(END_APP) for app_id in commit.txns)


def took(commit: TableCommit) -> dict[str, Placed] | None:
    """Return the appends of others that a commit took, by writer; None if its writer did not look for any."""
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
    """Delta schema as JSON."""
    closed: bool = False
    """True if the table's protocol excludes foreign writers."""
    unrecorded: set[int] = field(default_factory=set)
    """Partitions whose log end is above the recorded one, as in tables of earlier releases or after foreign writers'
    appends."""
    fenced: int = -1
    """Version of the latest fence; the loaded checkpoint's if no later fence is known."""
    checkpoint: int = -1
    """Version of the loaded checkpoint; -1 without one."""
    last_commit_ms: int = 0
    """Time of the latest known commit, ms."""
    rewound: TableCommit | None = None
    """Latest commit that may have lowered log ends, unless a change of ours has followed it."""
    damage: Damage | None = None
    """Damage that hides the newest version; then nothing may be written."""
    carried: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of data files that came with the log; only while the state is being loaded."""

    went_on: bool = False
    """True if a change of ours was seen, which is never made on a table with lowered log ends."""
    ends_recorded: bool = False
    """True if an append was seen that recorded log ends: then all log ends below it are recorded."""

    taken: TakenAppends = field(init=False)
    """Appends of others that the commits since the load took."""
    producers: ProducerSequences = field(init=False)
    """Sequences of idempotent producers in the commits since the load, or in all; see `producer_append.recalled`."""
    deaf: bool = False
    """True if the latest version is an append whose writer did not look for waiting appends."""
    appended: str | None = None
    """Id of the latest append since the load."""

    def __post_init__(self) -> None:
        """Start without knowledge of the appends and sequences in commits up to this version."""
        self.taken = TakenAppends(self.version)
        self.producers = ProducerSequences(self.version)

    @property
    def removal_refusal(self) -> str | None:
        """Reason why no record may be removed from the table; None if removal is allowed."""
        if self.properties.get(APPEND_ONLY, "").lower() != "true":
            return None
        return (
            f"the table property {APPEND_ONLY}=true forbids to remove files, and maintenance does that; take it away, "
            f"or leave the topic out: ALTER TABLE … UNSET TBLPROPERTIES ('{APPEND_ONLY}')"
        )

    def end(self, partition: int) -> int:
        """Return the log end of a partition; 0 if it never had records."""
        return max(self.index.end(partition), self.txns.get(f"{END_APP}{partition}", 0))

    def apply(self, commit: TableCommit, added: Sequence[Segment]) -> None:
        """Apply the next commit. Caller: `TailedTable`, while nobody else can see the state.

        It makes few calls, because opening a table applies each commit of its log.

        Args:
            commit: the next one.
            added: segments of its added files.
        """
        index, txns, operation = self.index, self.txns, commit.operation
        if commit.removes:
            index.remove(*commit.removes)
        txns.update(commit.txns)
        for segment in added:
            index.add(segment)
            # Inlined from `note_recorded` and `end`.
            if index.ends.get(segment.partition, 0) > txns.get(f"{END_APP}{segment.partition}", 0):
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
        """Apply the user metadata of a commit of ours."""
        placed = took(commit) if PARTS_KEY in commit.note else None
        self.deaf = placed is None and commit.is_append
        if placed:
            self.taken = self.taken.after(placed)
        if BATCHES_KEY in commit.note:
            self.producers.note(commit.note, commit.timestamp_ms)
        if commit.is_append:
            self.appended = commit.append_id
            self.ends_recorded = self.ends_recorded or (bool(commit.txns) and records_ends(commit))
        if commit.is_append or (_goes_on(commit) and not rewinds(commit)):
            self.rewound, self.went_on = None, True

    def note_recorded(self, partitions: Iterable[int]) -> None:
        """Update the set of unrecorded partitions for some partitions."""
        ends, txns = self.index.ends, self.txns
        for partition in partitions:
            if ends.get(partition, 0) > txns.get(f"{END_APP}{partition}", 0):
                self.unrecorded.add(partition)
            else:
                self.unrecorded.discard(partition)

    def saw_below(self, commit: TableCommit, to_segment: Callable[[Add], Segment], rewind_possible: bool) -> bool:  # noqa: FBT001
        """Apply a commit below the loaded checkpoint, newest first. Caller: the code that has just loaded the state.

        Args:
            commit: the next older one.
            to_segment: makes the segment of a data file.
            rewind_possible: True if no commit of ours was seen above it.

        Returns:
            `rewind_possible` for the next one.
        """
        self.last_commit_ms = max(self.last_commit_ms, commit.timestamp_ms)
        for add in commit.adds:
            if not self.index.has(add.path):
                with contextlib.suppress(KafkaError):
                    # A foreign writer's file that was removed since may have left no statistics.
                    self.index.raise_end(to_segment(add))
        if rewind_possible and rewinds(commit):
            self.rewound = commit
        return rewind_possible and not rewinds(commit) and not _goes_on(commit)


ToSegment = Callable[[Add, Storage], Segment]
"""Makes the segment of a data file; reads the file if the log has no statistics of it."""


def load_table(store: Storage, to_segment: ToSegment, version: int | None = None) -> TableState:
    """Return the state of a table at a version.

    Args:
        store: the table.
        to_segment: see `ToSegment`.
        version: None for the newest one.

    Raises:
        FileNotFoundError: the table does not exist.
        LogCorruptError: its log is damaged, or the version does not exist (yet, or any more).
    """
    return load_with_base(store, to_segment, version)[0]


def load_with_base(
    store: Storage, to_segment: ToSegment, version: int | None = None, *, rare: bool = False
) -> tuple[TableState, LogSnapshot]:
    """Return the state of a table at a version, and the snapshot that it was made from. See `load_snapshot`."""
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
    """Return the checkpoint's data files one by one, because a list of all would be large."""
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
    """Return the newest version that names no damaged data file, with the damage noted.

    Args:
        store: the table.
        to_segment: see `ToSegment`.
        accept: reads the data files of a version.
        newest: the version that names a damaged file.
        cause: the error that `accept` raised for it.

    Raises:
        DamagedFileError: the log does not reach back to such a version.
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
            # An empty table is as bad as an error: it looks like a table that was never written.
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
    """Return the version that added a data file, at most the given one; 0 if the log does not show it any more."""
    for at in range(version, -1, -1):
        try:
            commit = parse_commit(at, store.read(log_name(at)), store.uri)
        except (FileNotFoundError, LogCorruptError):
            return 0
        if any(add.path == path for add in commit.adds):
            return at
    return 0


def size_of(store: Storage, name: str) -> int:
    """Return the size of a file, bytes; -1 if it is unknown."""
    try:
        return store.size(name)
    except OSError:
        return -1
