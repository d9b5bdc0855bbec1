"""An HTTP server that runs an ASGI application in a thread.

It closes connections that do not send a complete request head in time. uvicorn waits for a head forever and counts the
connection against its limit, so a few silent clients, without a password, could lock out all others.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from kafkalike.errors import KafkaConfigurationError
from kafkalike.schemas.service.credentials import is_loopback, tls_context

HEAD_SECONDS: Final = 30.0
"""Seconds that a client may take to send the head of a request."""

MAX_CONNECTIONS: Final = 512
"""Maximum concurrent connections; further ones are answered with 503."""

IDLE_SECONDS: Final = 65
"""Seconds that an idle connection is kept open for the next request."""

GRACE_SECONDS: Final = 30
"""Seconds that pending requests may take when the server stops."""


class ListeningAddress:
    """A listening socket, opened when the object is created.

    Args:
        host: address to listen on.
        port: port to listen on; 0 chooses a free one.
        anyone: allow a network address: clients must authenticate, or the operator has opened the service to everyone.
        certificate: files of the TLS certificate and its key, which may be in the same file; None for plain HTTP.

    Raises:
        KafkaConfigurationError: the address or the certificate cannot be used, or a network address would be open to
            everyone.
    """

    def __init__(
        self, *, host: str, port: int, anyone: bool = False, certificate: tuple[str, str | None] | None = None
    ) -> None:
        self.secured = {} if certificate is None else _secured(certificate)
        self.socket = _listening(host, port, anyone=anyone)
        self.address: tuple[str, int] = self.socket.getsockname()[:2]

    @property
    def url(self) -> str:
        """URL of the address."""
        host, port = self.address
        return f"{'https' if self.secured else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


class HttpServer:
    """An application at a listening address.

    Args:
        app: an ASGI application.
        address: the address.
        name: name of the server's thread.
        grace_seconds: how long pending requests may take when the server stops.
    """

    def __init__(self, app: Any, address: ListeningAddress, *, name: str, grace_seconds: int = GRACE_SECONDS) -> None:  # noqa: ANN401
        self._address = address
        config = uvicorn.Config(
            app,
            http=protocol_with_head_timeout(HEAD_SECONDS),
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            ws="none",
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=grace_seconds,
            **address.secured,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([address.socket],), name=name, daemon=True)

    @property
    def running(self) -> bool:
        """True while the server answers requests."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Answer requests in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting connections, finish pending requests, and stop the thread."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._address.socket.close()


def _secured(certificate: tuple[str, str | None]) -> dict[str, Any]:
    """Return uvicorn's TLS settings. The files are loaded here, because uvicorn's errors would not reach the caller."""
    tls_context(certificate)
    file, key = certificate
    return {"ssl_certfile": file, "ssl_keyfile": key}


def _listening(host: str, port: int, *, anyone: bool) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not (anyone or is_loopback(str(address[0]))):
            raise KafkaConfigurationError(
                f"refusing to listen on {host} without credentials: every host that reaches it could use the service"
            )
        made = socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
        # asyncio sets it only for sockets with an explicit protocol; without it answers are delayed by 40 ms.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as cause:
        raise KafkaConfigurationError(f"cannot listen at {host}:{port}: {cause}") from cause
    return made


def protocol_with_head_timeout(seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol with a timeout for the head of a request.

    Args:
        seconds: counted from the connection's start, or from the first byte after an answered request.
    """

    class HeadTimeoutProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - asyncio's
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:
                # The head is complete.
                self._stop()
            elif self._timer is None and (before is None or before.response_complete):
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _wait(self) -> None:
            self._timer = self.loop.call_later(seconds, self.transport.close)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None

    return HeadTimeoutProtocol
