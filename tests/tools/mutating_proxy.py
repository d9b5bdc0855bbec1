"""Mutating proxy: pass bytes between clients and a gateway, and damage some of the requests and of the answers.

python -m tests.tools.mutating_proxy 127.0.0.1:9092    # clients of every kind, until the process is killed
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient

REQUESTS, ANSWERS = 0.03, 0.005
"""Shares that are damaged. A damaged answer often makes librdkafka crash, which costs a start of all clients."""

MOST_BYTES = 4 << 30
"""Address space of the clients: a damaged answer makes librdkafka ask for any amount of memory."""

EXTREMES = [b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff", b"\xff\x7f", b"\0" * 8]


def mutated(chance: random.Random, content: bytes) -> bytes:
    """Return the bytes with one to three faults."""
    out = bytearray(content)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(out) + 1)
        kind = chance.randrange(6)
        if kind == 0:
            out[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            out[at:at] = chance.randbytes(chance.randint(1, 40))
        elif kind == 3:
            value = chance.choice(EXTREMES)
            out[at : at + len(value)] = value
        elif kind == 4:
            del out[at : at + chance.randint(1, 20)]
        else:
            out[at:at] = out[: chance.randint(1, 60)]
    return bytes(out)


class MutatingProxy:
    """Passes bytes between clients and a gateway on the loopback, and damages some of them.

    Args:
        port: the gateway's.
        seed: of the faults.
    """

    def __init__(self, port: int, seed: int) -> None:
        self._target, self._chance = port, random.Random(seed)
        self.requests: Counter[int] = Counter()
        """Requests by API key, as the client has sent them."""
        self.answers = self.damaged_requests = self.damaged_answers = self.connections = 0
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", 0))
        self.port = int(self._server.sockets[0].getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            back = asyncio.create_task(self._pass_answers(to_reader, writer))
            await self._pass_requests(reader, to_writer)
            await asyncio.wait([back], timeout=5)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for one in (writer, to_writer):
                one.close()

    async def _pass_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass answers on. Where the gateway names its own address, it is the proxy's, so that clients come again."""
        own, ours = (b"127.0.0.1" + struct.pack(">i", port) for port in (self._target, self.port))
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                answer = (await reader.readexactly(size)).replace(own, ours)
                self.answers += 1
                damages = self._chance.random() < ANSWERS
                self.damaged_answers += damages
                writer.write(self._damaged(answer) if damages else struct.pack(">i", size) + answer)
                await writer.drain()
        writer.close()

    async def _pass_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            request = await reader.readexactly(size)
            self.requests[int.from_bytes(request[:2], "big")] += 1
            damages = self._chance.random() < REQUESTS
            self.damaged_requests += damages
            writer.write(self._damaged(request) if damages else struct.pack(">i", size) + request)
            await writer.drain()

    def _damaged(self, frame: bytes) -> bytes:
        """Return a frame with faults, and with a wrong length in one of ten cases."""
        frame = mutated(self._chance, frame)
        size = len(frame) if self._chance.random() < 0.9 else self._chance.randint(-5, 200_000)
        return struct.pack(">i", size) + frame

    def close(self) -> None:
        """End all connections."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class ProxiedClients:
    """Producers, members of groups and an administrator that reach a gateway through a proxy."""

    def __init__(self, address: str) -> None:
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": address,
            "log_level": 0,
            "socket.timeout.ms": 3000,
        }
        targets = (
            lambda: self._produce(idempotent=False),
            lambda: self._produce(idempotent=True),
            self._transact,
            self._ask,
            lambda: self._consume("classic"),
            lambda: self._consume("consumer"),
            self._share,
        )
        self._threads = [threading.Thread(target=self._repeated, args=(one,)) for one in targets]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Run until the process is killed."""
        for thread in self._threads:
            thread.join()

    def _repeated(self, act: Callable[[], None]) -> None:
        # Damaged names are no UTF-8, and damaged clients refuse calls.
        while True:
            with contextlib.suppress(KafkaException, ValueError, RuntimeError, OSError, MemoryError):
                act()

    def _send(self, producer: Producer) -> None:
        for _ in range(300):
            with contextlib.suppress(BufferError):
                producer.produce("target", os.urandom(50))
            producer.poll(0.002)

    def _produce(self, *, idempotent: bool) -> None:
        settings = {"message.timeout.ms": 5000, "linger.ms": 1, "enable.idempotence": idempotent}
        producer = Producer({**self._settings, **settings})
        self._send(producer)
        producer.flush(1)
        producer.purge()
        producer.flush(1)

    def _transact(self) -> None:
        producer = Producer({**self._settings, "transactional.id": "t", "transaction.timeout.ms": 5000})
        producer.init_transactions(5)
        producer.begin_transaction()
        self._send(producer)
        producer.commit_transaction(5)

    def _consume(self, protocol: str) -> None:
        settings = {"group.id": protocol, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumer = Consumer({**self._settings, **settings})
        consumer.subscribe(["target"])
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with contextlib.suppress(KafkaException):
                consumer.consume(1000, 0.2)
        consumer.close()

    def _share(self) -> None:
        consumer = ShareConsumer({**self._settings, "group.id": "share"})
        consumer.subscribe(["target"])
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with contextlib.suppress(KafkaException):
                consumer.poll(0.2)
        consumer.close()

    def _ask(self) -> None:
        admin = AdminClient(self._settings)
        for _ in range(20):
            admin.list_topics(timeout=2)
            admin.list_consumer_groups(request_timeout=2).result(5)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    ProxiedClients(sys.argv[1]).join()
