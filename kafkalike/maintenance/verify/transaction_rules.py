"""Transaction rules: rows of transactions and what is known of staged files in, findings out; nothing is read here."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalike.maintenance.verify.findings import Finding
from kafkalike.model.group_state import TRANSACTION, GroupRow, standing_of
from kafkalike.model.transactions.transaction_views import LostPart
from kafkalike.model.transactions.transactional_id import Standing


def check_transaction_rows(rows: Iterable[GroupRow]) -> list[Finding]:
    """Epochs only rise, and so do the numbers of transactions within one.

    Args:
        rows: what the groups' table still has, in `seq` order.

    Raises:
        UnsupportedVersionError, LogCorruptError: a row cannot be read.
    """
    found = []
    known: dict[str, Standing] = {}
    for row in rows:
        if row.kind != TRANSACTION:
            continue
        before, now = known.pop(row.group_id, None), standing_of(row)
        if now is None:
            continue
        known[row.group_id] = now
        if before is not None and _place(now) < _place(before):
            message = (
                f"transactional id {row.group_id!r} goes from producer, epoch and number {_place(before)} back to "
                f"{_place(now)} (row {row.seq})"
            )
            found.append(Finding(kind="transaction-back", message=message))
    return found


def _place(standing: Standing) -> tuple[int, int, int]:
    return standing.producer_id, standing.epoch, standing.number


def check_ahead(topic: str, last: int, seq: int) -> list[Finding]:
    """A topic has no transaction that the groups' table cannot have numbered.

    Args:
        topic: the topic.
        last: number of its last transaction.
        seq: of the last row of that table, seen later.
    """
    if last <= seq:
        return []
    message = (
        f"it has transaction {last}, and the groups' table ends at row {seq}: that was removed or rewound; "
        "transactions into the topic are refused"
    )
    return [Finding(kind="transaction-ahead", message=message, topic=topic)]


def check_lost(lost: Iterable[LostPart]) -> list[Finding]:
    """Committed records that cannot come into their topics."""
    return [
        Finding(
            kind="transaction-file",
            message=f"transactional id {part.transactional_id!r}: {part.why}",
            topic=part.topic,
        )
        for part in lost
    ]
