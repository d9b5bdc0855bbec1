"""ClientConnection: read the requests of one client within limits, and answer them in their order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkalike.errors import KafkaError, UnsupportedVersionError
from kafkalike.gateway.api_versions import API_VERSIONS, VERSIONS, Answer, MessageFormat
from kafkalike.gateway.error_codes import NONE, code_of
from kafkalike.gateway.gateway_cluster import MAX_NAME, Call, Handler, Reply
from kafkalike.gateway.message_codec import MalformedRequestError

if TYPE_CHECKING:
    from kafkalike.gateway.gateway_metrics import GatewayMetrics

logger = logging.getLogger(__name__)

MAX_FRAME: Final = 100 * 1024 * 1024
"""Most bytes of a request; Kafka's default of `socket.request.max.bytes`."""

MIN_FRAME: Final = 8
"""Bytes of the smallest request header."""

BUDGET_BYTES: Final = 256 * 1024 * 1024
"""Bytes of all requests that one gateway holds in memory."""

FRAME_SECONDS: Final = 10.0
"""Time for a request to arrive once its length has."""

IDLE_SECONDS: Final = 600.0
"""Time that a connection may stay silent; Kafka's default of `connections.max.idle.ms`."""

WRITE_SECONDS: Final = 60.0
"""Time for a client to take an answer."""

MAX_REQUESTS: Final = 16
"""Requests of one connection that wait for their answers; further ones are not read."""

_LENGTH: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">hhi")


class ByteBudget:
    """Bytes that the requests of all connections may hold together."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._freed = asyncio.Condition()

    async def reserve(self, size: int) -> None:
        """Wait until this many bytes are free, and reserve them. One request may take more than there are in all."""
        async with self._freed:
            await self._freed.wait_for(lambda: self._left > 0)
            self._left -= size

    async def release(self, size: int) -> None:
        """Return bytes that `reserve` has reserved."""
        async with self._freed:
            self._left += size
            self._freed.notify_all()


def offered_versions(handlers: Mapping[int, Handler]) -> list[dict[str, Any]]:
    """Return the requests that have a handler, with their versions, as ApiVersions lists them."""
    return [
        {"api_key": key, "min_version": low, "max_version": high}
        for key, (low, high) in sorted(VERSIONS.items())
        if key in handlers or key == API_VERSIONS
    ]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A request whose answer is being made."""

    key: int
    format: MessageFormat
    correlation_id: int
    reply: asyncio.Task[Reply] | Reply
    size: int
    """Bytes taken from the budget."""
    begun: float


