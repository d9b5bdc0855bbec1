"""Console server: the console at an address, in a thread, until it is asked to stop."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.schemas.optional_imports import require_module
from kafkalike.schemas.service.credentials import is_loopback

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.spark.sql.queries import Queries

GRACE_SECONDS: Final = 3
"""How long answers that are under way may take when the console ends."""


class ConsoleServer:
    """The console, listening from the moment that it is made.

    Args:
        cluster: what it shows.
        host: address to listen at.
        port: 0 finds a free one.
        token: what visitors must know; None makes one up, an empty text asks for none.
        read_only: whether every change is refused.
        allowed_hosts: names that it may be called by, beside those of this machine.
        certificate: files of the certificate and its key, for https; the key may stand in the first one. None: http.
        metrics: the answer of `/metrics`; None serves none.
        queries: runs statements of SQL; None where there is no Spark.
        clock: time.

    Raises:
        KafkaConfigurationError: packages are missing; the address or the certificate cannot be used, or everybody could
            ask there.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        read_only: bool = False,
        allowed_hosts: Collection[str] = (),
        certificate: tuple[str, str | None] | None = None,
        metrics: Callable[[], bytes] | None = None,
        queries: Queries | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        serving = require_module("kafkalike.schemas.service.http_server", "the console", "ui")
        app = require_module("kafkalike.ui.app", "the console", "ui")
        view = require_module("kafkalike.ui.cluster_view", "the console", "ui")
        access = require_module("kafkalike.ui.access_control", "the console", "ui")
        if token == "" and not is_loopback(host):
            raise KafkaConfigurationError(f"whoever reaches {host} could ask: a token is needed there")
        self.token = secrets.token_urlsafe(24) if token is None else token
        door = serving.ListeningAddress(host=host, port=port, anyone=bool(self.token), certificate=certificate)
        self.url: str = door.url
        """Where it listens."""
        rules = access.AccessControl(
            token=self.token,
            port=door.address[1],
            hosts=access.allowed({*allowed_hosts, host}),
            read_only=read_only,
            secure=certificate is not None,
        )
        self._view = view.ConsoleView(cluster, clock, metrics, queries)
        gate = app.console(self._view, rules)
        self._stopping: threading.Event = gate.app.state.stopping
        self._server: Any = serving.HttpServer(gate, door, name="kafkalike-ui", grace_seconds=GRACE_SECONDS)

    @property
    def address_with_token(self) -> str:
        """What a user opens."""
        return f"{self.url}/?{urlencode({'token': self.token})}" if self.token else self.url

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
        self._stopping.set()
        self._server.stop()
        self._view.close()
