"""Cli: a cluster and arguments in; exit code, standard output and standard error of a command run in-process out."""

import contextlib
import io
from dataclasses import dataclass

from kafkalike.cli.app import run
from kafkalike.cli.environment import Environment
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.clock import SYSTEM_CLOCK, Clock


@dataclass
class Done:
    """What became of a command."""

    code: int
    out: str
    err: str


def call(cluster: Cluster, *args: str, clock: Clock = SYSTEM_CLOCK) -> Done:
    """Run a command against a cluster."""
    stdout = io.BytesIO()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(args, Environment(cluster=cluster, clock=clock, stdin=io.BytesIO(), stdout=stdout))
    return Done(code, stdout.getvalue().decode() + out.getvalue(), err.getvalue())
