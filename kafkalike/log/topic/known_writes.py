"""Known writes: the name of a write in, the commit of a topic's table that is this write out, if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kafkalike.delta.actions import TableCommit, append_info, log_name, parse_commit
from kafkalike.delta.damage import storage_errors
from kafkalike.delta.table_state import TableState
from kafkalike.log.topic.segment_files import segment_of, versions
from kafkalike.log.topic.validate import check_after, not_in_order
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
