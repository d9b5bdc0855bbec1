"""`kafkalike ui` and `kafkalike metrics`: serve a cluster to browsers and to Prometheus."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Final

import click

from kafkalike.cli.environment import Environment, Interrupt, pass_environment, pass_options
from kafkalike.cli.options import certificate, cluster_options, settings_of, tls_options, version_option
from kafkalike.cli.output import output_option

LOOK_SECONDS: Final = 0.1
"""Interval at which a server checks for a signal."""

TOKEN: Final = "KAFKALIKE_UI_TOKEN"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    bootstrap_server: str | None
    command_config: str | None
    host: str
    port: int
    token: bool
    read_only: bool
    spark: bool
    lag_warn_seconds: float
    lag_bad_seconds: float
    allowed_hosts: tuple[str, ...]
    tls_cert_file: str | None
    tls_key_file: str | None


@click.command(epilog="Example: kafkalike ui --port 8090 --read-only")
@cluster_options
@click.option("--port", type=click.IntRange(0, 65_535), default=8090, show_default=True, help="0 finds a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve at.")
@click.option(
    "--token/--no-token", default=True, show_default=True, help=f"Require a token: ${TOKEN}, or a random one."
)
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option("--spark", is_flag=True, help="Start a Spark session, for the page that runs SELECT statements.")
@click.option(
    "--lag-warn-seconds",
    type=click.FloatRange(0),
    default=60,
    show_default=True,
    help="A group is late when its oldest unread record is this old.",
)
@click.option(
    "--lag-bad-seconds",
    type=click.FloatRange(0),
    default=600,
    show_default=True,
    help="And very late from this age on.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Host name of the console, beside the names of this machine; repeatable.",
)
@tls_options
@version_option
@pass_options(_Options)
def ui(environment: Environment, options: _Options) -> None:
    """Serve a web console until SIGTERM or Ctrl-C; open the printed address."""
    from prometheus_client import generate_latest

    from kafkalike.admin.metrics.cluster_collector import exposition
    from kafkalike.ui.console_server import ConsoleServer

    if options.spark and options.read_only:
        raise click.UsageError("--read-only and --spark exclude each other, because a statement runs Spark jobs")
    tls = certificate(options.tls_cert_file, options.tls_key_file)
    cluster = environment.existing(options.bootstrap_server, options.command_config)
    registry = exposition(cluster, clock=environment.clock)
    with Interrupt() as interrupt:
        server = ConsoleServer(
            cluster,
            host=options.host,
            port=options.port,
            token=os.environ.get(TOKEN) or None if options.token else "",
            read_only=options.read_only,
            allowed_hosts=options.allowed_hosts,
            certificate=tls,
            metrics=lambda: generate_latest(registry),
            queries=environment.queries(cluster, "kafkalike-ui") if options.spark else None,
            lag_seconds=(options.lag_warn_seconds, options.lag_bad_seconds),
            clock=environment.clock,
        )
        try:
            server.start()
            click.echo(f"Serving {cluster.root} at {server.address_with_token}", err=True)
            while not interrupt.is_requested and server.running:
                environment.clock.sleep(LOOK_SECONDS)
        finally:
            server.stop()


@click.command(epilog="Example: kafkalike metrics --port 9308")
@cluster_options
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Serve /metrics for Prometheus at this port; 0 finds a free one."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve at; 0.0.0.0 is everyone.")
@output_option("snapshot")
@version_option
@pass_environment
def metrics(
    environment: Environment,
    /,
    bootstrap_server: str | None,
    command_config: str | None,
    port: int | None,
    host: str,
    *,
    as_json: bool,
) -> None:
    """Serve metrics to Prometheus until SIGTERM or Ctrl-C; without --port print them once."""
    if as_json and port is not None:
        raise click.UsageError("--output json and --port exclude each other")
    from prometheus_client import generate_latest, start_http_server

    from kafkalike.admin.admin_client import KafkaAdminClient
    from kafkalike.admin.group_lag import Lags
    from kafkalike.admin.metrics.cluster_collector import exposition
    from kafkalike.admin.metrics.cluster_view import snapshot
    from kafkalike.connect import check_there

    settings = settings_of(command_config)
    cluster = environment.connect(bootstrap_server, settings)
    admin = KafkaAdminClient(clock=environment.clock, bootstrap_servers=cluster, **settings)
    if as_json:
        check_there(cluster)
        click.echo(json.dumps(snapshot(admin, Lags(cluster), environment.clock.now_ms())))
        return
    registry = exposition(cluster, clock=environment.clock)
    if port is None:
        click.echo(generate_latest(registry).decode(), nl=False)
        check_there(cluster)
        return
    with Interrupt() as interrupt:
        server, thread = start_http_server(port, addr=host, registry=registry)
        click.echo(f"Serving metrics of {cluster.root} at http://{host}:{server.server_port}/metrics", err=True)
        while not interrupt.is_requested:
            environment.clock.sleep(LOOK_SECONDS)
        server.shutdown()
        server.server_close()
        thread.join()
