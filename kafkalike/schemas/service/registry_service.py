"""`RegistryService`: Confluent's REST interface without HTTP, its routes, and the HTTP server that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.schemas import refusals
from kafkalike.schemas.format_checks import CHECKS
from kafkalike.schemas.optional_imports import require_module
from kafkalike.schemas.service import handlers
from kafkalike.schemas.service.credentials import Credentials
from kafkalike.schemas.service.registry_request import Request
from kafkalike.version import __version__

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
        self.repository = handlers.RegistryRepository(cluster.schemas, CHECKS, clock, timeout_ms)
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
            KafkaError: the table cannot be read or written; see `RegistryRepository.change`.
        """
        route, names = match_route(method, path)
        if route.writes and self._read_only:
            raise SchemaRegistryError(422, 42205, "this service is read-only")
        return route.answer(self.repository, Request(names, query or {}, body))


Answering = Callable[[handlers.RegistryRepository, Request], Any]


@dataclass(frozen=True, slots=True)
class Route:
    """What answers a request."""

    answer: Answering
    writes: bool = False
    """Whether it may change something."""


def _nothing(repository: handlers.RegistryRepository, request: Request) -> dict[str, Any]:
    del repository, request
    return {}


def _contexts(repository: handlers.RegistryRepository, request: Request) -> list[str]:
    del repository
    return request.page(["."])


def _no_associations(repository: handlers.RegistryRepository, request: Request) -> list[Any]:
    del repository, request
    return []


def _refuse_associations(repository: handlers.RegistryRepository, request: Request) -> Any:  # noqa: ANN401 - it has no answer
    del repository, request
    raise refusals.no_associations()


def _version(repository: handlers.RegistryRepository, request: Request) -> dict[str, str]:
    del repository, request
    return {"version": __version__, "commitId": ""}


_VERSIONS: Final = "subjects/{subject}/versions"

ROUTES: Final[Mapping[str, Mapping[str, Route]]] = {
    "": {"GET": Route(_nothing)},
    "subjects": {"GET": Route(handlers.list_subjects)},
    "subjects/{subject}": {
        "POST": Route(handlers.look_up),
        "DELETE": Route(handlers.delete_subject, writes=True),
    },
    "subjects/{subject}/metadata": {"GET": Route(handlers.get_with_metadata)},
    _VERSIONS: {"GET": Route(handlers.list_versions), "POST": Route(handlers.register, writes=True)},
    f"{_VERSIONS}/{{version}}": {
        "GET": Route(handlers.get_version),
        "DELETE": Route(handlers.delete_version, writes=True),
    },
    f"{_VERSIONS}/{{version}}/schema": {"GET": Route(handlers.get_version_text)},
    f"{_VERSIONS}/{{version}}/referencedby": {"GET": Route(handlers.referenced_by)},
    "schemas": {"GET": Route(handlers.list_schemas)},
    "schemas/types": {"GET": Route(handlers.list_types)},
    "schemas/ids/{id}": {"GET": Route(handlers.get_schema)},
    "schemas/ids/{id}/schema": {"GET": Route(handlers.get_schema_text)},
    "schemas/ids/{id}/subjects": {"GET": Route(handlers.subjects_of_id)},
    "schemas/ids/{id}/versions": {"GET": Route(handlers.versions_of_id)},
    "schemas/guids/{guid}": {"GET": Route(handlers.get_by_guid)},
    "schemas/guids/{guid}/ids": {"GET": Route(handlers.ids_of_guid)},
    f"compatibility/{_VERSIONS}": {"POST": Route(handlers.check_compatibility)},
    f"compatibility/{_VERSIONS}/{{version}}": {"POST": Route(handlers.check_compatibility)},
    **{
        path: {
            "GET": Route(handlers.get_config),
            "PUT": Route(handlers.put_config, writes=True),
            "DELETE": Route(handlers.delete_config, writes=True),
        }
        for path in ("config", "config/{subject}")
    },
    **{
        path: {
            "GET": Route(handlers.get_mode),
            "PUT": Route(handlers.put_mode, writes=True),
            "DELETE": Route(handlers.delete_mode, writes=True),
        }
        for path in ("mode", "mode/{subject}")
    },
    "contexts": {"GET": Route(_contexts)},
    "associations": {method: Route(_refuse_associations) for method in ("POST", "PUT")},
    "associations/subjects/{subject}": {"GET": Route(_no_associations)},
    "associations/resources/{resource}": {"GET": Route(_no_associations), "DELETE": Route(_refuse_associations)},
    "associations/resources/{namespace}/{name}": {"GET": Route(_no_associations)},
    "v1/metadata/id": {"GET": Route(lambda repository, request: {"scope": {"path": [], "clusters": {}}})},  # noqa: ARG005
    "v1/metadata/version": {"GET": Route(_version)},
}
"""By path and method. A name in braces stands for any part of a path."""

