"""Commit file: a change that is to be made in, the JSON file of the table version out; and a new table's first one."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.delta.actions import (
    APPEND,
    APPEND_KEY,
    CHECKSUM_KEY,
    HOST_KEY,
    PROCESS_KEY,
    USER_KEY,
    Action,
    Add,
    TableCommit,
    protocol_of,
    writer_of,
)
from kafkalike.delta.layout import TOPIC_SCHEMA, TOPIC_TABLE_PROPERTIES
from kafkalike.version import engine_info, user_and_host


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFile:
    """A table commit to be made."""

    version: int
    time_ms: int
    operation: str
    append_id: str
    """Unique text by which the commit is recognised when its outcome is in doubt."""
    adds: Sequence[Add] = ()
    removes: Sequence[Add] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    note: Mapping[str, Any] = field(default_factory=dict)
    """What else the commit's user metadata say."""
    closes: bool | None = None
    """Whether it closes the table to foreign writers, or opens it; None leaves it as it is."""

    @property
    def user_metadata(self) -> str:
        """The commit's user metadata: its id, and the note."""
        return _json({APPEND_KEY: self.append_id, **self.note})

    def applied(self) -> TableCommit:
        """What a reader of the new version will see, for the writer's own state."""
        return TableCommit(
            version=self.version,
            timestamp_ms=self.time_ms,
            operation=self.operation,
            engine=engine_info(),
            writer=writer_of(writer_info()),
            user_metadata=self.user_metadata,
            adds=tuple(self.adds),
            removes=tuple([old.path for old in self.removes]),
            txns=self.txns,
            closed=self.closes,
            taken=tuple([old for old in self.removes if old.data_change]),
        )

    def content(self) -> bytes:
        """The commit's file."""
        info = {
            "timestamp": self.time_ms,
            "operation": self.operation,
            "operationParameters": {"mode": "Append"} if self.operation == APPEND else {},
            "operationMetrics": self._metrics(),
            "isBlindAppend": not self.removes,
            "engineInfo": engine_info(),
            **writer_info(),
            "userMetadata": self.user_metadata,
        }
        return lines_of(info, self._actions())

    def _metrics(self) -> dict[str, str]:
        """What `DESCRIBE HISTORY` shows of the commit, by Delta's names; texts, as Delta has them."""
        rows = size = 0
        for new in self.adds:
            rows += int(new.stats.get("numRecords", 0))
            size += new.size
        metrics = {"numFiles": str(len(self.adds)), "numOutputRows": str(rows), "numOutputBytes": str(size)}
        if self.removes:
            metrics["numRemovedFiles"] = str(len(self.removes))
            metrics["numRemovedBytes"] = str(sum(old.size for old in self.removes))
        return metrics

    def _actions(self) -> list[Action]:
        actions: list[Action] = [] if self.closes is None else [protocol_of(closed=self.closes)]
        for app_id, version in self.txns.items():
            actions.append({"txn": {"appId": app_id, "version": version, "lastUpdated": self.time_ms}})
        for old in self.removes:
            removed = {
                "path": old.path,
                "deletionTimestamp": self.time_ms,
                "dataChange": old.data_change,
                "extendedFileMetadata": True,
                "partitionValues": _partition_values(old),
                "size": old.size,
            }
            actions.append({"remove": removed})
        for new in self.adds:
            added = {
                "path": new.path,
                "partitionValues": _partition_values(new),
                "size": new.size,
                "modificationTime": new.modification_ms,
                "dataChange": new.data_change,
                "stats": _json(new.stats),
            }
            actions.append({"add": added})
        return actions


def writer_info() -> dict[str, str | int]:
    """What a commit says of who made it: user, host and process; for people who ask afterwards."""
    user, host = user_and_host()
    return {USER_KEY: user, HOST_KEY: host, PROCESS_KEY: os.getpid()}


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
    """The file of a new table's first version.

    Args:
        table_id: a new UUID.
        schema: Delta's schema: `{"type": "struct", "fields": […]}`.
        partition_by: names of the partition columns.
        properties: the table's configuration.
        time_ms: now, ms.
        txns: Delta transactions that it has from the first.
        closed: whether foreign writers are to refuse it.
    """
    info = {
        "timestamp": time_ms,
        "operation": "CREATE TABLE",
        "operationParameters": {"mode": "ErrorIfExists", "location": ""},
        "engineInfo": engine_info(),
        **writer_info(),
        "userMetadata": _json({APPEND_KEY: table_id}),
    }
    metadata = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _json(schema),
        "partitionColumns": list(partition_by),
        "configuration": dict(properties),
        "createdTime": time_ms,
    }
    actions: list[Action] = [protocol_of(closed=closed), {"metaData": metadata}]
    actions += ({"txn": {"appId": app, "version": n, "lastUpdated": time_ms}} for app, n in (txns or {}).items())
    return lines_of(info, actions)


def topic_creation(table_id: str, *, time_ms: int, closed: bool, txns: Mapping[str, int] | None = None) -> bytes:
    """The file of the first version of a topic's table; arguments as those of `creation`."""
    return creation(
        table_id,
        TOPIC_SCHEMA,
        partition_by=["partition"],
        properties=TOPIC_TABLE_PROPERTIES,
        time_ms=time_ms,
        txns=txns,
        closed=closed,
    )


def lines_of(info: Mapping[str, Any], actions: Iterable[Action]) -> bytes:
    """The file of a commit: its `commitInfo`, with the checksum of the other actions, and these."""
    body = "".join([f"{_json(action)}\n" for action in actions]).encode()
    return _json({"commitInfo": {**info, CHECKSUM_KEY: zlib.crc32(body)}}).encode() + b"\n" + body


_json: Final = json.JSONEncoder(separators=(",", ":")).encode
"""`json.dumps` would make an encoder for each call."""


def _partition_values(add: Add) -> dict[str, str]:
    return {} if add.partition is None else {"partition": str(add.partition)}
