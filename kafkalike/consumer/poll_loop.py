"""Poll loop: looks at cluster, group and logs until there are records or the timeout is over.

It tolerates a storage that does not answer for a while. `FolderWatch` wakes a waiting poll when a topic that it has
read to the end may have a new commit: on Linux, the kernel reports new files of a folder (inotify), so a record arrives
without the wait between two looks.
"""

from __future__ import annotations

import logging
import math
import os
import select
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from kafkalike.consumer.assigner import Assigner
from kafkalike.consumer.call_checks import ThreadGuard
from kafkalike.consumer.consumer_context import ConsumerContext, RootCheck
from kafkalike.consumer.fetcher import FetchedRecords, Fetcher
from kafkalike.consumer.offset_commits import OffsetCommits, StartPositions
from kafkalike.consumer.record_builders import Build
from kafkalike.consumer.subscription import PartitionState
from kafkalike.errors import KafkaError, KafkaTimeoutError, LogCorruptError, TopicDeletedError
from kafkalike.log.call_view import CallView
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.concurrency import ActiveBlock, inherited
from kafkalike.model.group_state import GroupsState
from kafkalike.model.structs import ConsumerRecord

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog


SLOWEST: Final = 10
"""A waiting poll looks less and less often, down to once per `tail_interval` times this factor."""

REST: Final = 9
"""A waiting poll rests for this multiple of the duration of a look, such as a long look at very many topics, so it uses
at most a tenth of a core. So does a poll that is woken by each commit, for records of other partitions."""

WATCHED_REST: Final = 33
"""As `REST`, if the kernel reports all new commits: only the group and the cluster have to be polled."""

NEAR_LOOK_SECONDS: Final = 1.0
FAR_LOOK_SECONDS: Final = 10.0
"""Intervals at which a consumer without a group looks at the groups' table for decided transactions: in a folder, and
where a look is a request that costs money."""

HELP_MS: Final = 10_000
"""Maximum time, in ms, that a poll spends on applying committed transactions to its topics before it reads them."""


JUST_SECONDS: Final = 1.0
"""Maximum age of the metadata at the first poll: usually they were read when the client was made."""


