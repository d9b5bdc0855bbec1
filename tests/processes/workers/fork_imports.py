"""Worker: forks while a producer's thread imports a module for its first record; the child sends a record of its own.

Argument: root, which has the topic `t`. Prints the offset of the child's record.
"""

from __future__ import annotations

import faulthandler
import importlib.abc
import os
import sys
import threading
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from kafkalike import KafkaProducer

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


def main(root: str) -> None:
    """Run."""
    warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
    disk = SlowDisk()
    sys.meta_path.insert(0, disk)
    with KafkaProducer(bootstrap_servers=root) as producer:
        sent = producer.send("t", b"parent")
        assert disk.begun.wait(30)
        child = os.fork()
        if child == 0:
            faulthandler.dump_traceback_later(HANGS_SECONDS, exit=True)
            with KafkaProducer(bootstrap_servers=root) as own:
                sys.stdout.write(str(own.send("t", b"child").get(20).offset))
                sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        sent.get(20)


if __name__ == "__main__":
    main(*sys.argv[1:])
