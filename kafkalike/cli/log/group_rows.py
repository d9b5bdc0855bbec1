"""Group rows: rows of `__consumer_offsets` in, lines with the words of kafka-dump-log's decoders out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from kafkalike.model.group_state import MEMBER, TRANSACTION, GroupRow, standing_of
from kafkalike.model.transactions.transaction_views import TransactionState
from kafkalike.model.transactions.transactional_id import Standing, Why

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
"""Kafka's topic of transactions; here their rows stand among those of the groups."""

DELETED: Final = "<DELETE>"

STATES: Final = {
    Why.INIT: TransactionState.EMPTY,
    # The row is the decision; that all topics have it is no row.
    Why.COMMIT: TransactionState.PREPARE_COMMIT,
    Why.ABORT: TransactionState.COMPLETE_ABORT,
    Why.TIMEOUT: TransactionState.COMPLETE_ABORT,
    Why.ADMIN: TransactionState.COMPLETE_ABORT,
}
"""By reason: the state that a row's transaction has by that row."""


def transaction_lines(rows: Iterable[GroupRow]) -> Iterator[str]:
    """Rows of transactions, as `--transaction-log-decoder` prints them.

    Raises:
        LogCorruptError, UnsupportedVersionError: a row cannot be read.
    """
    return (_line(row, *_transaction(row)) for row in rows if row.kind == TRANSACTION)


def offset_lines(rows: Iterable[GroupRow]) -> Iterator[str]:
    """All rows, as `--offsets-decoder` prints them.

    Raises:
        LogCorruptError, UnsupportedVersionError: a row cannot be read.
    """
    for row in rows:
        if row.kind == TRANSACTION:
            yield _line(row, *_transaction(row))
        elif row.kind == MEMBER:
            yield _line(row, f"group_metadata::group={row.group_id}", row.value)
        else:
            yield _line(row, f"offset_commit::group={row.group_id},partition={row.topic}-{row.partition}", _offset(row))


def _line(row: GroupRow, key: str, payload: str) -> str:
    return f"| offset: {row.seq} CreateTime: {row.time_ms} key: {key} payload: {payload}"


def _offset(row: GroupRow) -> str:
    if row.offset is None:
        return DELETED
    metadata = json.dumps(row.metadata, ensure_ascii=False)
    return f"offset={row.offset},generation={row.generation},memberId={row.member_id},metadata={metadata}"


def _transaction(row: GroupRow) -> tuple[str, str]:
    standing = standing_of(row)
    key = f"transaction_metadata::transactionalId={row.group_id}"
    return key, DELETED if standing is None else _standing(standing)


def _standing(standing: Standing) -> str:
    unsettled = standing.unsettled
    parts = () if unsettled is None else unsettled.parts
    partitions = ",".join(f"{part.topic.name}-{p}" for part in parts for p in sorted(part.counts))
    groups = "" if unsettled is None else ",".join(unsettled.groups)
    return (
        f"producerId:{standing.producer_id},producerEpoch:{standing.epoch},state={STATES[standing.why]},"
        f"partitions=[{partitions}],txnLastUpdateTimestamp={standing.changed_ms},txnTimeoutMs={standing.timeout_ms},"
        f"transaction={standing.number},reason={standing.why},groups=[{groups}]"
    )
