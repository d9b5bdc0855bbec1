"""Snapshot: the files of a Delta log in, the actions that are in force at a version out.

A checkpoint is read as it stands, column by column; the commits above it are read one by one. Nothing here knows what
the data files of a table hold, so what a foreign writer has said of its files survives our checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kafkalike.delta.actions import (
    ADD_FIELDS,
    Add,
    TableCommit,
    add_of,
    commit_of,
    log_name,
    parse_actions,
    parse_commit,
)
from kafkalike.delta.commit_bundles import EACH, EVERY, CommitFiles
from kafkalike.delta.damage import REPAIR_COMMAND, Damage
from kafkalike.delta.log_files import LogFiles, base_of, block_of, first_missing, last_checkpoint
from kafkalike.errors import LogCorruptError, UnsupportedVersionError
from kafkalike.storage.arrays import without_nulls
from kafkalike.storage.parquet import is_storage_error, sound
from kafkalike.storage.port import Storage

_log = logging.getLogger(__name__)

KINDS: Final = frozenset(
    (
        *("metaData", "protocol", "txn", "add", "remove", "commitInfo"),
        *("cdc", "checkpointMetadata", "domainMetadata", "sidecar"),
    )
)
"""Kinds of actions of the Delta protocol."""

READ_KINDS: Final = frozenset(("metaData", "protocol", "txn", "add", "remove"))
"""Those that a table's state is made of; each file of a checkpoint has a column for each."""

LOAD_TRIES: Final = 3
"""How often a log that seems to lack a file is listed: another process may be cleaning it up."""


@dataclass(slots=True, kw_only=True)
class LogSnapshot:
    """The actions in force at a version of a table: a checkpoint's, and the commits above it."""

    version: int
    """The checkpoint's, or -1: no commit is in it."""
    actions: dict[str, pa.StructArray] = field(default_factory=dict)
    """The checkpoint's, by kind."""
    commits: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=list)
    """Versions above it with their actions, in order."""
    committed: list[TableCommit] = field(default_factory=list)
    """What these say."""
    damage: Damage | None = None
    """Why it is not of the newest version, if that cannot be read."""
    carried: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of data files that came with the commits; not all are in force."""

    @property
    def newest(self) -> int:
        """The version that it is of."""
        return self.commits[-1][0] if self.commits else self.version

    def metadata(self) -> Mapping[str, Any]:
        """The table's metadata in force: Delta's `metaData` action."""
        found = next(self.of_kind("metaData"), {})
        for _, actions in self.commits:
            found = next((a["metaData"] for a in reversed(actions) if "metaData" in a), found)
        return found

    def of_kind(self, kind: str) -> Iterator[dict[str, Any]]:
        """The checkpoint's actions of one kind."""
        found = self.actions.get(kind)
        for action in () if found is None else found.to_pylist():
            yield _plain(action)

    def adds(self) -> Iterator[Add]:
        """The checkpoint's data files.

        Raises:
            ValueError, TypeError, AttributeError: one lacks what the Delta protocol asks for.
        """
        found = self.actions.get("add")
        if found is None:
            return
        # Column by column: row by row takes three times as long, and other writers have columns that nobody needs here.
        there = {field.name for field in found.type}
        missing = [None] * len(found)
        for row in zip(*(found.field(n).to_pylist() if n in there else missing for n in ADD_FIELDS), strict=True):
            yield add_of(*row)

    def live_files(self) -> dict[str, Add]:
        """The data files of its version, by path.

        Raises:
            ValueError, TypeError, AttributeError: see `adds`.
        """
        found = {add.path: add for add in self.adds()}
        for commit in self.committed:
            found |= {add.path: add for add in commit.adds}
            for path in commit.removes:
                found.pop(path, None)
        return found


