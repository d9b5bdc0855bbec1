"""A folder that hangs: whoever asks for anything in it waits for ever, as with a network file system that is away."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

DETACH = 2
"""Of `umount2`: at once, whoever uses it."""


class Hanging:
    """A FUSE mount over a folder, whose server never answers.

    Args:
        folder: which one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = os.fsencode(folder)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._server = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._server},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
        if self._libc.mount(b"hanging", self._folder, b"fuse", 0, options.encode()):
            os.close(self._server)
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))

    def end(self) -> None:
        """Let those who wait get an error, and the folder be as it was."""
        os.close(self._server)
        self._libc.umount2(self._folder, DETACH)


@contextlib.contextmanager
def hanging(folder: Path) -> Iterator[None]:
    """The folder hangs meanwhile."""
    mounted = Hanging(folder)
    try:
        yield
    finally:
        mounted.end()


@cache
def can_hang(path: Path) -> bool:
    """Whether this machine lets us mount."""
    try:
        Hanging(path).end()
    except OSError:
        return False
    return True


def need_hanging(path: Path) -> None:
    """Skip a test where it does not."""
    path.mkdir(exist_ok=True)
    if not can_hang(path):
        pytest.skip("needs the right to mount FUSE")
