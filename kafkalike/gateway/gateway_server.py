"""GatewayServer: accept Kafka clients at an address, and serve a cluster to them until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from kafkalike.errors import KafkaConfigurationError
from kafkalike.gateway.api_versions import FETCH, PRODUCE
from kafkalike.gateway.authentication import SaslSession, UserFile
from kafkalike.gateway.byte_budget import BUDGET_BYTES, ByteBudget
from kafkalike.gateway.client_connection import FRAME_SECONDS, ClientConnection
from kafkalike.gateway.error_codes import attempt
from kafkalike.gateway.gateway_cluster import GatewayCluster, Handler
from kafkalike.gateway.gateway_metrics import GatewayMetrics
from kafkalike.gateway.group_sessions import GroupSessions
from kafkalike.gateway.handlers.classic_members import ClassicMembers
from kafkalike.gateway.handlers.cluster_metadata import ClusterMetadata
from kafkalike.gateway.handlers.consumer_members import ConsumerMembers
from kafkalike.gateway.handlers.group_requests import GroupRequests
from kafkalike.gateway.handlers.offset_requests import OffsetRequests
from kafkalike.gateway.handlers.record_appender import RecordAppender
from kafkalike.gateway.handlers.record_fetcher import RecordFetcher
from kafkalike.gateway.handlers.share_members import ShareMembers
from kafkalike.gateway.handlers.share_sessions import ShareSessions
from kafkalike.gateway.handlers.topic_requests import TopicRequests
from kafkalike.gateway.handlers.topic_tails import TopicTails
from kafkalike.gateway.handlers.transaction_requests import TransactionRequests
from kafkalike.gateway.handlers.user_requests import UserRequests
from kafkalike.gateway.live_gateways import LiveGateways
from kafkalike.gateway.request_access import RequestAccess
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.schemas.service.credentials import is_loopback, tls_context

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 1000
MAX_CONNECTIONS_PER_HOST: Final = 500
"""Connections of all clients, and of one address; further ones are closed at once."""

MAX_UNAUTHENTICATED: Final = 200
MAX_UNAUTHENTICATED_PER_HOST: Final = 100
"""Connections of all clients, and of one address, that have not authenticated yet. One address does not keep others
from it."""

BUFFER_BYTES: Final = 256 * 1024
"""Bytes of a connection that are read ahead."""

GRACE_SECONDS: Final = 5.0
"""Time for open requests when the gateway stops."""

ACCEPT_PAUSE_SECONDS: Final = 0.5
"""Time until the next try after a connection could not be accepted."""


@dataclass(slots=True, eq=False)
class _Guest:
    """A connection, from the moment it is accepted."""

    host: str
    connection: ClientConnection | None = None
    """None during the handshake of TLS."""


class GatewayServer:
    """A gateway. The constructor opens the port; `start` serves clients in threads.

    Args:
        cluster: the cluster to serve.
        host: address to listen on.
        port: 0 finds a free one.
        advertised: host and port that clients are told to connect to; None for the listening address.
        anyone: serve clients at an address beyond the loopback although they need not authenticate.
        users: the users by whose rules clients are served; None serves everybody.
        certificate: files of a certificate chain and its key, for TLS; the key may be in the same file (None).
        registry: gets the metrics; None makes one.
        clock: time.

    Raises:
        KafkaConfigurationError: the address cannot be used, or others than this machine would reach it.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        advertised: tuple[str, int] | None = None,
        anyone: bool = False,
        users: UserFile | None = None,
        certificate: tuple[str, str | None] | None = None,
        registry: CollectorRegistry | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not is_loopback(host) and not anyone and users is None:
            raise KafkaConfigurationError(
                f"refusing to listen on {host}: every client that reaches it could read and write all topics. Listen "
                "on 127.0.0.1, name --users-file, or name --anyone if the network is closed to others"
            )
        self._users, self._tls = users, None if certificate is None else tls_context(certificate)
        # A password in the clear may pass only where nobody else can read it.
        self._plain = certificate is not None or is_loopback(host)
        if users is not None:
            users.users()
        if advertised is None and host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not listened on
            raise KafkaConfigurationError(f"clients cannot connect to {host}: name --advertise HOST:PORT")
        self._socket = _listening(host, port)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self.advertised = advertised or self.address
        self._metrics = GatewayMetrics(CollectorRegistry() if registry is None else registry)
        self._budget = ByteBudget(BUDGET_BYTES)
        # Apart, so that consumers who take no answers do not stop producers.
        self._records = {key: ByteBudget(BUDGET_BYTES) for key in (PRODUCE, FETCH)}
        for of, budget in {
            "requests": self._budget,
            "appends": self._records[PRODUCE],
            "answers": self._records[FETCH],
        }.items():
            self._metrics.memory.labels(of).set_function(partial(getattr, budget, "used"))
        self._gateways = LiveGateways(cluster, self.advertised, clock)
        self._home = GatewayCluster(cluster, self._gateways, clock)
        tails = TopicTails(self._home, "none" if is_loopback(host) else "lz4")
        sessions = GroupSessions(self._home)
        self._metrics.members.set_function(lambda: sessions.count)
        transactions = TransactionRequests(self._home)
        appender = RecordAppender(self._home, transactions, tails.poke)
        self._logs = appender, tails, transactions
        self._metrics.open_logs.set_function(lambda: sum(logs.open_logs for logs in self._logs))
        self._shares = ShareSessions(self._home, tails)
        handlers: dict[int, Handler] = {
            **ClusterMetadata(self._home).handlers,
            **TopicRequests(self._home).handlers,
            **transactions.handlers,
            **appender.handlers,
            **RecordFetcher(self._home, tails).handlers,
            **OffsetRequests(self._home, tails).handlers,
            **GroupRequests(self._home, sessions.has_epochs).handlers,
            **ClassicMembers(sessions).handlers,
            **ConsumerMembers(sessions).handlers,
            **ShareMembers(sessions).handlers,
            **self._shares.handlers,
        }
        self._handlers: Mapping[int, Handler] = (
            handlers
            if users is None
            else RequestAccess(self._home, users).guarded({**handlers, **UserRequests(self._home, users).handlers})
        )
        self._stopping: asyncio.Event | None = None
        self._connections: dict[asyncio.Task[None], _Guest] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafkalike-gateway", daemon=True)

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        host, port = self.advertised
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def node_id(self) -> int:
        """The id by which clients know this gateway; valid after `start`."""
        return self._gateways.own.node_id

    @property
    def running(self) -> bool:
        """True while clients are served."""
        return self._thread.is_alive()

    @property
    def unready(self) -> str | None:
        """The reason why clients should use another gateway; None if this one is ready."""
        stopping = self._stopping
        if not self.running or stopping is None or stopping.is_set():
            return "the gateway accepts no connections"
        silent = self._gateways.silent_seconds
        return f"the storage has not answered for {silent:.0f} s" if silent else None

    def start(self) -> None:
        """Register the gateway, and serve clients; return when it accepts connections.

        Raises:
            KafkaError: the storage failed, so nothing was started.
        """
        self._gateways.join()
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Accept no more connections, finish open requests, and stop. Idempotent."""
        loop, stopping = self._home.loop, self._stopping
        if loop is not None and stopping is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(stopping.set)
        if self._thread.ident is not None:
            self._thread.join()
        self._gateways.leave()
        self._socket.close()
        self._home.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        loop = self._home.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        accepting = loop.create_task(self._accept())
        logger.info("gateway: serving %s at %s", self._home.cluster.root, self.bootstrap_servers)
        self._ready.set()
        try:
            while not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), self._gateways.beat_seconds)
                    break
                await self._home.run(self._gateways.beat)
                await self._close_unused_logs()
        finally:
            accepting.cancel()
            await asyncio.wait([accepting])
            self._socket.close()
            tasks = list(self._connections)
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=GRACE_SECONDS)

    async def _accept(self) -> None:
        """Accept connections, and serve those within the limits."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, peer = await loop.sock_accept(self._socket)
            except OSError as error:
                # Too many open files, for instance.
                logger.warning("gateway: no connection can be accepted: %s", error)
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            host = str(peer[0])
            if self._is_full(host):
                if self._budget.may_log(host, loop.time()):
                    logger.warning("gateway: too many connections; closing a connection of %s", host)
                client.close()
                continue
            guest = _Guest(host)
            task = loop.create_task(self._serve_client(client, guest))
            # Handshakes of TLS count, too: they hold a socket.
            self._connections[task] = guest
            self._metrics.connections.set(len(self._connections))
            task.add_done_callback(self._ended)

    def _is_full(self, host: str) -> bool:
        guests = self._connections.values()
        strangers = [guest.host for guest in guests if guest.connection is None or not guest.connection.authenticated]
        return (
            len(guests) >= MAX_CONNECTIONS
            or sum(guest.host == host for guest in guests) >= MAX_CONNECTIONS_PER_HOST
            or len(strangers) >= MAX_UNAUTHENTICATED
            or strangers.count(host) >= MAX_UNAUTHENTICATED_PER_HOST
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._connections[task]
        self._metrics.connections.set(len(self._connections))
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("gateway: a connection failed: %s", error, exc_info=error)

    async def _serve_client(self, client: socket.socket, guest: _Guest) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(BUFFER_BYTES, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                client,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else FRAME_SECONDS,
            )
        except OSError as error:
            # Errors of TLS too. The transport has closed the socket.
            logger.info("gateway: no connection with %s: %s", guest.host, error)
            return
        except BaseException:
            client.close()
            raise
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        sasl = None if self._users is None else SaslSession(self._users, plain=self._plain)
        guest.connection = ClientConnection(
            reader, writer, self._handlers, self._budget, self._metrics, records=self._records, sasl=sasl
        )
        try:
            await guest.connection.serve()
        except asyncio.CancelledError:
            # The gateway stops.
            transport.abort()
        finally:
            await self._shares.close_connection(guest.connection.number)

    async def _close_unused_logs(self) -> None:
        outcome, ids = await self._home.run(attempt, self._home.topic_ids)
        if ids is None:
            logger.warning("gateway: the topics are unknown: %s", outcome.message)
            return
        for logs in self._logs:
            logs.close_unused(ids)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(256)
        opened.setblocking(False)  # noqa: FBT003 - the only form that it has
    except OSError as cause:
        opened.close()
        raise KafkaConfigurationError(f"cannot listen on {host}:{port}: {cause}") from cause
    return opened
