"""Elsewhere: a topic whose keys are forgotten in; what has them too and is not part of it out.

That is what producers have staged and not committed yet, and topics that have files in common with it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.errors import KafkaError, KafkaTimeoutError
from kafkalike.maintenance.corrections.choice import Choice
from kafkalike.maintenance.upkeep.remove import Remover
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.transactions.transaction_views import TransactionState as State

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

LOOK_SECONDS: Final = 0.2
"""How long to wait until the next look at transactions that are open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOne:
    """A transaction with records that nobody reads yet."""

    id: str
    producer_id: int
    epoch: int
    number: int


def open_ones(cluster: Cluster, topics: Collection[str]) -> set[OpenOne]:
    """The transactions with records for topics that are open, or whose decision is not brought to these yet."""
    transactions = cluster.transactions
    wanted = set(topics)
    found = [one for one in transactions.open_for() if wanted.intersection(one.topics)]
    # Decided a moment ago: its producer is bringing it in.
    decided = [one.transactional_id for one in transactions.listed() if one.state is State.PREPARE_COMMIT]
    described = transactions.described(decided).values() if decided else ()
    found += [one for one in described if wanted.intersection(one.unapplied)]
    return {
        OpenOne(id=one.transactional_id, producer_id=one.producer_id, epoch=one.epoch, number=one.number)
        for one in found
    }


def wait_for_open(cluster: Cluster, topics: Collection[str], deadline: Deadline, clock: Clock) -> None:
    """Wait until all transactions that are open now have ended; those that begin meanwhile are not waited for.

    Raises:
        KafkaTimeoutError: some are open still.
    """
    begun = open_ones(cluster, topics)
    while begun:
        if deadline.expired():
            ids = ", ".join(sorted({repr(one.id) for one in begun}))
            raise KafkaTimeoutError(
                f"transactions {ids} have records for {', '.join(topics)} and are open still; nothing was done. "
                "`kafkalike transactions find-hanging` shows which ones were left, `abort` ends one"
            )
        clock.sleep(LOOK_SECONDS)
        begun &= open_ones(cluster, topics)


def still_held(cluster: Cluster, topic: str, choice: Choice, budget: Deadline, *, of_letters: bool) -> int | None:
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
