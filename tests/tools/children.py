"""Children: a module of workers and its orders in, a real process with pipes out."""

import json
import os
import signal
import subprocess
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.tools import warm

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds to wait for a child that has been told to end."""


class Child:
    """A worker process. It prints `ready`, waits for `go`, and may print one line of JSON as its result.

    What it writes to standard error goes into memory, not into a pipe: one that nobody reads would stop a worker that
    warns for some minutes.
    """

    def __init__(self, module: str, orders: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self.errors = ""
        """What it has written to standard error, once it has ended."""
        self._written = os.memfd_create("stderr")
        weakref.finalize(self, os.close, self._written)
        self._process = warm.start(
            module,
            json.dumps(orders),
            cwd=REPOSITORY,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._written,
            text=True,
        )

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._process.poll() is not None

    def wait(self) -> int:
        """Wait for its end; returns its exit code (-9: killed)."""
        return self._process.wait(timeout=PATIENCE)

    def wait_ready(self) -> None:
        """Wait until it has opened what it needs."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.strip() == "ready":
                return
        self._communicate(PATIENCE)
        message = f"the worker ended before it was ready:\n{self.errors[-3000:]}"
        raise AssertionError(message)

    def go(self) -> None:
        """Let it begin, or, the second time, let it end."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        except BrokenPipeError as cause:
            # Its errors say more than that it is gone.
            code = self._process.wait(PATIENCE)
            message = f"the worker has ended with exit code {code}:\n{self._told()[-3000:]}"
            raise BrokenPipeError(message) from cause

    def finish(self, expected: int = 0, patience: float = PATIENCE) -> str:
        """Wait for its end and check its exit code (-9: killed); returns what it printed."""
        output = self._communicate(patience)
        code = self._process.returncode
        assert code == expected, f"exit code {code}, expected {expected}:\n{self.errors[-3000:]}"
        return output

    def shoot(self) -> None:
        """Kill it in the middle of what it does; somebody else waits for its end."""
        self._process.send_signal(signal.SIGKILL)

    def wait_end(self, patience: float = PATIENCE) -> None:
        """Wait until it has ended; it prints little."""
        self._process.wait(patience)

    def kill(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._communicate(PATIENCE)

    def _communicate(self, patience: float) -> str:
        """Wait for its end; returns what it has printed since the last line that was read."""
        output: str = self._process.communicate(timeout=patience)[0]
        self.errors = self._told()
        return output

    def _told(self) -> str:
        """What it has written as its errors."""
        # Read at its place: to move the file's position would be to move where others still write.
        return os.pread(self._written, os.fstat(self._written).st_size, 0).decode(errors="replace")


@contextmanager
def started(*children: Child) -> Iterator[tuple[Child, ...]]:
    """Children that are ready; none of them outlives the block."""
    try:
        for child in children:
            child.wait_ready()
        yield children
    finally:
        for child in children:
            child.kill()


def run(
    module: str,
    orders: Mapping[str, Any],
    env: Mapping[str, str] | None = None,
    *,
    expected: int = 0,
    patience: float = PATIENCE,
) -> str:
    """Start one child, let it work and wait for its end; returns what it printed after `ready`."""
    with started(Child(module, orders, env or {})) as (child,):
        child.go()
        return child.finish(expected, patience)
