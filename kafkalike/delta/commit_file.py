"""Commit file: makes the JSON file of a table version from a change, and puts it into the log.

`Storage.put_if_absent` of the file is the compare-and-set on which offsets rest. If the storage leaves the outcome of a
put in doubt, `CommitPuts` settles it by the id of the change, which the file holds.
"""

from __future__ import annotations

import json
import os
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from kafkalike.delta import actions as log_actions
from kafkalike.delta.layout import TOPIC_SCHEMA, TOPIC_TABLE_PROPERTIES
from kafkalike.delta.table_state import FENCE
from kafkalike.errors import KafkaError, KafkaStorageError, UnknownOutcomeError
from kafkalike.model.clock import Clock
from kafkalike.storage.port import NotStoredError, Storage
from kafkalike.version import engine_info, user_and_host


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFile:
    """A table commit that is not in the log yet."""

    version: int
    time_ms: int
    operation: str
    append_id: str
    """Unique text by which the commit is recognized if its outcome is in doubt."""
    adds: Sequence[log_actions.Add] = ()
    removes: Sequence[log_actions.Add] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    note: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of the commit's user metadata."""
    closes: bool | None = None
    """True closes the table to foreign writers, False opens it, None leaves the protocol unchanged."""

    user_metadata: str = field(init=False, repr=False, compare=False)
    """The commit's user metadata as JSON: its id, and the note."""

    def __post_init__(self) -> None:
        """Format the user metadata once."""
        object.__setattr__(self, "user_metadata", _json({log_actions.APPEND_KEY: self.append_id, **self.note}))

    def applied(self) -> log_actions.TableCommit:
        """Return the commit as a reader of the new version will parse it, for the writer's own state."""
        return log_actions.TableCommit(
            version=self.version,
            timestamp_ms=self.time_ms,
            operation=self.operation,
            engine=engine_info(),
            user_metadata=self.user_metadata,
            adds=tuple(self.adds),
            removes=tuple([old.path for old in self.removes]) if self.removes else (),
            txns=self.txns,
            closed=self.closes,
            taken=tuple([old for old in self.removes if old.data_change]) if self.removes else (),
            info=writer_info(),
        )

    def content(self) -> bytes:
        """Return the bytes of the commit's file."""
        info = {
            "timestamp": self.time_ms,
            "operation": self.operation,
            "operationParameters": {"mode": "Append"} if self.operation == log_actions.APPEND else {},
            "operationMetrics": self._metrics(),
            "isBlindAppend": not self.removes,
            "engineInfo": engine_info(),
            **writer_info(),
            "userMetadata": self.user_metadata,
        }
        return lines_of(info, self._actions())

    def _metrics(self) -> dict[str, str]:
        """Return the metrics of the commit for `DESCRIBE HISTORY`, under Delta's names and as text like Delta's."""
        rows = size = 0
        for new in self.adds:
            rows += int(new.stats.get("numRecords", 0))
            size += new.size
        metrics = {"numFiles": str(len(self.adds)), "numOutputRows": str(rows), "numOutputBytes": str(size)}
        if self.removes:
            metrics["numRemovedFiles"] = str(len(self.removes))
            metrics["numRemovedBytes"] = str(sum(old.size for old in self.removes))
        return metrics

    def _actions(self) -> list[log_actions.Action]:
        actions: list[log_actions.Action] = [] if self.closes is None else [log_actions.protocol_of(closed=self.closes)]
        for app_id, version in self.txns.items():
            actions.append({"txn": {"appId": app_id, "version": version, "lastUpdated": self.time_ms}})
        for old in self.removes:
            removed = {
                "path": old.path,
                "deletionTimestamp": self.time_ms,
                "dataChange": old.data_change,
                "extendedFileMetadata": True,
                "partitionValues": {} if old.partition is None else {"partition": str(old.partition)},
                "size": old.size,
            }
            actions.append({"remove": removed})
        for new in self.adds:
            added = {
                "path": new.path,
                "partitionValues": {} if new.partition is None else {"partition": str(new.partition)},
                "size": new.size,
                "modificationTime": new.modification_ms,
                "dataChange": new.data_change,
                "stats": _json(new.stats),
            }
            actions.append({"add": added})
        return actions


def writer_info() -> Mapping[str, str | int]:
    """Return the fields of a `commitInfo` that name the user, the host and the process, for operators."""
    return _writer_info(os.getpid())


@lru_cache(maxsize=1)
def _writer_info(process: int) -> Mapping[str, str | int]:
    user, host = user_and_host()
    return MappingProxyType({log_actions.USER_KEY: user, log_actions.HOST_KEY: host, log_actions.PROCESS_KEY: process})


def creation(
    table_id: str,
    schema: Mapping[str, Any],
    *,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    time_ms: int,
    txns: Mapping[str, int] | None = None,
    closed: bool = True,
) -> bytes:
    """Return the file of a new table's first version.

    Args:
        table_id: a new UUID.
        schema: Delta's schema: `{"type": "struct", "fields": […]}`.
        partition_by: names of the partition columns.
        properties: the table's configuration.
        time_ms: now, ms.
        txns: Delta transactions of the new table.
        closed: True makes foreign writers refuse the table.
    """
    info = {
        "timestamp": time_ms,
        "operation": "CREATE TABLE",
        "operationParameters": {"mode": "ErrorIfExists", "location": ""},
        "engineInfo": engine_info(),
        **writer_info(),
        "userMetadata": _json({log_actions.APPEND_KEY: table_id}),
    }
    metadata = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _json(schema),
        "partitionColumns": list(partition_by),
        "configuration": dict(properties),
        "createdTime": time_ms,
    }
    actions: list[log_actions.Action] = [log_actions.protocol_of(closed=closed), {"metaData": metadata}]
    actions += ({"txn": {"appId": app, "version": n, "lastUpdated": time_ms}} for app, n in (txns or {}).items())
    return lines_of(info, actions)


