"""Actions: parses the JSON files of a Delta log into table commits. `commit_file.py` writes such files.

Only these actions of the Delta protocol are read: `commitInfo`, `metaData`, `protocol`, `txn`, `add` and `remove`
(github.com/delta-io/delta, PROTOCOL.md).
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from kafkalike.errors import LogCorruptError, UnsupportedVersionError
from kafkalike.model.row_value import UNREADABLE, as_text, parse_json, raw_decode

SUPPORTED_READER_VERSION: Final = 1
SUPPORTED_WRITER_VERSION: Final = 2
"""Delta protocol of an open table: the lowest version, because every Delta reader and writer knows it. This package
honors it in full."""

FEATURES_WRITER_VERSION: Final = 7
"""Writer version of a table that lists its writer features."""

CLOSED_FEATURE: Final = "changeOnlyThroughKafkalike"
"""Writer feature of a closed table. Delta obliges writers to refuse a table with an unknown feature, so the error of a
foreign writer names this one. Readers need not know it."""

_HONORED_FEATURES: Final = ("appendOnly", "invariants")
"""Writer features that writer version 2 implies."""

APPEND_KEY: Final = "kafkalikeAppend"
"""Key of the change's id in a commit's user metadata, which is a JSON object."""

CHECKSUM_KEY: Final = "kafkalikeChecksum"
"""Field of our `commitInfo`, the first line of a commit: CRC-32 of all bytes after that line. Without it, a file that
is cut off at a line's end or has a flipped bit could pass for another commit."""

USER_KEY: Final = "userName"
HOST_KEY: Final = "kafkalikeHost"
PROCESS_KEY: Final = "kafkalikeProcess"
"""Fields of a `commitInfo` with the commit's user, host and process id; `userName` is Delta's own."""

APPEND: Final = "WRITE"
"""Operation of a commit that appends records."""

FENCES_KEY: Final = "fences"
"""Key, in a fence's user metadata, of the id of the change that the fence keeps from landing."""

Action = Mapping[str, Any]
"""One line of a commit file: an object whose only key is the kind of action."""


def writer_of(info: Mapping[str, Any]) -> str:
    """Return user, host and process of a commit as text; empty if its `commitInfo` has none of them.

    >>> writer_of({"userName": "ann", "kafkalikeHost": "db1", "kafkalikeProcess": 4711}), writer_of({"userName": "bob"})
    ('ann@db1, process 4711', 'bob')
    """
    user, host, process = info.get(USER_KEY), info.get(HOST_KEY), info.get(PROCESS_KEY)
    place = f"{user}@{host}" if user and host else str(user or host or "")
    return place if process is None else f"{place}, process {process}"


log_name: Final[Callable[[int], str]] = "_delta_log/{:020d}.json".format
"""Path of a version's commit file in the table's folder. A method of `str`, because each look at a table calls it."""


def version_of(name: str) -> int | None:
    """Return the version that a file of `_delta_log` commits; None for any other file."""
    stem, _, ending = name.partition(".")
    return int(stem) if ending == "json" and len(stem) == 20 and stem.isascii() and stem.isdigit() else None  # noqa: PLR2004


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """A data file that a commit adds."""

    path: str
    partition: int | None
    size: int
    modification_ms: int
    data_change: bool
    stats: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """A version of a table, as its commit file has it."""

    version: int
    timestamp_ms: int
    operation: str
    engine: str
    user_metadata: str | None
    adds: tuple[Add, ...] = ()
    removes: tuple[str, ...] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    table_id: str | None = None
    """Id of the table; None unless the commit changes the table's metadata."""
    properties: Mapping[str, str] | None = None
    """Configuration of the table; None unless the commit changes the metadata."""
    schema: str | None = None
    """Delta's schema as JSON; None unless the commit changes the metadata."""
    closed: bool | None = None
    """True if only kafkalike may write from this version on; None if the commit leaves the protocol unchanged."""
    taken: tuple[Add, ...] = ()
    """Removed files whose records left the table. The records of other removed files were rewritten (`dataChange` is
    false)."""
    info: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The commit's `commitInfo`; the writer's fields alone in the commit that its own writer applies."""
    note: Mapping[str, Any] = field(init=False, repr=False, compare=False)
    """User metadata that our change wrote; empty for a foreign writer's commit."""
    append_id: str | None = field(init=False, repr=False, compare=False)
    """Id of the change that made the commit; None for a foreign writer's."""
    is_append: bool = field(init=False, repr=False, compare=False)
    """True for our appends. Our other changes have an `append_id`, too."""

    def __post_init__(self) -> None:
        """Parse the user metadata once."""
        text, note = self.user_metadata, None
        if text and APPEND_KEY in text:
            # A foreign writer may have written anything.
            with contextlib.suppress(ValueError, RecursionError):
                found, end = raw_decode(text) if text[0] == "{" else (None, 0)
                note = found if end == len(text) else parse_json(text)
        if not isinstance(note, dict):
            note = {}
        append_id = note.get(APPEND_KEY)
        object.__setattr__(self, "note", note)
        object.__setattr__(self, "append_id", append_id)
        object.__setattr__(self, "is_append", self.operation == APPEND and append_id is not None)

    @property
    def writer(self) -> str:
        """User, host and process, as far as the commit names them: `ann@db1, process 4711`."""
        return writer_of(self.info)

    @property
    def fences(self) -> str | None:
        """Id of the change that this fence keeps from landing, because it took its version; None in other commits."""
        return self.note.get(FENCES_KEY)

    @property
    def data_change(self) -> bool:
        """False for a commit that only moves records between files."""
        return any(a.data_change for a in self.adds) or not self.adds


