"""Transaction operations: list, describe, fence and abort transactions from outside their producers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkalike.admin.admin_base import BROKER_ID, AdminBase, as_names
from kafkalike.errors import (
    IllegalArgumentError,
    TransactionalIdNotFoundError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from kafkalike.model.clock import Deadline
from kafkalike.model.structs import TopicPartition
from kafkalike.model.transactions import transaction_views
from kafkalike.model.transactions.transaction_views import ProducerIdAndEpoch, TransactionState

SLACK_MS: Final = 5 * 60 * 1000
"""How much longer than the longest timeout a transaction must be open to count as hanging, as in Kafka's tool."""

FENCE_TIMEOUT_MS: Final = 60_000
"""How long a producer may take to be fenced; what it has committed is brought into its topics meanwhile."""

UNDER_WAY: Final = frozenset({TransactionState.ONGOING, TransactionState.PREPARE_COMMIT})
"""States of a transaction that is not over: open, or committed and not yet in all of its topics."""


class TransactionOperations(AdminBase):
    """Look at transactions, and end those that hang. No reader ever waits for one, so nothing is urgent about it."""

    def list_transactions(
        self,
        broker_ids: Sequence[int] | None = None,
        producer_id_filters: Sequence[int] | None = None,
        state_filters: Sequence[TransactionState | str] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """All transactional ids that are not forgotten, sorted.

        Args:
            broker_ids: only the one broker there is knows transactions.
            producer_id_filters: only ids of these producers.
            state_filters: only ids in these states (`TransactionState` or text).
            duration_filter_ms: only those whose transaction is under way for longer; below 0 is no filter.
            transactional_id_pattern: only ids that this regular expression matches as a whole.

        Returns:
            `{1: [TransactionListing]}`, by the one broker; empty when it was not asked.

        Raises:
            IllegalArgumentError: no such state, or no regular expression.
        """
        if broker_ids is not None and BROKER_ID not in broker_ids:
            return {}
        states = {_state_of(given) for given in state_filters or ()}
        pattern = _pattern(transactional_id_pattern)
        found = [
            TransactionListing(listing.transactional_id, listing.producer_id, listing.state)
            for listing in self._cluster.transactions.listed()
            if (not states or listing.state in states)
            and (not producer_id_filters or listing.producer_id in producer_id_filters)
            and (pattern is None or pattern.fullmatch(listing.transactional_id))
        ]
        if duration_filter_ms is not None and duration_filter_ms >= 0:
            ages = self._ages(listing.transactional_id for listing in found if listing.state in UNDER_WAY)
            found = [listing for listing in found if ages.get(listing.transactional_id, -1) > duration_filter_ms]
        return {BROKER_ID: found}

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """State of transactional ids.

        Args:
            transactional_ids: the ids.

        Raises:
            TransactionalIdNotFoundError: there is no such id, or it was not used for `transactional.id.expiration.ms`.
        """
        names = as_names(transactional_ids, "transactional_ids")
        topics = self._partitions()
        return {name: _described(found, topics) for name, found in self._known(names, staged=True).items()}

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """Producers whose open or committed transaction still has to come into partitions.

        Of an open transaction its staged files are looked at, as they are now.

        Args:
            partitions: which ones.
            broker_id: without effect: there is one.

        Raises:
            UnknownTopicOrPartitionError: no such partition.
        """
        del broker_id
        topics = self._partitions()
        wanted = [TopicPartition(*tp) for tp in as_names(partitions, "partitions")]
        for tp in wanted:
            if tp.partition not in range(topics.get(tp.topic, 0)):
                raise UnknownTopicOrPartitionError(f"partition {tp.topic}-{tp.partition} does not exist")
        under_way = self._under_way()
        return {
            tp: PartitionProducerState(
                [_producer(found) for found in under_way.values() if tp in _topic_partitions(found, topics)]
            )
            for tp in wanted
        }

    def abort_transaction(self, spec: AbortTransactionSpec | str) -> None:
        """Abort what is open of a transactional id, and shut its producer out.

        A transaction that is committed is not aborted: it is brought into all of its topics. The producer gets
        `InvalidProducerEpochError` then, from its next `commit_transaction` on.

        Args:
            spec: the producer as `describe_transactions` or `describe_producers` has shown it, or a transactional id,
                whoever has it now.

        Raises:
            TransactionalIdNotFoundError: no such transactional id.
            UnknownProducerIdError: no transactional id has this producer id.
            InvalidProducerEpochError: the id has another epoch by now: that transaction is over.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or not sure; call again.
        """
        if isinstance(spec, str):
            self._fence(spec)
            return
        listed = self._cluster.transactions.listed()
        named = [listing.transactional_id for listing in listed if listing.producer_id == spec.producer_id]
        if not named:
            raise UnknownProducerIdError(f"no transactional id has the producer id {spec.producer_id}")
        (transactional_id,) = named
        self._fence(transactional_id, ProducerIdAndEpoch(spec.producer_id, spec.producer_epoch))

    def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, ProducerIdAndEpoch]:
        """Shut out the producers of transactional ids, as Java's `fenceProducers`; see `abort_transaction`.

        Args:
            transactional_ids: the ids; all are looked for before the first is fenced.

        Returns:
            What each id has from now on.

        Raises:
            TransactionalIdNotFoundError: no such id.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done for all, or not sure; call again.
        """
        known = self._known(as_names(transactional_ids, "transactional_ids"))
        return {name: ProducerIdAndEpoch(found.producer_id, self._fence(name)) for name, found in known.items()}

    def find_hanging_transactions(
        self, broker_ids: Sequence[int] | None = None, max_transaction_timeout_ms: int = 900_000
    ) -> list[dict[str, Any]]:
        """Transactions that are under way for longer than any timeout, and five minutes.

        Open ones are those that no maintenance has aborted; committed ones (`PrepareCommit`) those that cannot be
        brought into one of their topics, or whose topics nobody has read since.

        Args:
            broker_ids: only the one broker there is knows transactions.
            max_transaction_timeout_ms: the longest timeout of a producer, ms.

        Returns:
            `[{transactional_id, producer_id, producer_epoch, state, age_ms, coordinator_id, topic_partitions}]`, the
            oldest first.
        """
        if broker_ids is not None and BROKER_ID not in broker_ids:
            return []
        topics, now_ms = self._partitions(), self._clock.now_ms()
        hanging = [
            {
                "transactional_id": name,
                "producer_id": found.producer_id,
                "producer_epoch": found.epoch,
                "state": found.state.value,
                "age_ms": now_ms - since_ms(found),
                "coordinator_id": BROKER_ID,
                "topic_partitions": sorted(_topic_partitions(found, topics)),
            }
            for name, found in self._under_way().items()
            if now_ms - since_ms(found) >= max_transaction_timeout_ms + SLACK_MS
        ]
        return sorted(hanging, key=lambda one: -one["age_ms"])

    def _known(self, names: Sequence[str], *, staged: bool = False) -> dict[str, transaction_views.TransactionReport]:
        described = self._cluster.transactions.described(names, staged=staged)
        missing = [name for name in names if name not in described]
        if missing:
            raise TransactionalIdNotFoundError(f"no transactional id {', '.join(map(repr, missing))}")
        return {name: described[name] for name in names}

    def _under_way(self) -> dict[str, transaction_views.TransactionReport]:
        """By transactional id: what is open, or committed and not yet in all topics."""
        transactions = self._cluster.transactions
        names = [listing.transactional_id for listing in transactions.listed() if listing.state in UNDER_WAY]
        described = transactions.described(names, staged=True)
        return {name: described[name] for name in names if described[name].state in UNDER_WAY}

    def _ages(self, names: Iterable[str]) -> dict[str, int]:
        described = self._cluster.transactions.described(list(names))
        return {name: self._clock.now_ms() - since_ms(found) for name, found in described.items()}

    def _fence(self, transactional_id: str, only: ProducerIdAndEpoch | None = None) -> int:
        return self._cluster.transactions.fence(transactional_id, Deadline(self._clock, FENCE_TIMEOUT_MS), only)

    def _partitions(self) -> dict[str, int]:
        return {name: info.num_partitions for name, info in self._cluster.topics().items()}


