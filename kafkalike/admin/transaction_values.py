"""Transaction values: what the admin client says of transactions, and which one it is to abort."""

from __future__ import annotations

from typing import NamedTuple

from kafkalike.model.structs import TopicPartition
from kafkalike.model.transactions.views import TransactionState


class TransactionListing(NamedTuple):
    """A transactional id, in a list."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """A transactional id and its last transaction."""

    coordinator_id: int
    """Id of the one broker that there seems to be."""
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    """When it began, ms; -1 for one that is not open."""
    topic_partitions: set[TopicPartition]
    """Of a committed transaction those that do not have it yet; of an open one those that it has staged records for.
    Where a staged file does not say its partitions, they are all of its topic."""


class ProducerState(NamedTuple):
    """A producer with a transaction that concerns a partition. What only brokers have is -1."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    """When its transaction began or was committed, ms."""
    coordinator_epoch: int
    current_transaction_start_offset: int
    """-1: records of an open transaction have no offsets."""


class PartitionProducerState(NamedTuple):
    """The producers with a transaction that concerns a partition."""

    active_producers: list[ProducerState]


class AbortTransactionSpec(NamedTuple):
    """Which transaction to abort, by its producer; the epoch must be the one that was seen."""

    topic_partition: TopicPartition | None
    """Not looked at: a transaction is aborted as a whole."""
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1
    """Not looked at."""
