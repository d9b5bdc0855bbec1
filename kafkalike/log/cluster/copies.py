"""Copies: a topic in, the topics that were forked or restored from it out; as their tables say."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkalike.log.cluster.delta_cluster import DeltaCluster
    from kafkalike.log.topic.topic_log import DeltaTopicLog
    from kafkalike.model.topic import TopicInfo

COPY_APP: Final = "kafkalike.copy/"
"""Applications of this name, followed by a topic's id, have as their version the table version that was copied into it:
so who forgets a key is told of the copies."""

ORIGIN_APP: Final = "kafkalike.copied-from/"
"""The other way, in the copy's table: the topic that it was made from, and all that this one was made from. A copy of
a copy is noted in all of these, so that it is found when what lies between was deleted."""


def origins_of(cluster: DeltaCluster, log: DeltaTopicLog) -> list[TopicInfo]:
    """The topics that exist of those that one was made from, as of its log's last refresh; mirrors are none."""
    ids = set(origin_ids(log))
    return [info for info in cluster.topics().values() if info.topic_id in ids and info.mirror is None]


def origin_ids(log: DeltaTopicLog) -> list[str]:
    """Ids of the topics that one was made from, whether they exist still or not."""
    return [app.removeprefix(ORIGIN_APP) for app in log.apps(ORIGIN_APP)]


def copies_of(cluster: DeltaCluster, logs: Collection[DeltaTopicLog]) -> list[str]:
    """Names of the topics that were forked or restored from some, and from those, as far as they exist; looked up anew.

    Args:
        cluster: where they are.
        logs: the topics.
    """
    by_id = {str(info.topic_id): name for name, info in cluster.topics().items()}
    found: set[str] = set()
    waiting = list(logs)
    while waiting:
        log = waiting.pop()
        log.refresh()
        for app in log.apps(COPY_APP):
            name = by_id.get(app.removeprefix(COPY_APP))
            if name is not None and name not in found:
                found.add(name)
                waiting.append(cluster.log(name))
    return sorted(found)


def made_from(cluster: DeltaCluster, topic_ids: Collection[str]) -> list[str]:
    """Names of the topics that were made from topics which are gone; each topic's table is opened for it."""
    wanted = set(topic_ids)
    return [name for name in sorted(cluster.topics()) if wanted.intersection(origin_ids(cluster.log(name)))]
