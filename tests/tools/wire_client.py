"""A client of the wire protocol that sends what no library would send."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Any, Self

from kio.index import load_request_schema, load_response_schema

from kafkalike.gateway.message_codec import reader_of, writer_of

SECONDS = 20

API_VERSIONS = 18


class WireClient:
    """One connection to a gateway.

    Args:
        address: host and port.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=SECONDS)
        self._sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.socket.close()

    def send(self, key: int, version: int, body: Mapping[str, Any]) -> None:
        """Send a request; `body` has its fields, as `writer_of` takes them."""
        schema: Any = load_request_schema(key, version)
        self._sent += 1
        out = bytearray(struct.pack(">hhih", key, version, self._sent, -1))
        if schema.__flexible__:
            out += b"\0"
        writer_of(schema)(out, body)
        self.socket.sendall(struct.pack(">i", len(out)) + out)

    def receive(self, key: int, version: int) -> Any:
        """Return the next answer, an object of kio.

        Raises:
            ConnectionError: the gateway has closed the connection.
        """
        answer = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        schema: Any = load_response_schema(key, version)
        # The answer to ApiVersions has the old header, because the client does not know the version yet.
        start = 5 if schema.__flexible__ and key != API_VERSIONS else 4
        return reader_of(schema)(memoryview(answer), start)[0]

    def _exactly(self, size: int) -> bytes:
        """Read so many bytes; a socket with a timeout returns what has arrived."""
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("closed by the gateway")
            data += more
        return data

    def ask(self, key: int, version: int, body: Mapping[str, Any]) -> Any:
        """Send a request, and return its answer."""
        self.send(key, version, body)
        return self.receive(key, version)
