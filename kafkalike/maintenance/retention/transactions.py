"""Transactions: what a run does about them: finish, abort those past their timeout, forget ids that nobody uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalike.errors import KafkaError
from kafkalike.maintenance.retention.report import MaintenanceReport
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.transactions.rules import expired
from kafkalike.model.transactions.transaction_views import TransactionState

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

TIMEOUT_MS: Final = 600_000
"""How long a run may take for transactions; the next one goes on."""

OWNER_MS: Final = 1_000
"""A transaction that was committed less than so long ago is its producer's to finish, and counts as nothing due."""

FINISH: Final = "finish"
ABORT: Final = "abort"
FORGET: Final = "forget"

Due = tuple[str, str, int, int, int]
"""What is due, the transactional id, and producer id, epoch and number of its transaction."""


def maintain_transactions(cluster: Cluster, report: MaintenanceReport, clock: Clock) -> None:
    """Do what is due, or in a dry run only count it; fill the report.

    A failure is written into the report and keeps nothing else back.
    """
    try:
        before = set(_due(cluster, clock))
        after: set[Due] = set()
        if not report.dry_run:
            # Also when nothing is due: it removes files that nobody needs.
            problems = cluster.transactions.maintain(Deadline(clock, TIMEOUT_MS))
            report.problems += [f"transactions: {problem}" for problem in problems]
            after = set(_due(cluster, clock)) if before else set()
    except (KafkaError, OSError) as error:
        report.problems.append(f"transactions: {type(error).__name__}: {error}")
        return
    done = [what for what, *_ in before - after]
    report.finished_transactions = done.count(FINISH)
    report.aborted_transactions = done.count(ABORT)
    report.forgotten_transactional_ids = done.count(FORGET)


def _due(cluster: Cluster, clock: Clock) -> Iterator[Due]:
    transactions = cluster.transactions
    standings = cluster.groups.refresh().transactions
    expiration_ms = int(cluster.server.get("transactional.id.expiration.ms"))
    described = transactions.described(standings)
    # Not before: a look takes time, by which a transaction would seem to be younger than it is.
    now_ms = clock.now_ms()
    for name, found in described.items():
        attempt = (name, found.producer_id, found.epoch, found.number)
        if found.state is TransactionState.PREPARE_COMMIT and now_ms - found.changed_ms > OWNER_MS:
            yield FINISH, *attempt
        if found.state is TransactionState.ONGOING:
            if now_ms - found.start_ms > found.timeout_ms:
                yield ABORT, *attempt
        elif name in standings and expired(standings[name], expiration_ms, now_ms):
            yield FORGET, *attempt
