"""Transaction operations: list, describe, fence and abort transactions of any producer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkalike import errors
from kafkalike.admin.admin_base import BROKER_ID, AdminBase, as_names
from kafkalike.model.clock import Deadline
from kafkalike.model.structs import TopicPartition
from kafkalike.model.transactions import transaction_views
from kafkalike.model.transactions.transaction_views import ProducerIdAndEpoch, TransactionState

SLACK_MS: Final = 5 * 60 * 1000
"""How much older than the longest timeout a transaction must be to count as hanging, as in Kafka's tool."""

FENCE_TIMEOUT_MS: Final = 60_000
"""Timeout for fencing a producer, which includes applying its committed transaction to the topics."""

UNDER_WAY: Final = frozenset({TransactionState.ONGOING, TransactionState.PREPARE_COMMIT})
"""States of an unfinished transaction: open, or committed but not yet applied to all of its topics."""


class TransactionOperations(AdminBase):
    """Describe transactions, and abort those left hanging.

    Aborting is not urgent, because an open transaction blocks no reader.
    """

    def list_transactions(
        self,
        broker_ids: Sequence[int] | None = None,
        producer_id_filters: Sequence[int] | None = None,
        state_filters: Sequence[TransactionState | str] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """Return all transactional ids that have not expired, sorted.

        Args:
            broker_ids: return nothing unless this contains the id of the only broker, 1.
            producer_id_filters: only ids of these producers.
            state_filters: only ids in these states (`TransactionState` or text).
            duration_filter_ms: only ids with a transaction unfinished for longer; a negative value disables the filter.
            transactional_id_pattern: only ids that match this regular expression of RE2 as a whole.

        Returns:
            `{1: [TransactionListing]}`, by the id of the only broker; empty if it was not requested.

        Raises:
            IllegalArgumentError: a state is unknown, or the pattern is not a regular expression.
        """
        if broker_ids is not None and BROKER_ID not in broker_ids:
            return {}
        states = {_state_of(given) for given in state_filters or ()}
        found = [
            TransactionListing(listing.transactional_id, listing.producer_id, listing.state)
            for listing in self._cluster.transactions.listed(transactional_id_pattern)
            if (not states or listing.state in states)
            and (not producer_id_filters or listing.producer_id in producer_id_filters)
        ]
        if duration_filter_ms is not None and duration_filter_ms >= 0:
            ages = self._ages(listing.transactional_id for listing in found if listing.state in UNDER_WAY)
            found = [listing for listing in found if ages.get(listing.transactional_id, -1) > duration_filter_ms]
        return {BROKER_ID: found}

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Return the state of transactional ids.

        Args:
            transactional_ids: the ids.

        Raises:
            TransactionalIdNotFoundError: an id is unknown, or has expired after `transactional.id.expiration.ms`.
        """
        names = as_names(transactional_ids, "transactional_ids")
        topics = self._partitions()
        return {name: _described(found, topics) for name, found in self._known(names, staged=True).items()}

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """Return the producers whose unfinished transaction includes these partitions.

        For an open transaction, the files staged so far are read.

        Args:
            partitions: the partitions.
            broker_id: no effect, because there is one broker.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
        """
        del broker_id
        topics = self._partitions()
        wanted = [TopicPartition(*tp) for tp in as_names(partitions, "partitions")]
        for tp in wanted:
            if tp.partition not in range(topics.get(tp.topic, 0)):
                raise errors.UnknownTopicOrPartitionError(f"partition {tp.topic}-{tp.partition} does not exist")
        under_way = self._under_way()
        return {
            tp: PartitionProducerState(
                [_producer(found) for found in under_way.values() if tp in _topic_partitions(found, topics)]
            )
            for tp in wanted
        }

    def abort_transaction(self, spec: AbortTransactionSpec | str) -> None:
        """Abort the open transaction of a transactional id, and fence its producer.

        A committed transaction is not aborted but applied to all of its topics. The fenced producer gets
        `InvalidProducerEpochError`, at the latest from `commit_transaction`.

        Args:
            spec: the producer as returned by `describe_transactions` or `describe_producers`; or a transactional id,
                for its current producer.

        Raises:
            TransactionalIdNotFoundError: the transactional id is unknown.
            UnknownProducerIdError: no transactional id has this producer id.
            InvalidProducerEpochError: the id has a newer epoch, so the transaction is already finished.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or unknown; call again.
        """
        if isinstance(spec, str):
            self._fence(spec)
            return
        listed = self._cluster.transactions.listed()
        named = [listing.transactional_id for listing in listed if listing.producer_id == spec.producer_id]
        if not named:
            raise errors.UnknownProducerIdError(f"no transactional id has the producer id {spec.producer_id}")
        (transactional_id,) = named
        self._fence(transactional_id, ProducerIdAndEpoch(spec.producer_id, spec.producer_epoch))

    def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, ProducerIdAndEpoch]:
        """Fence the producers of transactional ids, as Java's `fenceProducers`; see `abort_transaction`.

        Args:
            transactional_ids: the ids; all are looked up before the first is fenced.

        Returns:
            The new producer id and epoch of each transactional id.

        Raises:
            TransactionalIdNotFoundError: an id is unknown.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done for all ids, or unknown; call again.
        """
        known = self._known(as_names(transactional_ids, "transactional_ids"))
        return {name: ProducerIdAndEpoch(found.producer_id, self._fence(name)) for name, found in known.items()}

    def find_hanging_transactions(
        self, broker_ids: Sequence[int] | None = None, max_transaction_timeout_ms: int = 900_000
    ) -> list[dict[str, Any]]:
        """Return transactions that are unfinished five minutes after the longest possible timeout.

        An open transaction hangs if maintenance has not aborted it. A committed one (`PrepareCommit`) hangs if a topic
        rejects it, or if nobody has read its topics since.

        Args:
            broker_ids: return nothing unless this contains the id of the only broker, 1.
            max_transaction_timeout_ms: the longest transaction timeout of any producer, in ms.

        Returns:
            `[{transactional_id, producer_id, producer_epoch, state, age_ms, coordinator_id, topic_partitions}]`, oldest
            first.
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
            raise errors.TransactionalIdNotFoundError(f"no transactional id {', '.join(map(repr, missing))}")
        return {name: described[name] for name in names}

    def _under_way(self) -> dict[str, transaction_views.TransactionReport]:
        """Return the unfinished transactions by transactional id."""
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
    """Return the time, in ms, at which an unfinished transaction began or was committed."""
    return found.start_ms if found.start_ms >= 0 else found.changed_ms


def _topic_partitions(found: transaction_views.TransactionReport, topics: Mapping[str, int]) -> set[TopicPartition]:
    """Return the partitions to which a transaction has yet to be applied."""
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
    raise errors.IllegalArgumentError(f"unknown state {str(given)!r}; known are {', '.join(TransactionState)}")


class TransactionListing(NamedTuple):
    """A transactional id in a listing."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """A transactional id and its last transaction."""

    coordinator_id: int
    """Id of the only broker that clients see."""
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    """Start of an open transaction, in ms; otherwise -1."""
    topic_partitions: set[TopicPartition]
    """Partitions to which a committed transaction has yet to be applied, or with staged records of an open one. All
    partitions of a topic are listed if a staged file does not name its partitions.
    """


class ProducerState(NamedTuple):
    """A producer with a transaction that includes a partition. Fields that only brokers know are -1."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    """Time in ms at which its transaction began or was committed."""
    coordinator_epoch: int
    current_transaction_start_offset: int
    """Always -1, because records of an open transaction have no offsets."""


class PartitionProducerState(NamedTuple):
    """The producers with a transaction that includes a partition."""

    active_producers: list[ProducerState]


class AbortTransactionSpec(NamedTuple):
    """A transaction to abort, named by its producer id and the epoch it had."""

    topic_partition: TopicPartition | None
    """Ignored, because a transaction is aborted as a whole."""
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1
    """Ignored, because no coordinator runs."""
