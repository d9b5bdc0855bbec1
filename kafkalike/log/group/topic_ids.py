"""Topic ids: offsets that a program gives by topic name in, the ids of the topics that they were read from out."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kafkalike.model.structs import ConsumerGroupMetadata

if TYPE_CHECKING:
    from kafkalike.log.cluster.control_logs import MetadataLog


class MetadataOfReader(ConsumerGroupMetadata):
    """What `KafkaConsumer.group_metadata()` gives: equal to a plain one, and it knows which topics are read.

    Offsets that a transaction is given with it belong to these topics, and to no other ones of the same names.
    """

    topic_ids: tuple[tuple[str, str], ...] = ()
    """Ids by name, of the topics whose partitions the consumer holds."""

    @classmethod
    def knowing(cls, plain: ConsumerGroupMetadata, topic_ids: tuple[tuple[str, str], ...]) -> MetadataOfReader:
        """The same, with the ids."""
        made = cls(*plain)
        made.topic_ids = topic_ids
        return made

    def __repr__(self) -> str:
        """As a plain one."""
        return repr(ConsumerGroupMetadata(*self))

    def __reduce__(self) -> tuple[object, ...]:
        """A copy in another process is a plain one."""
        return ConsumerGroupMetadata, tuple(self)


def given_ids(metadata: MetadataLog, topics: Collection[str], given_by: object) -> dict[str, str]:
    """Return the id of each topic that offsets are given for: as its reader knows it, else as it is now.

    Args:
        metadata: the cluster's topics.
        topics: their names.
        given_by: the group, as the program named it.

    Returns:
        Ids by name; "", which no topic has, for a topic that does not exist.

    Raises:
        KafkaStorageError: the metadata cannot be read.
    """
    read = dict(given_by.topic_ids) if isinstance(given_by, MetadataOfReader) else {}
    unread = [name for name in topics if name not in read]
    if unread:
        known = metadata.refresh(waiting=True).topics
        if any(name not in known for name in unread):
            # A look of a moment ago will do where one costs money, but somebody may have created the topic just now.
            known = metadata.refresh().topics
        read |= {name: str(known[name].topic_id) if name in known else "" for name in unread}
    return {name: read[name] for name in topics}