class PollLoop:
    """The work of `poll`, iteration and `poll_arrow`. Belongs to its consumer's thread."""

    def __init__(self, context: ConsumerContext, guard: ThreadGuard) -> None:
        self.commits = OffsetCommits(context)
        self.positions = StartPositions(context)
        self.assigner = Assigner(context, self.commits, self.positions)
        self.fetcher = Fetcher(context)
        self.watch = FolderWatch()
        opened = context.config.bootstrap_servers is context.cluster
        self._root = RootCheck(context.cluster, context.clock, opened=opened)
        self._transient_errors = TransientErrors(context.clock, context.config.default_api_timeout_ms)
        self._just = JUST_SECONDS
        # A short-lived reader of a remote root does not look at the groups' table.
        self._groups_seen = context.clock.monotonic() if context.cluster.store.scheduler.is_remote else -math.inf
        self._settled: GroupsState | None = None
        """The newest known state of the groups, if no transaction waits in it."""
        self._context = context
        self._guard = guard
        self.running = ActiveBlock()
        """True while this thread waits for records, further up in its stack."""
        self.ending: Callable[[], None] | None = None
        """Closes the consumer after the wait in which a signal handler called `close`."""

    def wait(self, timeout_ms: float, limit: int | None, build: Build) -> list[FetchedRecords]:
        """Collect records, and wait for them if necessary; positions do not move.

        Args:
            timeout_ms: ms to wait; 0 looks once.
            limit: maximum number of records; None for no limit but bytes.
            build: makes the result of a chunk.
        """
        try:
            with self.running:
                taken = self._wait(timeout_ms, limit, build)
        finally:
            if self.ending is not None:
                self.ending()
        return [] if self._guard.closed else taken

    def _wait(self, timeout_ms: float, limit: int | None, build: Build) -> list[FetchedRecords]:
        context = self._context
        end = context.clock.monotonic() + timeout_ms / 1000
        pause, woken = context.cluster.tail_interval, False
        context.metrics.polls += 1
        while self.ending is None:
            begun = context.clock.monotonic()
            taken = self._answered(limit, build, begun)
            if taken and self.assigner.lapsed:
                taken = self._still_held(taken)
            remaining = end - context.clock.monotonic()
            if taken and not taken[0].parts and not any(part.parts for part in taken):
                # All records were skipped, so nothing is delivered, and there may be more to read.
                self.fetcher.advance(taken)
                if remaining > 0:
                    continue
                return []
            if taken or remaining <= 0:
                return taken
            looked = context.clock.monotonic() - begun
            woken = self._pause(min(pause, remaining), looked * REST if woken else 0.0)
            rest = WATCHED_REST if self.watch.complete and self.fetcher.is_idle else REST
            pause = min(pause * 1.5, max(context.cluster.tail_interval * SLOWEST, looked * rest))
        return []

    def _pause(self, seconds: float, rest: float) -> bool:
        """Wait until the next look.

        Args:
            seconds: maximum wait, ended by a commit.
            rest: seconds in which commits do not end the wait.

        Returns:
            Whether a commit ended the wait.
        """
        clock, rest = self._context.clock, min(rest, seconds)
        # A test's manual clock stands still while the kernel waits.
        if clock is not SYSTEM_CLOCK:
            clock.sleep(seconds)
            return False
        clock.sleep(rest)
        return self.watch.wait(self.fetcher.idle_logs, seconds - rest)

    def _answered(self, limit: int | None, build: Build, begun: float) -> list[FetchedRecords]:
        """Look once; return nothing while the storage does not answer, for a time."""
        try:
            taken = self._once(limit, build, begun)
        except KafkaError as error:
            if not self._transient_errors.is_transient(error, begun):
                raise
            return []
        self._transient_errors.over()
        return taken

    def _once(self, limit: int | None, build: Build, begun: float) -> list[FetchedRecords]:
        self._root.check(begun)
        # The metadata read at the client's start may be used for the first look, but not for the next one.
        just, self._just = self._just, 0.0
        view = CallView(self._context.cluster, begun, just=just)
        try:
            self._prepare(view)
            return self.fetcher.collect(limit, build, view)
        except TopicDeletedError as error:
            if not self._context.logs.is_repartitioned(error):
                raise
            # The next look moves the positions.
            self.assigner.renew()
            return []
        except LogCorruptError as cause:
            self._root.check(self._context.clock.monotonic(), cause)
            raise

    def _prepare(self, view: CallView) -> None:
        """Do everything that a poll does besides fetching."""
        self.commits.run_callbacks()
        self.assigner.send_heartbeat(view.now)
        # A look costs a file look-up or two, so a consumer with buffered records skips it.
        buffered = self.fetcher.buffered
        if not buffered or self.assigner.is_stale(view.now):
            self.assigner.look(view)
        self.commits.commit_if_due(view)
        self.positions.resolve(view)
        if not buffered:
            self._help(view)

    def _help(self, view: CallView) -> None:
        """Apply decided transactions of producers that were killed before they applied them."""
        cluster = self._context.cluster
        known = view.seen_groups
        if known is None:
            pause = FAR_LOOK_SECONDS if cluster.store.scheduler.is_remote else NEAR_LOOK_SECONDS
            due = view.now - self._groups_seen >= pause
            if due:
                self._groups_seen = view.now
            known = view.groups() if due else cluster.groups.state
        if known is self._settled:
            return  # a state is a value
        self._settled = known if not known.unsettled else None
        # Most clusters have no transactions: their readers do not load this code.
        if self._settled is None and cluster.transactions.help_waiting(self._context.logs.opened, known, HELP_MS):
            view.topics.clear()  # they have new records

    def _still_held(self, taken: list[FetchedRecords]) -> list[FetchedRecords]:
        """Drop records of partitions that were lost while this process was stopped beyond its session timeout."""
        found = [(part, part.state.position) for part in taken]
        context = self._context
        self.assigner.look(CallView(context.cluster, context.clock.monotonic()))
        held = self._context.subscription
        return [part for part, at in found if held.get(part.tp) is part.state and part.state.position == at]

    def walk(self, taken: list[FetchedRecords]) -> Iterator[tuple[PartitionState, ConsumerRecord]]:
        """Yield the records one by one, each with its partition's state, whose position the client moves past it.

        Skips the rest of a partition that was paused or revoked; a seek must drop the whole walk. Ends when the session
        may have expired.
        """
        subscription = self._context.subscription
        member = self._context.member if subscription.automatic else None
        monotonic = self._context.clock.monotonic
        for part in taken:
            state = part.state
            for record in chain.from_iterable(part.parts):
                if not state.fetchable or subscription.get(part.tp) is not state:
                    break
                if member is not None and monotonic() >= member.lease_end:
                    return
                yield state, record
            else:
                # Skip a gap that compaction left after the last record.
                if state.fetchable and subscription.get(part.tp) is state:
                    state.position = part.next_offset


