"""Snapshot: reads the actions in force at a version from the files of a Delta log.

A checkpoint is read as it is, column by column; the commits above it are read one by one. The code does not interpret
the data files' statistics, so the entries of foreign writers survive our checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from kafkalike.delta import actions as log_actions
from kafkalike.delta.damage import REPAIR_COMMAND, Damage
from kafkalike.delta.log_files import LogFiles, base_of, block_of, first_missing, last_checkpoint
from kafkalike.errors import LogCorruptError, UnsupportedVersionError
from kafkalike.storage.arrays import without_nulls
from kafkalike.storage.parquet import ParquetInput, is_storage_error, sound
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
"""Kinds of actions that make up a table's state; each file of a checkpoint has a column for each."""

ADDS_AT_A_TIME: Final = 1000
"""Data files of a checkpoint that are turned into objects at a time."""

LOAD_TRIES: Final = 3
"""Lists of a log that seems to lack a file, before the file counts as missing: another process may be cleaning up."""


@dataclass(slots=True, kw_only=True)
class LogSnapshot:
    """The actions in force at a version of a table: a checkpoint's, and the commits above it."""

    version: int
    """Version of the checkpoint; -1 without one."""
    actions: dict[str, pa.StructArray] = field(default_factory=dict)
    """Actions of the checkpoint, by kind."""
    commits: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=list)
    """Versions above the checkpoint with their actions, in order."""
    committed: list[log_actions.TableCommit] = field(default_factory=list)
    """Parsed commits of these versions."""
    damage: Damage | None = None
    """Damage that hides the newest version."""
    carried: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of data files that came with bundles, by path; some are not in force."""
    fold: Callable[[LogSnapshot], None] | None = None
    """Called after each commit that is read; may put the commits into the actions of a later version."""

    @property
    def newest(self) -> int:
        """The snapshot's version."""
        return self.commits[-1][0] if self.commits else self.version

    def metadata(self) -> Mapping[str, Any]:
        """Return the table's metadata in force: Delta's `metaData` action."""
        found = next(self.of_kind("metaData"), {})
        for _, actions in self.commits:
            found = next((a["metaData"] for a in reversed(actions) if "metaData" in a), found)
        return found

    def of_kind(self, kind: str) -> Iterator[dict[str, Any]]:
        """Return the checkpoint's actions of one kind."""
        found = self.actions.get(kind)
        for action in () if found is None else found.to_pylist():
            yield _plain(action)

    def adds(self) -> Iterator[log_actions.Add]:
        """Return the checkpoint's data files.

        Raises:
            ValueError, TypeError, AttributeError: an action lacks a field that the Delta protocol requires.
        """
        found = self.actions.get("add")
        if found is None:
            return
        # By columns, because rows take three times as long, and other writers add columns that nobody needs here. A few
        # at a time, because the objects of all files take ten times as much memory as the state that is made of them.
        there = {field.name for field in found.type}
        for at in range(0, len(found), ADDS_AT_A_TIME):
            some = found.slice(at, ADDS_AT_A_TIME)
            missing = [None] * len(some)
            for row in zip(
                *(some.field(n).to_pylist() if n in there else missing for n in log_actions.ADD_FIELDS), strict=True
            ):
                yield log_actions.add_of(*row)

    def live_files(self) -> dict[str, log_actions.Add]:
        """Return the data files of the snapshot's version, by path.

        Raises:
            ValueError, TypeError, AttributeError: see `adds`.
        """
        found = {add.path: add for add in self.adds()}
        for commit in self.committed:
            found |= {add.path: add for add in commit.adds}
            for path in commit.removes:
                found.pop(path, None)
        return found


