"""Warm: a module and its arguments in; a process that runs it and need not import first, out.

Python needs half a second of a processor for what a command or a worker imports, and less than a tenth for what it then
does. So one process of each test run imports, starts nothing, and forks for each process that a test asks for. Such a
process is a child of the test's like any other: with its own number, environment, folder and pipes, and with an end
that can be waited for. It has no state of another one: nothing has used kafkalike before the fork.

What the start itself must show is not started here: `python -m`, the installed command, what is imported.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import functools
import gc
import importlib
import inspect
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

LOADED: Final = (
    "kafkalike.admin.admin_client",
    "kafkalike.cli.app",
    "kafkalike.cli.groups.consumer_groups",
    "kafkalike.cli.log.dump_log",
    "kafkalike.cli.console_consumer",
    "kafkalike.cli.console_producer",
    "kafkalike.cli.topics.config_commands",
    "kafkalike.cli.topics.topic_commands",
    "kafkalike.consumer.kafka_consumer",
    "kafkalike.log.cluster.cluster",
    "kafkalike.maintenance.verify.verify",
    "kafkalike.log.topic.topic_log",
    "kafkalike.producer.kafka_producer",
    "kafkalike.maintenance.maintenance_run",
    "kafkalike.schemas.cluster_registry",
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "tests.jepsen.history",
    "tests.processes.workers.common",
    "tests.tools.records",
)
"""What most of them import. Nothing of it starts threads of ours, as deltalake does, or a JVM."""

COLD: Final = ("LD_", "PYTHON")
"""Variables that count when a process starts: for others than this one has there is another one that forks."""

_MOST: Final = 1 << 17
_PR_SET_CHILD_SUBREAPER: Final = 36


class Forked(subprocess.Popen[Any]):
    """A process that the warm one forks, with all that `Popen` can do."""

    def _execute_child(self, *given: Any) -> None:
        """Called by `Popen` to start what it was made with, when the pipes are there."""
        start = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
        asked = start.bind(self, *given).arguments
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        ends = [asked[name] for name in pipes]
        inner = ("p2cread", "c2pwrite", "errwrite")
        streams = [own if asked[name] == -1 else asked[name] for own, name in enumerate(inner)]
        try:
            env = asked["env"]
            self.pid = _warm(_of_the_start(env)).fork(asked["args"], asked["cwd"], env, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(*ends)  # type: ignore[attr-defined]


def start(
    module: str, *args: str, env: Mapping[str, str], cwd: Path | None = None, **streams: Any
) -> subprocess.Popen[Any]:
    """Start `python -m MODULE ARGS`.

    Args:
        module: what runs.
        args: what it is told.
        env: all of its environment.
        cwd: its folder; by default this process's.
        streams: `stdin`, `stdout`, `stderr` and `text`, as `Popen` knows them.
    """
    return Forked([module, *args], env=env, cwd=str(cwd or Path.cwd()), **streams)


def load() -> None:
    """Import what most processes of tests need, so that who is forked need not."""
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _of_the_start(env: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    # Python reads this one when it makes its streams, and tests want them as users have them.
    return frozenset(item for item in env.items() if item[0].startswith(COLD) and item[0] != "PYTHONUNBUFFERED")


class _Warm:
    """The process that forks, and the socket by which it is asked."""

    def __init__(self, variables: Iterable[tuple[str, str]]) -> None:
        others = {name: value for name, value in os.environ.items() if not name.startswith(COLD)}
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._turn = threading.Lock()
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(other.fileno())],
                # Pipes, as those that are forked have them: what Python decides about streams fits.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=Path(__file__).parents[2],
                env={**others, **dict(variables)},
                pass_fds=[other.fileno()],
            )
        atexit.register(self._end)

    def fork(self, args: Sequence[str], folder: str, env: Mapping[str, str], streams: Sequence[int]) -> int:
        """Let it fork; the number of the process, which is a child of this one."""
        asked = json.dumps({"args": args, "folder": folder, "env": dict(env)}).encode()
        assert len(asked) < _MOST, "too much for one message"
        with self._turn:
            # Its parent ends at once; for so long this process takes what others leave behind.
            self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._socket, [asked], list(streams))
                return int(self._socket.recv(64))
            finally:
                self._prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def _end(self) -> None:
        self._socket.close()
        self._process.communicate()


@functools.cache
def _warm(variables: frozenset[tuple[str, str]]) -> _Warm:
    return _Warm(variables)


def _asked(here: socket.socket) -> dict[str, Any] | None:
    """Wait for what is asked, and fork; what a new process is to do, or None at the end of the tests."""
    while True:
        told, ancillary, _, _ = here.recvmsg(_MOST, socket.CMSG_SPACE(3 * array.array("i").itemsize))
        if not told:
            return None
        streams = array.array("i")
        for _, _, data in ancillary:
            streams.frombytes(data)
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child:
                os.write(writing, b"%d" % child)
                os._exit(0)
            here.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            for extra in (*streams, reading, writing):
                os.close(extra)
            found: dict[str, Any] = json.loads(told)
            return found
        os.waitpid(between, 0)
        for extra in (*streams, writing):
            os.close(extra)
        with os.fdopen(reading, "rb") as told_by:
            here.send(told_by.read())


def _main() -> None:
    here = socket.socket(fileno=int(sys.argv[1]))
    # Who stops the tests by Ctrl-C stops those that are forked by their own parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    load()
    asked = _asked(here)
    if asked is None:
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["env"])
    module, *args = asked["args"]
    sys.argv[1:] = args
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
