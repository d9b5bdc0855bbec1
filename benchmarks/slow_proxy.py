"""SlowProxy: a proxy before an object store that waits before each request, and lets bodies flow as they come.

`tests/tools/fault_proxy.py` takes requests and answers in whole; before a reader of large files that would be a delay
of its own. Run as a program: port of the server, ms of a GET, HEAD or LIST, ms of a PUT, a file for what was asked, or
`-`, and the MB that all answers together may have in a second, 0 for as many as come. It prints its port, and ends with
its standard input.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tests.tools.object_servers import ObjectServer

BLOCK = 256 * 1024
READS = ("GET", "HEAD")


class Width:
    """How many bytes pass in a second, over all connections together. Thread-safe.

    Args:
        bytes_per_second: 0 for as many as come.
    """

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._mutex = threading.Lock()
        self._free = 0.0
        """When those before have passed."""

    def wait(self, size: int) -> None:
        """Wait until so many bytes may have passed."""
        if not self._rate:
            return
        with self._mutex:
            self._free = max(self._free, time.perf_counter()) + size / self._rate
            free = self._free
        time.sleep(max(0.0, free - time.perf_counter()))


class _Stream:
    """One side of a connection.

    Args:
        end: the socket.
        width: how fast it gives.
    """

    def __init__(self, end: socket.socket, width: Width) -> None:
        self.end = end
        self._width = width
        self._held = b""
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def head(self) -> bytes:
        """First line and headers; empty at the end."""
        while b"\r\n\r\n" not in self._held:
            more = self.end.recv(BLOCK)
            if not more:
                return b""
            self._held += more
        found, _, self._held = self._held.partition(b"\r\n\r\n")
        return found + b"\r\n\r\n"

    def give(self, other: _Stream, size: int) -> int:
        """Pass on so many bytes; -1: until the end."""
        given = 0
        while given != size:
            block = self._held or self.end.recv(BLOCK)
            self._held = b""
            if not block:
                break
            if size >= 0 and len(block) > size - given:
                block, self._held = block[: size - given], block[size - given :]
            self._width.wait(len(block))
            other.end.sendall(block)
            given += len(block)
        return given

    def give_chunks(self, other: _Stream) -> int:
        """Pass on a body in chunks."""
        given = 0
        while True:
            line = self._line()
            size = int(line.split(b";")[0], 16)
            other.end.sendall(line)
            given += self.give(other, size + 2)
            if size == 0:
                return given

    def _line(self) -> bytes:
        while b"\r\n" not in self._held:
            more = self.end.recv(BLOCK)
            if not more:
                message = "cut off"
                raise OSError(message)
            self._held += more
        line, _, self._held = self._held.partition(b"\r\n")
        return line + b"\r\n"


def _field(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return None


class SlowProxy:
    """A running proxy.

    Args:
        upstream: port of the real server on the loopback.
        get_seconds: what a GET, HEAD or LIST waits.
        put_seconds: what another request waits.
        log: takes a line of JSON for each request.
        bytes_per_second: of all answers together; 0 for as many as come.
    """

    def __init__(
        self, upstream: int, get_seconds: float, put_seconds: float, log: TextIO | None, bytes_per_second: float = 0
    ) -> None:
        self._width = Width(bytes_per_second)
        self._upstream, self._log = upstream, log
        self._get, self._put = get_seconds, put_seconds
        self._mutex = threading.Lock()
        self._door = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(self._door.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            end, _ = self._door.accept()
            threading.Thread(target=self._quietly, args=(end,), daemon=True).start()

    def _quietly(self, end: socket.socket) -> None:
        with contextlib.suppress(OSError), end, socket.create_connection(("127.0.0.1", self._upstream)) as server:
            self._connection(_Stream(end, Width(0)), _Stream(server, self._width))

    def _connection(self, client: _Stream, server: _Stream) -> None:
        while head := client.head():
            begun = time.time()
            method, path = head.split(b" ", 2)[:2]
            time.sleep(self._get if method.decode() in READS else self._put)
            server.end.sendall(head)
            sent, answer = 0, b""
            size = int(_field(head, b"content-length") or 0)
            if _field(head, b"expect") is not None:
                answer = server.head()
                client.end.sendall(answer)
            if not answer or answer.split(b" ")[1] == b"100":
                sent = client.give(server, size)
                answer = server.head()
                if not answer:
                    return
                client.end.sendall(answer)
            got = 0
            if method != b"HEAD" and answer.split(b" ")[1] not in {b"204", b"304"}:
                if _field(answer, b"transfer-encoding") == b"chunked":
                    got = server.give_chunks(client)
                else:
                    got = server.give(client, int(_field(answer, b"content-length") or 0))
            if self._log is not None:
                about = {
                    "begun": begun,
                    "seconds": time.time() - begun,
                    "method": method.decode(),
                    "path": path.decode(),
                    "range": (_field(head, b"range") or b"").decode(),
                    "status": int(answer.split(b" ")[1]),
                    "sent": sent,
                    "got": got,
                    "java": b"hadoop" in (_field(head, b"user-agent") or b"").lower(),
                }
                with self._mutex:
                    self._log.write(json.dumps(about) + "\n")
                    self._log.flush()


@contextmanager
def slow(
    server: ObjectServer, get_ms: float, put_ms: float, log: Path | None = None, mb_per_second: float = 0
) -> Iterator[ObjectServer]:
    """The server behind a proxy in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.slow_proxy", str(server.port), str(get_ms), str(put_ms)]
    command += ["-" if log is None else str(log), str(mb_per_second)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        try:
            yield server.behind(int(proxy.stdout.readline()))
        finally:
            proxy.stdin.close()


def main() -> None:
    """Run one."""
    port, get_ms, put_ms, log, mb_per_second = sys.argv[1:]
    width = float(mb_per_second) * 1_000_000
    with contextlib.ExitStack() as files:
        file = None if log == "-" else files.enter_context(Path(log).open("w", encoding="utf-8"))
        print(SlowProxy(int(port), float(get_ms) / 1000, float(put_ms) / 1000, file, width).port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
