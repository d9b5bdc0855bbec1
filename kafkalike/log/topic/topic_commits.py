"""Topic commits: the segments that commits of a topic add, earlier writes, rewinds, and changes by foreign writers.

Topics' tables have Delta writer version 2, which asks a writer to honor `delta.appendOnly` (`Table.change` does) and
`delta.invariants`. An append to a table that asks for anything else is refused by name, so that no table property is
ignored. A foreign writer's change of records is logged as a warning when it arrives.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kafkalike.delta.actions import Add, TableCommit, log_name, parse_commit, version_of
from kafkalike.delta.damage import storage_errors
from kafkalike.delta.table_state import TableState, end_app, records_ends
from kafkalike.errors import CorruptRecordError, KafkaError, KafkaStorageError, LogCorruptError
from kafkalike.log.topic.record_rules import check_after, not_in_order
from kafkalike.model.appends.taken_appends import ranges_of_write
from kafkalike.model.record_batch import TRANSACTIONS, Appended, TxnId
from kafkalike.model.row_value import UNREADABLE as UNREADABLE_STATS
from kafkalike.model.segments import DUE_KEY, Segment
from kafkalike.storage.parquet import UNREADABLE, is_storage_error, open_parquet
from kafkalike.storage.port import Storage


def find_write(topic: str, files: Storage, state: TableState, txn: TxnId) -> Appended | None:
    """Return the earlier write of the same `TxnId`, if the table has it; see `TopicLog.already_appended`."""
    known = state.txns.get(txn.app_id)
    if known is None or known < txn.version:
        check_after(topic, txn, known)
        return None
    found = find_commit(files, lambda c: c.txns.get(txn.app_id) == txn.version)
    if found is not None:
        note = found.note
        when = int(note.get("time", found.timestamp_ms))
        ranges = ranges_of_write(note, txn.app_id, txn.version)
        if ranges is None and TRANSACTIONS in found.txns:
            ranges = ranges_of_write(note, TRANSACTIONS, found.txns[TRANSACTIONS])
        if ranges is None:
            ranges = ranges_of(segment_of(add, files) for add in found.adds)
        return Appended(version=found.version, ranges=ranges, append_time_ms=when, duplicate=True)
    if known > txn.version and not txn.own:
        raise not_in_order(topic, txn.app_id, txn.version, known)
    return Appended(version=state.version, ranges={}, append_time_ms=0, duplicate=True)


def segments_added(files: Storage, version: int) -> list[Segment]:
    """Return the segments that a version of a table added, in the order of its commit; empty before its commit.

    Raises:
        KafkaStorageError, LogCorruptError: the version cannot be read.
    """
    with storage_errors(files.uri):
        try:
            commit = parse_commit(version, files.read(log_name(version)), files.uri)
        except FileNotFoundError:
            return []
    return [segment_of(add, files) for add in commit.adds]


def names_of(txn: TxnId, known: Mapping[str, int]) -> dict[str, int]:
    """Return the application versions that a commit records for the name of a write.

    Args:
        txn: the name.
        known: the versions of names in the table; none of them may decrease.
    """
    names = {txn.app_id: txn.version}
    if txn.also is not None:
        app_id, version = txn.also
        if known.get(app_id, -1) < version:
            names[app_id] = version
    return names


def find_commit(files: Storage, wanted: Callable[[TableCommit], bool]) -> TableCommit | None:
    """Return the newest matching commit that a table's log still holds.

    Raises:
        KafkaStorageError: the storage does not answer.
    """
    with storage_errors(files.uri):
        known = versions(files)
    for version in reversed(known):
        try:
            with storage_errors(files.uri):
                found = parse_commit(version, files.read(log_name(version)), files.uri)
        except FileNotFoundError:
            continue
        if wanted(found):
            return found
    return None


def ranges_of(segments: Iterable[Segment]) -> dict[int, range]:
    """Return the offsets of an append's segments, by partition."""
    runs: dict[int, range] = {}
    for segment in segments:
        known = runs.get(segment.partition, segment.offsets)
        runs[segment.partition] = range(min(known.start, segment.start), max(known.stop, segment.stop))
    return dict(sorted(runs.items()))


LOOK_BACK: Final = 100
"""Most commits below a checkpoint that a load reads for facts that the live files do not show; a few ms."""


def look_back(state: TableState, checkpoint: int, files: Storage) -> None:
    """Read the last commits below a checkpoint for facts that the checkpoint does not hold.

    These are a rewind, read back to the newest commit of kafkalike, and the log ends of removed records in a table
    whose ends no commit has recorded. The search does not stop at another checkpoint, because RESTORE writes one. It
    stops at an append that recorded log ends, because its writer had looked back from there.
    """
    rewind_possible = not state.went_on
    keeps_ends = FORGETS not in state.properties
    seen: list[TableCommit] = []
    recorded = state.ends_recorded and keeps_ends
    for version in range(checkpoint, max(-1, checkpoint - LOOK_BACK), -1):
        if recorded:
            break
        try:
            commit = parse_commit(version, files.read(log_name(version)), files.uri)
        except (FileNotFoundError, LogCorruptError):
            # The checkpoint has the content of older commits.
            break
        rewind_possible = state.saw_below(commit, lambda add: segment_of(add, files), rewind_possible)
        seen.append(commit)
        recorded = keeps_ends and records_ends(commit)
    _keep_taken(state, seen, files, older_recorded=recorded)
    state.note_recorded(state.index.ends)


