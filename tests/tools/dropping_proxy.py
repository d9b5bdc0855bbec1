"""Dropping proxy: pass a client's requests to a server, and lose some of the answers together with their connection."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LENGTH = struct.Struct(">i")
HEAD = struct.Struct(">hhi")


class DroppingProxy:
    """Listens on the loopback; the server's address is set after the proxy's is known.

    Args:
        keys: API keys of the requests whose answers may be lost.
        share: share of those answers that is lost, after the server has given them.
        seed: of the choice.
    """

    def __init__(self, keys: set[int], share: float, seed: int = 0) -> None:
        self.server: tuple[str, int] = ("127.0.0.1", 0)
        self.port = 0
        self.lost = 0
        self._keys = keys
        self._share = share
        self._rng = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        listening = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", 0))
        self.port = listening.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        listening.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked: dict[int, int] = {}
        with contextlib.suppress(ConnectionError):
            back, out = await asyncio.open_connection(*self.server)
            both = [
                asyncio.create_task(self._requests(reader, out, asked)),
                asyncio.create_task(self._answers(back, writer, asked)),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in both:
                    task.cancel()
                await asyncio.gather(*both, return_exceptions=True)
                for one in (out, writer):
                    one.close()
                    with contextlib.suppress(ConnectionError):
                        await one.wait_closed()
        writer.close()

    async def _requests(self, reader: asyncio.StreamReader, out: asyncio.StreamWriter, asked: dict[int, int]) -> None:
        while True:
            head = await reader.readexactly(LENGTH.size)
            frame = await reader.readexactly(LENGTH.unpack(head)[0])
            key, _, correlation = HEAD.unpack_from(frame)
            asked[correlation] = key
            out.write(head + frame)
            await out.drain()

    async def _answers(self, back: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, int]) -> None:
        while True:
            head = await back.readexactly(LENGTH.size)
            frame = await back.readexactly(LENGTH.unpack(head)[0])
            if asked.pop(LENGTH.unpack_from(frame)[0], -1) in self._keys and self._rng.random() < self._share:
                self.lost += 1
                raise ConnectionAbortedError
            writer.write(head + frame)
            await writer.drain()

    @contextmanager
    def running(self) -> Iterator[DroppingProxy]:
        """Serve until the block ends."""
        self._thread.start()
        self._ready.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
