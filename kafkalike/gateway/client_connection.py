"""ClientConnection: read the requests of one client within limits, and answer them in their order."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import struct
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalike.errors import KafkaError, UnsupportedVersionError
from kafkalike.gateway.api_versions import API_VERSIONS, VERSIONS, Answer, MessageFormat
from kafkalike.gateway.error_codes import NONE, code_of
from kafkalike.gateway.gateway_cluster import MAX_NAME, Call, Handler, Reply
from kafkalike.gateway.message_codec import MalformedRequestError

if TYPE_CHECKING:
    from kafkalike.gateway.gateway_metrics import GatewayMetrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_FRAME: Final = 100 * 1024 * 1024
"""Most bytes of a request; Kafka's default of `socket.request.max.bytes`."""

MIN_FRAME: Final = 8
"""Bytes of the smallest request header."""

SMALL_FRAME: Final = 16 * 1024
"""Bytes of a request up to which it does not wait for the budget, so that heartbeats pass when large requests fill it.
The numbers of connections and of requests bound their memory."""

BUDGET_BYTES: Final = 256 * 1024 * 1024
"""Bytes of all larger requests that one gateway holds in memory."""

LOG_SECONDS: Final = 1.0
"""Time between two log lines about malformed requests of one address."""

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
    """Bytes that the requests of all connections may hold together, and the log lines about them.

    Args:
        size: bytes in all.
    """

    def __init__(self, size: int) -> None:
        self._left = size
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()
        self._logged: dict[str, float] = {}

    async def reserve(self, size: int) -> None:
        """Wait until bytes are free, and reserve them. One request may take more than are left."""
        while size and self._left <= 0:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._left -= size

    def release(self, size: int) -> None:
        """Return bytes that `reserve` has reserved."""
        self._left += size
        while self._left > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def may_log(self, host: str, now: float) -> bool:
        """Return whether a malformed request of an address gets a log line; one a second does."""
        if now - self._logged.get(host, -LOG_SECONDS) < LOG_SECONDS:
            return False
        if len(self._logged) > MAX_REQUESTS:
            self._logged.clear()
        self._logged[host] = now
        return True


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
    reserved: int
    """Bytes taken from the budget."""
    begun: float

    def end(self, budget: ByteBudget) -> None:
        """Return the bytes, and stop what still waits."""
        budget.release(self.reserved)
        if isinstance(self.reply, asyncio.Task):
            self.reply.cancel()


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
        self._pending: asyncio.Queue[_Pending] = asyncio.Queue(MAX_REQUESTS)

    async def serve(self) -> None:
        """Answer requests until the client or a malformed request ends the connection."""
        answers = asyncio.create_task(self._write_answers())
        try:
            await self._read_requests()
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        except MalformedRequestError as error:
            self._metrics.malformed.inc()
            if self._budget.may_log(self.host, asyncio.get_running_loop().time()):
                logger.warning("gateway: connection of %s closed: %s", self.host, error)
        finally:
            # Nobody takes the answers: a long poll or a waiting JoinGroup would hold its place for nothing.
            answers.cancel()
            await asyncio.wait([answers])
            self._drop_pending()
            self._writer.close()
            with contextlib.suppress(ConnectionError, TimeoutError):
                await self._writer.wait_closed()

    async def _read_requests(self) -> None:
        while True:
            async with asyncio.timeout(IDLE_SECONDS):
                head = await self._reader.readexactly(_LENGTH.size)
            (size,) = _LENGTH.unpack(head)
            if not MIN_FRAME <= size <= MAX_FRAME:
                raise MalformedRequestError(f"a request of {size} bytes")
            reserved = size if size > SMALL_FRAME else 0
            await self._budget.reserve(reserved)
            taken = True
            try:
                async with asyncio.timeout(FRAME_SECONDS):
                    frame = await self._reader.readexactly(size)
                pending = await self._begin(memoryview(frame), reserved)
                await self._pending.put(pending)
                taken = False
            finally:
                if taken:
                    self._budget.release(reserved)

    async def _begin(self, frame: memoryview, reserved: int) -> _Pending:
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
            return _Pending(key, MessageFormat.of(key, 0), correlation_id, answer, len(frame), reserved, begun)
        if not low <= version <= high or (key not in self._handlers and key != API_VERSIONS):
            raise MalformedRequestError(f"request {key} of version {version} is not offered")
        known = MessageFormat.of(key, version)
        header, body = known.request(frame)
        reply: asyncio.Task[Reply] | Reply
        if key == API_VERSIONS:
            reply = self._versions()
        else:
            call = Call(version, body, (header.client_id or "")[:MAX_NAME], self.host)
            reply = await self._handled(known, key, call)
        return _Pending(key, known, correlation_id, reply, len(frame), reserved, begun)

    async def _handled(self, known: MessageFormat, key: int, call: Call) -> asyncio.Task[Reply] | Reply:
        return await self._answer(known, key, self._handlers[key](call))

    async def _answer(self, known: MessageFormat, key: int, reply: Awaitable[T]) -> T | Answer:
        try:
            return await reply
        except Exception as error:  # noqa: BLE001 - whatever fails concerns this request alone
            return self._failed(known, key, error)

    def _failed(self, known: MessageFormat, key: int, error: Exception) -> Answer:
        """Return the answer to a request that failed as a whole.

        Raises:
            ConnectionAbortedError: its answer has no place for an error; the client connects again and retries.
        """
        self._metrics.failures.inc()
        expected = isinstance(error, KafkaError | OSError)
        logger.warning("gateway: request %s of %s failed: %s", key, self.host, error, exc_info=not expected)
        if not known.has_error:
            raise ConnectionAbortedError
        return {"error_code": code_of(error), "error_message": str(error)[:MAX_NAME]}

    def _versions(self) -> Answer:
        return {"error_code": NONE, "api_keys": offered_versions(self._handlers)}

    async def _write_answers(self) -> None:
        try:
            while True:
                pending = await self._pending.get()
                try:
                    await self._write(pending)
                finally:
                    pending.end(self._budget)
        except (ConnectionError, TimeoutError):
            # The reader notices that the connection has ended.
            self._writer.transport.abort()

    async def _write(self, pending: _Pending) -> None:
        reply = pending.reply
        if isinstance(reply, asyncio.Task):
            reply = await self._answer(pending.format, pending.key, reply)
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
        async with asyncio.timeout(WRITE_SECONDS):
            await self._writer.drain()

    def _drop_pending(self) -> None:
        while not self._pending.empty():
            self._pending.get_nowait().end(self._budget)
