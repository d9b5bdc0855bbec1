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

from kafkalike.cli.options import client_settings, read_properties
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.properties import nearest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.admin import KafkaAdminClient
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.config.client_config import AdminConfig


@dataclass(slots=True, kw_only=True)
class Environment:
    """What a test or a job may replace."""

    cluster: Cluster | None = None
    """Used instead of what `--bootstrap-server` names."""
    clock: Clock = SYSTEM_CLOCK
    stdin: BinaryIO = field(default_factory=lambda: sys.stdin.buffer)
    stdout: BinaryIO = field(default_factory=lambda: sys.stdout.buffer)

    spark: Callable[[], SparkSession | None] = lambda: None
    """The session that `maintain` runs its tasks in; None: in this process."""

    def connect(self, bootstrap_server: str | None, settings: dict[str, Any]) -> Cluster:
        """The cluster that `--bootstrap-server`, or else a client's settings, name.

        Args:
            bootstrap_server: the option.
            settings: of the client; what says where the cluster is and who asks is taken out of them.
        """
        from kafkalike.connect import connect

        named, options = settings.pop("bootstrap_servers", None), settings.pop("storage_options", None)
        return connect(self.cluster if self.cluster is not None else bootstrap_server or named, options)

    def cluster_of(self, bootstrap_server: str | None, command_config: str | None) -> Cluster:
        """The cluster of a command without a client of its own.

        Args:
            bootstrap_server: the option.
            command_config: a file of settings, as an admin client takes them; of them only the root and the storage
                options have a meaning here.

        Raises:
            KafkaConfigurationError: the file has a setting that an admin client does not know.
        """
        settings = client_settings(read_properties(command_config))
        checked(settings)
        return self.connect(bootstrap_server, settings)

    def existing(self, bootstrap_server: str | None, command_config: str | None) -> Cluster:
        """The same for a command that has nothing to do, or to say, where there is no cluster yet.

        Raises:
            KafkaConnectionError: the root does not exist: an empty answer would look as if all were well.
        """
        from kafkalike.connect import check_there

        cluster = self.cluster_of(bootstrap_server, command_config)
        check_there(cluster)
        return cluster

    def admin(
        self, bootstrap_server: str | None, command_config: str | None, *, existing: bool = False
    ) -> KafkaAdminClient:
        """An admin client with the settings of a file, if there is one.

        Args:
            bootstrap_server: see `cluster_of`.
            command_config: see there.
            existing: whether the cluster must exist; see `existing`.
        """
        from kafkalike.admin import KafkaAdminClient
        from kafkalike.connect import check_there

        settings = client_settings(read_properties(command_config))
        cluster = self.connect(bootstrap_server, settings)
        if existing:
            check_there(cluster)
        return KafkaAdminClient(clock=self.clock, bootstrap_servers=cluster, **settings)


def checked(settings: Mapping[str, Any]) -> AdminConfig:
    """Settings of a command without a client of its own, as an admin client takes them.

    Raises:
        KafkaConfigurationError: there is one that an admin client does not know.
    """
    from kafkalike.model.config.client_config import AdminConfig

    return AdminConfig.from_configs(settings)


_WHERE: Final = "where"


def keep_where(context: click.Context, bootstrap_server: str | None, command_config: str | None) -> None:
    """Keep where the cluster is for the action of a command; see `where`."""
    context.meta[_WHERE] = (bootstrap_server, command_config)


def where(
    context: click.Context, bootstrap_server: str | None, command_config: str | None
) -> tuple[str | None, str | None]:
    """The cluster that the options behind an action name, or else those before it: Kafka takes them there."""
    outer_server, outer_config = context.meta[_WHERE]
    return bootstrap_server or outer_server, command_config or outer_config


pass_environment = click.make_pass_decorator(Environment)

Options = TypeVar("Options")


def pass_options(
    kind: Callable[..., Options],
) -> Callable[[Callable[[Environment, Options], None]], Callable[..., None]]:
    """Give a command its environment and its options.

    Args:
        kind: a dataclass with one field for each option, under the name that click uses.
    """

    def decorate(command: Callable[[Environment, Options], None]) -> Callable[..., None]:
        @wraps(command)
        def call(environment: Environment, /, **given: object) -> None:
            command(environment, kind(**given))

        return pass_environment(call)

    return decorate


class SuggestingGroup(click.Group):
    """A group whose error for an unknown command says which one may have been meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, and with a better message.

        Raises:
            click.UsageError: there is no such command.
        """
        wanted = args[0]
        if not wanted.startswith("-") and self.get_command(ctx, wanted) is None:
            raise click.UsageError(f"No such command {wanted!r}{nearest(wanted, self.list_commands(ctx))}", ctx)
        found: tuple[str | None, click.Command | None, list[Any]] = super().resolve_command(ctx, args)
        return found


ENDING: Final = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C, and what service managers and `kill` send."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came: whatever ends well on Ctrl-C ends well on it, too."""


def _raise(number: int) -> None:
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def termination() -> Iterator[None]:
    """While entered, SIGTERM raises `Terminated` in the main thread, as SIGINT raises `KeyboardInterrupt`.

    So `with` blocks are left in order: producers send what they have, consumers leave their groups. Does nothing in
    other threads, where Python delivers no signals.
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
    """Inside it the first signal only sets `is_requested`; the second raises `KeyboardInterrupt` or `Terminated`.

    A record that is printed must also be counted and committed; an exception between the two would print it twice.
    Does nothing outside the main thread, where Python delivers no signals.

    Args:
        signals: which ones; SIGINT and SIGTERM by default.
    """

    def __init__(self, signals: Iterable[signal.Signals] = ENDING) -> None:
        self.number: int | None = None
        """Of the first signal that came."""
        self._signals = tuple(signals)
        self._before: dict[signal.Signals, Any] = {}

    @property
    def is_requested(self) -> bool:
        """Whether one came."""
        return self.number is not None

    def again(self) -> None:
        """Raise what the signal would have raised, if one came: the work is in order now, and the caller ends."""
        if self.number is not None:
            _raise(self.number)

    def __enter__(self) -> Self:
        """Take the signals over."""
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
        """Give the signals back."""
        for number, before in self._before.items():
            signal.signal(number, before)
