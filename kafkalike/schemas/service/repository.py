"""Where handlers read the state of a registry, and change it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from kafkalike.log.cluster.control_logs import SchemasLog
from kafkalike.model.clock import Clock
from kafkalike.model.schemas.registry_state import RegistryState
from kafkalike.model.schemas.schema import Checks
from kafkalike.model.schemas.schema_rows import SchemaRow

T = TypeVar("T")


class RegistryRepository:
    """The schemas of a cluster. Thread-safe.

    Args:
        schemas: their control log.
        checks: who can read schemas.
        clock: time of the rows.
        timeout_ms: how long a change tries to get past others.
    """

    def __init__(
        self,
        schemas: SchemasLog,
        checks: Checks,
        clock: Clock,
        timeout_ms: float | None = 60_000,
    ) -> None:
        self.checks = checks
        self._schemas = schemas
        self._clock = clock
        self._timeout_ms = timeout_ms

    @property
    def known(self) -> RegistryState:
        """The state as of the last look."""
        return self._schemas.state

    @property
    def now(self) -> RegistryState:
        """The state, looked at now."""
        return self._schemas.refresh()

    def change(self, plan: Callable[[RegistryState, int], tuple[Sequence[SchemaRow], T]]) -> T:
        """Write the rows of a plan, unless it has none, and give its result.

        Args:
            plan: a state and the time in ms -> rows and result. It is called again when others were faster, so what it
                found out holds for the state that its rows come after.

        Raises:
            SchemaRegistryError: what the plan raises; nothing was written.
            KafkaTimeoutError: others were faster until time ran out; nothing was written.
            UnknownOutcomeError: the rows may have been written.
        """
        rows, result = plan(self.now, self._clock.now_ms())
        if not rows:
            return result
        made: list[T] = []

        def planned(state: RegistryState) -> Sequence[SchemaRow]:
            rows, result = plan(state, self._clock.now_ms())
            made[:] = [result]
            return rows

        self._schemas.transact(planned, self._timeout_ms)
        return made[0]
