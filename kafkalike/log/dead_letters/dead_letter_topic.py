"""Dead-letter topics: created when the first letter comes, and letters staged for them within a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kafkalike.errors import TopicAlreadyExistsError
from kafkalike.model import faults
from kafkalike.model.config.dead_letter_config import topic_settings
from kafkalike.model.dead_letter import Letter
from kafkalike.model.record_batch import RecordBatch

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.log.transactions.session import TransactionSession
    from kafkalike.model.clock import Deadline


def ensure(cluster: Cluster, name: str, source: str) -> TopicLog:
    """The log of a dead-letter topic, as of now.

    One that is missing is created, with the server's number of partitions. It keeps letters for `retention.ms` after
    they were written, whatever time their records have, and takes longer records than its source by what a letter
    says of the error.

    Args:
        cluster: where it is.
        name: the dead-letter topic.
        source: the topic of the records.

    Raises:
        UnknownTopicOrPartitionError: it is missing, and `auto.create.topics.enable=false`.
        InvalidTopicError: its name is too long.
    """
    known = cluster.topics()
    if name not in known:
        if not cluster.server.auto_create_topics:
            return cluster.log(cluster.ensure_topic(name).name)  # says that it does not exist
        own = known[source].configs if source in known else {}
        with suppress(TopicAlreadyExistsError):
            cluster.create_topic(name, -1, topic_settings(cluster.server.effective(own)))
    return cluster.log(name)


def batch_of(letters: Sequence[Letter], num_partitions: int) -> RecordBatch:
    """Letters of one dead-letter topic as records: those of a partition stay in one partition, in their order."""
    batch = RecordBatch()
    for letter in letters:
        batch.add(
            letter.origin.partition % num_partitions, letter.key, letter.value, letter.timestamp_ms, letter.headers
        )
    return batch


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
        letters: what `DeadLetterBuffer.due` gave.
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
