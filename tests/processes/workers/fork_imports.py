"""Worker: forks while a producer's thread imports a module for its first record; the child sends a record of its own.

Arguments: root, which has the topic `t`, and what happens: `before`, the import began before the fork; `meanwhile`, it
begins in the hook of another library, which runs after that of kafkalike; or `interrupted`, the waiting fork gets
SIGINT. Prints the offset of the child's record.
"""

from __future__ import annotations

import faulthandler
import importlib.abc
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NoReturn

during_fork: list[Callable[[], object]] = []
os.register_at_fork(before=lambda: [each() for each in during_fork])

from kafkalike import KafkaProducer  # noqa: E402 - its hook must come after this one

LAST = "kafkalike.log.topic.chunk"
"""A module that a producer imports with its first record."""

HANGS_SECONDS = 30


class SlowDisk(importlib.abc.MetaPathFinder):
    """Delays the import of one module."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.read = threading.Event()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find nothing, but take a second for it."""
        del path, target
        if name == LAST:
            self.begun.set()
            self.read.wait(1)
        return None


def interrupt_the_wait() -> None:
    """Send SIGINT as soon as the main thread waits for an import."""
    main_thread = threading.main_thread().ident or 0
    names: set[str] = set()
    while "await_imports" not in names:
        names = {frame.f_code.co_name for frame, _ in traceback.walk_stack(sys._current_frames()[main_thread])}
    signal.pthread_kill(main_thread, signal.SIGINT)


def send_in_child(root: str) -> NoReturn:
    """Send a record and exit."""
    faulthandler.dump_traceback_later(HANGS_SECONDS, exit=True)
    with KafkaProducer(bootstrap_servers=root) as own:
        sys.stdout.write(str(own.send("t", b"child").get(20).offset))
        sys.stdout.flush()
    os._exit(0)


def main(root: str, what: str) -> None:
    """Run."""
    warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
    disk = SlowDisk()
    sys.meta_path.insert(0, disk)
    with KafkaProducer(bootstrap_servers=root) as producer:

        def begin() -> None:
            during_fork.clear()
            producer.send("t", b"parent")
            assert disk.begun.wait(30)

        if what == "meanwhile":
            during_fork.append(begin)
        else:
            begin()
        came = False
        try:
            if what == "interrupted":
                threading.Thread(target=interrupt_the_wait).start()
            if os.fork() == 0:
                send_in_child(root)
            if what == "interrupted":
                threading.Event().wait(30)
        except KeyboardInterrupt:
            came = True
        assert came == (what == "interrupted")
        assert os.wait()[1] == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