def topic_creation(table_id: str, *, time_ms: int, closed: bool, txns: Mapping[str, int] | None = None) -> bytes:
    """Return the file of the first version of a topic's table; see `creation` for the arguments."""
    return creation(
        table_id,
        TOPIC_SCHEMA,
        partition_by=["partition"],
        properties=TOPIC_TABLE_PROPERTIES,
        time_ms=time_ms,
        txns=txns,
        closed=closed,
    )


def lines_of(info: Mapping[str, Any], actions: Iterable[log_actions.Action]) -> bytes:
    """Return the file of a commit: its `commitInfo`, with the checksum of the other actions, and these."""
    lines = [*map(_json, actions), ""]
    body = "\n".join(lines).encode()
    return _json({"commitInfo": {**info, log_actions.CHECKSUM_KEY: zlib.crc32(body)}}).encode() + b"\n" + body


_json: Final = json.JSONEncoder(separators=(",", ":")).encode
"""One encoder for all calls; `json.dumps` would make one for each."""


BACKOFF_SECONDS: Final = 0.05
"""Longest first wait after losing to a concurrent writer or a failed call of the storage; it doubles with each try."""

SETTLE_TRIES: Final = 5
"""Most tries to settle a commit whose outcome the storage leaves in doubt."""


@dataclass(frozen=True, slots=True)
class CommitPuts:
    """Puts the commit files of one table."""

    store: Storage
    """The table's files."""
    clock: Clock
    jitter: Callable[[], float]
    """Random number from 0 to 1, for the wait after a failed call."""

    def put(self, version: int, content: bytes, append_id: str, *, durable: bool) -> bool:
        """Put a version's file if absent; settle an ambiguous outcome by the id in the file.

        A put that failed may still be under way, and an answer "exists" may mean the put itself, because storages
        retry. So the put is repeated, which is harmless, until the storage answers. If it does not, an empty commit
        takes the version, so that no other commit can land there.

        Args:
            version: the version to make.
            content: bytes of its file.
            append_id: the id of the change, which the content holds.
            durable: True if the file must survive a power failure.

        Returns:
            True if the version is in the log; False if another commit has it, so that this one can never land.

        Raises:
            KafkaStorageError: the version is not in the log, and will never be.
            UnknownOutcomeError: the storage does not answer.
        """
        name = log_actions.log_name(version)
        failed: OSError | None = None
        for attempt in range(SETTLE_TRIES):
            try:
                if self.store.put_if_absent(name, content, durable=durable):
                    return True
                made_by = self._maker(name)
            except NotStoredError as refused:
                # An earlier try of this put may still land, so a refusal does not settle it: retry.
                if failed is None:
                    raise KafkaStorageError(f"{self.store.uri}: the storage refused the commit: {refused}") from refused
            except OSError as cause:
                failed = cause
            else:
                if made_by == append_id:
                    return self._landed(name, append_id, durable=durable)
                if made_by is not None:
                    return False
                failed = failed or FileExistsError(f"{name} exists, and cannot be found")
            self._wait(attempt)
        assert failed is not None
        return self._fenced(version, append_id, failed, durable=durable)

    def _landed(self, name: str, append_id: str, *, durable: bool) -> bool:
        """Make a commit durable that landed by a try that failed: it may not have reached the disk."""
        if durable:
            try:
                self.store.sync(name)
            except OSError as cause:
                raise UnknownOutcomeError(f"commit to {self.store.uri}", append_id) from cause
        return True

    def _fenced(self, version: int, append_id: str, cause: OSError, *, durable: bool) -> bool:
        """Take a version with an empty commit, unless another commit has it.

        Returns:
            True if the commit in doubt has it, False if another one does.

        Raises:
            KafkaStorageError: the empty commit has it.
            UnknownOutcomeError: the storage does not answer. The first version of a table cannot be fenced.
        """
        name, fence_id = log_actions.log_name(version), uuid.uuid4().hex
        fence = CommitFile(
            version=version,
            time_ms=self.clock.now_ms(),
            operation=FENCE,
            append_id=fence_id,
            note={log_actions.FENCES_KEY: append_id},
        )
        for attempt in range(SETTLE_TRIES):
            try:
                fenced = version > 0 and self.store.put_if_absent(name, fence.content(), durable=durable)
                made_by = fence_id if fenced else self._maker(name)
            except OSError as second:
                cause, made_by = second, None
            if made_by == fence_id:
                raise KafkaStorageError(f"{self.store.uri}: the storage refused the commit: {cause}") from cause
            if made_by is not None:
                return made_by == append_id and self._landed(name, append_id, durable=durable)
            self._wait(attempt)
        raise UnknownOutcomeError(f"commit to {self.store.uri}", append_id) from cause

    def _wait(self, attempt: int) -> None:
        self.clock.sleep(self.jitter() * BACKOFF_SECONDS * 2**attempt)

    def _maker(self, name: str) -> str | None:
        """Return the id of the change that made a version, "" for a foreign writer's; None if no version is visible.

        Raises:
            OSError: the storage does not answer.
        """
        try:
            content = self.store.read(name)
        except FileNotFoundError:
            return None
        try:
            return log_actions.parse_commit(0, content, self.store.uri).append_id or ""
        except KafkaError as cause:
            # The file may be our own, and half of it visible.
            raise OSError(f"{name} cannot be read: {cause}") from cause
