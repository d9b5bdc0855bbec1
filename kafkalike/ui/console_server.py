"""Console server: serve the console in a thread until it is stopped."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from kafkalike.errors import KafkaConfigurationError
from kafkalike.errors.optional_imports import require_module
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.schemas.service.credentials import is_loopback

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.spark.sql.queries import Queries
    from kafkalike.ui.cluster_overview import Overview

GRACE_SECONDS: Final = 3
"""Time for open requests when the console stops."""


class ConsoleServer:
    """HTTP server of the console. The constructor opens the port.

    Args:
        cluster: cluster to show, or several ones by name, each below the path `/clusters/NAME/`.
        host: address to listen on.
        port: 0 finds a free one.
        token: token of visitors; None makes a random one, an empty text requires none.
        read_only: refuse every change, or the changes of these clusters.
        allowed_hosts: further host names, beside the names of this machine.
        certificate: files of the certificate and its key, for https; the first file may include the key. None: http.
        metrics: returns the response of a cluster's `/metrics`; None serves no metrics.
        queries: runs SQL statements of the first cluster; None without Spark.
        lag_seconds: age of the oldest unread record from which on a group is late, and from which on it is very late.
        clock: source of times.

    Raises:
        KafkaConfigurationError: packages are missing; the address or the certificate cannot be used; a network
            address would be served without a token; or a group would be very late before it is late.
    """

    def __init__(
        self,
        cluster: Cluster | Mapping[str, Cluster],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        read_only: bool | Collection[str] = False,
        allowed_hosts: Collection[str] = (),
        certificate: tuple[str, str | None] | None = None,
        metrics: Callable[[Cluster], bytes] | None = None,
        queries: Queries | None = None,
        lag_seconds: tuple[float, float] = (60.0, 600.0),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        serving = require_module("kafkalike.schemas.service.http_server", "web consoles", "ui")
        app = require_module("kafkalike.ui.app", "web consoles", "ui")
        home = require_module("kafkalike.ui.cluster_view", "web consoles", "ui")
        access = require_module("kafkalike.ui.access_control", "web consoles", "ui")
        if token == "" and not is_loopback(host):
            raise KafkaConfigurationError(
                f"refusing to listen on {host} without a token: leave --no-token out, or listen on 127.0.0.1"
            )
        warn_seconds, bad_seconds = lag_seconds
        if not 0 <= warn_seconds <= bad_seconds:
            raise KafkaConfigurationError(
                f"lag_seconds must be two ages in ascending order, not {warn_seconds:g} and {bad_seconds:g}"
            )
        self.token = secrets.token_urlsafe(24) if token is None else token
        door = serving.ListeningAddress(host=host, port=port, anyone=bool(self.token), certificate=certificate)
        self.url: str = door.url
        """Address without the token."""
        rules = access.AccessControl(
            token=self.token,
            port=door.address[1],
            hosts=access.allowed({*allowed_hosts, host}),
            read_only=read_only is True,
            secure=certificate is not None,
        )
        named = dict(cluster) if isinstance(cluster, Mapping) else None
        known: list[Cluster] = list(cluster.values()) if isinstance(cluster, Mapping) else [cluster]
        self._views: list[Any] = [
            home.ConsoleView(
                one,
                clock,
                None if metrics is None else partial(metrics, one),
                queries if at == 0 else None,
                thresholds=home.LagThresholds(warn_seconds=warn_seconds, bad_seconds=bad_seconds),
                must_exist=named is not None,
            )
            for at, one in enumerate(known)
        ]
        if named is not None:
            closed = () if isinstance(read_only, bool) else read_only
            gate = app.consoles(dict(zip(named, self._views, strict=True)), rules, closed)
        else:
            gate = app.console(self._views[0], rules)
        self._stopping: threading.Event = gate.app.state.stopping
        self._server: Any = serving.HttpServer(gate, door, name="kafkalike-ui", grace_seconds=GRACE_SECONDS)

    @property
    def address_with_token(self) -> str:
        """Return the address to open in a browser."""
        return f"{self.url}/?{urlencode({'token': self.token})}" if self.token else self.url

    @property
    def running(self) -> bool:
        """Check that the server still runs."""
        answers: bool = self._server.running
        return answers

    @property
    def overview(self) -> Overview:
        """Return the newest state of the first cluster that the pages have."""
        found: Overview = self._views[0].sampler.newest(0)
        return found

    def start(self) -> None:
        """Start the thread that answers requests."""
        self._server.start()
        # The first page then finds figures.
        for view in self._views:
            view.sampler.newest(0)

    def stop(self) -> None:
        """Refuse new connections, finish open requests, and stop."""
        self._stopping.set()
        self._server.stop()
        for view in self._views:
            view.close()
