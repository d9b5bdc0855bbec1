"""Exit hook: writes the records of unclosed producers before the interpreter ends."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - cannot be imported for the first time while the interpreter exits
import os
from typing import Final, Protocol

from kafkalike.errors import KafkaError, KafkaTimeoutError
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.concurrency import Latch

EXIT_SECONDS: Final = 30.0
"""Time for the interpreter's exit to send the queued records of producers that were not closed, or whose `close` was
interrupted. kafka-python waits 1 s; a slow disk needs more. The running append always ends first."""


class _Ending(Protocol):
    """The methods of a sender that the exit uses."""

    pid: int
    """Id of the process that runs its thread."""
    ended: Latch
    """Opened at the end of its thread."""

    def stop_taking(self) -> None:
        """Reject all further records."""
        ...

    def abandon(self, error: KafkaError) -> bool:
        """Fail the queued records."""
        ...


ALIVE: Final[set[_Ending]] = set()
"""Senders with a running thread."""


def end_all() -> None:
    """End all producers of this process, at the interpreter's exit.

    Queued records get `EXIT_SECONDS`. An interrupt (Ctrl-C) makes that zero, but running appends are still waited for,
    because the interpreter must not end before them. An open transaction is left to its timeout, or to the next
    `init_transactions` of its id.
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


# Registered twice: if an interrupt hits the first call outside its `try`, the second one does the work.
atexit.register(end_all)
atexit.register(end_all)
