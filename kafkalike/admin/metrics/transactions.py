"""Transactions: a cluster in, how many are open, waiting, committed and aborted out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.admin.transactions import since_ms
from kafkalike.model.group_state import TRANSACTION, standing_of
from kafkalike.model.transactions.values import Why
from kafkalike.model.transactions.views import TransactionState

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


ABORTED: Final = frozenset({Why.ABORT, Why.TIMEOUT, Why.ADMIN})
"""Reasons of rows that have aborted a transaction; one that `init_transactions` aborts is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFigures:
    """Transactions of a cluster at a moment."""

    ids: int
    """Transactional ids that are not forgotten."""
    open: int
    unapplied: int
    """Committed, and not yet in all of their topics."""
    oldest_open_seconds: float
    """0 when none is open."""
    oldest_unapplied_seconds: float
    commits: int
    """Since the oldest row that the groups' table still had at the first look."""
    aborts: int
    """The same; by their producer, after their timeout, or by an administrator."""


class TransactionCounter:
    """Counts transactions; commits and aborts only rise while it lives. Not thread-safe.

    Args:
        cluster: whose they are.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seq = 0
        self._commits = 0
        self._aborts = 0

    def look(self, now_ms: int) -> TransactionFigures:
        """The figures of now. Costs a look at the groups' table, and reads it where it has changed.

        Raises:
            KafkaStorageError, LogCorruptError: it cannot be read.
        """
        transactions = self._cluster.transactions
        listed = transactions.listed()
        if listed:
            self._count()
        names = [one.transactional_id for one in listed if one.state is not TransactionState.EMPTY]
        described = transactions.described(names).values()
        ages: dict[TransactionState, list[float]] = {}
        for one in described:
            ages.setdefault(one.state, []).append(max(0, now_ms - since_ms(one)) / 1000)
        opened, waiting = (ages.get(s, []) for s in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT))
        return TransactionFigures(
            ids=len(listed),
            open=len(opened),
            unapplied=len(waiting),
            oldest_open_seconds=max(opened, default=0),
            oldest_unapplied_seconds=max(waiting, default=0),
            commits=self._commits,
            aborts=self._aborts,
        )

    def _count(self) -> None:
        """Count the rows that came since the last look; compaction keeps those of the last hours."""
        groups = self._cluster.groups
        if groups.refresh().seq == self._seq:
            return
        rows = [row for row in groups.rows if row.seq > self._seq]
        reasons = [standing.why for row in rows if row.kind == TRANSACTION and (standing := standing_of(row))]
        self._commits += reasons.count(Why.COMMIT)
        self._aborts += sum(why in ABORTED for why in reasons)
        self._seq = max((row.seq for row in rows), default=self._seq)