def load_snapshot(store: Storage, version: int | None = None, *, rare: bool = False) -> LogSnapshot:
    """Read a table's log.

    A checkpoint that cannot be read is passed over for an older one, with a warning, as long as the commits since then
    are still there. When the last commits are damaged, the newest version that can be read is taken, with a warning:
    see `LogSnapshot.damage`.

    Args:
        store: the table.
        version: None for the newest one.
        rare: whether few commits are made to it, and each is joined where that saves requests. A list of its whole log
            is short then, and says without a question which checkpoint is the last.

    Raises:
        FileNotFoundError: there is no table.
        LogCorruptError: its log lacks a version, or cannot be read; or it has no such version (any more, or yet).
    """
    rare = rare and store.scheduler.is_remote and store.scheduler.combines
    found = _from_last_checkpoint(store) if version is None and not rare else None
    if found is not None:
        return found
    for left in reversed(range(LOAD_TRIES)):
        files = LogFiles.listed(store)
        if not files.commits and not files.checkpoints:
            raise FileNotFoundError(store.uri)
        try:
            return _read(store, files, version, every=EACH if rare else EVERY)
        except FileNotFoundError as cause:
            # Cleaned up since it was listed.
            if not left:
                raise LogCorruptError(
                    f"the log of {store.uri} cannot be read: {cause} is missing; see `{REPAIR_COMMAND}`"
                ) from cause
    raise AssertionError(store.uri)


def _from_last_checkpoint(store: Storage) -> LogSnapshot | None:
    """The newest version by the checkpoint that the log names, without a list of all that lies below it.

    None where that does not give a sound one: then the whole log has to be looked at.
    """
    last = last_checkpoint(store)
    if last < 0:
        return None
    # From the block on that the commits above it begin in: their joined file is named after that.
    files = LogFiles.listed(store, block_of(last + 1))
    if last not in files.checkpoints:
        return None
    try:
        found = _read(store, files, None)
    except (FileNotFoundError, LogCorruptError):
        return None
    return found if found.damage is None and found.version >= last else None


def _read(store: Storage, files: LogFiles, version: int | None, *, every: int = EVERY) -> LogSnapshot:
    newest = max([*files.commits[-1:], *files.checkpoints])
    target = newest if version is None else version
    problems: list[str] = []
    for base in [*sorted((c for c in files.checkpoints if c <= target), reverse=True), -1]:
        missing = first_missing(files.commits, base, target)
        if missing is not None:
            problems.append(f"{log_name(missing)} is missing")
            continue
        try:
            actions = {} if base < 0 else _checkpoint(store, files.checkpoints[base])
        except (OSError, pa.ArrowException, ValueError) as cause:
            if isinstance(cause, FileNotFoundError) or is_storage_error(cause):
                raise
            problems.append(f"checkpoint {base} cannot be read: {cause}")
            _log.warning("%s: checkpoint %d cannot be read, an older one is taken: %s", store.uri, base, cause)
            continue
        above = [v for v in files.commits if base < v <= target]
        contents = CommitFiles(store, files, every=every)
        found = _with_commits(
            store, LogSnapshot(version=base, actions=actions), contents, above, cut_end=version is None
        )
        if not contents.tables or not contents.mislead(str(found.metadata().get("id"))):
            found.carried = contents.carried
            return found
        contents = CommitFiles(store, files, joined=False)
        return _with_commits(
            store, LogSnapshot(version=base, actions=actions), contents, above, cut_end=version is None
        )
    if version is not None and not base_of(files, version):
        problems = [f"there is no version {version} any more, or not yet; the newest one is {newest}"]
    else:
        problems.append(f"see `{REPAIR_COMMAND}`")
    raise LogCorruptError(f"the log of {store.uri} cannot be read: {'; '.join(problems)}")


