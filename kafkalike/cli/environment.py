"""Environment of a command: its cluster, clock, standard streams, and the signals that end it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self, TypeVar

import click

from kafkalike.cli.options import settings_of
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.properties import nearest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.admin.admin_client import KafkaAdminClient
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.config.admin_config import AdminConfig
    from kafkalike.spark.sql.queries import Queries


@dataclass(slots=True, kw_only=True)
class Environment:
    """Cluster, clock, streams and Spark session of a command; tests and jobs replace them."""

    cluster: Cluster | None = None
    """Cluster to use instead of `--bootstrap-server`."""
    clock: Clock = SYSTEM_CLOCK
    stdin: BinaryIO = field(default_factory=lambda: sys.stdin.buffer)
    stdout: BinaryIO = field(default_factory=lambda: sys.stdout.buffer)

    spark: Callable[[], SparkSession | None] = lambda: None
    """Returns the session for the tasks of `maintain`; None runs them in this process."""

    def connect(self, bootstrap_server: str | None, settings: dict[str, Any]) -> Cluster:
        """Open the cluster that `--bootstrap-server`, or else a client's settings, name.

        Args:
            bootstrap_server: value of the option.
            settings: of the client; `bootstrap_servers` and `storage_options` are removed from them.
        """
        from kafkalike.connect import connect

        named, options = settings.pop("bootstrap_servers", None), settings.pop("storage_options", None)
        return connect(self.cluster if self.cluster is not None else bootstrap_server or named, options)

    def cluster_of(self, bootstrap_server: str | None, command_config: str | None) -> Cluster:
        """Open the cluster of a command that needs no client.

        Args:
            bootstrap_server: value of the option.
            command_config: file of an admin client's settings; only the root and the storage options are used.

        Raises:
            KafkaConfigurationError: the file has a setting unknown to the admin client.
        """
        settings = settings_of(command_config)
        checked(settings)
        return self.connect(bootstrap_server, settings)

    def existing(self, bootstrap_server: str | None, command_config: str | None) -> Cluster:
        """Open a cluster that must exist.

        Raises:
            KafkaConnectionError: the root does not exist; an empty answer would hide a wrong address.
        """
        from kafkalike.connect import check_there

        cluster = self.cluster_of(bootstrap_server, command_config)
        check_there(cluster)
        return cluster

    def admin(
        self, bootstrap_server: str | None, command_config: str | None, *, existing: bool = False
    ) -> KafkaAdminClient:
        """Open an admin client.

        Args:
            bootstrap_server: value of the option.
            command_config: file of the client's settings, if any.
            existing: fail if the cluster does not exist.
        """
        from kafkalike.admin.admin_client import KafkaAdminClient
        from kafkalike.connect import check_there

        settings = settings_of(command_config)
        cluster = self.connect(bootstrap_server, settings)
        if existing:
            check_there(cluster)
        return KafkaAdminClient(clock=self.clock, bootstrap_servers=cluster, **settings)

    def queries(self, cluster: Cluster, app_name: str, *, limited: bool = True) -> Queries:
        """Return the SELECT statements of a cluster, in this environment's Spark session or a new one.

        Args:
            cluster: the cluster of the topics.
            app_name: name of a new session, shown by Spark.
            limited: cancel a statement after a minute; in a terminal, Ctrl-C does.
        """
        from kafkalike.spark import session
        from kafkalike.spark.sql.queries import RESULT_SIZE, SECONDS, Queries

        own = {"spark.driver.maxResultSize": RESULT_SIZE, "spark.ui.enabled": "false"}
        spark = self.spark() or session(app_name, bootstrap_servers=cluster, **own)
        return Queries(spark, cluster, SECONDS if limited else None, clock=self.clock)


def checked(settings: Mapping[str, Any]) -> AdminConfig:
    """Validate the settings of a command that needs no client, as settings of an admin client.

    Raises:
        KafkaConfigurationError: the admin client does not know a setting.
    """
    from kafkalike.model.config.admin_config import AdminConfig

    return AdminConfig.from_configs(settings)


_WHERE: Final = "where"


def keep_where(context: click.Context, bootstrap_server: str | None, command_config: str | None) -> None:
    """Keep the cluster options of a group of commands for `where`."""
    context.meta[_WHERE] = (bootstrap_server, command_config)


def where(
    context: click.Context, bootstrap_server: str | None, command_config: str | None
) -> tuple[str | None, str | None]:
    """Return the cluster options of an action: given after the action, else before it, as in Kafka."""
    outer_server, outer_config = context.meta[_WHERE]
    return bootstrap_server or outer_server, command_config or outer_config


pass_environment = click.make_pass_decorator(Environment)

Options = TypeVar("Options")


def pass_options(
    kind: Callable[..., Options],
) -> Callable[[Callable[[Environment, Options], None]], Callable[..., None]]:
    """Decorate a command that takes its environment and its options as one object.

    Args:
        kind: dataclass with a field for each option, under click's name.
    """

    def decorate(command: Callable[[Environment, Options], None]) -> Callable[..., None]:
        @wraps(command)
        def call(environment: Environment, /, **given: object) -> None:
            command(environment, kind(**given))

        return pass_environment(call)

    return decorate


class SuggestingGroup(click.Group):
    """Group whose error for an unknown command suggests the nearest name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command.

        Raises:
            click.UsageError: the command does not exist; with a suggestion.
        """
        wanted = args[0]
        if not wanted.startswith("-") and self.get_command(ctx, wanted) is None:
            raise click.UsageError(f"No such command {wanted!r}{nearest(wanted, self.list_commands(ctx))}", ctx)
        found: tuple[str | None, click.Command | None, list[Any]] = super().resolve_command(ctx, args)
        return found


ENDING: Final = (signal.SIGINT, signal.SIGTERM)
"""Signals of Ctrl-C, and of service managers and `kill`."""


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, so that code which handles Ctrl-C handles SIGTERM, too."""


def _raise(number: int) -> None:
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def termination() -> Iterator[None]:
    """Raise `Terminated` in the main thread on SIGTERM, as SIGINT raises `KeyboardInterrupt`.

    So `with` blocks are left in order: producers flush, and consumers leave their groups. Does nothing in other
    threads, because Python delivers signals to the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: _raise(number))  # noqa: ARG005
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


class Interrupt:
    """Turns the first signal into a flag that a loop reads between two steps; the second signal raises.

    A printed record must also be counted and committed. An exception in between would make the next run print it
    again. Does nothing outside the main thread, because Python delivers signals to the main thread only.

    Args:
        signals: default SIGINT and SIGTERM.
    """

    def __init__(self, signals: Iterable[signal.Signals] = ENDING) -> None:
        self.number: int | None = None
        """Number of the first signal."""
        self._signals = tuple(signals)
        self._before: dict[signal.Signals, Any] = {}

    @property
    def is_requested(self) -> bool:
        """True after the first signal."""
        return self.number is not None

    def again(self) -> None:
        """Raise `KeyboardInterrupt` or `Terminated` if a signal was received; called when the work is consistent."""
        if self.number is not None:
            _raise(self.number)

    def __enter__(self) -> Self:
        """Install the signal handlers."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in self._signals}
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.is_requested:
            _raise(number)
        self.number = number

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the previous handlers."""
        for number, before in self._before.items():
            signal.signal(number, before)
