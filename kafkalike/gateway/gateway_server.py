"""GatewayServer: accept Kafka clients at an address, and serve a cluster to them until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Mapping
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
from kafkalike.gateway.handlers.record_fetcher import RecordFetcher, TopicTails
from kafkalike.gateway.handlers.topic_requests import TopicRequests
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

ACCEPT_STEPS: Final = 10
"""Steps of the event loop that start the task of an accepted connection: it takes about five."""


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
        self._gateways = LiveGateways(cluster, self.advertised, clock)
        self._home = GatewayCluster(cluster, self._gateways, clock)
        tails = TopicTails(self._home, "none" if is_loopback(host) else "lz4")
        sessions = GroupSessions(self._home)
        self._metrics.members.set_function(lambda: sessions.count)
        transactions = TransactionRequests(self._home)
        appender = RecordAppender(self._home, transactions, tails.poke)
        self._logs = appender, tails
        self._metrics.open_logs.set_function(lambda: appender.open_logs + tails.open_logs)
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
        }
        self._handlers: Mapping[int, Handler] = (
            handlers
            if users is None
            else RequestAccess(self._home, users).guarded({**handlers, **UserRequests(self._home, users).handlers})
        )
        self._stopping: asyncio.Event | None = None
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
        self._home.loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        budget = ByteBudget(BUDGET_BYTES)
        # Apart, so that consumers who take no answers do not stop producers.
        records = {key: ByteBudget(BUDGET_BYTES) for key in (PRODUCE, FETCH)}
        open_connections: dict[asyncio.Task[None], ClientConnection] = {}

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sasl = None if self._users is None else SaslSession(self._users, plain=self._plain)
            connection = ClientConnection(
                reader, writer, self._handlers, budget, self._metrics, records=records, sasl=sasl
            )
            of_host = sum(one.host == connection.host for one in open_connections.values())
            strangers = [one.host for one in open_connections.values() if not one.authenticated]
            if (
                len(open_connections) >= MAX_CONNECTIONS
                or of_host >= MAX_CONNECTIONS_PER_HOST
                or len(strangers) >= MAX_UNAUTHENTICATED
                or strangers.count(connection.host) >= MAX_UNAUTHENTICATED_PER_HOST
            ):
                logger.warning("gateway: too many connections; closing a connection of %s", connection.host)
                writer.close()
                return
            task = asyncio.current_task()
            if task is None:
                return
            open_connections[task] = connection
            self._metrics.connections.set(len(open_connections))
            try:
                await connection.serve()
            except asyncio.CancelledError:
                # The gateway stops.
                writer.transport.abort()
            finally:
                del open_connections[task]
                self._metrics.connections.set(len(open_connections))

        server = await asyncio.start_server(
            connected,
            sock=self._socket,
            limit=BUFFER_BYTES,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else FRAME_SECONDS,
        )
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
            # Connections that were just accepted begin first, as asyncio cannot attach them to a closed server.
            asyncio.get_running_loop().remove_reader(self._socket)
            for _ in range(ACCEPT_STEPS):
                await asyncio.sleep(0)
            server.close()
            tasks = list(open_connections)
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=GRACE_SECONDS)

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
    except OSError as cause:
        opened.close()
        raise KafkaConfigurationError(f"cannot listen on {host}:{port}: {cause}") from cause
    return opened
