"""Topic lineage: which topics were forked or restored from which, as their tables record it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.topic import TopicInfo

COPY_APP: Final = "kafkalike.copy/"
"""Applications of this name, followed by a topic's id, have as their version the table version that was copied into it:
so who forgets a key is told of the copies."""

ORIGIN_APP: Final = "kafkalike.copied-from/"
"""The other way, in the copy's table: the topic that it was made from, and all that this one was made from. A copy of
a copy is noted in all of these, so that it is found when what lies between was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relatives:
    """Topics that have, or had, files in common with others; names, sorted, of those that exist."""

    copies: tuple[str, ...]
    """Those that were forked or restored from them, and from those."""
    origins: tuple[str, ...]
    """Those that they come from, and all others that come from there."""

    @property
    def names(self) -> tuple[str, ...]:
        """Both."""
        return (*self.copies, *self.origins)


def relatives_of(cluster: Cluster, topic_ids: Collection[str]) -> Relatives:
    """What was made from some topics, and what these were made from, looked up anew.

    Where one that others were made from is gone, the table of each topic of the cluster is opened, as only the copies
    tell of it.

    Args:
        cluster: where they are.
        topic_ids: the topics, whether they exist still or not.
    """
    known = {str(info.table_id): info for info in cluster.topics().values()}
    wanted = set(topic_ids)
    own = {known[one].name for one in wanted & known.keys()}
    copies = _made_from(cluster, wanted, own)
    before = {one for name in own for one in origin_ids(cluster.log(name))} - wanted
    there = {known[one].name for one in before & known.keys() if known[one].mirror is None}
    family = {*there, *_made_from(cluster, before, there)} if before else set()
    return Relatives(copies=tuple(sorted(copies - own)), origins=tuple(sorted(family - copies - own)))


def _made_from(cluster: Cluster, topic_ids: Collection[str], there: Collection[str]) -> set[str]:
    """Names of the topics that were made from some, `there` being those of them that exist."""
    logs = [cluster.log(name) for name in sorted(there)]
    gone = set(topic_ids) - {str(log.info.table_id) for log in logs}
    return {*copies_of(cluster, logs), *(made_from(cluster, gone) if gone else ())}


def origins_of(cluster: Cluster, log: TopicLog) -> list[TopicInfo]:
    """The topics that exist of those that one was made from, as of its log's last refresh; mirrors are none."""
    ids = set(origin_ids(log))
    return [info for info in cluster.topics().values() if info.table_id in ids and info.mirror is None]


def origin_ids(log: TopicLog) -> list[str]:
    """Ids of the topics that one was made from, whether they exist still or not."""
    return [app.removeprefix(ORIGIN_APP) for app in log.apps(ORIGIN_APP)]


def copies_of(cluster: Cluster, logs: Collection[TopicLog]) -> list[str]:
    """Names of the topics that were forked or restored from some, and from those, as far as they exist; looked up anew.

    Args:
        cluster: where they are.
        logs: the topics.
    """
    by_id = {str(info.table_id): name for name, info in cluster.topics().items()}
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


def made_from(cluster: Cluster, topic_ids: Collection[str]) -> list[str]:
    """Names of the topics that were made from topics which are gone; each topic's table is opened for it."""
    wanted = set(topic_ids)
    return [name for name in sorted(cluster.topics()) if wanted.intersection(origin_ids(cluster.log(name)))]