def parse_actions(version: int, content: bytes, where: str) -> list[dict[str, Any]]:
    """Parse the file of one table version into its actions.

    Args:
        version: for errors.
        content: bytes of the file.
        where: the table's folder, for errors.

    Raises:
        LogCorruptError: the file is empty, cut off, damaged, or not written as Delta does it.
    """
    if not content.strip():
        raise LogCorruptError(f"{where}/{log_name(version)} is empty: the table's log is damaged")
    actions: list[dict[str, Any]] = []
    try:
        # Loops without calls of our own, because opening a table parses each line of its log.
        for line in content.decode().split("\n"):
            if not line or line.isspace():
                continue
            action, end = raw_decode(line) if line[0] == "{" else (None, 0)
            if end != len(line):
                action = parse_json(line)
            if not isinstance(action, dict):
                raise TypeError(f"an action must be an object, not {line[:40]!r}")
            actions.append(action)
        wanted = actions[0].get("commitInfo", {}).get(CHECKSUM_KEY)
    except UNREADABLE as cause:
        raise LogCorruptError(f"{where}/{log_name(version)} is damaged: {cause}") from cause
    if wanted is not None and wanted != zlib.crc32(content.partition(b"\n")[2]):
        raise LogCorruptError(f"{where}/{log_name(version)} is damaged: it does not match its checksum")
    return actions


def commit_of(version: int, actions: Iterable[Action], where: str) -> TableCommit:
    """Turn the actions of one table version into a commit.

    Args:
        version: its number.
        actions: the actions, in the order of the file.
        where: the table's folder, for errors.

    Raises:
        LogCorruptError: an action lacks a field that the Delta protocol requires.
        UnsupportedVersionError: the table requires a newer Delta protocol than this package knows.
    """
    info: Mapping[str, Any] = {}
    adds: list[Add] = []
    removes: list[Add] = []
    txns: dict[str, int] = {}
    metadata: Mapping[str, Any] = {}
    closed: bool | None = None
    try:
        for action in actions:
            if "add" in action:
                add = action["add"]
                adds.append(
                    add_of(
                        add["path"],
                        add.get("partitionValues"),
                        add["size"],
                        add["modificationTime"],
                        add["dataChange"],
                        add.get("stats"),
                    )
                )
            elif "remove" in action:
                removes.append(_parse_remove(action["remove"]))
            elif "commitInfo" in action:
                info = action["commitInfo"]
            elif "txn" in action:
                txn = action["txn"]
                app_id = txn["appId"]
                txns[app_id if type(app_id) is str else as_text(app_id, "appId")] = int(txn["version"])
            elif "metaData" in action:
                metadata = action["metaData"]
            elif "protocol" in action:
                closed = is_closed(action["protocol"], where)
        given = info.get("userMetadata")
        return TableCommit(
            version=version,
            timestamp_ms=int(info.get("timestamp") or 0),
            operation=str(info.get("operation", "?")),
            engine=str(info.get("engineInfo", "?")),
            user_metadata=None if given is None else str(given),
            adds=tuple(adds),
            removes=tuple(old.path for old in removes) if removes else (),
            txns=txns,
            table_id=str(metadata["id"]) if metadata else None,
            properties=dict(metadata.get("configuration") or {}) if metadata else None,
            schema=str(metadata.get("schemaString", "")) if metadata else None,
            closed=closed,
            taken=tuple(old for old in removes if old.data_change) if removes else (),
            info=info,
        )
    except UNREADABLE as cause:
        raise LogCorruptError(f"{where}/{log_name(version)} is damaged: {type(cause).__name__}: {cause}") from cause


