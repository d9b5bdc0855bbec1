"""Actions: the JSON files of a Delta log in, table commits out; `commit_file.py` goes the other way.

Only what the Delta protocol fixes is read: `commitInfo`, `metaData`, `protocol`, `txn`, `add`, `remove`
(github.com/delta-io/delta, PROTOCOL.md).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from kafkalike.errors import LogCorruptError, UnsupportedVersionError
from kafkalike.model.json_values import parsed, raw_decode
from kafkalike.model.row_value import UNREADABLE, as_text

SUPPORTED_READER_VERSION: Final = 1
SUPPORTED_WRITER_VERSION: Final = 2
"""Delta protocol of an open table: the lowest one, so that every Delta reader can read it, and the one that this
package knows how to honour."""

FEATURES_WRITER_VERSION: Final = 7
"""Writer version of a table that lists the features which a writer must know."""

CLOSED_FEATURE: Final = "changeOnlyThroughKafkalike"
"""Writer feature of a closed table. Delta asks every writer to refuse a table with a feature that it does not know, so
the error of a foreign writer names it. Readers need not know it."""

_HONORED_FEATURES: Final = ("appendOnly", "invariants")
"""Writer features that writer version 2 stands for."""

APPEND_KEY: Final = "kafkalikeAppend"
"""Key, in a commit's user metadata (a JSON object), of the id of the change that made it."""

CHECKSUM_KEY: Final = "kafkalikeChecksum"
"""Field of our `commitInfo`, which is the first line of a commit: CRC-32 of all that follows it. Without it a file that
was cut off at the end of a line, or has a flipped bit, may look like another commit."""

USER_KEY: Final = "userName"
HOST_KEY: Final = "kafkalikeHost"
PROCESS_KEY: Final = "kafkalikeProcess"
"""Fields of a `commitInfo` that say who made the commit; the first is Delta's own."""

APPEND: Final = "WRITE"
"""Operation of a commit that adds records."""

FENCES_KEY: Final = "fences"
"""Key, in a fence's user metadata, of the id of the change that can never land because of it."""

Action = Mapping[str, Any]
"""One line of a commit file: an object with one key, the kind of action."""


def writer_of(info: Mapping[str, Any]) -> str:
    """Who made a commit, in words; empty where its `commitInfo` does not say.

    >>> writer_of({"userName": "ann", "kafkalikeHost": "db1", "kafkalikeProcess": 4711}), writer_of({"userName": "bob"})
    ('ann@db1, process 4711', 'bob')
    """
    user, host, process = info.get(USER_KEY), info.get(HOST_KEY), info.get(PROCESS_KEY)
    place = f"{user}@{host}" if user and host else str(user or host or "")
    return place if process is None else f"{place}, process {process}"


log_name: Final[Callable[[int], str]] = "_delta_log/{:020d}.json".format
"""File of a table version, relative to the table's folder. A method of `str`, as each look calls it."""


def version_of(name: str) -> int | None:
    """The table version that a file of `_delta_log` commits; None for any other file."""
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
    """One table version."""

    version: int
    timestamp_ms: int
    operation: str
    engine: str
    user_metadata: str | None
    adds: tuple[Add, ...] = ()
    removes: tuple[str, ...] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    table_id: str | None = None
    """Set by a commit that changes the table's metadata."""
    properties: Mapping[str, str] | None = None
    """The same."""
    schema: str | None = None
    """The same: Delta's schema as JSON."""
    closed: bool | None = None
    """Whether only kafkalike may write from this version on; None where the commit leaves the protocol as it is."""
    taken: tuple[Add, ...] = ()
    """Those of the removed files whose records are not said to be in other files (`dataChange`)."""
    info: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Its `commitInfo`, where it was read from a file."""
    note: Mapping[str, Any] = field(init=False, repr=False, compare=False)
    """What our change wrote into the user metadata; see `append_info`."""
    append_id: str | None = field(init=False, repr=False, compare=False)
    """Id of the change that made it; None when a foreign writer did."""
    is_append: bool = field(init=False, repr=False, compare=False)
    """Whether it is an append of ours; other changes of ours have an append id too."""

    def __post_init__(self) -> None:
        """Read the user metadata, once for all who ask."""
        note = append_info(self.user_metadata)
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
        """Id of the change that can never land because this commit has its version; None for any other commit."""
        return self.note.get(FENCES_KEY)

    @property
    def data_change(self) -> bool:
        """False for a commit that only moves records between files."""
        return any(a.data_change for a in self.adds) or not self.adds


def append_info(user_metadata: str | None) -> dict[str, Any]:
    """What a change wrote into the commit's user metadata; empty when it is not ours."""
    if not user_metadata or APPEND_KEY not in user_metadata:
        return {}
    try:
        info, end = raw_decode(user_metadata) if user_metadata[0] == "{" else (None, 0)
        if end != len(user_metadata):
            info = parsed(user_metadata)
    except ValueError:
        return {}
    return info if isinstance(info, dict) else {}


