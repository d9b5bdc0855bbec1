"""`kafkalike ui` and `kafkalike metrics`: serve a cluster to browsers and to Prometheus."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from kafkalike.cli.environment import Environment, Interrupt, pass_environment, pass_options
from kafkalike.cli.options import certificate, cluster_options, settings_of, tls_options, version_option
from kafkalike.cli.output import output_option

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

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
    read_only_clusters: tuple[str, ...]
    clusters: tuple[str, ...]
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
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="NAME=ADDRESS",
    help="A cluster of several in one console, below /clusters/NAME/; repeatable, instead of --bootstrap-server.",
)
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option(
    "--read-only-cluster",
    "read_only_clusters",
    multiple=True,
    metavar="NAME",
    help="Refuse every change of this cluster, beside others; repeatable.",
)
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
    cluster: Cluster | dict[str, Cluster]
    if options.clusters:
        cluster = _clusters(environment, options)
        known = list(cluster.values())
    else:
        if options.read_only_clusters:
            raise click.UsageError("--read-only-cluster needs --cluster; one cluster is --read-only")
        cluster = environment.existing(options.bootstrap_server, options.command_config)
        known = [cluster]
    registries = {id(one): exposition(one, clock=environment.clock) for one in known}
    with Interrupt() as interrupt:
        server = ConsoleServer(
            cluster,
            host=options.host,
            port=options.port,
            token=os.environ.get(TOKEN) or None if options.token else "",
            read_only=options.read_only or options.read_only_clusters,
            allowed_hosts=options.allowed_hosts,
            certificate=tls,
            metrics=lambda one: generate_latest(registries[id(one)]),
            queries=environment.queries(known[0], "kafkalike-ui") if options.spark else None,
            lag_seconds=(options.lag_warn_seconds, options.lag_bad_seconds),
            clock=environment.clock,
        )
        try:
            server.start()
            roots = ", ".join(one.root for one in known)
            click.echo(f"Serving {roots} at {server.address_with_token}", err=True)
            while not interrupt.is_requested and server.running:
                environment.clock.sleep(LOOK_SECONDS)
        finally:
            server.stop()


def _clusters(environment: Environment, options: _Options) -> dict[str, Cluster]:
    """Open the clusters of `--cluster`; a cluster that does not answer is shown with its error."""
    if options.bootstrap_server is not None:
        raise click.UsageError("--cluster and --bootstrap-server exclude each other")
    if options.spark:
        raise click.UsageError("--spark needs a single cluster: views of two clusters would share their names")
    found: dict[str, Cluster] = {}
    for text in options.clusters:
        name, _, address = text.partition("=")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) or not address:
            raise click.UsageError(f"--cluster must be NAME=ADDRESS with a name of letters and digits, not {text!r}")
        if name in found:
            raise click.UsageError(f"--cluster has the name {name!r} twice")
        found[name] = environment.cluster_of(address, options.command_config)
    for name in options.read_only_clusters:
        if name not in found:
            raise click.UsageError(f"--read-only-cluster {name!r} is not one of {', '.join(found)}")
    return found


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