def _with_commits(
    store: Storage, snapshot: LogSnapshot, contents: CommitFiles, versions: Sequence[int], *, cut_end: bool
) -> LogSnapshot:
    """A checkpoint, and the commits above it, up to the first of a damaged end.

    A damaged commit that sound ones follow is an error: what it said is not known, and they rest on it.
    """
    for version, content in contents.read(versions):
        try:
            actions = parse_actions(version, content, store.uri)
            commit = commit_of(version, actions, store.uri)
        except LogCorruptError as cause:
            later = [v for v in versions if v > version]
            if not cut_end or not (snapshot.commits or snapshot.version >= 0) or not all_damaged(store, later):
                raise LogCorruptError(f"{cause}; see `{REPAIR_COMMAND}`") from cause
            snapshot.damage = Damage(
                where=store.uri,
                file=log_name(version),
                why=why_damaged(cause),
                commit=version,
                good=version - 1,
                newest=versions[-1],
            )
            snapshot.damage.warn()
            break
        snapshot.commits.append((version, actions))
        snapshot.committed.append(commit)
    return snapshot


def all_damaged(store: Storage, versions: Sequence[int]) -> bool:
    """Whether none of these commits can be read.

    Raises:
        OSError: the storage does not say.
    """
    for version in versions:
        try:
            parse_commit(version, store.read(log_name(version)), store.uri)
        except LogCorruptError:
            continue
        except UnsupportedVersionError:
            return False
        return False
    return True


def why_damaged(cause: LogCorruptError) -> str:
    """What is wrong with a commit, without its name."""
    return str(cause).partition(".json ")[2].removeprefix("is damaged: ") or str(cause)


def _checkpoint(store: Storage, names: Sequence[str]) -> dict[str, pa.StructArray]:
    """The same, of any replica that has it whole: those of one version say the same."""
    return sound(store, f"_delta_log/{names[0]}", lambda copy: read_checkpoint(copy, names))


def read_checkpoint(store: Storage, names: Sequence[str]) -> dict[str, pa.StructArray]:
    """The actions of a checkpoint by kind.

    Raises:
        OSError, pa.ArrowException, ValueError: it cannot be read.
    """
    found: dict[str, list[pa.StructArray]] = {}
    rows = 0
    for name in names:
        path = f"_delta_log/{name}"
        # All of it is wanted, and each part would be a request.
        with pa.BufferReader(store.read(path)) if store.scheduler.is_remote else store.open_input(path) as stream:
            file = pq.ParquetFile(stream, pre_buffer=False, page_checksum_verification=True)
            table = file.read(use_threads=False)
        rows += table.num_rows
        _check_columns(table.column_names)
        for kind in table.column_names:
            column = table.column(kind)
            found.setdefault(kind, []).extend(map(without_nulls, column.chunks))
    actions = {kind: pa.concat_arrays(chunks) for kind, chunks in found.items() if chunks}
    if not len(actions.get("metaData", ())) or not len(actions.get("protocol", ())):
        raise ValueError("it lacks the table's metadata or protocol")
    if not all(map(_is_metadata, actions["metaData"].to_pylist())):
        raise ValueError("its table's metadata are not what Delta writes")
    if sum(map(len, actions.values())) < rows:
        raise ValueError("it has rows without an action")
    return actions


def _check_columns(names: Sequence[str]) -> None:
    """Refuse a file of a checkpoint with a column that may be one that has lost its name: it would be overlooked.

    The checksums of a file's pages say nothing of the names in its footer. Where none that is read here is missing, one
    that is not known is of a later Delta, and left alone as it is in commits: the protocol says what must be known.
    """
    unknown, lost = set(names) - KINDS, READ_KINDS - set(names)
    if unknown and lost:
        raise ValueError(f"it has actions of kinds that are not known, {sorted(unknown)}, and none of {sorted(lost)}")


def _is_metadata(found: Mapping[str, Any]) -> bool:
    """Whether a `metaData` action says what is read of it here: texts, and a map of texts."""
    texts = found.get("id"), found.get("schemaString")
    settings = _plain(found.get("configuration") or {})
    return all(isinstance(text, str) and text for text in texts) and (
        "configuration" in found
        and isinstance(settings, dict)
        and all(isinstance(name, str) and isinstance(value, str | None) for name, value in settings.items())
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - what an action may hold
    """Without nulls; maps, which Arrow hands out as pairs, as dictionaries."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list) and all(isinstance(item, tuple) and len(item) == 2 for item in value):  # noqa: PLR2004
        return dict(value)
    return value
