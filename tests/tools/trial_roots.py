"""Roots of a trial: folders and buckets that vanish, hang, fill up, turn read-only, slow down and answer wrongly.

What is done to one returns how it is undone; None where it could not be done.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.tools.fault_proxy import BAD, FaultProxy
from tests.tools.hanging import Hanging
from tests.tools.object_servers import StoppableS3

Undo = Callable[[], object]
Act = Callable[[random.Random], Undo | None]

SLOWEST_SECONDS: Final = 1.0
"""How long a request takes at a slow bucket, at most: it is no silence yet."""

WORSE: Final = 4
"""How many times as often answers go wrong, while they do, as in the other trials of bad networks."""


class FolderRoot:
    """A folder, on a disk of its own where there may be mounts.

    Args:
        disk: its parent.
        mounts: whether that is to be a small disk in memory.
        hangs: whether this machine lets us have folders that hang.
    """

    def __init__(self, disk: Path, *, mounts: bool, hangs: bool) -> None:
        disk.mkdir()
        self._disk, self._mounts = disk, mounts
        if mounts:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", str(disk)], check=True)
        self.files = disk / "root"
        """Where what it has can be looked at."""
        self.uri = str(self.files)
        self.options: Mapping[str, str] = {}
        self.acts: dict[str, Act] = {"vanish": self._vanish}
        if mounts:
            self.acts |= {"fill": self._fill, "freeze": self._freeze}
        if hangs:
            self.acts["hang"] = self._hang

    def end(self) -> None:
        if self._mounts:
            subprocess.run(["umount", "-l", str(self._disk)], check=False)

    def _vanish(self, _: random.Random) -> Undo:
        self.files.rename(self._disk / "away")
        return self._come_back

    def _come_back(self) -> None:
        """Nobody may have made anything in its place, below a mount point."""
        assert not self.files.exists(), list(self.files.rglob("*"))
        (self._disk / "away").rename(self.files)

    def _fill(self, _: random.Random) -> Undo:
        filler = self._disk / "filler"
        with filler.open("wb", buffering=0) as stream:
            try:
                while True:
                    stream.write(b"\0" * 65_536)
            except OSError:
                pass
        return filler.unlink

    def _freeze(self, _: random.Random) -> Undo | None:
        disk = str(self._disk)
        for _again in range(50):
            # Not while somebody has a file open to write.
            done = subprocess.run(["mount", "-o", "remount,ro", disk], check=False, capture_output=True)
            if done.returncode == 0:
                return lambda: subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
            time.sleep(0.02)
        return None

    def _hang(self, _: random.Random) -> Undo:
        return Hanging(self.files).end


class BucketRoot:
    """A place in a bucket of an S3 server of its own, which is asked through a proxy.

    Args:
        folder: where the server has its objects.
        seed: of the proxy's faults.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._server = StoppableS3(folder)
        self._proxy = FaultProxy(self._server.server.port, seed)
        self.files = self._server.objects
        self.uri = self._server.uri
        self.options: Mapping[str, str] = self._server.server.behind(self._proxy.port).options
        self.acts: dict[str, Act] = {
            "vanish": self._vanish,
            "hang": self._hang,
            "slow": self._slow,
            "err": self._err,
        }

    def end(self) -> None:
        self._server.stop()
        self._proxy.close()

    def _vanish(self, _: random.Random) -> Undo:
        self._server.kill()
        return self._server.start

    def _hang(self, _: random.Random) -> Undo:
        self._server.hang()
        return self._server.go_on

    def _slow(self, chance: random.Random) -> Undo:
        seconds = chance.uniform(0.1, SLOWEST_SECONDS)
        self._proxy.plan.seconds = dict.fromkeys(("GET", "HEAD", "PUT", "DELETE"), seconds)
        return lambda: setattr(self._proxy.plan, "seconds", {})

    def _err(self, _: random.Random) -> Undo:
        self._proxy.plan.faults = {fault: WORSE * share for fault, share in BAD.items()}
        return lambda: setattr(self._proxy.plan, "faults", {})


Root = FolderRoot | BucketRoot