log = logging.getLogger(__name__)

WARN_SECONDS: Final = 30.0


class TransientErrors:
    """Measures how long the storage has not answered. Belongs to the consumer's thread.

    Kafka's poll returns nothing while no broker answers. So does this one, for a limited time; then it raises an error,
    because nobody may read the log.

    Args:
        clock: time.
        patience_ms: maximum silence, from the start of the first failed look to that of the last.
    """

    def __init__(self, clock: Clock, patience_ms: float) -> None:
        self._clock = clock
        self._patience = patience_ms / 1000
        self._since: float | None = None
        self._warned: float | None = None

    def over(self) -> None:
        """Record a successful look. Caller: poll."""
        if self._since is not None:
            self._since = self._warned = None
            log.info("the storage answers again")

    def is_transient(self, error: KafkaError, begun: float) -> bool:
        """Return True if a poll returns nothing instead of raising the error.

        Args:
            error: the look's error.
            begun: start of the look, s of the monotonic clock.
        """
        if not _unanswered(error):
            return False
        since = begun if self._since is None else self._since
        self._since = since
        if begun - since >= self._patience:
            return False
        now = self._clock.monotonic()
        if self._warned is None or now - self._warned >= WARN_SECONDS:
            self._warned = now
            log.warning("the storage has given no answer for %.0f s: %s; polls return nothing", now - since, error)
        return True


def _unanswered(error: BaseException) -> bool:
    """Return True if the error is retriable and comes from a request without an answer.

    A timed-out change of the group counts, too: it may have waited behind a commit of this process that waits for an
    answer, and nothing was written. Errors of a folder's file system do not count: `EIO` is a broken disk.
    """
    if isinstance(error, KafkaTimeoutError):
        return True
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TimeoutError):
            return isinstance(error, KafkaError) and error.retriable
        cause = cause.__cause__
    return False


# From <sys/inotify.h>; they are part of Linux's interface and never change.
_MOVED_TO: Final = 0x80
_CREATE: Final = 0x100
_ONLY_A_FOLDER: Final = 0x01000000
_EVENTS: Final = _CREATE | _MOVED_TO | _ONLY_A_FOLDER

RENEW_SECONDS: Final = 10.0
"""Time between two registrations of the folders: a folder may have been replaced by another of the same name, and a
limit may have space again."""

COMMIT_NAME: Final = b".json\0"
"""Suffix of a commit file's name in an event, which the kernel pads with zeros. Temporary files have other suffixes."""

EVENT_BYTES: Final = 65_536


