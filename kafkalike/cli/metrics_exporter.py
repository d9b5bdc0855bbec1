"""`kafkalike metrics`: lag and sizes of a cluster, served to Prometheus, or printed once."""

from __future__ import annotations

import json

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.interrupt import Interrupt
from kafkalike.cli.web_console import LOOK_SECONDS
from kafkalike.cli.options import (
    bootstrap_option,
    client_settings,
    command_config_option,
    read_properties,
    version_option,
)

@click.command(epilog="Example: kafkalike metrics --port 9308")
@bootstrap_option()
@command_config_option()
@click.option("--port", type=click.IntRange(0, 65_535), help="Serve /metrics for Prometheus here; 0 finds a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve at; 0.0.0.0 is everyone.")
@click.option("--json", "as_json", is_flag=True, help="Print one snapshot as JSON, rates included.")
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
        raise click.UsageError("Only one of --json and --port may be given")
    from prometheus_client import generate_latest, start_http_server

    from kafkalike.admin import KafkaAdminClient
    from kafkalike.admin.group_lag import Lags
    from kafkalike.admin.metrics.cluster_collector import exposition
    from kafkalike.admin.metrics.cluster_view import snapshot
    from kafkalike.connect import check_there

    settings = client_settings(read_properties(command_config))
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
