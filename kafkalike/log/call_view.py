"""Call view: the tables of a cluster as one call of a client has seen them, with one look at each table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from kafkalike.model.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from kafkalike.delta.control_log import ControlLog
    from kafkalike.model.cluster_state import ClusterState, MetadataRow
    from kafkalike.model.group_rows import GroupRow
    from kafkalike.model.group_state import GroupsState
    from kafkalike.storage.port import Storage


class ControlTables(Protocol):
    """The tables that a call looks at; the cluster itself is in a layer above."""

    @property
    def store(self) -> Storage:
        """Storage of the cluster's root."""
        ...

    @property
    def metadata(self) -> ControlLog[ClusterState, MetadataRow]:
        """The table of topics."""
        ...

    @property
    def groups(self) -> ControlLog[GroupsState, GroupRow]:
        """Committed offsets and group membership."""
        ...


class CallView:
    """The state of each table as one call has seen it. A poll creates one per look, and passes it on.

    It may be as old as the call. So code that is about to change a table, or to report that something does not exist,
    reads the table itself. A view belongs to one thread, and ends with its call.

    Args:
        cluster: the tables' cluster.
        now: start of the call, seconds of the client's clock.
        just: seconds before the call; metadata read since then are used. 0 looks at them.
    """

    __slots__ = ("_cluster", "_metadata", "_metadata_waited", "logs_since", "now", "seen_groups", "since", "topics")

    def __init__(self, cluster: ControlTables, now: float, *, just: float = 0.0) -> None:
        self.now = now
        self.since = SYSTEM_CLOCK.monotonic() - just if just else math.inf
        """Time of the machine's monotonic clock: answers of the storage about the metadata since then are used."""
        self.logs_since = math.inf
        """The corresponding time for topics' tables: when this call requested several of them in parallel."""
        self.topics: set[str] = set()
        """Topics whose table this call has looked at."""
        self._cluster = cluster
        self._metadata: ClusterState | None = None
        self._metadata_waited = False
        self.seen_groups: GroupsState | None = None
        """The groups, if this call has looked at them."""

    def metadata(self, *, waiting: bool = False) -> ClusterState:
        """Return the topics.

        Args:
            waiting: the caller polls, and may use other readers' looks of this process; see `TopicLog.refresh`. Without
                it, such an earlier look of this call is not used.

        Raises:
            KafkaStorageError: the storage does not answer.
        """
        known = self._metadata
        # On local storage every look asks the storage, because that is cheap.
        if known is None or (self._metadata_waited and not waiting and self._cluster.store.scheduler.is_remote):
            known = self._metadata = self._cluster.metadata.refresh(waiting=waiting, since=self.since)
            self._metadata_waited = waiting
        return known

    def groups(self) -> GroupsState:
        """Return the groups; the caller polls.

        Raises:
            KafkaStorageError: the storage does not answer.
        """
        known = self.seen_groups
        if known is None:
            known = self.seen_groups = self._cluster.groups.refresh(waiting=True)
        return known