def parse_commit(version: int, content: bytes, where: str) -> TableCommit:
    """Parse the file of one table version.

    Args:
        version: its number, which the file does not contain.
        content: bytes of the file.
        where: the table's folder, for errors.

    Raises:
        LogCorruptError: the file is empty, cut off, damaged, or not written as Delta does it.
        UnsupportedVersionError: the table requires a newer Delta protocol than this package knows.
    """
    return commit_of(version, parse_actions(version, content, where), where)


ADD_FIELDS: Final = ("path", "partitionValues", "size", "modificationTime", "dataChange", "stats")
"""Parameters of `add_of`, in order."""


def add_of(  # noqa: PLR0917 - called for each file of a table
    path: str,
    partition_values: Mapping[str, str] | Sequence[tuple[str, str]] | None,
    size: int,
    modification_ms: int,
    data_change: bool | None,  # noqa: FBT001
    stats: str | None,
) -> Add:
    """Make an `Add` from the fields of an `add` action, as JSON or a checkpoint has them.

    Args:
        path: percent-encoded, as in the log.
        partition_values: values of the partition columns.
        size: bytes.
        modification_ms: modification time of the file, ms since the epoch.
        data_change: True if the file's rows are new to the table; None if the field is missing, which is an error.
        stats: JSON text; None or empty without statistics.

    Raises:
        ValueError, TypeError, AttributeError: a field does not fit the Delta protocol.
    """
    partition = dict(partition_values or ()).get("partition")
    if data_change is None:
        raise TypeError("'dataChange' is missing")
    found: Any = {}
    if stats:
        found, end = raw_decode(stats) if stats[0] == "{" else (None, 0)
        if end != len(stats):
            found = parse_json(stats)
    return Add(
        path=unquote(path),
        partition=None if partition is None else int(partition),
        size=int(size),
        modification_ms=int(modification_ms),
        data_change=bool(data_change),
        stats=found,
    )


def _parse_remove(remove: Mapping[str, Any]) -> Add:
    """Return a removed file, with as much as the log still has of it."""
    path = unquote(remove["path"])
    folder = path.rpartition("/")[0].rpartition("/")[2]
    partition = (remove.get("partitionValues") or {}).get("partition", folder.removeprefix("partition="))
    return Add(
        path=path,
        partition=int(partition) if partition and str(partition).lstrip("-").isdigit() else None,
        size=int(remove.get("size") or 0),
        modification_ms=0,
        data_change=bool(remove.get("dataChange", True)),
        stats=parse_json(remove["stats"]) if remove.get("stats") else {},
    )


def protocol_of(*, closed: bool) -> Action:
    """Return the `protocol` action of a table that is closed to foreign writers, or open to them."""
    if not closed:
        return {
            "protocol": {"minReaderVersion": SUPPORTED_READER_VERSION, "minWriterVersion": SUPPORTED_WRITER_VERSION}
        }
    return {
        "protocol": {
            "minReaderVersion": SUPPORTED_READER_VERSION,
            "minWriterVersion": FEATURES_WRITER_VERSION,
            "writerFeatures": [*_HONORED_FEATURES, CLOSED_FEATURE],
        }
    }


def is_closed(protocol: Mapping[str, Any], where: str) -> bool:
    """Return True if a table is closed to foreign writers.

    Raises:
        UnsupportedVersionError: the table requires a protocol version or a feature that this package does not know.
    """
    reader, writer = int(protocol["minReaderVersion"]), int(protocol["minWriterVersion"])
    features = set(map(str, protocol.get("writerFeatures") or ()))
    unknown = sorted(features.difference(_HONORED_FEATURES, {CLOSED_FEATURE}))
    lists = writer == FEATURES_WRITER_VERSION and bool(features)
    if reader > SUPPORTED_READER_VERSION or unknown or (writer > SUPPORTED_WRITER_VERSION and not lists):
        named = f" and the features {', '.join(unknown)}" if unknown else ""
        raise UnsupportedVersionError(
            f"{where} needs Delta reader version {reader} and writer version {writer}{named}; kafkalike supports "
            f"versions {SUPPORTED_READER_VERSION} and {SUPPORTED_WRITER_VERSION}: another writer has enabled a table "
            "feature"
        )
    return CLOSED_FEATURE in features
