"""Serving: the console at an address, in a thread, until it is asked to stop."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from kafkalike.clock import SYSTEM_CLOCK, Clock
from kafkalike.errors import KafkaConfigurationError
from kafkalike.schemas.extras import needed
from kafkalike.ui.guard import Guard, allowed, is_loopback

if TYPE_CHECKING:
    from kafkalike.log.port import Cluster

GRACE_SECONDS: Final = 3
"""How long answers that are under way may take when the console ends."""

MOST_CONNECTIONS: Final = 256


class ConsoleServer:
    """The console, listening from the moment that it is made.

    Args:
        cluster: what it shows.
        host: address to listen at.
        port: 0 finds a free one.
        token: what visitors must know; None makes one up, an empty text asks for none.
        read_only: whether every change is refused.
        allowed_hosts: names that it may be called by, beside those of this machine.
        metrics: the answer of `/metrics`.
        clock: time.

    Raises:
        KafkaConfigurationError: packages are missing; the address cannot be used, or everybody could ask there.
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
        metrics: Callable[[], bytes] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        uvicorn = needed("uvicorn", "the console", "ui")
        app = needed("kafkalike.ui.app", "the console", "ui")
        desk = needed("kafkalike.ui.desk", "the console", "ui")
        if token == "" and not is_loopback(host):
            raise KafkaConfigurationError(f"whoever reaches {host} could ask: a token is needed there")
        self.token = secrets.token_urlsafe(24) if token is None else token
        self._socket = _listening(host, port)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        guard = Guard(
            token=self.token, port=self.address[1], hosts=allowed({*allowed_hosts, host}), read_only=read_only
        )
        self._desk = desk.Desk(cluster, clock, metrics)
        gate = app.console(self._desk, guard)
        self._stopping: threading.Event = gate.app.state.stopping
        config = uvicorn.Config(
            gate,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            ws="none",
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        self._server: Any = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="kafkalike-ui", daemon=True
        )

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def address_with_token(self) -> str:
        """What a user opens."""
        return f"{self.url}/?{urlencode({'token': self.token})}" if self.token else self.url

    @property
    def running(self) -> bool:
        """Whether it answers still."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Answer requests, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more connections, answer what is being asked, and end."""
        self._stopping.set()
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()
        self._desk.close()


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as cause:
        raise KafkaConfigurationError(f"cannot listen at {host}:{port}: {cause}") from cause
    return made
