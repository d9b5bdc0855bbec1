"""`RegistryService`: Confluent's REST interface without HTTP, its routes, and the HTTP server that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkalike.errors import SchemaRegistryError
from kafkalike.errors.optional_imports import require_module
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.schemas import refusals
from kafkalike.schemas.format_checks import CHECKS
from kafkalike.schemas.service import handlers
from kafkalike.schemas.service.credentials import Credentials
from kafkalike.schemas.service.registry_request import Request
from kafkalike.version import __version__

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


class RegistryService:
    """Answers requests of Confluent's REST interface. Thread-safe; holds no resources.

    Args:
        cluster: the cluster whose schemas are served.
        read_only: reject requests that may change something, whatever the modes.
        timeout_ms: how long a change is retried after conflicts with other writers; None for no limit.
        clock: source of the rows' timestamps.
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
            method: the HTTP method.
            path: the parts of the path, unescaped.
            query: the query parameters.
            body: the JSON of the request.

        Returns:
            The JSON of the answer.

        Raises:
            SchemaRegistryError: the request is rejected.
            KafkaError: the table cannot be read or written; see `RegistryRepository.change`.
        """
        route, names = match_route(method, path)
        if route.writes and self._read_only:
            raise SchemaRegistryError(422, 42205, "this service is read-only")
        return route.answer(self.repository, Request(names, query or {}, body))


Answering = Callable[[handlers.RegistryRepository, Request], Any]


@dataclass(frozen=True, slots=True)
class Route:
    """The handler of a request."""

    answer: Answering
    writes: bool = False
    """True if the handler may change something."""


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
"""Routes by path and method; a name in braces matches any part of a path."""

_SPLIT: Final = [(tuple(path.split("/")) if path else (), methods) for path, methods in ROUTES.items()]


def match_route(method: str, path: Sequence[str]) -> tuple[Route, dict[str, str]]:
    """Return the route of a request, and the named parts of its path.

    Args:
        method: the HTTP method, in capitals.
        path: the parts of the path, unescaped.

    Raises:
        SchemaRegistryError: 404 for an unknown path, 405 for another method.
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
    """The registry as an HTTP server, listening from the time it is created.

    Args:
        service: answers the requests.
        host: address to listen on.
        port: port to listen on; 0 chooses a free one.
        credentials: accepted tokens and users.
        max_body: maximum size of a request body, in bytes.
        certificate: files of the TLS certificate and its key, which may be in the same file; None for plain HTTP.
        anyone: allow clients without credentials even on a network address.

    Raises:
        KafkaConfigurationError: a package is missing, the address or the certificate cannot be used, or a network
            address would be open to everyone.
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
        """URL of the server."""
        handler = app.RegistryApp(service, credentials, app.RequestLimits(body_bytes=max_body))
        self._server = serving.HttpServer(handler, address, name="kafkalike-schema-registry")

    @property
    def running(self) -> bool:
        """True while the server answers requests."""
        answers: bool = self._server.running
        return answers

    def start(self) -> None:
        """Answer requests in a thread."""
        self._server.start()

    def stop(self) -> None:
        """Stop accepting connections, finish pending requests, and stop the thread."""
        self._server.stop()
