"""Lineage check: which records of a topic have a key that is to be forgotten, and who else holds them.

Others are producers that have staged records and not committed them yet, and topics that share files with the topic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.errors import KafkaError, KafkaTimeoutError
from kafkalike.log.cluster.topic_lineage import origin_ids
from kafkalike.maintenance.deletion import Remover
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.maintenance.record_removal import Taking
from kafkalike.model.metadata_rows import TopicChange, parse_row
from kafkalike.model.partitioner import partition_for_key
from kafkalike.model.transactions.transaction_views import TransactionState as State

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog


LOOK_SECONDS: Final = 0.2
"""How long to wait until the next look at transactions that are open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTransaction:
    """A transaction with records that nobody reads yet."""

    id: str
    producer_id: int
    epoch: int
    number: int


def list_open_transactions(cluster: Cluster, topics: Collection[str]) -> set[PendingTransaction]:
    """The transactions with records for topics that are open, or whose decision is not brought to these yet."""
    transactions = cluster.transactions
    wanted = set(topics)
    found = [one for one in transactions.open_for() if wanted.intersection(one.topics)]
    # Decided a moment ago: its producer is bringing it in.
    decided = [one.transactional_id for one in transactions.listed() if one.state is State.PREPARE_COMMIT]
    described = transactions.described(decided).values() if decided else ()
    found += [one for one in described if wanted.intersection(one.unapplied)]
    return {
        PendingTransaction(id=one.transactional_id, producer_id=one.producer_id, epoch=one.epoch, number=one.number)
        for one in found
    }


def wait_for_open(cluster: Cluster, topics: Collection[str], deadline: Deadline, clock: Clock) -> None:
    """Wait until all transactions that are open now have ended; those that begin meanwhile are not waited for.

    Raises:
        KafkaTimeoutError: some are open still.
    """
    begun = list_open_transactions(cluster, topics)
    while begun:
        if deadline.expired():
            ids = ", ".join(sorted({repr(one.id) for one in begun}))
            raise KafkaTimeoutError(
                f"transactions {ids} have records for {', '.join(topics)} and are open still; nothing was done. "
                "`kafkalike transactions find-hanging` shows which ones were left, `abort` ends one"
            )
        clock.sleep(LOOK_SECONDS)
        begun &= list_open_transactions(cluster, topics)


def still_held(cluster: Cluster, topic: str, choice: KeySelection, budget: Deadline, *, of_letters: bool) -> int | None:
    """How many records another topic has that were to go from this one.

    Returns:
        None where it cannot be read: what is wrong there is no fault of the run, which has done its work.
    """
    try:
        log = cluster.log(topic)
        log.refresh()
        takings = {p: one for p, one in choice.takings(cluster, log, of_letters=of_letters).items() if one.below}
        found = Remover(log, "", work="forget", facts={}, budget=budget).found(takings)
        return sum(len(run) for piece in found for run in piece.offsets)
    except KafkaError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySelection:
    """Keys to forget."""

    keys: frozenset[bytes]
    source: str
    """Their topic; dead letters of others stay."""
    all_partitions: bool
    """Whether all partitions are looked at, not only those that murmur2 names."""

    def takings(self, cluster: Cluster, log: TopicLog, *, of_letters: bool) -> dict[int, Taking]:
        """What is to go of what is in a topic now, by partition that is looked at; `below` is 0 in an empty one.

        Args:
            cluster: where it is.
            log: the topic, refreshed.
            of_letters: whether it has dead letters, of which only those of `source` go.
        """
        source = self.source if of_letters else None
        chosen: Mapping[int, frozenset[bytes]]
        if of_letters or self.all_partitions:
            chosen = dict.fromkeys(log.info.partitions, self.keys)
        else:
            chosen = self._hashed(cluster, log)
        return {p: Taking(below=log.log_end(p), keys=keys, source=source) for p, keys in chosen.items()}

    def _hashed(self, cluster: Cluster, log: TopicLog) -> dict[int, frozenset[bytes]]:
        """The keys by the partitions that murmur2 names, for all numbers of partitions that are known of."""
        info = log.info
        numbers = {info.num_partitions}
        # What a copy began with was sent to the topic that it was made from.
        ids = {str(info.topic_id), str(info.table_id), *origin_ids(log)}
        for row in cluster.metadata.rows:
            if row.topic_id in ids and isinstance(said := parse_row(row), TopicChange):
                numbers.add(said.info.num_partitions)
        found: dict[int, set[bytes]] = {}
        for key in self.keys:
            for number in numbers:
                found.setdefault(partition_for_key(key, number), set()).add(key)
        return {p: frozenset(keys) for p, keys in sorted(found.items()) if p in info.partitions}