def _keep_taken(state: TableState, seen: Sequence[TableCommit], files: Storage, *, older_recorded: bool) -> None:
    """Keep the log end above files that foreign writers removed and whose adding commits are not read.

    If nothing shows the end of such a file, the table counts as rewound.

    Args:
        state: the table's state.
        seen: the commits that were read, newest first.
        files: the table.
        older_recorded: whether the ends of all files that older commits added are recorded.
    """
    if older_recorded:
        return
    known = {add.path for commit in seen for add in commit.adds}
    foreign = [commit for commit in seen if commit.append_id is None]
    for commit, old in [(c, old) for c in foreign for old in c.taken if old.path not in known]:
        try:
            state.index.raise_end(segment_of(old, files))
        except KafkaError:
            recorded = old.partition is not None and end_app(old.partition) in state.txns
            if not recorded and (state.rewound is None or state.rewound.version < commit.version):
                state.rewound = commit


WORK_KEY: Final = "maintenance"
"""Key of the maintenance operation in a commit's user metadata; its value is a key of `OPERATIONS`."""

RUN_KEY: Final = "run"
"""Key of the id of the maintenance run."""

OPERATIONS: Final = {
    "retention": "DELETE",
    "merge": "OPTIMIZE",
    "compaction": "REWRITE",
    "restore": "CLONE",
    "fork": "CLONE",
    "forked": "FORKED",
    "forget": "REWRITE",
    "undo": "REWRITE",
    "repartition": "REPARTITION",
}
"""Names of maintenance operations in the table's history."""


def maintenance_of(commit: TableCommit) -> Mapping[str, Any]:
    """Return the user metadata of a maintenance commit; empty for any other commit."""
    return commit.note if WORK_KEY in commit.note else {}


def transaction_of(commit: TableCommit) -> int | None:
    """Return the number of the decision that a commit applied to the topic; None if it applied none."""
    match commit.note.get("txn"):
        case [app, int() as number] if app == TRANSACTIONS:
            return number
    return None


FORGETS: Final = "delta.setTransactionRetentionDuration"
_CONSTRAINT: Final = "delta.constraints."
_COLUMN_RULES: Final = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generated value",
    "delta.identity.start": "an identity",
}


def append_refusal(properties: Mapping[str, str], schema: str) -> str | None:
    """Return the reason why nothing may be appended to a table; None if it allows appends.

    Args:
        properties: the table's configuration.
        schema: its Delta schema, as JSON.
    """
    if FORGETS in properties:
        return (
            f"the table property {FORGETS}={properties[FORGETS]} lets Delta forget which writes it has (`txn_id`, "
            "streams' batches, log ends), so that they could be written twice; remove it: "
            f"ALTER TABLE … UNSET TBLPROPERTIES ('{FORGETS}')"
        )
    checks = sorted(name.removeprefix(_CONSTRAINT) for name in properties if name.startswith(_CONSTRAINT))
    if checks:
        return f"it has CHECK constraints ({', '.join(checks)}), which kafkalike does not check; drop them"
    for column, what in _rules_of(schema):
        return f"its column {column} has {what}, which kafkalike does not check; remove it"
    return None


def _rules_of(schema: str) -> Iterator[tuple[str, str]]:
    """Yield the columns that have a rule, and the rule."""
    # A text search first, because parsing takes longer.
    if not any(name in schema for name in _COLUMN_RULES):
        return
    yield from _rules_below(json.loads(schema), "")


