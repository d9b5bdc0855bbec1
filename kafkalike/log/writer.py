"""Writer: actions in, one table version out; the in-process way to commit to a Delta table.

A commit names the version it wants. It lands there or not at all, so whoever knew the table up to the version before
has overlooked nothing: put-if-absent of the log file is the compare-and-set on which offsets rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError as DeltaCommitFailedError
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from kafkalike import faults
from kafkalike.errors import KafkaStorageError, UnknownOutcomeError
from kafkalike.log.commits import Add, TableCommit, log_name, parse_commit
from kafkalike.log.storage import Files, LocalFiles
from kafkalike.log.version import engine_info


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A table commit to be made."""

    version: int
    time_ms: int
    operation: str
    append_id: str
    """Unique text by which the commit is recognised when its outcome is in doubt."""
    adds: Sequence[Add] = ()
    removes: Sequence[Add] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    user_metadata: str
    """Must contain `append_id`."""


def commit(files: Files, wanted: Commit) -> bool:
    """Make one table version.

    Returns:
        True when it is there; False when another writer was faster, and nothing was done.

    Raises:
        KafkaStorageError: the storage refused; nothing was done.
        UnknownOutcomeError: it may be there or not.
    """
    faults.point("commit.before")
    landed = _commit_local(files, wanted) if isinstance(files, LocalFiles) else _commit_remote(files, wanted)
    faults.point("commit.after")
    return landed


def as_applied(wanted: Commit) -> TableCommit:
    """What a reader of the new version will see, for the writer's own state."""
    return TableCommit(
        version=wanted.version,
        timestamp_ms=wanted.time_ms,
        operation=wanted.operation,
        engine=engine_info(),
        user_metadata=wanted.user_metadata,
        adds=tuple(wanted.adds),
        removes=tuple(r.path for r in wanted.removes),
        txns=wanted.txns,
    )


def _commit_local(files: LocalFiles, wanted: Commit) -> bool:
    name = log_name(wanted.version)
    try:
        return files.put_if_absent(name, _lines(wanted))
    except OSError as cause:
        return settle(files, wanted, cause)


def settle(files: Files, wanted: Commit, cause: Exception) -> bool:
    """Find out what became of a commit that raised: look for its id at the version it wanted.

    Returns:
        True when it is there.

    Raises:
        KafkaStorageError: it is not there, so the failure was a refusal.
        UnknownOutcomeError: the storage does not say.
    """
    try:
        content = files.read(log_name(wanted.version))
    except FileNotFoundError:
        message = f"{files.uri}: the storage refused the commit: {cause}"
        raise KafkaStorageError(message) from cause
    except OSError as second:
        raise UnknownOutcomeError(f"commit to {files.uri}", wanted.append_id) from second
    found = parse_commit(wanted.version, content, files.uri)
    return wanted.append_id in (found.user_metadata or "")


def _lines(wanted: Commit) -> bytes:
    info = {
        "timestamp": wanted.time_ms,
        "operation": wanted.operation,
        "operationParameters": {"mode": "Append"} if wanted.operation == "WRITE" else {},
        "isBlindAppend": not wanted.removes,
        "engineInfo": engine_info(),
        "userMetadata": wanted.user_metadata,
    }
    actions = [{"commitInfo": info}, *actions_of(wanted)]
    return b"".join(json.dumps(action, separators=(",", ":")).encode() + b"\n" for action in actions)


def actions_of(wanted: Commit) -> list[dict[str, Any]]:
    """What a commit does to the table, as Delta's JSON actions; without its `commitInfo`."""
    actions: list[dict[str, Any]] = [
        {"txn": {"appId": app_id, "version": version, "lastUpdated": wanted.time_ms}}
        for app_id, version in wanted.txns.items()
    ]
    actions += [
        {
            "remove": {
                "path": old.path,
                "deletionTimestamp": wanted.time_ms,
                "dataChange": old.data_change,
                "extendedFileMetadata": True,
                "partitionValues": _partition_values(old),
                "size": old.size,
            }
        }
        for old in wanted.removes
    ]
    actions += [
        {
            "add": {
                "path": new.path,
                "partitionValues": _partition_values(new),
                "size": new.size,
                "modificationTime": new.modification_ms,
                "dataChange": new.data_change,
                "stats": json.dumps(new.stats, separators=(",", ":")),
            }
        }
        for new in wanted.adds
    ]
    return actions


def _partition_values(add: Add) -> dict[str, str]:
    return {} if add.partition is None else {"partition": str(add.partition)}


def _commit_remote(files: Files, wanted: Commit) -> bool:
    if wanted.removes:
        message = "removing files through an object store goes through Spark"
        raise KafkaStorageError(message)
    try:
        table = DeltaTable(files.uri, version=wanted.version - 1)
        table.create_write_transaction(
            [
                AddAction(a.path, a.size, _partition_values(a), a.modification_ms, a.data_change, json.dumps(a.stats))
                for a in wanted.adds
            ],
            "append",
            table.schema(),
            table.metadata().partition_columns,
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": wanted.user_metadata},
                # No retry: the plan was made for this very version.
                max_commit_retries=0,
                app_transactions=[Transaction(app_id, v) for app_id, v in wanted.txns.items()],
            ),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False),
        )
    except DeltaCommitFailedError:
        return _landed(files, wanted)
    except (DeltaError, OSError) as cause:
        return settle(files, wanted, cause)
    return True


def _landed(files: Files, wanted: Commit) -> bool:
    try:
        return settle(files, wanted, OSError("commit refused"))
    except KafkaStorageError:
        # Refused, and the version does not exist: another writer is about to make it, or the store is slow to show it.
        return False
