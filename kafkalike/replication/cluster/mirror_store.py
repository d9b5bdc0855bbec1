"""Mirror store: the files of mirrors in a cluster of several roots; all mirrors are at one root, without replicas.

A mirror's log has the versions of its source, byte by byte, so it cannot contain versions about replicas. A promotion
gives each table one replica, which others can join.
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
    """Return the mirror whose table is in a folder; None if it is not a mirror, or unknown."""
    if not state.mirrors:
        return None
    return next((info for info in state.topics.values() if info.location == location and info.mirror is not None), None)


def mirrors_broker(state: ClusterState) -> int | None:
    """Return the broker whose root holds all mirrors; None without mirrors."""
    if not state.mirrors:
        return None
    found = (state.replicas.get(info.location) for info in state.topics.values() if info.mirror is not None)
    return next((table.leader for table in found if table is not None), None)


class MirrorStore:
    """The files of a topic that was a mirror when they were opened; after its promotion, the files of its replicas.

    Args:
        info: the topic.
        plain: the folder of its table at its root.
        replicas: the table with replicas that the promotion makes.
        known: returns the metadata that this process has read.
        refreshed: reads the metadata again.
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
        """Return a text for error messages."""
        return repr(self._now())

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a store has
        """Return an attribute of the current storage."""
        return getattr(self._now(), name)

    @property
    def tasks(self) -> Any:  # noqa: ANN401 - that of the store that counts now
        """The task access of the current storage."""
        return _CurrentAccess(self._now())

    def __reduce__(self) -> Any:  # noqa: ANN401 - as above
        """Pickle the current storage."""
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
    """Gives access to a storage in place of its proxy."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever an access has
        return getattr(self._storage.tasks, name)

    def sendable(self, storage: Storage) -> Storage:
        """Return a storage for the processes of a Spark job."""
        del storage
        return self._storage.tasks.sendable(self._storage)
