"""`kafkalike schema-registry`: the schemas of a cluster, served over Confluent's REST interface."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kafkalike.cli.environment import Environment, pass_options
from kafkalike.cli.interrupt import Interrupt
from kafkalike.cli.options import bootstrap_option, certificate, command_config_option, tls_options, version_option
from kafkalike.errors import KafkaConfigurationError

if TYPE_CHECKING:
    from kafkalike.schemas.service.credentials import Credentials

LOOK_SECONDS: Final = 0.1
"""How late a signal may be seen."""

TOKEN: Final = "KAFKALIKE_REGISTRY_TOKEN"  # noqa: S105 - the name of a variable
USERS: Final = "KAFKALIKE_REGISTRY_USERS"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    bootstrap_server: str | None
    command_config: str | None
    host: str
    port: int
    token_file: str | None
    users_file: str | None
    anyone: bool
    read_only: bool
    max_body: int
    tls_cert_file: str | None
    tls_key_file: str | None


@click.command(epilog="Example: kafkalike schema-registry --port 8081")
@bootstrap_option()
@command_config_option()
@click.option("--port", type=click.IntRange(0, 65_535), default=8081, show_default=True, help="0 finds a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve at.")
@click.option(
    "--token-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help=f"Bearer tokens that may ask, one a line; also ${TOKEN}.",
)
@click.option(
    "--users-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help=f"Users that may ask, name:password, one a line; also ${USERS}, with commas between.",
)
@click.option("--anyone", is_flag=True, help="Serve at an address of the network without a token or a user.")
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option(
    "--max-body",
    type=click.IntRange(1_024, 1 << 30),
    default=4 * 1024 * 1024,
    show_default=True,
    help="Bytes of a request.",
)
@tls_options
@version_option
@pass_options(_Options)
def schema_registry(environment: Environment, options: _Options) -> None:
    """Serve the schemas of a cluster to programs that know Confluent's registry, until SIGTERM or Ctrl-C."""
    from kafkalike.schemas.service.registry_server import RegistryServer
    from kafkalike.schemas.service.registry_service import RegistryService

    tls = certificate(options.tls_cert_file, options.tls_key_file)
    cluster = environment.cluster_of(options.bootstrap_server, options.command_config)
    credentials = _credentials(options)
    with Interrupt() as interrupt:
        server = RegistryServer(
            RegistryService(cluster, read_only=options.read_only, clock=environment.clock),
            host=options.host,
            port=options.port,
            credentials=credentials,
            max_body=options.max_body,
            anyone=options.anyone,
            certificate=tls,
        )
        try:
            # What cannot be read is said at once, not to the first client.
            cluster.schemas.refresh()
            server.start()
            click.echo(f"Serving schemas of {cluster.root} at {server.url}", err=True)
            while not interrupt.seen and server.running:
                environment.clock.sleep(LOOK_SECONDS)
        finally:
            server.stop()


def _credentials(options: _Options) -> Credentials:
    from kafkalike.schemas.service.credentials import credentials

    tokens = [os.environ.get(TOKEN, ""), *_lines(options.token_file)]
    users = [*os.environ.get(USERS, "").split(","), *_lines(options.users_file)]
    made = credentials(tokens, users)
    if not made.needed and (options.token_file or options.users_file):
        raise KafkaConfigurationError("the file of tokens or users has no line that counts")
    return made


def _lines(path: str | None) -> list[str]:
    try:
        return [] if path is None else Path(path).read_text().splitlines()
    except (OSError, ValueError) as cause:
        raise KafkaConfigurationError(f"{path} cannot be read: {cause}") from cause