class FolderWatch:
    """Wakes one waiting thread. Belongs to its consumer; holds one descriptor from its first wait until `close`."""

    def __init__(self) -> None:
        self._kernel: Any = None
        self._handle = -1
        self._close: weakref.finalize[..., Any] | None = None
        self._watched: dict[str, int] = {}
        """The kernel's watch number by folder."""
        self._logs: frozenset[TopicLog] = frozenset()
        self._named_at = 0.0
        self.complete = False
        """True if the kernel reports new commits of all logs of the last `wait`."""

    def wait(self, logs: Sequence[TopicLog], seconds: float) -> bool:
        """Wait for a commit to any of these logs.

        Args:
            logs: logs with awaited commits.
            seconds: maximum wait.

        Returns:
            True if there may be a commit since the last look; False after the wait.
        """
        if logs and self._is_due(logs):
            self._name(logs)
            if self._watched:
                # A commit may have come between the last look and this registration.
                return True
        if not logs or not self._watched:
            SYSTEM_CLOCK.sleep(seconds)
            return False
        end = SYSTEM_CLOCK.monotonic() + seconds
        poller = select.poll()
        poller.register(self._handle, select.POLLIN)
        while (left := end - SYSTEM_CLOCK.monotonic()) > 0:
            if poller.poll(left * 1000) and self._has_commit():
                return True
        return False

    def close(self) -> None:
        """Close the kernel's descriptor."""
        close, self._close, self._handle, self._watched, self._logs = self._close, None, -1, {}, frozenset()
        self.complete = False
        if close is not None:
            close()

    def in_child(self) -> None:
        """Close the copy of a forked child; the parent keeps receiving events."""
        self.close()

    # --- the kernel ----------------------------------------------------------------------------

    def _is_due(self, logs: Sequence[TopicLog]) -> bool:
        # Additional logs of the last registration are harmless.
        return not self._logs.issuperset(logs) or SYSTEM_CLOCK.monotonic() - self._named_at >= RENEW_SECONDS

    def _name(self, logs: Sequence[TopicLog]) -> None:
        """Register the folders of these logs with the kernel."""
        self.complete = False
        # A separate dict, because a hung storage may call `add` after its caller has given up.
        watched: dict[str, int] = {}
        kernel, handle = self._open(logs)
        if kernel is not None:

            def add(folder: str) -> None:
                number = kernel.inotify_add_watch(handle, os.fsencode(folder), _EVENTS)
                if number >= 0:
                    watched[folder] = number

            for log in logs:
                log.watch(add)
            for number in set(self._watched.values()).difference(watched.values()):
                kernel.inotify_rm_watch(handle, number)
        # Last, because an interrupt before this must repeat everything.
        self._watched, self._named_at = dict(watched), SYSTEM_CLOCK.monotonic()
        self.complete = len(self._watched) == len(logs)
        self._logs = frozenset(logs)

    def _open(self, logs: Sequence[TopicLog]) -> tuple[Any, int]:
        """Return the kernel's functions and the descriptor; None and -1 if they are useless or unavailable."""
        if self._handle < 0:
            folders: list[str] = []
            for log in logs:
                log.watch(folders.append)
            kernel = _linux() if folders else None
            if kernel is None:
                return None, -1
            inherited.add(self)
            self._kernel, self._handle = kernel, kernel.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if self._handle < 0:
                return None, -1
            self._close = weakref.finalize(self, os.close, self._handle)
        return self._kernel, self._handle

    def _has_commit(self) -> bool:
        """Read the events; return whether any of them names a commit file."""
        found = False
        while True:
            try:
                events = os.read(self._handle, EVENT_BYTES)
            except BlockingIOError:
                return found
            found = found or COMMIT_NAME in events


def _linux() -> Any:  # noqa: ANN401 - ctypes
    """Return the C library if it has the functions, else None."""
    try:
        from ctypes import CDLL

        library = CDLL(None)
    except (ImportError, OSError):
        return None
    return library if hasattr(library, "inotify_init1") else None
