"""ControlLogs: open the control logs of a root: its metadata, its groups and its schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafkalike.delta import layout
from kafkalike.delta.control_log import ControlLog
from kafkalike.delta.log_cleaner import Helpers
from kafkalike.delta.row_table import RowTable
from kafkalike.model.clock import Clock
from kafkalike.model.cluster_state import ClusterState, MetadataRow
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    # Imported where they are used, because many programs only read the metadata of a local root.
    from kafkalike.delta.group_commit.control_group_commit import ControlGroupCommit
    from kafkalike.model.appends.waiting_appends import Unit
    from kafkalike.model.group_rows import GroupRow
    from kafkalike.model.group_state import GroupsState
    from kafkalike.model.schemas.registry_state import RegistryState
    from kafkalike.model.schemas.schema_rows import SchemaRow

METADATA_PAUSE_SECONDS: Final = 30.0
"""Longest time between two looks at the topics by waiting readers where a look is a paid request. Kafka's clients look
every `metadata.max.age.ms`, five minutes."""

GROUPS_PATIENCE_SECONDS: Final = 1.0
"""How long a commit waits for the lock of `__consumer_offsets`. The limit is many times the length of a turn and short
against a session, because a member that is stopped while it holds the lock must not stop its group (decision 007)."""


MetadataLog: TypeAlias = ControlLog[ClusterState, MetadataRow]
"""The table of topics and settings, `__cluster_metadata`."""

GroupsLog: TypeAlias = "ControlLog[GroupsState, GroupRow]"
"""The table of groups and offsets, `__consumer_offsets`."""

SchemasLog: TypeAlias = "ControlLog[RegistryState, SchemaRow]"
"""The table of the schema registry, `__schemas`."""


class ControlLogs:
    """Opens the control logs of one cluster.

    Args:
        store: the root's files.
        clock: time and waiting.
        helpers: threads that write checkpoints.
        check_format: called with the properties of the metadata table; rejects a root of a newer format.
        on_seal: called if a table of groups or schemas has replicas.
        on_missing: called if the metadata table is missing, see `ControlLog`.
        check_new: called before a table is created, see `ControlLog`.
    """

    def __init__(
        self,
        store: Storage,
        clock: Clock,
        helpers: Helpers,
        *,
        check_format: Callable[[Mapping[str, str]], None],
        on_seal: Callable[[], None],
        on_missing: Callable[[], None],
        check_new: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._helpers = helpers
        self._check_format = check_format
        self._on_seal = on_seal
        self._on_missing = on_missing
        self._check_new = check_new

    def metadata_rows(self) -> RowTable[ClusterState, MetadataRow]:
        """Open the table with the rows of topics, settings, brokers and registrations."""
        return RowTable(
            self._store,
            layout.CLUSTER_METADATA,
            layout.METADATA_SCHEMA,
            MetadataRow,
            ClusterState,
            clock=self._clock,
            durable=True,
            rare=True,
            check=self._check_format,
        )

    def metadata_log(self, *, before_change: Callable[[], bool | None]) -> MetadataLog:
        """Open the metadata of a cluster at one root. Each call returns a log that has read nothing yet.

        Args:
            before_change: called before each change; may reject it.
        """
        return ControlLog(
            self.metadata_rows(),
            helpers=self._helpers,
            longest_pause=METADATA_PAUSE_SECONDS,
            properties=layout.METADATA_TABLE_PROPERTIES,
            on_missing=self._on_missing,
            check_new=self._check_new,
            before_change=before_change,
        )

    def groups_log(self, *, before_change: Callable[[], bool | None]) -> GroupsLog:
        """Open the table of groups, members, committed offsets and transactional ids.

        Args:
            before_change: called before each change; may reject it, and returns whether it is flushed.
        """
        combined = None
        if self._store.scheduler.combines:
            # Shared by all clients of the process, so that one look serves all group members.
            combined = self._store.scheduler.shared(("groups", self._clock), self._combined_groups)
        return ControlLog(
            self._groups_table() if combined is None else combined.rows,
            helpers=self._helpers,
            patience=GROUPS_PATIENCE_SECONDS,
            plans_beside=self._store.scheduler.is_remote,
            before_change=before_change,
            check_new=self._check_new,
            combined=combined,
        )

    def _groups_table(self) -> RowTable[GroupsState, GroupRow]:
        from kafkalike.model.group_rows import GroupRow
        from kafkalike.model.group_state import GroupsState

        return RowTable(
            self._store,
            layout.CONSUMER_OFFSETS,
            layout.OFFSETS_SCHEMA,
            GroupRow,
            GroupsState,
            clock=self._clock,
            on_seal=self._on_seal,
        )

    def _combined_groups(self) -> ControlGroupCommit[GroupsState, GroupRow]:
        from kafkalike.delta.group_commit.control_group_commit import ControlGroupCommit

        return ControlGroupCommit(self._groups_table(), _load_unit, Helpers())

    def schemas_log(self, *, before_change: Callable[[], bool | None]) -> SchemasLog:
        """Open the table of schemas with their subjects, ids, levels and modes.

        Args:
            before_change: called before each change; may reject it.
        """
        from kafkalike.model.schemas.registry_state import RegistryState
        from kafkalike.model.schemas.schema_rows import SchemaRow

        return ControlLog(
            RowTable(
                self._store,
                layout.SCHEMAS,
                layout.SCHEMAS_SCHEMA,
                SchemaRow,
                RegistryState,
                clock=self._clock,
                # Records carry schema ids, and a lost id could not be told from an id that never existed.
                durable=True,
                rare=True,
                on_seal=self._on_seal,
            ),
            helpers=self._helpers,
            longest_pause=METADATA_PAUSE_SECONDS,
            plans_beside=self._store.scheduler.is_remote,
            before_change=before_change,
            check_new=self._check_new,
        )


def _load_unit(found: Mapping[str, Any]) -> Unit[GroupsState, GroupRow]:
    """Parse a change of the groups that waits beside their table."""
    from kafkalike.model import offset_commit

    if found["kind"] == offset_commit.KIND:
        return offset_commit.load_commit(found)
    # Few clusters have share groups.
    from kafkalike.log import share_exchange

    if found["kind"] != share_exchange.KIND:
        raise ValueError("another kind of unit")
    return share_exchange.load_exchange(found)
