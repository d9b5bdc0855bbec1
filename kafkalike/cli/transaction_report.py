"""Report: what the admin client says of transactions in, lines with the columns of kafka-transactions.sh out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kafkalike.admin import PartitionProducerState, TransactionDescription, TransactionListing

Row = tuple[str, ...]

NONE: Final = "None"
"""What stands where there is no value, as in Kafka."""

MINUTE_MS: Final = 60_000

LIST_HEADS: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
DESCRIBE_HEADS: Final = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
PRODUCER_HEADS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
HANGING_HEADS: Final = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
    "TransactionalId",
    "TransactionState",
)
"""Kafka's, and at the end what `abort` wants."""


def listed(found: Mapping[int, Sequence[TransactionListing]]) -> list[Row]:
    """Rows of `list`."""
    return [
        (one.transactional_id, str(broker), str(one.producer_id), one.state.value)
        for broker, listings in found.items()
        for one in listings
    ]


def described(found: Mapping[str, TransactionDescription], now_ms: int) -> list[Row]:
    """Rows of `describe`."""
    rows: list[Row] = []
    for name, one in found.items():
        began_ms = one.transaction_start_time_ms
        rows.append(
            (
                str(one.coordinator_id),
                name,
                str(one.producer_id),
                str(one.producer_epoch),
                one.state.value,
                str(one.transaction_timeout_ms),
                NONE if began_ms < 0 else str(began_ms),
                NONE if began_ms < 0 else str(now_ms - began_ms),
                ",".join(f"{tp.topic}-{tp.partition}" for tp in sorted(one.topic_partitions)),
            )
        )
    return rows


def producers(found: PartitionProducerState) -> list[Row]:
    """Rows of `describe-producers`."""
    return [
        (
            str(one.producer_id),
            str(one.producer_epoch),
            str(one.coordinator_epoch),
            str(one.last_sequence),
            str(one.last_timestamp),
            NONE if one.current_transaction_start_offset < 0 else str(one.current_transaction_start_offset),
        )
        for one in found.active_producers
    ]


def hanging(
    found: Sequence[Mapping[str, Any]], now_ms: int, *, topic: str | None = None, partition: int | None = None
) -> list[Row]:
    """Rows of `find-hanging`, one for each partition; `-` for a transaction whose topics are gone."""
    rows: list[Row] = []
    for one in found:
        where = [(tp.topic, str(tp.partition)) for tp in one["topic_partitions"]] or [("-", "-")]
        for name, number in where:
            if topic not in {None, name} or (partition is not None and number != str(partition)):
                continue
            rows.append(
                (
                    name,
                    number,
                    str(one["producer_id"]),
                    str(one["producer_epoch"]),
                    "-1",
                    "-1",
                    str(now_ms - one["age_ms"]),
                    str(one["age_ms"] // MINUTE_MS),
                    one["transactional_id"],
                    one["state"],
                )
            )
    return rows


def table(heads: Row, rows: Sequence[Row]) -> Iterator[str]:
    """Lines of a table as Kafka prints it: columns as wide as their longest value, a tab after each."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        yield "".join(f"{text.ljust(width)}\t" for text, width in zip(row, widths, strict=True))
