"""ControlLogs: a root in; the control logs of its metadata, its groups and its schemas out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from kafkalike.delta.control_log import ControlLog
from kafkalike.delta.layout import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    METADATA_SCHEMA,
    METADATA_TABLE_PROPERTIES,
    OFFSETS_SCHEMA,
    SCHEMAS,
    SCHEMAS_SCHEMA,
)
from kafkalike.delta.log_cleaner import Helpers
from kafkalike.delta.row_table import RowTable
from kafkalike.model.clock import Clock
from kafkalike.model.cluster_state import ClusterState, MetadataRow
from kafkalike.model.group_state import GroupRow, GroupsState
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    # These are loaded by what needs them: many programs look at the metadata of a local root and go.
    from kafkalike.delta.group_commit.control_group_commit import ControlGroupCommit
    from kafkalike.model.schemas.registry_state import RegistryState
    from kafkalike.model.schemas.schema_rows import SchemaRow

METADATA_PAUSE_SECONDS: Final = 30.0
"""Most seconds between two looks at the topics of those who wait for records, where a look costs money; in Kafka a
client looks at them every `metadata.max.age.ms`, five minutes."""

GROUPS_PATIENCE_SECONDS: Final = 1.0
"""How long a commit queues for the lock of `__consumer_offsets`: many times what a turn takes, and short against a
session, since a member that is stopped while it holds the lock must not stop its group (decision 007)."""


MetadataLog: TypeAlias = ControlLog[ClusterState, MetadataRow]
"""The table `__cluster_metadata`."""

GroupsLog: TypeAlias = ControlLog[GroupsState, GroupRow]
"""The table `__consumer_offsets`."""

SchemasLog: TypeAlias = "ControlLog[RegistryState, SchemaRow]"
"""The table `__schemas`."""


class ControlLogs:
    """Makes the control logs of one cluster.

    Args:
        store: the root's files.
        clock: time and waiting.
        helpers: threads that make checkpoints.
        check_format: called with the properties of the table of metadata; refuses a root of a newer format.
        on_seal: called where a table of groups or schemas has replicas.
        on_missing: called where there are no metadata, see `ControlLog`.
        check_new: called when a table is made, see `ControlLog`.
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
        """The rows of topics, settings, brokers and registrations."""
        return RowTable(
            self._store,
            CLUSTER_METADATA,
            METADATA_SCHEMA,
            MetadataRow,
            ClusterState,
            clock=self._clock,
            durable=True,
            rare=True,
            check=self._check_format,
        )

    def metadata_log(self, *, before_change: Callable[[], object]) -> MetadataLog:
        """The metadata of a cluster at one root; each call makes one that has read nothing yet.

        Args:
            before_change: called before each change; it may refuse it.
        """
        return ControlLog(
            self.metadata_rows(),
            helpers=self._helpers,
            longest_pause=METADATA_PAUSE_SECONDS,
            properties=METADATA_TABLE_PROPERTIES,
            on_missing=self._on_missing,
            check_new=self._check_new,
            before_change=before_change,
        )

    def groups_log(self, *, before_change: Callable[[], object]) -> GroupsLog:
        """Groups with their members and committed offsets, and transactional ids.

        Args:
            before_change: called before each change; it may refuse it, and say whether it is durable.
        """
        combined = None
        if self._store.scheduler.combines:
            # Kept while any client has it: with it, one look of the process tells all its members.
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
        return RowTable(
            self._store,
            CONSUMER_OFFSETS,
            OFFSETS_SCHEMA,
            GroupRow,
            GroupsState,
            clock=self._clock,
            on_seal=self._on_seal,
        )

    def _combined_groups(self) -> ControlGroupCommit[GroupsState, GroupRow]:
        from kafkalike.delta.group_commit.control_group_commit import ControlGroupCommit
        from kafkalike.model.offset_commit import load_commit

        return ControlGroupCommit(self._groups_table(), load_commit, Helpers())

    def schemas_log(self, *, before_change: Callable[[], object]) -> SchemasLog:
        """Schemas with their subjects, ids, levels and modes.

        Args:
            before_change: called before each change; it may refuse it.
        """
        from kafkalike.model.schemas.registry_state import RegistryState
        from kafkalike.model.schemas.schema_rows import SchemaRow

        return ControlLog(
            RowTable(
                self._store,
                SCHEMAS,
                SCHEMAS_SCHEMA,
                SchemaRow,
                RegistryState,
                clock=self._clock,
                # Records carry its ids: one that is lost could not be told from one that never was.
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
