"""Tail: a Delta table in, its live segments out; follows the log commit by commit.

The state is loaded once through `deltalake` (checkpoints included) and then kept up by reading one small JSON file
per new table version, so that looking for new records costs one file look-up however long the table's history is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from kafkalike.clock import Clock
from kafkalike.errors import KafkaError, KafkaStorageError, LogCorruptError
from kafkalike.log.commits import (
    Add,
    TableCommit,
    check_protocol,
    ends_of,
    log_name,
    parse_commit,
    segment_of,
    versions,
)
from kafkalike.log.storage import Files
from kafkalike.model.segments import Segment, SegmentIndex

LOAD_TRIES: Final = 3
"""How often a log that looks damaged is listed; beside busy writers, in a trial of minutes, a few loads looked so."""

LOOK_BACK: Final = 100
"""Commits that a load looks through for records that were taken away, checkpoints or not; a few ms."""

_CHECKPOINT: Final = re.compile(r"\d{20}\.checkpoint(\..+)?\.parquet")

RECHECK_SECONDS: Final = 10.0
"""How often a reader that sees nothing new makes sure that its version was not cleaned out of the log."""


@dataclass(slots=True, kw_only=True)
class TableState:
    """What is known of a table at one version."""

    version: int = -1
    """-1: nothing is known yet."""
    table_id: str = ""
    index: SegmentIndex = field(default_factory=SegmentIndex)
    txns: dict[str, int | None] = field(default_factory=dict)
    """Latest version of each application seen since the load; older ones are asked of the table."""
    last_commit_ms: int = 0
    foreign: TableCommit | None = None
    """The latest commit that rewound the table, if any; see `REWINDING`."""
    ends: dict[int, int] = field(default_factory=dict)
    """Log ends that the table has recorded, by partition; see `END_APP`."""
    unrecorded: set[int] = field(default_factory=set)
    """Partitions whose log end is above what is recorded."""


class TableTail:
    """State of one table at a version, and the way to the next. Not thread-safe; its owner serialises calls.

    Whatever interrupts a change of the state, Ctrl-C included, makes the next `refresh` load it anew: `_whole` is taken
    away before the change begins and given back as its last step.

    Args:
        files: the table's files.
        clock: for the rare check of `RECHECK_SECONDS`.
        on_commit: called with every commit that is applied after the first load, in order.
        on_load: called after a (re)load of the whole state.
        to_segment: what a data file of this table covers.
        records_ends: whether appends record the log end in the table.
    """

    def __init__(
        self,
        files: Files,
        clock: Clock,
        on_commit: Callable[[TableCommit], None] | None = None,
        on_load: Callable[[], None] | None = None,
        to_segment: Callable[[Add, Files], Segment] = segment_of,
        *,
        records_ends: bool = False,
    ) -> None:
        self.files = files
        self._state = TableState()
        self._whole = False
        """Whether the state, and what the callbacks made of it, are those of its version."""
        self._clock = clock
        self._on_commit = on_commit
        self._on_load = on_load
        self._segment_of = to_segment
        self._records_ends = records_ends
        self._checked = 0.0

    @property
    def loaded(self) -> bool:
        """Whether there is a state to go on from."""
        return self._whole

    @property
    def version(self) -> int:
        """Table version of the state; -1 before the first load."""
        return self._state.version

    @property
    def table_id(self) -> str:
        """Id of the table."""
        return self._state.table_id

    @property
    def index(self) -> SegmentIndex:
        """The live data files."""
        return self._state.index

    @property
    def last_commit_ms(self) -> int:
        """Time of the latest commit seen, ms."""
        return self._state.last_commit_ms

    @property
    def foreign(self) -> TableCommit | None:
        """The latest commit that rewound the table, if any; see `REWINDING`."""
        return self._state.foreign

    def forget(self) -> None:
        """Begin from nothing at the next `refresh`."""
        self._whole = False

    def refresh(self) -> bool:
        """Apply the commits that were made since the last call.

        Returns:
            Whether there were any.

        Raises:
            LogCorruptError: a commit file is damaged.
            FileNotFoundError: there is no table.
        """
        if not self.loaded:
            self.load()
            return True
        moved = False
        while self._apply_next():
            moved = True
        if not moved and self._clock.monotonic() - self._checked > RECHECK_SECONDS:
            return self._recheck()
        return moved

    def _apply_next(self) -> bool:
        following = self.version + 1
        try:
            content = self.files.read(log_name(following))
        except FileNotFoundError:
            return False
        except OSError as cause:
            message = f"{self.files.uri}/{log_name(following)} cannot be read: {cause}"
            raise KafkaStorageError(message) from cause
        self.apply(parse_commit(following, content, self.files.uri))
        return True

    def apply(self, commit: TableCommit) -> None:
        """Take in the next commit. Caller: `refresh`, and the writer that has just made it.

        One that does not follow the state, or follows one that is forgotten, is left to the next `refresh`.
        """
        state = self._state
        if not self._whole or commit.version != state.version + 1:
            return
        # Segments first: reading one may fail, and then the state must not be half-way.
        added = [self._segment_of(a, self.files) for a in commit.adds]
        self._whole = False
        for path in commit.removes:
            state.index.remove(path)
        for segment in added:
            state.index.add(segment)
        state.txns.update(commit.txns)
        _record_ends(state, ends_of(commit.txns), {segment.partition for segment in added})
        state.version = commit.version
        if commit.table_id:
            state.table_id = commit.table_id
        state.last_commit_ms = max(state.last_commit_ms, commit.timestamp_ms)
        if rewinds(commit):
            state.foreign = commit
        self._checked = self._clock.monotonic()
        if self._on_commit:
            self._on_commit(commit)
        self._whole = True

    def _recheck(self) -> bool:
        """Reload when the log has moved on past a version that is gone."""
        self._checked = self._clock.monotonic()
        known = versions(self.files)
        if known and known[-1] == self.version:
            return False
        if known and known[-1] > self.version and self._apply_next():
            return True
        # Cleaned up below us, replaced by another table, or gone.
        self.load()
        return True

    def check_there(self) -> None:
        """Reload when the version that is known is not in the log any more: someone may have replaced the table.

        Raises:
            FileNotFoundError: there is no table.
            LogCorruptError: its log cannot be read.
        """
        try:
            self.files.read(log_name(self.version))
        except FileNotFoundError:
            self.load()

    def load(self) -> None:
        """Load the whole state through `deltalake`.

        Raises:
            FileNotFoundError: there is no table.
            LogCorruptError: its log cannot be read.
        """
        table = open_table(self.files.uri)
        try:
            protocol = table.protocol()
            check_protocol(protocol.min_reader_version, protocol.min_writer_version, self.files.uri)
            # `pa.table(...)` would import pandas, which takes a second.
            adds = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
        except (DeltaError, OSError, pa.ArrowException) as cause:
            message = f"the log of {self.files.uri} cannot be read: {cause}"
            raise LogCorruptError(message) from cause
        state = TableState(
            version=table.version(),
            table_id=str(table.metadata().id),
            index=SegmentIndex([self._segment_of(add, self.files) for add in adds_of(adds)]),
        )
        self._look_back(state)
        _record_ends(state, state.ends, state.index.ends)
        self._whole = False
        self._state = state
        self._checked = self._clock.monotonic()
        if self._on_load:
            self._on_load()
        self._whole = True

    def _look_back(self, state: TableState) -> None:
        """Look through the last commits for what the live files do not tell.

        That is: a rewind, by the last commits back to the last one of ours; records that were there and are not any
        more, whose offsets must not be given out again; and commit files without content, as a power failure may
        leave them, which `deltalake` reads over.

        A checkpoint is no reason to stop: RESTORE writes one itself.
        """
        rewind_possible = True
        seen: list[TableCommit] = []
        newest = checkpointed(self.files)
        enough = min(newest, state.version - LOOK_BACK)
        for version in range(state.version, -1, -1):
            if version <= enough and not rewind_possible:
                break
            try:
                commit = parse_commit(version, self.files.read(log_name(version)), self.files.uri)
            except FileNotFoundError:
                break
            except LogCorruptError:
                if version > newest:
                    raise
                break  # The checkpoint has what was in it.
            state.last_commit_ms = max(state.last_commit_ms, commit.timestamp_ms)
            self._keep_ends(state.index, commit)
            _raise(state.ends, ends_of(commit.txns))
            seen.append(commit)
            if rewind_possible and rewinds(commit):
                state.foreign = commit
            if rewinds(commit) or commit.append_id or commit.operation == "CREATE TABLE":
                rewind_possible = False
        if self._records_ends:
            if version:
                _raise(state.ends, self._checkpointed_ends())
            self._keep_taken(state, seen)

    def _keep_taken(self, state: TableState, seen: Sequence[TableCommit]) -> None:
        """Let the log end stay above files that foreign writers took out and whose own commits are not read any more.

        Where nothing tells how far such a file went, the table counts as rewound.
        """
        known = {add.path for commit in seen for add in commit.adds}
        foreign = [commit for commit in seen if commit.append_id is None]
        for commit, old in [(c, old) for c in foreign for old in c.taken if old.path not in known]:
            try:
                state.index.raise_end(self._segment_of(old, self.files))
            except KafkaError:
                if old.partition not in state.ends and (
                    state.foreign is None or state.foreign.version < commit.version
                ):
                    state.foreign = commit

    def _checkpointed_ends(self) -> dict[int, int]:
        """Log ends in the table's last checkpoint; none without one.

        Raises:
            LogCorruptError: it cannot be read.
        """
        for left in reversed(range(LOAD_TRIES)):
            parts = _checkpoint_parts(self.files)
            found: dict[int, int] = {}
            try:
                for part in parts:
                    _raise(found, ends_of(_txns_in(self.files, part)))
            except (OSError, pa.ArrowException) as cause:
                if not left or not isinstance(cause, FileNotFoundError):
                    message = f"the checkpoint {self.files.uri}/{parts[0]} cannot be read: {cause}"
                    raise LogCorruptError(message) from cause
                continue  # Cleaned up meanwhile: there is a newer one.
            return found
        raise AssertionError(self.files.uri)

    def unrecorded_ends(self) -> dict[int, int]:
        """Log ends that the next append is to record beside those that it makes, by partition."""
        return {partition: self.index.end(partition) for partition in self._state.unrecorded}

    def _keep_ends(self, index: SegmentIndex, commit: TableCommit) -> None:
        """Let the log end stay above everything that a commit once added."""
        for add in commit.adds:
            if not index.has(add.path):
                try:
                    index.raise_end(self._segment_of(add, self.files))
                except KafkaError:
                    # An outsider's file that is gone by now and has left no statistics.
                    continue

    def txn_version(self, app_id: str) -> int | None:
        """Latest version that an application has written; None when it never has."""
        state = self._state
        if app_id not in state.txns:
            known = open_table(self.files.uri, state.version).transaction_version(app_id)
            # "Never" is kept as well: only a commit that `apply` sees can change it.
            state.txns[app_id] = None if known is None else int(known)
        return state.txns[app_id]


def _raise(ends: dict[int, int], more: Mapping[int, int]) -> None:
    for partition, end in more.items():
        ends[partition] = max(end, ends.get(partition, 0))


def _record_ends(state: TableState, recorded: Mapping[int, int], touched: Iterable[int]) -> None:
    """Note log ends that the table records, and which of the touched partitions it does not."""
    for partition, end in recorded.items():
        state.index.raise_end_to(partition, end)
        state.ends[partition] = max(end, state.ends.get(partition, 0))
    for partition in {*touched, *recorded}:
        if state.index.end(partition) > state.ends.get(partition, 0):
            state.unrecorded.add(partition)
        else:
            state.unrecorded.discard(partition)


def _checkpoint_parts(files: Files) -> list[str]:
    """Files of the last checkpoint, relative to the table's folder."""
    names = [name for name in files.list_log() if _CHECKPOINT.fullmatch(name)]
    pointed = f"{checkpointed(files):020d}"
    newest = pointed if any(name.startswith(pointed) for name in names) else max(names, default="")[:20]
    return [f"_delta_log/{name}" for name in names if newest and name.startswith(newest)]


