"""ClientConnection: read the requests of one client within limits, and answer them in their order."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import select
import struct
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalike.errors import KafkaError, UnsupportedVersionError
from kafkalike.gateway import api_versions
from kafkalike.gateway.byte_budget import ByteBudget, RequestMemory
from kafkalike.gateway.error_codes import NONE, code_of
from kafkalike.gateway.gateway_cluster import MAX_NAME, Call, Handler, Reply
from kafkalike.gateway.message_codec import MalformedRequestError

if TYPE_CHECKING:
    from kafkalike.gateway.authentication import SaslSession
    from kafkalike.gateway.gateway_metrics import GatewayMetrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_FRAME: Final = 100 * 1024 * 1024
"""Most bytes of a request; Kafka's default of `socket.request.max.bytes`."""

MIN_FRAME: Final = 8
"""Bytes of the smallest request header."""

SMALL_FRAME: Final = 4 * 1024
"""Bytes of a request up to which it does not wait for the budget, so that heartbeats pass when large requests fill it.
The numbers of connections and of requests bound their memory."""

MAX_UNAUTHENTICATED_FRAME: Final = 64 * 1024
"""Most bytes of a request before the client has authenticated."""

AUTHENTICATION_SECONDS: Final = 30.0
"""Time for a client to authenticate."""

FAILURE_SECONDS: Final = 0.5
"""Delay of the answer to a client that fails to authenticate, so that guessing takes long."""

FRAME_SECONDS: Final = 10.0
"""Time for a request to arrive once its length has."""

IDLE_SECONDS: Final = 600.0
"""Time that a connection may stay silent; Kafka's default of `connections.max.idle.ms`."""

WRITE_SECONDS: Final = 60.0
"""Time for a client to take an answer."""

MAX_REQUESTS: Final = 64
"""Requests of one connection that wait for their answers; further ones are not read."""

FEATURES: Final = {"group.version": 1, "transaction.version": 2}
"""Kafka's features: the consumer group protocol (KIP-848), and an epoch for each transaction (KIP-890)."""

_NUMBERS: Final = itertools.count(1)

_CLOSED: Final = getattr(select, "POLLRDHUP", select.POLLHUP)
"""Event of a connection that the client has closed, with or without unread requests."""

_LENGTH: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">hhi")


MAX_REPEATED: Final = 512
"""Most bytes of a request that is kept, because idle clients send the same one again and again."""

_SASL: Final = frozenset({api_versions.SASL_HANDSHAKE, api_versions.SASL_AUTHENTICATE})