def load_snapshot(
    store: Storage,
    version: int | None = None,
    *,
    rare: bool = False,
    fold: Callable[[LogSnapshot], None] | None = None,
) -> LogSnapshot:
    """Read a table's log.

    An unreadable checkpoint is replaced by an older one, with a warning, as long as the commits since then exist. If
    the last commits are damaged, the newest readable version is returned, with a warning: see `LogSnapshot.damage`.

    Args:
        store: the table.
        version: None for the newest one.
        rare: True for a rarely changed table, each of whose commits is bundled in an object store. A list of its whole
            log is short, and shows the last checkpoint without a further request.
        fold: see `LogSnapshot.fold`.

    Raises:
        FileNotFoundError: the table does not exist.
        LogCorruptError: the log lacks a version, or cannot be read; or the wanted version does not exist (yet, or any
            more).
    """
    rare = rare and store.scheduler.is_remote and store.scheduler.combines
    found = None if rare else _from_last_checkpoint(store, version, fold)
    if found is not None:
        return found
    for left in reversed(range(LOAD_TRIES)):
        files = LogFiles.listed(store)
        if not files.commits and not files.checkpoints:
            raise FileNotFoundError(store.uri)
        try:
            return _read(store, files, version, fold, rare=rare)
        except FileNotFoundError as cause:
            # A clean-up has removed a file since the list.
            if not left:
                raise LogCorruptError(
                    f"the log of {store.uri} cannot be read: {cause} is missing; see `{REPAIR_COMMAND}`"
                ) from cause
    raise AssertionError(store.uri)


def _from_last_checkpoint(
    store: Storage, version: int | None, fold: Callable[[LogSnapshot], None] | None
) -> LogSnapshot | None:
    """Return a version from the checkpoint that the log names, without listing the older files.

    None if the version is older, or the result is not sound: then the whole log must be listed.
    """
    last = last_checkpoint(store)
    if last < 0 or (version is not None and version < last):
        return None
    # From the start of the block of the commits above the checkpoint, because their bundle is named after it.
    files = LogFiles.listed(store, block_of(last + 1))
    if last not in files.checkpoints:
        return None
    try:
        found = _read(store, files, version, fold)
    except (FileNotFoundError, LogCorruptError):
        return None
    return found if found.damage is None and found.version >= last else None


def _read(
    store: Storage,
    files: LogFiles,
    version: int | None,
    fold: Callable[[LogSnapshot], None] | None,
    *,
    rare: bool = False,
) -> LogSnapshot:
    newest = max([*files.commits[-1:], *files.checkpoints])
    target = newest if version is None else version
    problems: list[str] = []
    for base in [*sorted((c for c in files.checkpoints if c <= target), reverse=True), -1]:
        missing = first_missing(files.commits, base, target)
        if missing is not None:
            problems.append(f"{log_actions.log_name(missing)} is missing")
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
        cut_end, snapshot = version is None, LogSnapshot(version=base, actions=actions, fold=fold)
        if store.scheduler.is_remote:
            return _from_bundles(store, files, snapshot, above, rare, cut_end)
        commits = zip(above, map(store.read, map(log_actions.log_name, above)), strict=True)
        return _with_commits(store, snapshot, commits, above, cut_end=cut_end)
    if version is not None and not base_of(files, version):
        problems = [f"there is no version {version} any more, or not yet; the newest one is {newest}"]
    else:
        problems.append(f"see `{REPAIR_COMMAND}`")
    raise LogCorruptError(f"the log of {store.uri} cannot be read: {'; '.join(problems)}")


def _from_bundles(  # noqa: PLR0917
    store: Storage,
    files: LogFiles,
    base: LogSnapshot,
    versions: Sequence[int],
    rare: bool,  # noqa: FBT001
    cut_end: bool,  # noqa: FBT001
) -> LogSnapshot:
    """Return a checkpoint with the commits above it, read from bundles where the log confirms them."""
    from kafkalike.delta.commit_bundles import EACH, EVERY, CommitFiles  # local disks have no bundles

    contents = CommitFiles(store, files, every=EACH if rare else EVERY)
    # A copy, because the commits of another table's bundles are discarded.
    found = _with_commits(
        store, replace(base, commits=[], committed=[]), contents.read(versions), versions, cut_end=cut_end
    )
    if not contents.tables or not contents.mislead(str(found.metadata().get("id"))):
        found.carried = contents.carried
        return found
    single = CommitFiles(store, files, joined=False).read(versions)
    return _with_commits(store, base, single, versions, cut_end=cut_end)


