"""Poll loop: looks at cluster, group and logs until there are records or the timeout is over, and delivers the records.

It also distinguishes an empty root from a vanished one, and tolerates a storage that does not answer for a while.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

from kafkalike.consumer.assigner import Assigner
from kafkalike.consumer.call_checks import ThreadGuard, check_max, check_timeout
from kafkalike.consumer.consumer_context import ConsumerContext
from kafkalike.consumer.fetcher import FetchedRecords, Fetcher
from kafkalike.consumer.folder_watch import FolderWatch
from kafkalike.consumer.offset_commits import OffsetCommits, StartPositions
from kafkalike.consumer.record_builders import Build
from kafkalike.consumer.subscription import PartitionState
from kafkalike.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, LogCorruptError
from kafkalike.log.call_view import CallView
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.concurrency import ActiveBlock
from kafkalike.model.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


class RootCheck:
    """Refuses a root that has vanished, and one that never held a cluster. Belongs to its consumer.

    If the root is missing, each poll looks. A root that has vanished (removed, or its file system is not mounted) and a
    misspelled one would look like roots without news, and a group would create a cluster there.

    Args:
        cluster: the cluster of the root.
        clock: time.
        opened: whether the caller has opened the cluster, which then may be empty, such as a `MemoryCluster`.
    """

    def __init__(self, cluster: Cluster, clock: Clock, *, opened: bool) -> None:
        self._cluster = cluster
        self._clock = clock
        self._due = clock.monotonic()
        self._there = False
        self._opened = opened

    def check(self, now: float, cause: LogCorruptError | None = None) -> None:
        """Look at the root, if that is due. Caller: poll.

        Args:
            now: s of the monotonic clock.
            cause: error of a log that could not be read, which makes the look due.

        Raises:
            KafkaConnectionError: the root has vanished, or never held a cluster.
        """
        if cause is None and now < self._due:
            return
        if self._cluster.there and (self._there or self._opened or self._founded()):
            self._there, self._due = True, now + self._cluster.root_interval
        elif self._there:
            raise KafkaConnectionError(
                f"the storage root {self._cluster.root} has vanished, or has lost its topics; check that its file "
                "system is mounted"
            ) from cause
        elif not self._opened:
            raise KafkaConnectionError(
                f"{self._cluster.root} does not hold a cluster: check bootstrap_servers, or create one there with "
                "`kafkalike topics --create` or a producer"
            )

    def _founded(self) -> bool:
        """True if something was ever created there; in an object store, by the metadata that `there` has read."""
        return not self._cluster.store.scheduler.is_remote or bool(self._cluster.metadata.state.seq)


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
        deadline = Deadline(context.clock, None if math.isinf(timeout_ms) else timeout_ms)
        pause, woken = context.cluster.tail_interval, False
        context.metrics.polls += 1
        while self.ending is None:
            begun = context.clock.monotonic()
            taken = self._answered(limit, build, begun)
            if taken and self.assigner.lapsed:
                taken = self._still_held(taken)
            remaining = deadline.remaining()
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
        # Most clusters have no transactions: their readers do not load this code.
        if known.unsettled and cluster.transactions.help_waiting(self._context.logs.opened, known, HELP_MS):
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


def count(taken: list[FetchedRecords], size: Callable[[Any], int] = len) -> int:
    """Return the number of collected records."""
    found = 0
    for piece in taken:
        for part in piece.parts:
            found += size(part)
    return found


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


T = TypeVar("T")


class Delivery:
    """The last step of `poll`, `poll_arrow` and iteration. Belongs to its consumer's thread.

    An interrupt on any line leaves the positions unchanged, because the caller has not got the records.

    Args:
        context: the consumer's parts.
        polling: collects records.
        guard: the consumer's. It is entered here, because an interrupt may also come while it is left.
        build: makes `ConsumerRecord`s.
    """

    def __init__(self, context: ConsumerContext, polling: PollLoop, guard: ThreadGuard, build: Build) -> None:
        self._context = context
        self._polling = polling
        self._guard = guard
        self._build = build
        self._walk: Iterator[tuple[PartitionState, ConsumerRecord]] | None = None
        """The undelivered records of an iteration's last poll."""

    def drop(self) -> None:
        """Drop the undelivered records of an iteration's last poll, because positions or partitions have changed."""
        self._walk = None

    def hand_out(  # noqa: PLR0917 - positional, so that Python calls it without a place for an interrupt
        self,
        call: str,
        timeout_ms: float,
        max_records: int | None,
        build: Build,
        form: Callable[[list[FetchedRecords]], T],
        move: bool,  # noqa: FBT001
    ) -> T:
        """Collect records, convert them to the caller's form, and move the positions past them.

        Args:
            call: the caller's method, for messages.
            timeout_ms: ms to wait for the first record.
            max_records: maximum number of records; None for no limit but bytes.
            build: makes the result of a chunk.
            form: makes the returned value.
            move: False leaves the positions unchanged.

        Raises:
            KafkaError: see `KafkaConsumer.poll`.
        """
        taken: list[FetchedRecords] = []
        try:
            with self._guard:
                self._polling.assigner.refuse_in_callback(call)
                limit = None if max_records is None else check_max(max_records)
                timeout = check_timeout(timeout_ms)
                self._walk = None
                taken = self._polling.wait(timeout, limit, build)
                made = form(taken)
                if not taken:
                    return made
                self._context.metrics.records_consumed += count(taken)
                if move:
                    self._polling.fetcher.advance(taken)
            return made  # noqa: TRY300 - an interrupt here must be caught, too
        except BaseException:
            if move:
                self._polling.fetcher.retreat(taken)
            raise

    def next(self) -> ConsumerRecord:
        """Return the next record of an iteration; the position moves past it.

        Raises:
            StopIteration: no record came for `consumer_timeout_ms`.
            KafkaError: see `KafkaConsumer.poll`.
        """
        # Nothing comes between the record and the caller: an interrupt there would lose it.
        return self._taken(waits=True)

    def collected(self) -> ConsumerRecord | None:
        """Return the next record of an iteration if it is collected already; the position moves past it."""
        return self._taken(waits=False)

    @overload
    def _taken(self, *, waits: Literal[True]) -> ConsumerRecord: ...

    @overload
    def _taken(self, *, waits: Literal[False]) -> ConsumerRecord | None: ...

    def _taken(self, *, waits: bool) -> ConsumerRecord | None:
        state: PartitionState | None = None
        before: int | None = None
        try:
            with self._guard:
                while (found := None if self._walk is None else next(self._walk, None)) is None:
                    self._walk = None
                    if not waits:
                        return None
                    if not self.collect(self._context.config.consumer_timeout_ms):
                        raise StopIteration  # noqa: TRY301 - the handler below takes the walk back
                before = found[0].position
                state, record = found
                state.position = record.offset + 1
                self._context.metrics.records_consumed += 1
            return record  # noqa: TRY300 - an interrupt here must be caught, too
        except BaseException:
            # Interrupted: the caller has not got the record, and the rest of the walk begins after it.
            self._walk = None
            if state is not None:
                state.position = before
            raise

    def collect(self, timeout_ms: float) -> bool:
        """Poll for the records of an iteration, without moving positions. Return False if there are none."""
        with self._guard:
            self._polling.assigner.refuse_in_callback("iterate")
            taken = self._polling.wait(timeout_ms, self._context.config.max_poll_records, self._build)
            self._walk = self._polling.walk(taken) if taken else None
            return bool(taken)


def by_partition(taken: list[FetchedRecords]) -> dict[TopicPartition, list[ConsumerRecord]]:
    """Group records by partition, as `poll` returns them."""
    return {t.tp: t.parts[0] if len(t.parts) == 1 else [r for part in t.parts for r in part] for t in taken if t.parts}
