"""`kafkalike gateway`: serve Kafka's wire protocol over the topics of a cluster."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kafkalike.cli.environment import Environment, Interrupt, SuggestingGroup, pass_options
from kafkalike.cli.options import certificate, cluster_options, tls_options, version_option

if TYPE_CHECKING:
    from kafkalike.gateway.authentication import UserFile

LOOK_SECONDS: Final = 0.1
"""Interval at which the command checks for a signal."""

PORTS: Final = range(65_536)

ARENA_MAX: Final = -8
"""`M_ARENA_MAX` of glibc's `mallopt`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    bootstrap_server: str | None
    command_config: str | None
    listen: str
    advertise: str | None
    anyone: bool
    metrics_port: int | None
    users_file: str | None
    tls_cert_file: str | None
    tls_key_file: str | None


def _address(value: str, option: str) -> tuple[str, int]:
    """Return the host and port of HOST:PORT, with an IPv6 address in brackets."""
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) not in PORTS:
        raise click.BadParameter(f"{value!r} is not HOST:PORT", param_hint=option)
    return host.removeprefix("[").removesuffix("]"), int(port)


def return_memory() -> None:
    """Let the process return memory that it has freed; called before Arrow is imported.

    Arrow's own allocator keeps it, 70 MB in eight minutes under attack, so that Arrow uses glibc's. That one keeps the
    freed memory of each of its 8 arenas per core, so that there are two. `ARROW_DEFAULT_MEMORY_POOL`,
    `MALLOC_ARENA_MAX` and `GLIBC_TUNABLES` in the environment override this. Other C libraries have no arenas.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if not os.environ.keys() & {"MALLOC_ARENA_MAX", "GLIBC_TUNABLES"}:
        with contextlib.suppress(OSError, TypeError, AttributeError):
            ctypes.CDLL(None).mallopt(ARENA_MAX, 2)


@click.group(
    cls=SuggestingGroup, invoke_without_command=True, epilog="Example: kafkalike gateway --listen 127.0.0.1:9092"
)
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
    help="Serve /metrics for Prometheus and /health/ready at this port of the loopback.",
)
@click.option(
    "--users-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Users that authenticate by SASL, with their rules; see `kafkalike gateway users add`.",
)
@tls_options
@version_option
@pass_options(_Options)
def gateway(environment: Environment, options: _Options) -> None:
    """Serve Kafka clients in any language until SIGTERM or Ctrl-C.

    The gateway keeps no state: stop it at any moment, and run as many as you like for one cluster.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    return_memory()
    from prometheus_client import start_http_server

    from kafkalike.admin.metrics.cluster_collector import exposition
    from kafkalike.errors.optional_imports import require_module

    server_module = require_module("kafkalike.gateway.gateway_server", "gateways", "gateway")
    gateway_metrics = require_module("kafkalike.gateway.gateway_metrics", "gateways", "gateway")
    users = None if options.users_file is None else _user_file(options.users_file)
    tls = certificate(options.tls_cert_file, options.tls_key_file)
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
            users=users,
            certificate=tls,
            registry=registry,
            clock=environment.clock,
        )
        metrics = None
        try:
            server.start()
            if options.metrics_port is not None:
                metrics = start_http_server(options.metrics_port, addr="127.0.0.1", registry=registry)
                gateway_metrics.add_readiness(metrics[0], lambda: server.unready)
                click.echo(f"Serving metrics at http://127.0.0.1:{metrics[0].server_port}/metrics", err=True)
            click.echo(f"Serving {cluster.root} at {server.bootstrap_servers}", err=True)
            while not interrupt.is_requested and server.running:
                environment.clock.sleep(LOOK_SECONDS)
        finally:
            try:
                # /health/ready says so while open requests are answered.
                server.stop()
            finally:
                if metrics is not None:
                    metrics[0].shutdown()
                    metrics[0].server_close()


def _user_file(path: str) -> UserFile:
    from kafkalike.errors.optional_imports import require_module

    found: UserFile = require_module("kafkalike.gateway.authentication", "gateways", "gateway").UserFile(Path(path))
    return found


@gateway.group(cls=SuggestingGroup, epilog="Example: kafkalike gateway users list --users-file users.toml")
def users() -> None:
    """Manage the users of gateways: their passwords and rules, in a file.

    Gateways read the file again when it changes. The rules guard the gateway's port, not the storage.
    """


_file_option = click.option(
    "--users-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    required=True,
    help="The file, which the owner alone may read and write.",
)


@users.command(
    epilog="Example: kafkalike gateway users add alice --users-file users.toml --allow 'read topic orders*' "
    "--allow 'write topic orders*' --allow 'use group app-*'"
)
@click.argument("name")
@_file_option
@click.option(
    "--allow",
    multiple=True,
    metavar="RULE",
    help="`read|write|manage topic PATTERN`, `use|manage group PATTERN`, `use transactional-id PATTERN`, or `admin`; "
    "repeat it. A * ends the pattern of a prefix. Replaces the user's rules.",
)
@click.option("--password-stdin", is_flag=True, help="Read the password from the first line of standard input.")
@click.option("--keep-password", is_flag=True, help="Change the rules of a known user only.")
def add(name: str, users_file: str, allow: tuple[str, ...], *, password_stdin: bool, keep_password: bool) -> None:
    """Add a user, or change a user's password and rules."""
    file = _user_file(users_file)
    if password_stdin and keep_password:
        raise click.UsageError("--password-stdin and --keep-password exclude each other")
    password: str | None = None
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif not keep_password:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    file.add(name, password, allow or None)
    click.echo(f"User {name} is in {users_file}.", err=True)


@users.command("list", epilog="Example: kafkalike gateway users list --users-file users.toml")
@_file_option
def list_users(users_file: str) -> None:
    """Print each user with its rules."""
    for name, user in sorted(_user_file(users_file).users().items()):
        click.echo(f"{name}: {', '.join(user.allowed) or 'no rules'}")


@users.command(epilog="Example: kafkalike gateway users remove alice --users-file users.toml")
@click.argument("name")
@_file_option
def remove(name: str, users_file: str) -> None:
    """Remove a user. Its open connections may do nothing from then on."""
    if not _user_file(users_file).remove(name):
        raise click.UsageError(f"{users_file} has no user {name!r}")
    click.echo(f"User {name} is removed from {users_file}.", err=True)