def _txns_in(files: Files, part: str) -> dict[str, int]:
    """Applications and their versions in a file of a checkpoint."""
    with files.parquet(part) as file:
        if "txn" not in file.schema_arrow.names:
            return {}
        column = file.read(columns=["txn"], use_threads=False).column("txn").drop_null()
    return {txn["appId"]: int(txn["version"]) for txn in column.to_pylist() if txn["appId"] is not None}


def open_table(uri: str, version: int | None = None) -> DeltaTable:
    """A table's state, through `deltalake`.

    A folder that is listed while files come and go in it may seem to lack one that was there all the time, which looks
    like damage: so what looks damaged is looked at again before it counts as such.

    Args:
        uri: the table's folder.
        version: None for the newest one.

    Raises:
        FileNotFoundError: there is no table.
        LogCorruptError: its log cannot be read.
    """
    for left in reversed(range(LOAD_TRIES)):
        try:
            return DeltaTable(uri, version=version)
        except TableNotFoundError as cause:
            raise FileNotFoundError(uri) from cause
        except (DeltaError, OSError) as cause:
            if not left:
                message = f"the log of {uri} cannot be read: {cause}"
                raise LogCorruptError(message) from cause
    raise AssertionError(uri)


def checkpointed(files: Files) -> int:
    """Version of the last checkpoint; -1 when there is none, or none that can be found out."""
    try:
        return int(json.loads(files.read("_delta_log/_last_checkpoint"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1


REWINDING: Final = frozenset({"RESTORE", "CREATE OR REPLACE TABLE", "REPLACE TABLE AS SELECT", "TRUNCATE"})
"""Operations of outsiders that may take the log end back, so that offsets would be given out twice."""


def rewinds(commit: TableCommit) -> bool:
    """Whether a commit may have taken the log end of a topic back."""
    return commit.operation in REWINDING


def adds_of(table: pa.Table) -> Iterator[Add]:
    """The rows of `get_add_actions` in the form that commits have."""
    names = table.column_names
    columns: dict[str, list[Any]] = {
        name: (table.column(name).cast(pa.int64()) if "timestamp" in name else table.column(name)).to_pylist()
        for name in names
    }
    partitions = columns.get("partition.partition") or [None] * table.num_rows
    for at in range(table.num_rows):
        low = {n[4:]: v[at] for n, v in columns.items() if n.startswith("min.") and v[at] is not None}
        high = {n[4:]: v[at] for n, v in columns.items() if n.startswith("max.") and v[at] is not None}
        for side in (low, high):
            if "timestamp" in side:
                side["timestamp"] = int(side["timestamp"]) // 1000
        rows = columns["num_records"][at] if "num_records" in columns else None
        yield Add(
            path=columns["path"][at],
            partition=partitions[at],
            size=columns["size_bytes"][at],
            modification_ms=columns["modification_time"][at],
            data_change=True,
            stats={} if rows is None else {"numRecords": rows, "minValues": low, "maxValues": high},
        )