def offered_versions(handlers: Mapping[int, Handler], *, sasl: bool = False) -> list[dict[str, Any]]:
    """Return the requests that have a handler, with their versions, as ApiVersions lists them.

    Args:
        handlers: by API key.
        sasl: whether clients authenticate.
    """
    return [
        {"api_key": key, "min_version": low, "max_version": high}
        for key, (low, high) in sorted(api_versions.VERSIONS.items())
        if key in handlers or key == api_versions.API_VERSIONS or (sasl and key in _SASL)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """A request whose answer is being made."""

    key: int
    format: api_versions.MessageFormat
    correlation_id: int
    reply: asyncio.Task[Reply] | Reply
    size: int
    reserved: int
    """Bytes taken from the budget."""
    memory: RequestMemory
    begun: float

    def end(self, budget: ByteBudget) -> None:
        """Stop what still waits, and return the bytes; those of records that wait for an append once it has ended."""
        reply = self.reply
        if self.key == api_versions.PRODUCE and isinstance(reply, asyncio.Task) and not reply.done():
            reply.add_done_callback(partial(self._appended, budget))
            return
        if isinstance(reply, asyncio.Task):
            reply.cancel()
        self._release(budget)

    def _appended(self, budget: ByteBudget, reply: asyncio.Task[Reply]) -> None:
        if not reply.cancelled():
            # Nobody takes the answer.
            reply.exception()
        self._release(budget)

    def _release(self, budget: ByteBudget) -> None:
        budget.release(self.reserved)
        self.memory.keep(0)


class ReadTimer:
    """Time limits of the reads of one connection. One timer serves many reads, which seldom take long.

    Args:
        reader: fails with `TimeoutError` when the time of a read is over.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._end = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        """Limit the next read."""
        self._end = self._loop.time() + seconds
        if self._timer is None or self._end < self._timer.when():
            self.cancel()
            self._timer = self._loop.call_at(self._end, self._ring)

    def stop(self) -> None:
        """Lift the limit until the next read."""
        self._end = math.inf

    def cancel(self) -> None:
        """Release the timer; the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        if self._end <= self._loop.time():
            self._reader.set_exception(TimeoutError())
        elif self._end < math.inf:
            self._timer = self._loop.call_at(self._end, self._ring)


class ClientConnection:
    """One connection.

    Args:
        reader, writer: its two directions.
        handlers: by API key.
        budget: memory of all requests.
        metrics: counts requests.
        records: by API key, memory of the records of all such requests, inflated or read.
        sasl: how the client authenticates; None if it need not.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handlers: Mapping[int, Handler],
        budget: ByteBudget,
        metrics: GatewayMetrics,
        *,
        records: Mapping[int, ByteBudget],
        sasl: SaslSession | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._handlers = handlers
        self._budget = budget
        self._records = records
        self._metrics = metrics
        self._sasl = sasl
        self._ends = False
        """True after a failure to authenticate, which ends the connection."""
        self.number = next(_NUMBERS)
        """Its number at this gateway."""
        peer = writer.get_extra_info("peername")
        self.host = str(peer[0]) if peer else ""
        self._pending: asyncio.Queue[_Pending] = asyncio.Queue(MAX_REQUESTS)
        self._unanswered: list[_Pending] = []
        self._repeated: tuple[bytes, tuple[Any, Any]] = b"", (None, None)

    @property
    def authenticated(self) -> bool:
        """True if the client may send requests."""
        return self._sasl is None or self._sasl.principal is not None

    def is_connected(self) -> bool:
        """Return False if the client has closed the connection. Thread-safe."""
        # Asks the kernel: requests that came before the end may not have been read yet.
        poll = select.poll()
        with contextlib.suppress(ValueError):  # the gateway has closed it
            poll.register(self._writer.get_extra_info("socket"), _CLOSED)
            # The number of a closed connection may belong to another one, so the transport is asked last.
            return not poll.poll(0) and not self._writer.is_closing()
        return False

    async def serve(self) -> None:
        """Answer requests until the client or a malformed request ends the connection."""
        answers = asyncio.create_task(self._write_answers())
        requests = asyncio.create_task(self._read_requests())
        try:
            # Without a writer of answers, the reader of requests would never end.
            await asyncio.wait([requests, answers], return_when=asyncio.FIRST_COMPLETED)
            if requests.done():
                requests.result()
        except asyncio.CancelledError:
            requests.cancel()
            await self._finish(answers)
            raise
        except (asyncio.IncompleteReadError, OSError) as error:
            # Errors of TLS too: the network causes them, not this program. The reader keeps the error of a reset
            # connection, and its traceback would keep this object.
            error.__traceback__ = None
            if isinstance(error, OSError):
                self._writer.transport.abort()
        except MalformedRequestError as error:
            self._metrics.malformed.inc()
            if self._budget.may_log(self.host, asyncio.get_running_loop().time()):
                logger.warning("gateway: connection of %s closed: %s", self.host, error)
        finally:
            # Nobody takes the answers: a long poll or a waiting JoinGroup would hold its place for nothing.
            requests.cancel()
            answers.cancel()
            await asyncio.gather(requests, answers, return_exceptions=True)
            # An error refers to this frame, which would keep all of it until a full garbage collection.
            del requests, answers
            self._drop_pending()
            self._writer.close()
            try:
                await self._writer.wait_closed()
            except OSError as error:
                error.__traceback__ = None

    async def _finish(self, answers: asyncio.Task[None]) -> None:
        """Write the answers to begun requests, because the gateway stops. Requests that wait for others end."""
        for pending in self._unanswered:
            if pending.key in {api_versions.FETCH, api_versions.JOIN_GROUP} and isinstance(pending.reply, asyncio.Task):
                pending.reply.cancel()
        written = asyncio.create_task(self._pending.join())
        # An answer that has ended ends all after it.
        await asyncio.wait([answers, written], timeout=FRAME_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        written.cancel()

    async def _read_requests(self) -> None:
        timer = ReadTimer(self._reader)
        try:
            await self._read_within(timer)
        finally:
            timer.cancel()

    async def _read_within(self, timer: ReadTimer) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + AUTHENTICATION_SECONDS
        while True:
            wait, most = IDLE_SECONDS, MAX_FRAME
            if not self.authenticated:
                # After a failure, the client has time to take the answer.
                left = until - loop.time()
                wait, most = min(left, FAILURE_SECONDS) if self._ends else left, MAX_UNAUTHENTICATED_FRAME
            timer.start(wait)
            head = await self._reader.readexactly(_LENGTH.size)
            timer.stop()
            (size,) = _LENGTH.unpack(head)
            if not MIN_FRAME <= size <= most:
                raise MalformedRequestError(f"a request of {size} bytes")
            reserved = size if size > SMALL_FRAME else 0
            await self._budget.reserve(reserved)
            taken, memory = True, RequestMemory()
            try:
                timer.start(FRAME_SECONDS)
                frame = await self._reader.readexactly(size)
                timer.stop()
                if self._unanswered and self._unanswered[-1].key == api_versions.FETCH:
                    # Clients send one fetch at a time. The answers of many would fill the memory.
                    await self._pending.join()
                pending = await self._begin(memoryview(frame), reserved, memory)
                if self._unanswered or isinstance(pending.reply, asyncio.Task):
                    await self._pending.put(pending)
                    self._unanswered.append(pending)
                    taken = False
                else:
                    await self._write(pending)
            finally:
                if taken:
                    self._budget.release(reserved)
                    memory.keep(0)

    async def _begin(self, frame: memoryview, reserved: int, memory: RequestMemory) -> _Pending:
        """Parse a request, and start its handler.

        Raises:
            MalformedRequestError: it is not a request that this gateway offers.
        """
        key, version, correlation_id = _HEAD.unpack_from(frame, 0)
        begun = asyncio.get_running_loop().time()
        memory.budget = self._records.get(key)
        low, high = api_versions.VERSIONS.get(key, (0, -1))
        if key == api_versions.API_VERSIONS and not low <= version <= high:
            # As in Kafka: a newer client is told the versions in the oldest form, and asks again.
            answer = {**self._versions(), "error_code": UnsupportedVersionError.errno}
            return _Pending(
                key, api_versions.MessageFormat.of(key, 0), correlation_id, answer, len(frame), reserved, memory, begun
            )
        if not low <= version <= high or not self._offers(key):
            raise MalformedRequestError(f"request {key} of version {version} is not offered")
        if not self.authenticated and (self._ends or key not in _SASL | {api_versions.API_VERSIONS}):
            raise MalformedRequestError(
                f"request {key} came before authentication: set the client's security.protocol to SASL_PLAINTEXT or, "
                "with TLS, SASL_SSL"
            )
        known = api_versions.MessageFormat.of(key, version)
        header, body = self._parsed(known, frame)
        self._metrics.asked(key, version)
        reply: asyncio.Task[Reply] | Reply
        if key == api_versions.API_VERSIONS:
            reply = self._versions()
        elif self._sasl is not None and key in _SASL:
            reply = await self._authenticate(self._sasl, key, body)
        else:
            principal = "" if self._sasl is None else self._sasl.principal or ""
            client_id = (header.client_id or "")[:MAX_NAME]
            call = Call(version, body, client_id, self.host, principal, self.number, memory, self.is_connected)
            reply = await self._answer(known, key, self._handlers[key](call))
        return _Pending(key, known, correlation_id, reply, len(frame), reserved, memory, begun)

    def _parsed(self, known: api_versions.MessageFormat, frame: memoryview) -> tuple[Any, Any]:
        """Return header and body. A repeated request differs by its number alone."""
        if len(frame) > MAX_REPEATED or not self.authenticated:
            return known.request(frame)
        content = bytes(frame[:4]) + frame[_HEAD.size :]
        if content != self._repeated[0]:
            self._repeated = content, known.request(frame)
        return self._repeated[1]

    def _offers(self, key: int) -> bool:
        return key in self._handlers or key == api_versions.API_VERSIONS or (self._sasl is not None and key in _SASL)

    async def _authenticate(self, sasl: SaslSession, key: int, body: Any) -> api_versions.Answer:  # noqa: ANN401
        """Take a step of the client's authentication. After a failure the connection ends with this answer."""
        try:
            if key == api_versions.SASL_HANDSHAKE:
                sasl.choose(body.mechanism)
                return {"error_code": NONE, "mechanisms": sasl.mechanisms}
            # Hashing takes some milliseconds.
            return {"error_code": NONE, "auth_bytes": await asyncio.to_thread(sasl.answer, bytes(body.auth_bytes))}
        except KafkaError as error:
            self._ends = True
            logger.warning("gateway: %s: %s", self.host, error)
            await asyncio.sleep(FAILURE_SECONDS)
            return {"error_code": code_of(error), "error_message": str(error), "mechanisms": sasl.mechanisms}

    async def _answer(
        self, known: api_versions.MessageFormat, key: int, reply: Awaitable[T]
    ) -> T | api_versions.Answer:
        try:
            return await reply
        except Exception as error:  # noqa: BLE001 - whatever fails concerns this request alone
            return self._failed(known, key, error)

    def _failed(self, known: api_versions.MessageFormat, key: int, error: Exception) -> api_versions.Answer:
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

    def _versions(self) -> api_versions.Answer:
        return {
            "error_code": NONE,
            "api_keys": offered_versions(self._handlers, sasl=self._sasl is not None),
            "supported_features": [{"name": n, "min_version": 0, "max_version": v} for n, v in FEATURES.items()],
            "finalized_features_epoch": 0,
            "finalized_features": [
                {"name": n, "min_version_level": v, "max_version_level": v} for n, v in FEATURES.items()
            ],
        }

    async def _write_answers(self) -> None:
        try:
            while True:
                pending = await self._pending.get()
                try:
                    await self._write(pending)
                finally:
                    pending.end(self._budget)
                    self._unanswered.remove(pending)
                    self._pending.task_done()
        except OSError:
            # The reader notices that the connection has ended.
            self._writer.transport.abort()

    async def _write(self, pending: _Pending) -> None:
        reply = pending.reply
        if isinstance(reply, asyncio.Task):
            # An append goes on if the client disconnects; `_Pending.end` cancels other requests. All are shielded,
            # because the `wait_for` of a request can swallow this task's cancellation before Python 3.12.
            reply = await self._answer(pending.format, pending.key, asyncio.shield(reply))
        now = asyncio.get_running_loop().time()
        if reply is None:
            self._metrics.answered(pending.key, now - pending.begun, pending.size, 0)
            return
        self._metrics.count_errors(pending.key, reply)
        try:
            frame = pending.format.answer(pending.correlation_id, reply)
        except (struct.error, TypeError, ValueError, AttributeError, LookupError):
            # The other connections go on; this client connects again.
            logger.exception("gateway: the answer to request %s cannot be written", pending.key)
            raise ConnectionAbortedError from None
        self._metrics.answered(pending.key, now - pending.begun, pending.size, len(frame))
        self._writer.write(frame)
        if self._writer.transport.get_write_buffer_size():
            # The client has not taken all of it.
            async with asyncio.timeout(WRITE_SECONDS):
                await self._writer.drain()

    def _drop_pending(self) -> None:
        while not self._pending.empty():
            self._pending.get_nowait().end(self._budget)
