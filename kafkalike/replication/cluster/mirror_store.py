"""MirrorStore: where the mirrors of a cluster of several roots are: all at one root, without replicas.

A mirror's log has the versions of its source, byte by byte, so no version there may be about replicas. When mirrors are
promoted, their tables become tables with one replica, which others may join.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkalike.model.mirror import Phase

if TYPE_CHECKING:
    from kafkalike.model.cluster_state import ClusterState
    from kafkalike.model.topic import TopicInfo
    from kafkalike.storage.port import Storage


def mirror_at(state: ClusterState, location: str) -> TopicInfo | None:
    """The mirror whose table lies in a folder; None where it is none, or not known."""
    if not state.mirrors:
        return None
    return next((info for info in state.topics.values() if info.location == location and info.mirror is not None), None)


def mirrors_broker(state: ClusterState) -> int | None:
    """The broker at whose root all mirrors are; None where there are none."""
    if not state.mirrors:
        return None
    found = (state.replicas.get(info.location) for info in state.topics.values() if info.mirror is not None)
    return next((table.leader for table in found if table is not None), None)


class MirrorStore:
    """The files of a topic that was a mirror when they were opened: those at its root, and after that its replicas'.

    Args:
        info: of the topic.
        plain: the folder of its table at its root.
        replicas: the table with replicas that it becomes.
        known: the cluster's metadata, as this process remembers them.
        refreshed: the same, looked up.
    """

    def __init__(
        self,
        info: TopicInfo,
        plain: Storage,
        replicas: Storage,
        known: Callable[[], ClusterState],
        refreshed: Callable[[], ClusterState],
    ) -> None:
        self._name, self._topic_id = info.name, info.topic_id
        self._plain = plain
        self._replicas = replicas
        self._known = known
        self._refreshed = refreshed

    def __repr__(self) -> str:
        """For error messages."""
        return repr(self._now())

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a store has
        """What the store that counts now has."""
        return getattr(self._now(), name)

    @property
    def tasks(self) -> Any:  # noqa: ANN401 - that of the store that counts now
        """What other processes are given of the store that counts now."""
        return _CurrentAccess(self._now())

    def __reduce__(self) -> Any:  # noqa: ANN401 - as above
        """Elsewhere it is the store that counts now."""
        return self._now().__reduce__()

    def _now(self) -> Storage:
        phase = self._phase(self._known())
        if phase is Phase.PROMOTING:
            phase = self._phase(self._refreshed())
        return self._replicas if phase is None else self._plain

    def _phase(self, state: ClusterState) -> Phase | None:
        info = state.topics.get(self._name)
        mirror = None if info is None or info.topic_id != self._topic_id else info.mirror
        return None if mirror is None else mirror.phase


class _CurrentAccess:
    """The access of a store, which is asked about that store and not about the one that stands for it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever an access has
        return getattr(self._storage.tasks, name)

    def sendable(self, storage: Storage) -> Storage:
        """Return what a Spark job's processes get of the store."""
        del storage
        return self._storage.tasks.sendable(self._storage)