def _with_commits(
    store: Storage,
    snapshot: LogSnapshot,
    commits: Iterable[tuple[int, bytes]],
    versions: Sequence[int],
    *,
    cut_end: bool,
) -> LogSnapshot:
    """Return a checkpoint with the commits above it, up to a damaged end.

    A damaged commit below sound ones is an error, because they rest on its unknown content.
    """
    for version, content in commits:
        try:
            actions = log_actions.parse_actions(version, content, store.uri)
            commit = log_actions.commit_of(version, actions, store.uri)
        except LogCorruptError as cause:
            later = [v for v in versions if v > version]
            if not cut_end or not (snapshot.commits or snapshot.version >= 0) or not all_damaged(store, later):
                raise LogCorruptError(f"{cause}; see `{REPAIR_COMMAND}`") from cause
            snapshot.damage = Damage(
                where=store.uri,
                file=log_actions.log_name(version),
                why=why_damaged(cause),
                commit=version,
                good=version - 1,
                newest=versions[-1],
            )
            snapshot.damage.warn()
            break
        snapshot.commits.append((version, actions))
        snapshot.committed.append(commit)
        if snapshot.fold is not None:
            snapshot.fold(snapshot)
    return snapshot


def all_damaged(store: Storage, versions: Sequence[int]) -> bool:
    """Return True if no commit of these can be read.

    Raises:
        OSError: the storage does not answer.
    """
    for version in versions:
        try:
            log_actions.parse_commit(version, store.read(log_actions.log_name(version)), store.uri)
        except LogCorruptError:
            continue
        except UnsupportedVersionError:
            return False
        return False
    return True


def why_damaged(cause: LogCorruptError) -> str:
    """Return the error of a damaged commit without its name."""
    return str(cause).partition(".json ")[2].removeprefix("is damaged: ") or str(cause)


def _checkpoint(store: Storage, names: Sequence[str]) -> dict[str, pa.StructArray]:
    """Read a checkpoint from any replica that has it whole: the checkpoints of one version are equal."""
    return sound(store, f"_delta_log/{names[0]}", lambda copy: read_checkpoint(copy, names))


def read_checkpoint(store: Storage, names: Sequence[str]) -> dict[str, pa.StructArray]:
    """Return the actions of a checkpoint by kind.

    Raises:
        OSError, pa.ArrowException, ValueError: the checkpoint cannot be read.
    """
    found: dict[str, list[pa.StructArray]] = {}
    rows = 0
    for name in names:
        path = f"_delta_log/{name}"
        # One request instead of one per part.
        with pa.BufferReader(store.read(path)) if store.scheduler.is_remote else store.open_input(path) as stream:
            table = ParquetInput(stream).read(use_threads=False)
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
    """Raise if a column's name may be damaged, because its actions would be overlooked.

    The checksums of a file's pages do not cover the names in its footer. If all known columns exist, an unknown one
    belongs to a later Delta and is ignored, as in commits: the protocol action names the features that readers must
    know.
    """
    unknown, lost = set(names) - KINDS, READ_KINDS - set(names)
    if unknown and lost:
        raise ValueError(f"it has actions of kinds that are not known, {sorted(unknown)}, and none of {sorted(lost)}")


def _is_metadata(found: Mapping[str, Any]) -> bool:
    """Return True if a `metaData` action has a valid id, schema and configuration."""
    texts = found.get("id"), found.get("schemaString")
    settings = _plain(found.get("configuration") or {})
    return all(isinstance(text, str) and text for text in texts) and (
        "configuration" in found
        and isinstance(settings, dict)
        and all(isinstance(name, str) and isinstance(value, str | None) for name, value in settings.items())
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - what an action may hold
    """Remove nulls, and turn Arrow's maps, which come as pairs, into dictionaries."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list) and all(isinstance(item, tuple) and len(item) == 2 for item in value):  # noqa: PLR2004
        return dict(value)
    return value
