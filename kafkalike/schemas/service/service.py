"""RegistryService: a cluster in, Confluent's REST interface to its schemas out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.schemas.format_checks import CHECKS
from kafkalike.schemas.service.desk import Desk
from kafkalike.schemas.service.request import Request
from kafkalike.schemas.service.routes import found

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


class RegistryService:
    """Answers requests. Thread-safe; needs no closing.

    Args:
        cluster: whose schemas.
        read_only: refuse what may change something, whatever modes say.
        timeout_ms: how long a change tries to get past others.
        clock: time of the rows.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        read_only: bool = False,
        timeout_ms: float | None = 60_000,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.desk = Desk(cluster.schemas, CHECKS, clock, timeout_ms)
        self._read_only = read_only

    def ask(self, method: str, path: Sequence[str], query: Mapping[str, str] | None = None, body: object = None) -> Any:  # noqa: ANN401 - any JSON
        """Answer a request.

        Args:
            method: of HTTP.
            path: its parts, without escapes.
            query: its parameters.
            body: the JSON that was sent.

        Returns:
            The JSON of the answer.

        Raises:
            SchemaRegistryError: the registry says no.
            KafkaError: the table cannot be read or written; see `Desk.change`.
        """
        route, names = found(method, path)
        if route.writes and self._read_only:
            raise SchemaRegistryError(422, 42205, "this service is read-only")
        return route.answer(self.desk, Request(names, query or {}, body))
