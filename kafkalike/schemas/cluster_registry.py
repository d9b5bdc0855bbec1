"""Registry: the schemas of a cluster, without a service, under the methods of Confluent's client."""

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
    """A cluster's own registry. Thread-safe; several processes may have one each.

    Schemas stand in the table `__schemas` of the root. A change is one version of that table, and the check whether a
    schema is compatible stands inside it: of two that exclude each other one is refused.

    Args:
        bootstrap_servers: a root, a URI, an opened cluster; None for the environment's; see `connect`.
        storage_options: of an object store; see `connect`.
        timeout_ms: how long a change tries to get past others.
        clock: time of the rows.

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

    # Without the way through JSON: a reader asks these for each record.

    def schema_by_id(self, id: int) -> Schema:  # noqa: A002
        """The schema that an id has for ever."""
        found = self._repository.known.schema(id) or self._repository.now.schema(id)
        if found is None:
            raise refusals.no_schema(id)
        return found

    def latest(self, subject: str) -> Registered | None:
        """The newest version of a subject that is not deleted, fresh."""
        return self._repository.now.latest(check_subject(subject))

    def ids_of(self, subject: str) -> Sequence[int]:
        """Ids of all versions of a subject that are not deleted, fresh, oldest first."""
        known = self._repository.now.subject(check_subject(subject))
        return [known.versions[version].id for version in known.live]

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """Schemas that a schema uses, and those that these use in turn, by the names of the references."""
        if not schema.references:
            return {}
        try:
            return self._repository.known.referenced(schema)
        except SchemaRegistryError:
            return self._repository.now.referenced(schema)

    # --- moving in and out -----------------------------------------------------------------------

    def export_records(self, prefix: str = "") -> Iterator[str]:
        """What is in force as lines of Confluent's topic `_schemas`: a record's key, a tab and its value.

        Args:
            prefix: only subjects whose names begin so, and what they refer to; all settings without one.
        """
        return written_records(self._repository.now, prefix)

    def import_records(self, lines: Iterable[str], *, dry_run: bool = False) -> Imported:
        """Take over what such lines leave in force, under its ids and versions: all of it in one change, or nothing.

        Args:
            lines: of `export_records`, or of `kafka-console-consumer --topic _schemas --from-beginning --property
                print.key=true`.
            dry_run: only find out what it would come to.

        Raises:
            SchemaRegistryError: a line cannot be read; an id or version belongs to another schema here; a mode is
                against it. Nothing was written.
            UnknownOutcomeError: it may have been written; call it again, which does it once.
        """
        contents, checks = read_records(lines), remembered(CHECKS)

        def plan(state: RegistryState, now_ms: int) -> tuple[Sequence[SchemaRow], Imported]:
            return import_all(state, contents, checks, now_ms)

        return plan(self._repository.now, 0)[1] if dry_run else self._repository.change(plan)