def since_ms(found: transaction_views.TransactionReport) -> int:
    """Since when, ms, a transaction that is under way is so: it began then, or was committed."""
    return found.start_ms if found.start_ms >= 0 else found.changed_ms


def _topic_partitions(found: transaction_views.TransactionReport, topics: Mapping[str, int]) -> set[TopicPartition]:
    """The partitions that a transaction still has to come into."""
    if found.state is TransactionState.ONGOING:
        return {
            TopicPartition(topic, p)
            for topic, counts in found.topics.items()
            for p in counts or range(topics.get(topic, 0))
        }
    return {TopicPartition(topic, p) for topic in found.unapplied for p in found.topics.get(topic, ())}


def _described(found: transaction_views.TransactionReport, topics: Mapping[str, int]) -> TransactionDescription:
    return TransactionDescription(
        coordinator_id=BROKER_ID,
        state=found.state,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        topic_partitions=_topic_partitions(found, topics),
    )


def _producer(found: transaction_views.TransactionReport) -> ProducerState:
    return ProducerState(
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        last_sequence=-1,
        last_timestamp=since_ms(found),
        coordinator_epoch=-1,
        current_transaction_start_offset=-1,
    )


def _state_of(given: TransactionState | str) -> TransactionState:
    text = str(given).lower().replace("-", "").replace("_", "")
    for state in TransactionState:
        if state.value.lower() == text:
            return state
    raise IllegalArgumentError(f"unknown state {str(given)!r}; one of {', '.join(TransactionState)} is needed")


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if not text:
        return None
    try:
        return re.compile(text)
    except re.error as cause:
        raise IllegalArgumentError(f"{text!r} is no regular expression: {cause}") from cause


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
