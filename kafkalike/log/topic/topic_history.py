"""Topic history: what the commits of a topic say beyond its state: earlier writes, rewinds, and notes of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kafkalike.delta.actions import TableCommit, append_info, log_name, parse_commit
from kafkalike.delta.damage import storage_errors
from kafkalike.delta.table_state import TableState, end_app, records_ends
from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.log.topic.foreign_rules import FORGETS
from kafkalike.log.topic.record_rules import check_after, not_in_order
from kafkalike.log.topic.segment_files import segment_of, versions
from kafkalike.model.group_commit.waiting_appends import ranges_of_write
from kafkalike.model.record_batch import TRANSACTIONS, Appended, TxnId
from kafkalike.model.segments import Segment
from kafkalike.storage.port import Storage


def find_write(topic: str, files: Storage, state: TableState, txn: TxnId) -> Appended | None:
    """The earlier write of the same `TxnId`, if the table has it; see `TopicLog.already_appended`."""
    known = state.txns.get(txn.app_id)
    if known is None or known < txn.version:
        check_after(topic, txn, known)
        return None
    found = find_commit(files, lambda c: c.txns.get(txn.app_id) == txn.version)
    if found is not None:
        note = append_info(found.user_metadata)
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


def names_of(txn: TxnId, known: Mapping[str, int]) -> dict[str, int]:
    """What a commit notes of the name of a write.

    Args:
        txn: the name.
        known: the versions of names that the table has; none of them goes down.
    """
    names = {txn.app_id: txn.version}
    if txn.also is not None:
        app_id, version = txn.also
        if known.get(app_id, -1) < version:
            names[app_id] = version
    return names


def find_commit(files: Storage, wanted: Callable[[TableCommit], bool]) -> TableCommit | None:
    """The newest commit that fits, among those a table's log still holds.

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
    """Offsets of an append's segments, by partition."""
    runs: dict[int, range] = {}
    for segment in segments:
        known = runs.get(segment.partition, segment.offsets)
        runs[segment.partition] = range(min(known.start, segment.start), max(known.stop, segment.stop))
    return dict(sorted(runs.items()))


LOOK_BACK: Final = 100
"""Commits below a checkpoint that a load looks through at most for what the live files do not say; a few ms."""


def look_back(state: TableState, checkpoint: int, files: Storage) -> None:
    """Look through the last commits below a checkpoint for what it does not say.

    That is a rewind, by the commits back to the last one of ours, and the ends of records that are gone from a table
    whose ends no commit has noted yet. A checkpoint is no reason to stop: RESTORE writes one itself. An append that has
    recorded log ends is one: whoever made it had looked back from there.
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
            # The checkpoint has what was in it.
            break
        rewind_possible = state.saw_below(commit, lambda add: segment_of(add, files), rewind_possible)
        seen.append(commit)
        recorded = keeps_ends and records_ends(commit)
    _keep_taken(state, seen, files, older_recorded=recorded)
    state.note_recorded(state.index.ends)


def _keep_taken(state: TableState, seen: Sequence[TableCommit], files: Storage, *, older_recorded: bool) -> None:
    """Let the log end stay above files that foreign writers took out and whose own commits are not read any more.

    Where nothing says how far such a file went, the table counts as rewound.

    Args:
        state: the table's.
        seen: the commits that were looked through, newest first.
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
"""Key, in a commit's user metadata, of what maintenance did: a key of `OPERATIONS`."""

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
}
"""What the table's history calls them."""


def maintenance_of(user_metadata: str | None) -> dict[str, Any]:
    """What maintenance wrote into a commit's user metadata; empty when the commit is not its own."""
    info = append_info(user_metadata)
    return info if WORK_KEY in info else {}


def transaction_of(user_metadata: str | None) -> int | None:
    """Number of the decision that a commit brought into the topic; None for one that brought none."""
    match append_info(user_metadata).get("txn"):
        case [app, int() as number] if app == TRANSACTIONS:
            return number
    return None
