"""The registry's service at an address, in a thread, until it is asked to stop."""

from __future__ import annotations

from kafkalike.schemas.optional_imports import require_module
from kafkalike.schemas.service.credentials import Credentials
from kafkalike.schemas.service.registry_service import RegistryService


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
