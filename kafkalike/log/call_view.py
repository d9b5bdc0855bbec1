"""Call view: the tables of a cluster as one call of a client has seen them; each of them is looked at once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from kafkalike.model.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from kafkalike.delta.control_log import ControlLog
    from kafkalike.model.cluster_state import ClusterState, MetadataRow
    from kafkalike.model.group_state import GroupRow, GroupsState
    from kafkalike.storage.port import Storage


class ControlTables(Protocol):
    """The tables that a call looks at: those of a cluster, which stands above this module."""

    @property
    def store(self) -> Storage:
        """The cluster's files."""
        ...

    @property
    def metadata(self) -> ControlLog[ClusterState, MetadataRow]:
        """The topics."""
        ...

    @property
    def groups(self) -> ControlLog[GroupsState, GroupRow]:
        """Committed offsets and group membership."""
        ...


class CallView:
    """The state of each table as one call has seen it. A poll makes one per look, and hands it down.

    What is decided by it may be a call old. So a part of the call that is about to change a table, or to say that
    something is gone, asks the table itself. Belongs to one thread, and ends with its call.

    Args:
        cluster: whose tables.
        now: when the call began, seconds of the client's clock.
        just: seconds before the call from which on what was read of the metadata will do; 0 has it looked at.
    """

    __slots__ = ("_cluster", "_metadata", "_metadata_waited", "logs_since", "now", "seen_groups", "since", "topics")

    def __init__(self, cluster: ControlTables, now: float, *, just: float = 0.0) -> None:
        self.now = now
        self.since = SYSTEM_CLOCK.monotonic() - just if just else math.inf
        """Time of the machine's monotonic clock from which on answers of the storage about the metadata will do."""
        self.logs_since = math.inf
        """The same about topics' tables: when this call asked about several of them side by side."""
        self.topics: set[str] = set()
        """Topics whose table was looked at."""
        self._cluster = cluster
        self._metadata: ClusterState | None = None
        self._metadata_waited = False
        self.seen_groups: GroupsState | None = None
        """The groups, if this call has looked at them."""

    def metadata(self, *, waiting: bool = False) -> ClusterState:
        """The topics.

        Args:
            waiting: the caller comes again, and takes what other looks of this process have seen; see
                `TopicLog.refresh`. Without it an earlier look of this call that was made so does not do.

        Raises:
            KafkaStorageError: the storage does not answer.
        """
        known = self._metadata
        # Where a look costs nothing, each one asks the storage.
        if known is None or (self._metadata_waited and not waiting and self._cluster.store.scheduler.is_remote):
            known = self._metadata = self._cluster.metadata.refresh(waiting=waiting, since=self.since)
            self._metadata_waited = waiting
        return known

    def groups(self) -> GroupsState:
        """Return the groups; the caller polls again.

        Raises:
            KafkaStorageError: the storage does not answer.
        """
        known = self.seen_groups
        if known is None:
            known = self.seen_groups = self._cluster.groups.refresh(waiting=True)
        return known
