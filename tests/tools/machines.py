"""Machines: network namespaces of this machine, each with a loopback of its own, joined by a wire that nobody else has.

They are made by `unshare` in a user namespace, without any right on the machine, and go with the last of their
processes.
"""

from __future__ import annotations

import fcntl
import shutil
import socket
import struct
import subprocess
from typing import Final

import pytest

APART: Final = ["unshare", "--map-root-user", "--net"]
"""Runs a program in a network namespace of its own, where nothing but a loopback is."""

ANOTHER: Final = ["unshare", "--net"]
"""The same for a program that such a program starts."""

HERE, THERE = "10.77.0.1", "10.77.0.2"
"""Addresses of the two ends of a wire."""

_SET_FLAGS, _UP = 0x8914, 1


def check_permitted(*, wire: bool = False) -> None:
    """Skip the test, aloud, where this machine does not let anybody do this.

    Args:
        wire: whether two namespaces are to be joined.
    """
    if shutil.which(APART[0]) is None or subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("NOT TESTED: this machine lets nobody make a network namespace (unshare --map-root-user --net)")
    if not wire:
        return
    made = ["ip", "link", "add", "name", "near", "type", "veth", "peer", "name", "far"]
    if shutil.which("ip") is None or subprocess.run([*APART, *made], capture_output=True, check=False).returncode:
        pytest.skip("NOT TESTED: this machine lets nobody join two network namespaces (ip link add type veth)")


def bring_loopback_up() -> None:
    """Let this namespace's programs reach each other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))


def join(pid: int) -> None:
    """Lay a wire from this namespace to that of a process, with `HERE` at this end."""
    _ip("link", "add", "name", "near", "type", "veth", "peer", "name", "far", "netns", str(pid))
    _ip("addr", "add", f"{HERE}/30", "dev", "near")
    _ip("link", "set", "near", "up")


def be_joined() -> None:
    """Have `THERE` at this end of the wire that somebody has laid."""
    _ip("addr", "add", f"{THERE}/30", "dev", "far")
    _ip("link", "set", "far", "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
