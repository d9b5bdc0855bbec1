"""Writer: actions in, one table version out; the in-process way to commit to a Delta table.

A commit names the version it wants. It lands there or not at all, so whoever knew the table up to the version before
has overlooked nothing: put-if-absent of the log file is the compare-and-set on which offsets rest.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError as DeltaCommitFailedError
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from kafkalike import faults
from kafkalike.errors import KafkaStorageError, LogCorruptError, UnknownOutcomeError, UnsupportedVersionError
from kafkalike.log.commits import APPEND_KEY, Add, TableCommit, log_name, parse_commit
from kafkalike.log.storage import Files, LocalFiles, PutRefusedError
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


FENCE: Final = "FENCE"
"""Operation of an empty commit that takes a version, so that a put that is still under way cannot land there."""


def _commit_local(files: LocalFiles, wanted: Commit) -> bool:
    try:
        landed = files.put_if_absent(log_name(wanted.version), _lines(wanted))
    except PutRefusedError as cause:
        message = f"{files.uri}: the storage refused the commit: {cause}"
        raise KafkaStorageError(message) from cause
    except OSError as cause:
        return settle(files, wanted, cause)
    # "Exists" does not say whose it is: a repeated request meets the file that the first one made.
    return landed or settle(files, wanted, None)


def settle(files: Files, wanted: Commit, cause: Exception | None) -> bool:
    """Find out what became of a commit whose put raised, or met a file: look for its id at the version it wanted.

    "Not there" is not "will not be": a put may still be under way. So the version is taken by an empty commit before
    anything is said.

    Args:
        files: the table.
        wanted: the commit.
        cause: what its put raised; None when it met a file.

    Returns:
        True when it is there; False when another commit has the version, so that it never will be.

    Raises:
        KafkaStorageError: it is not there and never will be.
        UnknownOutcomeError: the storage does not say.
    """
    found = _found(files, wanted, cause)
    if found is None:
        found = _fence(files, wanted, cause)
    if found is not None:
        return found
    if cause is None:
        return False
    message = f"{files.uri}: the storage refused the commit: {cause}"
    raise KafkaStorageError(message) from cause


def _found(files: Files, wanted: Commit, cause: Exception | None) -> bool | None:
    """Whether the version that a commit wanted is its own; None when there is no such version."""
    try:
        commit = parse_commit(wanted.version, files.read(log_name(wanted.version)), files.uri)
    except FileNotFoundError:
        return None
    except (OSError, LogCorruptError, UnsupportedVersionError) as second:
        raise _unclear(files, wanted) from (cause or second)
    return wanted.append_id in (commit.user_metadata or "")


def _fence(files: Files, wanted: Commit, cause: Exception | None) -> bool | None:
    """Take the version that a commit wanted.

    Returns:
        None when the fence has it; else as `_found`: somebody was faster, perhaps the commit itself.

    Raises:
        UnknownOutcomeError: the storage does not let it, or does not say.
    """
    append_id = uuid.uuid4().hex
    fence = Commit(
        version=wanted.version,
        time_ms=wanted.time_ms,
        operation=FENCE,
        append_id=append_id,
        user_metadata=json.dumps({APPEND_KEY: append_id}, separators=(",", ":")),
    )
    try:
        if isinstance(files, LocalFiles):
            won = files.put_if_absent(log_name(fence.version), _lines(fence))
        else:
            won = _put_remote(files, fence)
    except (OSError, DeltaError) as second:
        raise _unclear(files, wanted) from (cause or second)
    if won or _found(files, fence, cause):
        return None
    found = _found(files, wanted, cause)
    if found is None:
        # It exists, says the one answer, and does not, says the other.
        raise _unclear(files, wanted) from cause
    return found


def _unclear(files: Files, wanted: Commit) -> UnknownOutcomeError:
    return UnknownOutcomeError(f"commit to {files.uri}", wanted.append_id)


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
        landed = _put_remote(files, wanted)
    except (DeltaError, OSError) as cause:
        return settle(files, wanted, cause)
    return landed or settle(files, wanted, None)


def _put_remote(files: Files, wanted: Commit) -> bool:
    """Make a version through `deltalake`; False when it exists.

    Raises:
        DeltaError, OSError: it may be there, or appear later.
    """
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
        return False
    return True
