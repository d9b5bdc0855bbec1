"""An ASGI application served at an address, in a thread, until it is asked to stop.

Connections whose client sends no whole head of a request in time are closed. uvicorn waits for a head without end, and
counts the connection among those that there may be: a few silent clients, who need no password, would keep everybody
else out.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from kafkalike.errors import KafkaConfigurationError
from kafkalike.schemas.service.credentials import is_loopback

HEAD_SECONDS: Final = 30.0
"""How long a client may take for the head of a request."""

MAX_CONNECTIONS: Final = 512
"""At once; whoever comes then gets 503."""

IDLE_SECONDS: Final = 65
"""How long a connection is kept for the client's next request."""

GRACE_SECONDS: Final = 30
"""How long requests that are being answered may take when the service ends."""


class ListeningAddress:
    """An address that is listened at, from the moment that it is made.

    Args:
        host: address to listen at.
        port: 0 finds a free one.
        anyone: whether it may be an address of the network: those who ask there must say who they are, or anyone may.
        certificate: files of the certificate and its key, for https; the key may stand in the first one. None: http.

    Raises:
        KafkaConfigurationError: the address or the certificate cannot be used, or everybody could ask there.
    """

    def __init__(
        self, *, host: str, port: int, anyone: bool = False, certificate: tuple[str, str | None] | None = None
    ) -> None:
        self.secured = {} if certificate is None else _secured(certificate)
        self.socket = _listening(host, port, anyone=anyone)
        self.address: tuple[str, int] = self.socket.getsockname()[:2]

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = self.address
        return f"{'https' if self.secured else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


class HttpServer:
    """An application at a listening address.

    Args:
        app: answers; see ASGI.
        address: where.
        name: of its thread.
        grace_seconds: how long requests that are being answered may take when it ends.
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
        """Whether it answers still."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Answer requests, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more connections, answer what is being asked, and end."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._address.socket.close()


def _secured(certificate: tuple[str, str | None]) -> dict[str, Any]:
    """Uvicorn's settings for TLS. The files are tried here: uvicorn reads them where nobody waits for the error."""
    file, key = certificate
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file, key, password=_no_password)
    except (OSError, ValueError) as cause:
        raise KafkaConfigurationError(f"the certificate in {file} cannot be used: {cause}") from cause
    return {"ssl_certfile": file, "ssl_keyfile": key}


def _no_password() -> str:
    """Nobody is there to type it."""
    raise ValueError("its key has a password")


def _listening(host: str, port: int, *, anyone: bool) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not (anyone or is_loopback(str(address[0]))):
            raise KafkaConfigurationError(f"whoever reaches {host} could ask: say who may ask")
        made = socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
        # asyncio does it only for sockets whose protocol is written down; without it an answer waits 40 ms.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as cause:
        raise KafkaConfigurationError(f"cannot listen at {host}:{port}: {cause}") from cause
    return made


def protocol_with_head_timeout(seconds: float) -> type[asyncio.Protocol]:
    """Uvicorn's protocol, which waits for a head so long.

    Args:
        seconds: from the connection's first moment, or from the first byte behind an answered request.
    """

    class Impatient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - asyncio's
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:
                # A head is whole.
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

    return Impatient
