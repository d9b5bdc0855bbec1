"""`kafkalike verify --repair`: says what a repair of damaged tables would do, and does it with `--execute`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.model.clock import Deadline

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.maintenance.verify.flaws import DamagedTable
    from kafkalike.model.transactions.transaction_views import LostPart

TIMEOUT_MS = 60_000
"""How long a repair of a transaction queues behind the writers of the groups' table, ms."""

NO_EXECUTE = "WARN: No action will be performed as the --execute option is missing."


def repair_tables(
    cluster: Cluster, allowed: Callable[[str], bool], *, control: bool, execute: bool, say: Callable[[str], None]
) -> bool:
    """Repair what is damaged, the control tables first: they say which topics there are.

    Args:
        cluster: where.
        allowed: which topics.
        control: whether the control tables are looked at too.
        execute: do it; else only say it.
        say: prints a line.

    Returns:
        Whether there is nothing damaged, or all of it was repaired.
    """
    with contextlib.suppress(LogCorruptError):
        # A root of a newer format is refused here: what looks damaged may be what this release does not know.
        cluster.metadata.refresh()
    sound = _whole_replicas(cluster, allowed, execute=execute, say=say)
    for table in _damaged(cluster, allowed, control=control, say=say):
        for line in table.plan():
            say(f"DAMAGED {line}")
        sound = (execute and _repaired(cluster, table, say)) and sound
    # A groups' table that was damaged is readable again now, or is not, which was said.
    with contextlib.suppress(LogCorruptError):
        for lost in cluster.transactions.damaged() if control else ():
            say(f"DAMAGED {_sentence(lost)}")
            sound = (execute and _left_out(cluster, lost, say)) and sound
    if sound and not execute:
        say("Nothing is damaged that a repair could mend.")
    elif not execute:
        say(NO_EXECUTE)
    return sound


def _whole_replicas(
    cluster: Cluster, allowed: Callable[[str], bool], *, execute: bool, say: Callable[[str], None]
) -> bool:
    """Before anything is given up: what one replica has damaged, another one may have whole."""
    from kafkalike.maintenance.verify.replica_repair import repair_replicas

    sound = True
    for line in repair_replicas(cluster, allowed, execute=execute):
        say(f"{'REPAIRED' if execute else 'DAMAGED'} {line}")
        sound = execute
    return sound


def _damaged(
    cluster: Cluster, allowed: Callable[[str], bool], *, control: bool, say: Callable[[str], None]
) -> Iterator[DamagedTable]:
    from kafkalike.maintenance.verify.flaws import damaged_tables

    if control:
        yield from damaged_tables(cluster, [])
    try:
        topics = cluster.topics()
    except LogCorruptError:
        say("The topics are not known before the cluster's metadata are repaired.")
        return
    yield from damaged_tables(cluster, [topics[n] for n in sorted(topics) if allowed(n)], control=False)


def _repaired(cluster: Cluster, table: DamagedTable, say: Callable[[str], None]) -> bool:
    from kafkalike.maintenance.verify.repair import repair

    try:
        for line in repair(cluster, table):
            say(f"REPAIRED {line}")
    except KafkaError as error:
        say(f"NOT REPAIRED {error}")
        return False
    return True


def _sentence(lost: LostPart) -> str:
    return (
        f"{lost.why}; {sum(lost.counts.values())} records of transactional id {lost.transactional_id!r} are lost, and "
        "later transactions come into the topic without them"
    )


def _left_out(cluster: Cluster, lost: LostPart, say: Callable[[str], None]) -> bool:
    try:
        cluster.transactions.leave_out(lost, Deadline(cluster.clock, TIMEOUT_MS))
    except KafkaError as error:
        say(f"NOT REPAIRED {error}")
        return False
    say(f"REPAIRED transaction {lost.seq} leaves topic {lost.topic!r} out")
    return True


def check_flags(*, repair: bool, execute: bool, as_json: bool) -> None:
    """Refuse flags that mean nothing together.

    Raises:
        click.UsageError: saying which.
    """
    if execute and not repair:
        raise click.UsageError("--execute needs --repair")
    if repair and as_json:
        raise click.UsageError("--repair prints text; leave --json out")
