"""Heartbeat: the thread that renews a member's lease while the application works."""

from __future__ import annotations

import logging
import threading
import weakref

from kafkalike.log.group.member import GroupMember
from kafkalike.model.clock import Clock, SystemClock
from kafkalike.model.concurrency import ReportErrors

_log = logging.getLogger(__name__)


class HeartbeatThread:
    """The heartbeat thread of one member.

    It holds its member weakly: a consumer that is forgotten without `close` dies with its session, and its partitions
    go to others. With a clock of a test's own there is no thread, as that clock does not run by itself; then `poll`
    gives the heartbeats.

    Args:
        member: whose; None for a client without a group, which has no heartbeat.
        clock: the member's.
    """

    def __init__(self, member: GroupMember | None, clock: Clock) -> None:
        self._member = None if member is None else weakref.ref(member)
        self._real = isinstance(clock, SystemClock)
        self._begun: tuple[threading.Thread, threading.Event] | None = None
        """The thread, which an interrupt may have kept from running, and what ends it."""

    @property
    def running(self) -> bool:
        """True if the thread runs and was not told to stop."""
        if self._begun is None:
            return False
        thread, stop = self._begun
        return thread.ident is not None and not stop.is_set()

    def start(self) -> None:
        """Begin; does nothing when it runs."""
        if self._member is None or not self._real or self.running:
            return
        if self._begun is not None:
            # Its start was interrupted: should it run nevertheless, it ends.
            self._begun[1].set()
        stop = threading.Event()
        thread = threading.Thread(target=_run, args=(self._member, stop), name="kafkalike-heartbeat", daemon=True)
        self._begun = thread, stop
        thread.start()

    def stop(self) -> None:
        """End, and wait for a heartbeat that is under way."""
        if self._begun is not None:
            thread, stop = self._begun
            stop.set()
            if thread.is_alive():
                thread.join()
            self._begun = None


def _run(reference: weakref.ref[GroupMember], stop: threading.Event) -> None:
    wait = 0.0
    while not stop.wait(wait):
        member = reference()
        if member is None:
            return
        # An assignor of the user's may fail: others may do better, and this member must stay alive.
        with ReportErrors(_log, "group %s: the heartbeat failed", member.settings.group_id) as reported:
            wait = member.beat()
        if reported.error is not None:
            wait = member.settings.heartbeat_interval_ms / 1000
        # Neither may live on in this thread: an error's traceback holds the member.
        del member, reported
