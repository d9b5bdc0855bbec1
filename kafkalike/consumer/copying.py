"""Copying: what one poll returned in, offsets that a transaction commits, or that a failed one needs, out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkalike.model.structs import ConsumerRecord, OffsetAndMetadata, TopicPartition

Polled = Mapping[TopicPartition, Sequence[ConsumerRecord]]
"""What `KafkaConsumer.poll` returns: records in offset order, at least one of each partition."""


def offsets_after(polled: Polled) -> dict[TopicPartition, OffsetAndMetadata]:
    """For `send_offsets_to_transaction`: the records are worked on."""
    return {tp: OffsetAndMetadata(records[-1].offset + 1) for tp, records in polled.items()}


def offsets_before(polled: Polled) -> dict[TopicPartition, int]:
    """For `seek` after an abort: the records are to be read again."""
    return {tp: records[0].offset for tp, records in polled.items()}