def _rules_below(kind: Any, above: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - Delta's types
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        name = f"{above}{field['name']}"
        for key in _COLUMN_RULES.keys() & (field.get("metadata") or {}).keys():
            yield name, _COLUMN_RULES[key]
        yield from _rules_below(field["type"], f"{name}.")
    for part in ("elementType", "keyType", "valueType"):
        yield from _rules_below(kind.get(part), above)


_log = logging.getLogger(__name__)


def foreign_change(commit: TableCommit) -> str | None:
    """Describe a foreign writer's change of records; None if a commit is kafkalike's or changes no records.

    Files that are only rewritten (`dataChange=false`, as by OPTIMIZE) do not change records.
    """
    added = [add for add in commit.adds if add.data_change]
    if commit.append_id is not None or not (added or commit.taken):
        return None
    acts = [f"{verb} {_files(files)}" for verb, files in (("removed", commit.taken), ("added", added)) if files]
    then = (
        "records that were read before may have changed or disappeared"
        if commit.taken
        else "nothing has checked their offsets and times"
    )
    return (
        f"table version {commit.version} is a foreign writer's ({commit.operation} by {commit.engine}): it "
        f"{' and '.join(acts)}, so {then}; see `kafkalike verify` and `kafkalike history`"
    )


def _files(files: Sequence[Add]) -> str:
    known = sorted({add.partition for add in files if add.partition is not None})
    where = f" of partition{'s' if len(known) > 1 else ''} {', '.join(map(str, known))}" if known else ""
    return f"{len(files)} file{'s' if len(files) > 1 else ''}{where}"


class ForeignWarnings:
    """Logs a warning for each foreign change when it arrives.

    Args:
        topic: returns the topic's name.
    """

    def __init__(self, topic: Callable[[], str]) -> None:
        self._topic = topic

    def on_load(self, state: TableState) -> None:
        """Ignore a full load, because this reader has read nothing before."""

    def on_commit(self, commit: TableCommit) -> None:
        """Log a warning if a foreign writer has changed records."""
        change = foreign_change(commit)
        if change is not None:
            _log.warning("topic %s: %s", self._topic(), change)


PART_BYTES: Final = 1024 * 1024
"""Bytes read at a time for a checksum."""

LONG_MAX: Final = 2**63 - 1
"""The largest log end that Kafka's clients can name."""


def parse_time_ms(text: str | int) -> int:
    """Return a timestamp of file statistics in ms since the epoch; a number is in ms already."""
    if isinstance(text, int):
        return text
    moment = datetime.fromisoformat(text)
    days = moment.toordinal() - 719_163
    offset = moment.utcoffset()
    seconds = ((days * 24 + moment.hour) * 60 + moment.minute) * 60 + moment.second
    return (seconds - (int(offset.total_seconds()) if offset else 0)) * 1000 + moment.microsecond // 1000


def segment_of(add: Add, files: Storage) -> Segment:
    """Return the segment of an added file.

    Reads the file itself if the commit has no usable statistics, as a foreign writer's may.

    Raises:
        LogCorruptError: the file has no partition, or rows without offset.
        CorruptRecordError: the file is missing.
        KafkaStorageError: the file cannot be read at present.
    """
    if add.partition is None:
        raise LogCorruptError(f"{files.uri}/{add.path} belongs to no partition: a foreign writer wrote it")
    try:
        low, high = add.stats["minValues"], add.stats["maxValues"]
        stop = int(high["offset"]) + 1
        if stop <= LONG_MAX:
            first_ms = parse_time_ms(low["timestamp"])
            return Segment(
                partition=add.partition,
                start=int(low["offset"]),
                stop=stop,
                num_records=int(add.stats["numRecords"]),
                min_timestamp=first_ms,
                # Equal if all records are of one append of a topic with `LogAppendTime`, or the file has one record.
                max_timestamp=first_ms if high["timestamp"] == low["timestamp"] else parse_time_ms(high["timestamp"]),
                size_bytes=add.size,
                path=add.path,
                modification_ms=add.modification_ms,
                due_ms=_due(add.stats) if DUE_KEY in add.stats else 0,
            )
    except UNREADABLE_STATS:
        pass
    return _segment_from_file(add, add.partition, files)


def _due(stats: Mapping[str, Any]) -> int:
    """Return `Segment.due_ms`. A foreign writer may have written anything there."""
    found = stats[DUE_KEY]
    return found if type(found) is int and found > 0 else 0


def _segment_from_file(add: Add, partition: int, files: Storage) -> Segment:
    import pyarrow.compute as pc  # imported late: it takes 30 ms, and most processes never need it

    try:
        table = open_parquet(files, add.path).read(columns=["offset", "timestamp"])
        offsets, times = pc.min_max(table["offset"]).as_py(), pc.min_max(table["timestamp"]).as_py()
        return Segment(
            partition=partition,
            start=int(offsets["min"]),
            stop=int(offsets["max"]) + 1,
            num_records=table.num_rows,
            min_timestamp=int(times["min"].timestamp() * 1000),
            max_timestamp=int(times["max"].timestamp() * 1000),
            size_bytes=add.size,
            path=add.path,
            modification_ms=add.modification_ms,
        )
    except FileNotFoundError as cause:
        raise CorruptRecordError(f"{files.uri}/{add.path} is named by the log but missing") from cause
    except UNREADABLE as cause:
        if is_storage_error(cause):
            raise KafkaStorageError(f"{files.uri}/{add.path} cannot be read now: {cause}") from cause
        raise LogCorruptError(
            f"{files.uri}/{add.path} has no statistics and cannot stand in for them: {cause}"
        ) from cause


def versions(files: Storage) -> list[int]:
    """Return the table versions whose commit file still exists, in order."""
    return sorted(v for entry in files.list("_delta_log") if (v := version_of(entry.name)) is not None)


def sha256_of(files: Storage, name: str) -> str:
    """Return the SHA-256 of a file's content.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError: the storage does not answer.
    """
    hashed = hashlib.sha256()
    with files.open_input(name) as stream:
        while part := stream.read(PART_BYTES):
            hashed.update(part)
    return hashed.hexdigest()