class ClientConnection:
    """One connection.

    Args:
        reader, writer: its two directions.
        handlers: by API key.
        budget: memory of all requests.
        metrics: counts requests.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handlers: Mapping[int, Handler],
        budget: ByteBudget,
        metrics: GatewayMetrics,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._handlers = handlers
        self._budget = budget
        self._metrics = metrics
        peer = writer.get_extra_info("peername")
        self.host = str(peer[0]) if peer else ""
        self._pending: asyncio.Queue[_Pending | None] = asyncio.Queue(MAX_REQUESTS)

    async def serve(self) -> None:
        """Answer requests until the client or a malformed request ends the connection."""
        answers = asyncio.create_task(self._write_answers())
        try:
            await self._read_requests()
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        except MalformedRequestError as error:
            self._metrics.malformed.inc()
            logger.warning("gateway: connection of %s closed: %s", self.host, error)
        finally:
            # The writer may have ended already, with the queue full.
            with contextlib.suppress(asyncio.QueueFull):
                self._pending.put_nowait(None)
            if self._pending.full():
                answers.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError, TimeoutError):
                await answers
            await self._drop_pending()
            self._writer.close()
            with contextlib.suppress(ConnectionError, TimeoutError):
                await self._writer.wait_closed()

    async def _read_requests(self) -> None:
        while True:
            head = await asyncio.wait_for(self._reader.readexactly(_LENGTH.size), IDLE_SECONDS)
            (size,) = _LENGTH.unpack(head)
            if not MIN_FRAME <= size <= MAX_FRAME:
                raise MalformedRequestError(f"a request of {size} bytes")
            await self._budget.reserve(size)
            taken = True
            try:
                frame = await asyncio.wait_for(self._reader.readexactly(size), FRAME_SECONDS)
                pending = await self._begin(memoryview(frame))
                await self._pending.put(pending)
                taken = False
            finally:
                if taken:
                    await self._budget.release(size)

    async def _begin(self, frame: memoryview) -> _Pending:
        """Parse a request, and start its handler.

        Raises:
            MalformedRequestError: it is not a request that this gateway offers.
        """
        key, version, correlation_id = _HEAD.unpack_from(frame, 0)
        begun = asyncio.get_running_loop().time()
        low, high = VERSIONS.get(key, (0, -1))
        if key == API_VERSIONS and not low <= version <= high:
            # As in Kafka: a newer client is told the versions in the oldest form, and asks again.
            answer = {**self._versions(), "error_code": UnsupportedVersionError.errno}
            return _Pending(key, MessageFormat.of(key, 0), correlation_id, answer, len(frame), begun)
        if not low <= version <= high or (key not in self._handlers and key != API_VERSIONS):
            raise MalformedRequestError(f"request {key} of version {version} is not offered")
        known = MessageFormat.of(key, version)
        header, body = known.request(frame)
        reply: asyncio.Task[Reply] | Reply
        if key == API_VERSIONS:
            reply = self._versions()
        else:
            call = Call(version, body, (header.client_id or "")[:MAX_NAME], self.host)
            reply = await self._handled(key, call)
        return _Pending(key, known, correlation_id, reply, len(frame), begun)

    async def _handled(self, key: int, call: Call) -> asyncio.Task[Reply] | Reply:
        try:
            return await self._handlers[key](call)
        except Exception as error:  # noqa: BLE001 - whatever fails concerns this request alone
            return self._failed(key, call.version, error)

    def _failed(self, key: int, version: int, error: Exception) -> Answer:
        self._metrics.failures.inc()
        expected = isinstance(error, KafkaError | OSError)
        logger.warning(
            "gateway: request %s v%s of %s failed: %s", key, version, self.host, error, exc_info=not expected
        )
        return {"error_code": code_of(error), "error_message": str(error)[:MAX_NAME]}

    def _versions(self) -> Answer:
        return {"error_code": NONE, "api_keys": offered_versions(self._handlers)}

    async def _write_answers(self) -> None:
        try:
            while (pending := await self._pending.get()) is not None:
                try:
                    await self._write(pending)
                finally:
                    await self._budget.release(pending.size)
        except BaseException:
            # The reader may wait for a request that never comes.
            self._writer.transport.abort()
            raise

    async def _write(self, pending: _Pending) -> None:
        reply = pending.reply
        if isinstance(reply, asyncio.Task):
            try:
                reply = await reply
            except Exception as error:  # noqa: BLE001 - whatever fails concerns this request alone
                reply = self._failed(pending.key, -1, error)
        now = asyncio.get_running_loop().time()
        if reply is None:
            self._metrics.answered(pending.key, now - pending.begun, pending.size, 0)
            return
        try:
            frame = pending.format.answer(pending.correlation_id, reply)
        except (struct.error, TypeError, ValueError, AttributeError, LookupError):
            # The other connections go on; this client connects again.
            logger.exception("gateway: the answer to request %s cannot be written", pending.key)
            raise ConnectionAbortedError from None
        self._metrics.answered(pending.key, now - pending.begun, pending.size, len(frame))
        self._writer.write(frame)
        await asyncio.wait_for(self._writer.drain(), WRITE_SECONDS)

    async def _drop_pending(self) -> None:
        """Forget requests whose answers nobody takes; what they have begun goes on."""
        while not self._pending.empty():
            pending = self._pending.get_nowait()
            if pending is not None:
                await self._budget.release(pending.size)
