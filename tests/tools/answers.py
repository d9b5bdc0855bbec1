"""Answers: servers that give every request the same answer, and clients of object stores that ask them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kafkalike.model.config.storage_options import StorageOptions, resolve_options
from kafkalike.storage.object_root import ObjectRoot, object_root
from tests.tools.object_servers import ObjectServer


@contextmanager
def answering(
    host: str, status: int, headers: Callable[[str], dict[str, str]] = lambda _: {}, body: bytes = b""
) -> Iterator[tuple[int, list[str]]]:
    """A server that answers everything in one way: its port, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_any(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append(f"{self.command} {self.path} {self.headers}")
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers(self.path)}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = do_any  # noqa: N815 - as http.server calls them

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer((host, 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield int(server.server_address[1]), asked
    finally:
        server.shutdown()
        server.server_close()


def asking(server: ObjectServer, **more: str) -> tuple[ObjectRoot, StorageOptions]:
    """What a client for a server is made of."""
    root = object_root(server.new_root())
    assert root is not None
    options = resolve_options(root.provider, StorageOptions({**server.options, **more}), {})
    return root.in_account(options), options
