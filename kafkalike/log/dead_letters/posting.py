"""Posting: letters in, staged as a part of a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafkalike.log.dead_letters.topics import batch_of, ensure
from kafkalike.model import faults
from kafkalike.model.dead_letters.letters import Letter

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.transactions.session import TransactionSession
    from kafkalike.model.clock import Deadline

ONCE: Final = "dead letters"
"""Under this name a transaction has the letters of a topic once, also when a call that was cut off is made again."""


def stage(  # noqa: PLR0917 - what, where to, until when
    cluster: Cluster, session: TransactionSession, number: int, letters: Sequence[Letter], deadline: Deadline, once: str
) -> None:
    """Make letters a part of a transaction. Made again, it adds nothing.

    Args:
        cluster: where the dead-letter topics are.
        session: the transaction's.
        number: the transaction.
        letters: what `LetterBox.due` gave.
        deadline: until when to try.
        once: whose letters they are, within the transaction.

    Raises:
        KafkaError: a dead-letter topic is missing and must not be created, or refuses a letter; and see
            `TransactionSession.stage`.
    """
    by_topic: dict[str, list[Letter]] = {}
    for letter in letters:
        by_topic.setdefault(letter.topic, []).append(letter)
    for topic, some in by_topic.items():
        log = ensure(cluster, topic, some[0].origin.topic)
        batch = batch_of(some, log.info.num_partitions)
        session.stage(number, log, batch, deadline=deadline, once=f"{ONCE} {once}")
        faults.point("dead_letters.staged")
