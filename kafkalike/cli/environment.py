"""Environment: what a command gets from outside; the cluster, the clock, the standard streams."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from kafkalike.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.admin import KafkaAdminClient
    from kafkalike.log.port import Cluster


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

    def connect(self, bootstrap_server: str | None, settings: dict[str, Any] | None = None) -> Cluster:
        """The cluster that `--bootstrap-server` names; takes `storage_options` out of a client's settings for it."""
        from kafkalike.log.connect import connect

        options = None if settings is None else settings.pop("storage_options", None)
        return connect(self.cluster if self.cluster is not None else bootstrap_server, options)

    def admin(self, bootstrap_server: str | None, settings: Mapping[str, Any]) -> KafkaAdminClient:
        """An admin client; `settings` are keyword arguments from `--command-config`."""
        from kafkalike.admin import KafkaAdminClient

        given = dict(settings)
        named = bootstrap_server or given.pop("bootstrap_servers", None)
        given["bootstrap_servers"] = self.connect(named, given)
        return KafkaAdminClient(clock=self.clock, **given)


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
