"""`kafkalike gateway`: serve Kafka's wire protocol over the topics of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import click

from kafkalike.cli.environment import Environment, Interrupt, pass_options
from kafkalike.cli.options import cluster_options, version_option

LOOK_SECONDS: Final = 0.1
"""Interval at which the command checks for a signal."""

PORTS: Final = range(65_536)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    bootstrap_server: str | None
    command_config: str | None
    listen: str
    advertise: str | None
    anyone: bool
    metrics_port: int | None


def _address(value: str, option: str) -> tuple[str, int]:
    """Return the host and port of HOST:PORT, with an IPv6 address in brackets."""
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) not in PORTS:
        raise click.BadParameter(f"{value!r} is not HOST:PORT", param_hint=option)
    return host.removeprefix("[").removesuffix("]"), int(port)


@click.command(epilog="Example: kafkalike gateway --listen 127.0.0.1:9092")
@cluster_options
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9092",
    show_default=True,
    help="Address to listen on; port 0 finds a free one.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="Address that clients are told to connect to; default: --listen.",
)
@click.option(
    "--anyone", is_flag=True, help="Serve a network without authentication: whoever reaches the port has all rights."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(PORTS.start, PORTS.stop - 1),
    help="Serve /metrics for Prometheus at this port of the loopback; it answers once clients are served.",
)
@version_option
@pass_options(_Options)
def gateway(environment: Environment, options: _Options) -> None:
    """Serve Kafka clients in any language until SIGTERM or Ctrl-C.

    The gateway keeps no state: stop it at any moment, and run as many as you like for one cluster.
    """
    from prometheus_client import start_http_server

    from kafkalike.admin.metrics.cluster_collector import exposition
    from kafkalike.errors.optional_imports import require_module

    server_module = require_module("kafkalike.gateway.gateway_server", "gateways", "gateway")
    cluster = environment.cluster_of(options.bootstrap_server, options.command_config)
    registry = exposition(cluster, clock=environment.clock)
    host, port = _address(options.listen, "--listen")
    advertised = None if options.advertise is None else _address(options.advertise, "--advertise")
    with Interrupt() as interrupt:
        server = server_module.GatewayServer(
            cluster,
            host=host,
            port=port,
            advertised=advertised,
            anyone=options.anyone,
            registry=registry,
            clock=environment.clock,
        )
        metrics = None
        try:
            server.start()
            if options.metrics_port is not None:
                metrics = start_http_server(options.metrics_port, addr="127.0.0.1", registry=registry)
                click.echo(f"Serving metrics at http://127.0.0.1:{metrics[0].server_port}/metrics", err=True)
            click.echo(f"Serving {cluster.root} at {server.bootstrap_servers}", err=True)
            while not interrupt.is_requested and server.running:
                environment.clock.sleep(LOOK_SECONDS)
        finally:
            if metrics is not None:
                metrics[0].shutdown()
                metrics[0].server_close()
            server.stop()
