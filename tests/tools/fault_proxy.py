"""FaultProxy: an HTTP proxy before an object store that answers late, refuses, loses, doubles and cuts, as networks do.

What it does to a request is drawn from a seeded generator; `done` counts it, so that a test can see that it happened.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

FAULTS: Final = ("busy", "conflict", "reset", "lost", "late", "doubled", "truncated")
"""`busy`: 503 SlowDown, nothing done. `conflict`: 409 to a conditional put, nothing done. `reset`: the connection
breaks before anything is done. `lost`: done, and the connection breaks instead of the answer. `late`: the connection
breaks, and the request is done some time later. `doubled`: done twice, the second answer counts. `truncated`: half the
body."""

BAD: Final = {
    **dict.fromkeys(("busy", "conflict", "reset"), 0.01),
    **dict.fromkeys(("lost", "late", "doubled", "truncated"), 0.0075),
}
"""How probable each is in a bad network: 3 of 100 requests are refused, and of 3 others the answer is lost or wrong."""

_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-connection"})
_BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_CONFLICT = b"<Error><Code>ConditionalRequestConflict</Code><Message>At work on this key.</Message></Error>"


@dataclass
class Plan:
    """What is done to requests; may be changed while the proxy runs."""

    faults: Mapping[str, float] = field(default_factory=dict)
    """How probable each fault is, 0 to 1."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """How long a request takes at least, by method."""
    late_seconds: float = 0.5
    only: str = ""
    """Faults meet only requests whose path has this in it."""
    last: int | None = None
    """How many requests are done from now on; with the one after them, `stop` is called, and it is not done."""
    stop: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class _Answer:
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes


class FaultProxy:
    """A running proxy.

    Args:
        upstream: port of the real server on the loopback.
        seed: of the generator.
        host: the address to listen on.
    """

    def __init__(self, upstream: int, seed: int, host: str = "127.0.0.1") -> None:
        self.plan = Plan()
        self.done: Counter[str] = Counter()
        """Faults by name, requests by method."""
        self.most: Counter[str] = Counter()
        """Requests that were under way at the same time, at most, by method."""
        self._now: Counter[str] = Counter()
        self._speaks = threading.Event()
        self._speaks.set()
        self._upstream = upstream
        self._random = random.Random(seed)
        self._mutex = threading.Lock()
        self._late: list[threading.Timer] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            timeout = 60

            def log_message(self, *_: object) -> None:
                """Nothing."""

            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    super().handle()

            def do_any(self) -> None:
                with proxy._under_way(self.command):
                    if proxy._is_over():
                        proxy._break(self)
                    else:
                        proxy._handle(self)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = do_any  # noqa: N815 - as http.server calls them

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, *_: object) -> None:
                """A client that has gone is nothing to tell."""

        self._server = Server((host, 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End; what is late still goes out first."""
        self._speaks.set()
        for timer in self._late:
            timer.join()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Answer nothing for as long as the block runs; what was asked meanwhile is done when it ends."""
        self._speaks.clear()
        try:
            yield
        finally:
            self._speaks.set()

    # --- one request ---------------------------------------------------------------------------

    def _draw(self, request: BaseHTTPRequestHandler) -> str:
        if self.plan.only not in request.path:
            return ""
        with self._mutex:
            number = self._random.random()
        for name, share in self.plan.faults.items():
            number -= share
            if number < 0:
                fits = {
                    # Names of headers have no case, and clients write them as they like.
                    "conflict": any(
                        name in request.headers for name in ("if-none-match", "x-goog-if-generation-match")
                    ),
                    "late": request.command == "PUT",
                    "truncated": request.command == "GET",
                }
                return name if fits.get(name, True) else ""
        return ""

    @contextmanager
    def _under_way(self, method: str) -> Iterator[None]:
        with self._mutex:
            self._now[method] += 1
            self.most[method] = max(self.most[method], self._now[method])
        try:
            yield
        finally:
            with self._mutex:
                self._now[method] -= 1

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        begun = time.monotonic()
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self._speaks.wait()
        fault = self._draw(request)
        with self._mutex:
            self.done[request.command] += 1
            if fault:
                self.done[fault] += 1
        answer: _Answer | None
        if fault == "busy":
            answer = _Answer(503, "Slow Down", [("Content-Type", "application/xml")], _BUSY)
        elif fault == "conflict":
            answer = _Answer(409, "Conflict", [("Content-Type", "application/xml")], _CONFLICT)
        elif fault == "reset":
            answer = None
        elif fault == "late":
            timer = threading.Timer(self.plan.late_seconds, self._forward_quietly, (request, body))
            with self._mutex:
                self._late.append(timer)
            timer.start()
            answer = None
        else:
            answer = self._forward(request, body)
            if fault == "doubled":
                answer = self._forward(request, body)
            if fault == "lost":
                answer = None
        rest = self.plan.seconds.get(request.command, 0.0) - (time.monotonic() - begun)
        if rest > 0:
            time.sleep(rest)
        if answer is None:
            self._break(request)
        else:
            self._reply(request, answer, cut=fault == "truncated")

    def _is_over(self) -> bool:
        with self._mutex:
            if self.plan.last is None:
                return False
            self.plan.last -= 1
            left = self.plan.last
        if left == -1:
            self.plan.stop()
        return left < 0

    def _forward_quietly(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            self._forward(request, body)

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes) -> _Answer | None:
        """Ask the real server; None when it does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=60)
        try:
            connection.putrequest(request.command, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name.lower() not in _HOP:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            found = connection.getresponse()
            content = found.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        headers = [(n, v) for n, v in found.getheaders() if n.lower() not in _HOP]
        return _Answer(found.status, found.reason, headers, content)

    @staticmethod
    def _reply(request: BaseHTTPRequestHandler, answer: _Answer, *, cut: bool) -> None:
        named = {name.lower() for name, _ in answer.headers}
        lines = [f"HTTP/1.1 {answer.status} {answer.reason}", *(f"{n}: {v}" for n, v in answer.headers)]
        if "content-length" not in named:
            lines.append(f"Content-Length: {len(answer.body)}")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        if cut and len(answer.body) > 1:
            request.wfile.write(head + answer.body[: len(answer.body) // 2])
            FaultProxy._break(request)
            return
        request.wfile.write(head if request.command == "HEAD" else head + answer.body)

    @staticmethod
    def _break(request: BaseHTTPRequestHandler) -> None:
        """Close so that the other side sees a reset."""
        request.close_connection = True
        with contextlib.suppress(OSError):
            request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            request.connection.shutdown(socket.SHUT_RD)
            request.connection.close()


@contextmanager
def fault_proxy(upstream: int, seed: int = 1) -> Iterator[FaultProxy]:
    """A proxy for as long as the block runs; without faults at first."""
    proxy = FaultProxy(upstream, seed)
    try:
        yield proxy
    finally:
        proxy.close()