def parse_actions(version: int, content: bytes, where: str) -> list[dict[str, Any]]:
    """The actions of one table version as they stand in its file.

    Args:
        version: for the message of an error.
        content: the file.
        where: the table's folder, for the same.

    Raises:
        LogCorruptError: it is empty, cut off, or not what Delta writes.
    """
    if not content.strip():
        raise LogCorruptError(f"{where}/{log_name(version)} is empty: the table's log is damaged")
    actions: list[dict[str, Any]] = []
    try:
        # Loops without calls of our own: whoever opens a table parses each line of its log.
        for line in content.decode().split("\n"):
            if not line or line.isspace():
                continue
            action, end = raw_decode(line) if line[0] == "{" else (None, 0)
            if end != len(line):
                action = parsed(line)
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
    """What the actions of one table version say.

    Args:
        version: its number.
        actions: the actions, in the order of the file.
        where: the table, for errors.

    Raises:
        LogCorruptError: an action lacks what the Delta protocol asks for.
        UnsupportedVersionError: it asks for a newer Delta protocol than this package knows.
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
        version: its number, which the file does not say.
        content: the bytes of the file.
        where: the table, for errors.

    Raises:
        LogCorruptError: it is empty, cut off, or not what Delta writes.
        UnsupportedVersionError: it asks for a newer Delta protocol than this package knows.
    """
    return commit_of(version, parse_actions(version, content, where), where)


ADD_FIELDS: Final = ("path", "partitionValues", "size", "modificationTime", "dataChange", "stats")
"""What `add_of` reads, in its order."""


def add_of(  # noqa: PLR0917 - called for each file of a table
    path: str,
    partition_values: Mapping[str, str] | Sequence[tuple[str, str]] | None,
    size: int,
    modification_ms: int,
    data_change: bool | None,  # noqa: FBT001
    stats: str | None,
) -> Add:
    """The fields of an `add` action, as its JSON or a checkpoint has them.

    Args:
        path: as it stands in the log, percent-encoded.
        partition_values: of the table's partition columns.
        size: bytes.
        modification_ms: when the file was made, ms since the epoch.
        data_change: whether its rows are new to the table; None where the field is missing, which is an error.
        stats: JSON text; None or empty where there is none.

    Raises:
        ValueError, TypeError, AttributeError: one is not what the Delta protocol asks for.
    """
    partition = dict(partition_values or ()).get("partition")
    if data_change is None:
        raise TypeError("'dataChange' is missing")
    found: Any = {}
    if stats:
        found, end = raw_decode(stats) if stats[0] == "{" else (None, 0)
        if end != len(stats):
            found = parsed(stats)
    return Add(
        path=unquote(path),
        partition=None if partition is None else int(partition),
        size=int(size),
        modification_ms=int(modification_ms),
        data_change=bool(data_change),
        stats=found,
    )


def _parse_remove(remove: Mapping[str, Any]) -> Add:
    """A removed file, with as much as the log still says of it."""
    path = unquote(remove["path"])
    folder = path.rpartition("/")[0].rpartition("/")[2]
    partition = (remove.get("partitionValues") or {}).get("partition", folder.removeprefix("partition="))
    return Add(
        path=path,
        partition=int(partition) if partition and str(partition).lstrip("-").isdigit() else None,
        size=int(remove.get("size") or 0),
        modification_ms=0,
        data_change=bool(remove.get("dataChange", True)),
        stats=parsed(remove["stats"]) if remove.get("stats") else {},
    )


def protocol_of(*, closed: bool) -> Action:
    """The `protocol` action of a table that is closed to foreign writers, or open to them."""
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
    """Return whether a table is closed to foreign writers; refuse one that needs more of a client than this package.

    Raises:
        UnsupportedVersionError: saying what the table asks for.
    """
    reader, writer = int(protocol["minReaderVersion"]), int(protocol["minWriterVersion"])
    features = set(map(str, protocol.get("writerFeatures") or ()))
    unknown = sorted(features.difference(_HONORED_FEATURES, {CLOSED_FEATURE}))
    lists = writer == FEATURES_WRITER_VERSION and bool(features)
    if reader > SUPPORTED_READER_VERSION or unknown or (writer > SUPPORTED_WRITER_VERSION and not lists):
        named = f" and the features {', '.join(unknown)}" if unknown else ""
        raise UnsupportedVersionError(
            f"{where} needs Delta reader version {reader} and writer version {writer}{named}; kafkalike keeps its "
            f"tables at {SUPPORTED_READER_VERSION} and {SUPPORTED_WRITER_VERSION}: someone has switched on a table "
            "feature"
        )
    return CLOSED_FEATURE in features
