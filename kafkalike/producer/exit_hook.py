"""Exit hook: writes the records of producers that nobody closed before the interpreter ends."""

from __future__ import annotations

import atexit
import os
from typing import Final, Protocol

from kafkalike.errors import KafkaError, KafkaTimeoutError
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.concurrency import Latch

EXIT_SECONDS: Final = 30.0
"""How long the interpreter's exit sends what is queued in producers that nobody closed, or whose `close` was
interrupted. kafka-python waits 1 s; a slow disk needs more. The append under way is waited for to its end."""


class _Ending(Protocol):
    """A sender, as far as the exit goes."""

    pid: int
    """The process whose thread it has."""
    ended: Latch
    """Opened when its thread is over."""

    def stop_taking(self) -> None:
        """Take no more records."""
        ...

    def abandon(self, error: KafkaError) -> bool:
        """Fail what is queued."""
        ...


ALIVE: Final[set[_Ending]] = set()
"""Senders whose thread runs."""


def end_all() -> None:
    """End all producers of this process; for the interpreter's exit.

    What is queued gets `EXIT_SECONDS`. An interrupt (Ctrl-C) makes that zero; appends that are under way are waited
    for even so, since the interpreter must not end before them. An open transaction is left to its timeout, or to the
    next `init_transactions` of its id: nobody waits for it.
    """
    deadline = Deadline(SYSTEM_CLOCK, EXIT_SECONDS * 1000)
    in_time = True
    while senders := [sender for sender in ALIVE.copy() if sender.pid == os.getpid()]:
        # A fork copies the set, but not the threads.
        try:
            for sender in senders:
                sender.stop_taking()
            if in_time:
                in_time = all(sender.ended.wait(max(0.0, deadline.remaining())) for sender in senders)
            else:
                for sender in senders:
                    sender.abandon(KafkaTimeoutError("the interpreter ended; the record was not written"))
                for sender in senders:
                    sender.ended.wait()
        except (KeyboardInterrupt, SystemExit):
            in_time = False


# Twice: an interrupt in the first one, before or after its `try`, leaves the second one to do the work.
atexit.register(end_all)
atexit.register(end_all)
