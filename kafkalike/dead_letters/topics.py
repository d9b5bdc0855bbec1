"""Dead-letter topics: made when the first letter comes, so that they take whatever their source took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkalike.config.properties import INT_MAX, LONG_MAX
from kafkalike.config.topic import TopicConfig
from kafkalike.errors import TopicAlreadyExistsError
from kafkalike.model.batch import RecordBatch
from kafkalike.model.dead_letters.letters import CONTEXT_BYTES, Letter

if TYPE_CHECKING:
    from kafkalike.log.port import Cluster, TopicLog


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
            cluster.create_topic(name, -1, settings(cluster.server.effective(own)))
    return cluster.log(name)


def settings(source: Mapping[str, str]) -> dict[str, str]:
    """Settings of a dead-letter topic that is made for a topic with these settings in effect.

    It takes all that its source has: of any age, with or without a key.
    """
    config = TopicConfig.from_properties(source)
    return {
        "cleanup.policy": "delete",
        # A letter keeps its record's time, which may be long ago: retention counts from when it became one.
        "kafkalike.retention.clock": "append",
        # What was refused or cannot be read must have a place.
        "kafkalike.key.schema.validation": "false",
        "kafkalike.value.schema.validation": "false",
        "max.message.bytes": str(min(INT_MAX, config.max_message_bytes + CONTEXT_BYTES)),
        "message.timestamp.after.max.ms": str(config.timestamp_after_max_ms),
        "message.timestamp.before.max.ms": str(LONG_MAX),
        "message.timestamp.type": "CreateTime",
    }


def batch_of(letters: Sequence[Letter], num_partitions: int) -> RecordBatch:
    """Letters of one dead-letter topic as records: those of a partition stay in one partition, in their order."""
    batch = RecordBatch()
    for letter in letters:
        batch.add(
            letter.origin.partition % num_partitions, letter.key, letter.value, letter.timestamp_ms, letter.headers
        )
    return batch