_SPLIT: Final = [(tuple(path.split("/")) if path else (), methods) for path, methods in ROUTES.items()]


def match_route(method: str, path: Sequence[str]) -> tuple[Route, dict[str, str]]:
    """Who answers a request, and the parts of the path that have names.

    Args:
        method: of HTTP, in capitals.
        path: its parts, without escapes.

    Raises:
        SchemaRegistryError: 404, or 405 for another method.
    """
    parts = tuple(path)
    if len(parts) > 1 and parts[0] == "contexts" and parts[1] in {".", ":.:"}:
        parts = parts[2:]
    allowed: list[str] = []
    for pattern, methods in _SPLIT:
        names = _matched(pattern, parts)
        if names is None:
            continue
        if method in methods:
            return methods[method], names
        allowed += methods
    if allowed:
        raise SchemaRegistryError(405, 405, f"HTTP 405 Method Not Allowed: {method}; allowed: {', '.join(allowed)}")
    raise SchemaRegistryError(404, 404, f"HTTP 404 Not Found: /{'/'.join(parts)[:200]}")


def _matched(pattern: Sequence[str], parts: Sequence[str]) -> dict[str, str] | None:
    if len(pattern) != len(parts):
        return None
    names = {}
    for wanted, given in zip(pattern, parts, strict=True):
        if wanted[0] == "{":
            names[wanted[1:-1]] = given
        elif wanted != given:
            return None
    return names


class RegistryServer:
    """The service, listening from the moment that it is made.

    Args:
        service: answers.
        host: address to listen at.
        port: 0 finds a free one.
        credentials: who may ask.
        max_body: bytes of a request's body.
        certificate: files of the certificate and its key, for https; the key may stand in the first one. None: http.
        anyone: whether it may listen at an address of the network though nobody must say who they are.

    Raises:
        KafkaConfigurationError: packages are missing; the address or the certificate cannot be used, or everybody could
            ask there.
    """

    def __init__(
        self,
        service: RegistryService,
        *,
        host: str,
        port: int,
        credentials: Credentials,
        max_body: int,
        anyone: bool = False,
        certificate: tuple[str, str | None] | None = None,
    ) -> None:
        app = require_module("kafkalike.schemas.service.registry_app", "services of schemas", "registry")
        serving = require_module("kafkalike.schemas.service.http_server", "services of schemas", "registry")
        address = serving.ListeningAddress(
            host=host, port=port, anyone=anyone or credentials.needed, certificate=certificate
        )
        self.address: tuple[str, int] = address.address
        self.url: str = address.url
        """Where it listens."""
        handler = app.RegistryApp(service, credentials, app.RequestLimits(body_bytes=max_body))
        self._server = serving.HttpServer(handler, address, name="kafkalike-schema-registry")

    @property
    def running(self) -> bool:
        """Whether it answers still."""
        answers: bool = self._server.running
        return answers

    def start(self) -> None:
        """Answer requests, in a thread."""
        self._server.start()

    def stop(self) -> None:
        """Take no more connections, answer what is being asked, and end."""
        self._server.stop()
