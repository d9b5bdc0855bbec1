"""The registry of a cluster, used without a service, with the methods of Confluent's client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kafkalike.connect import connect
from kafkalike.errors import SchemaRegistryError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.schemas import refusals
from kafkalike.model.schemas.registration_rules import check_subject
from kafkalike.model.schemas.registry_state import RegistryState
from kafkalike.model.schemas.schema import Registered, Schema, remembered
from kafkalike.model.schemas.schema_rows import SchemaRow
from kafkalike.model.schemas.schemas_topic import Imported, import_all, read_records, written_records
from kafkalike.schemas.format_checks import CHECKS
from kafkalike.schemas.registry_client import RegistryClient
from kafkalike.schemas.service.registry_service import RegistryService


class Registry(RegistryClient):
    """The schema registry of a cluster. Thread-safe; several processes may each open it.

    Schemas are stored in the table `__schemas` of the root. A change is one version of that table, and the
    compatibility check is part of the change: of two incompatible schemas that are registered at once, one is rejected.

    Args:
        bootstrap_servers: a root, a URI or an opened cluster; None for the environment's; see `connect`.
        storage_options: options of an object store; see `connect`.
        timeout_ms: how long a change is retried after conflicts with other writers; None for no limit.
        clock: source of the rows' timestamps.

    Raises:
        KafkaConfigurationError, UnsafeStorageError, KafkaConnectionError: see `connect`.
    """

    def __init__(
        self,
        bootstrap_servers: Address | None = None,
        *,
        storage_options: StorageOptionsLike | None = None,
        timeout_ms: float | None = 60_000,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.cluster = connect(bootstrap_servers, storage_options)
        service = RegistryService(self.cluster, timeout_ms=timeout_ms, clock=clock)
        super().__init__(service, {"url": f"kafkalike:{self.cluster.root}"})
        self._repository = service.repository

    # Overrides that avoid the detour through JSON, because readers call them for each record.

    def schema_by_id(self, id: int) -> Schema:  # noqa: A002
        """Return the schema of an id; the table is refreshed only for an unknown id."""
        found = self._repository.known.schema(id) or self._repository.now.schema(id)
        if found is None:
            raise refusals.no_schema(id)
        return found

    def latest(self, subject: str) -> Registered | None:
        """Refresh the table and return the newest undeleted version of a subject."""
        return self._repository.now.latest(check_subject(subject))

    def ids_of(self, subject: str) -> Sequence[int]:
        """Refresh the table and return the ids of all undeleted versions of a subject, oldest first."""
        known = self._repository.now.subject(check_subject(subject))
        return [known.versions[version].id for version in known.live]

    def registered_ms(self, subject: str) -> Mapping[int, int]:
        """Refresh the table and return the times at which the versions of a subject were registered, ms."""
        known = self._repository.now.subject(check_subject(subject))
        return {version: known.versions[version].registered_ms for version in known.live}

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """Return the schemas that a schema references, directly or indirectly, by reference name."""
        if not schema.references:
            return {}
        try:
            return self._repository.known.referenced(schema)
        except SchemaRegistryError:
            return self._repository.now.referenced(schema)

    # --- moving in and out -----------------------------------------------------------------------

    def export_records(self, prefix: str = "") -> Iterator[str]:
        """Return the current state as records of Confluent's topic `_schemas`, one line each: key, tab, value.

        Args:
            prefix: export only subjects with this prefix, and the schemas that they reference; empty exports all
                subjects and settings.
        """
        return written_records(self._repository.now, prefix)

    def import_records(self, lines: Iterable[str], *, dry_run: bool = False) -> Imported:
        """Import the final state of exported records, keeping ids and versions, in one atomic change.

        Args:
            lines: output of `export_records`, or of `kafka-console-consumer --topic _schemas --from-beginning
                --property print.key=true`.
            dry_run: return the result without writing.

        Raises:
            SchemaRegistryError: a line is invalid, an id or version is taken by another schema, or a mode forbids the
                import. Nothing was written.
            UnknownOutcomeError: the import may have been written; retrying is safe.
        """
        contents, checks = read_records(lines), remembered(CHECKS)

        def plan(state: RegistryState, now_ms: int) -> tuple[Sequence[SchemaRow], Imported]:
            return import_all(state, contents, checks, now_ms)

        return plan(self._repository.now, 0)[1] if dry_run else self._repository.change(plan)
