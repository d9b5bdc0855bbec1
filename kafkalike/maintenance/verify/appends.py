"""Appends: a topic and the id of an append, or the number of a transaction, in; where its records are out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkalike.delta.actions import TableCommit, log_name, parse_commit
from kafkalike.log.topic.segment_files import segment_of, versions
from kafkalike.log.topic.topic_history import maintenance_of, ranges_of, transaction_of
from kafkalike.model.group_commit.waiting_appends import parts_of
from kafkalike.model.mirror import SEAL

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAppend:
    """An append as the table's history has it."""

    id: str
    version: int
    time_ms: int
    ranges: Mapping[int, range]
    """Its offsets, by partition."""
    transaction: int | None
    """Number of the transaction whose records it brought; None for an append of its own."""
    is_foreign: bool = False
    """Whether a mirror has brought it, so that the number is that of a transaction of another cluster."""


def appends_in(commit: TableCommit, log: TopicLog) -> Iterator[FoundAppend]:
    """The appends that a commit holds: one, or several that one of their writers has committed for the others."""
    if not commit.is_append or maintenance_of(commit.user_metadata):
        return
    whole = ranges_of(segment_of(add, log.files) for add in commit.adds)
    parts = parts_of(commit.note)
    if not parts:
        yield FoundAppend(
            id=str(commit.append_id),
            version=commit.version,
            time_ms=commit.timestamp_ms,
            ranges=whole,
            transaction=transaction_of(commit.user_metadata),
        )
        return
    for part_id, ranges, number in parts:
        yield FoundAppend(
            # The append of who made the commit has no name of its own but the commit's.
            id=part_id or str(commit.append_id),
            version=commit.version,
            time_ms=commit.timestamp_ms,
            ranges=ranges,
            transaction=number,
        )


def find_append(log: TopicLog, append_id: str) -> FoundAppend | None:
    """The append of an id, as far back as the table's log reaches.

    Raises:
        KafkaStorageError, LogCorruptError: the log cannot be read.
    """
    found: list[FoundAppend] = []
    is_foreign = log.info.mirror is not None

    def holds(commit: TableCommit) -> bool:
        nonlocal is_foreign
        is_foreign = is_foreign or _is_promotion(commit)
        if commit.append_id == append_id or append_id in _ids(commit):
            mine = (one for one in appends_in(commit, log) if one.id == append_id)
            found.extend(replace(one, is_foreign=is_foreign) for one in mine)
        return bool(found)

    log.find_commit(holds)
    return found[0] if found else None


def find_transaction(log: TopicLog, number: int) -> FoundAppend | None:
    """What a transaction brought into a topic, as far back as the table's log reaches; None for nothing.

    What a mirror has brought before it was promoted has numbers of another cluster, and is not looked at.
    """
    if log.last_transaction < number:
        return None
    found: list[FoundAppend] = []

    def holds(commit: TableCommit) -> bool:
        found.extend(one for one in appends_in(commit, log) if one.transaction == number)
        return bool(found) or _is_promotion(commit)

    log.find_commit(holds)
    return found[0] if found else None


def _is_promotion(commit: TableCommit) -> bool:
    """Whether a version ended what a mirror had brought."""
    return any(app.startswith(SEAL) for app in commit.txns)


def reaches_back_to(log: TopicLog, time_ms: int) -> bool:
    """Whether the history of a topic has all commits since a time."""
    known = versions(log.files)
    if not known or known[0] == 0:
        return True
    oldest = parse_commit(known[0], log.files.read(log_name(known[0])), log.files.uri)
    return oldest.timestamp_ms < time_ms


def _ids(commit: TableCommit) -> list[str]:
    return [part_id for part_id, _, _ in parts_of(commit.note)]
