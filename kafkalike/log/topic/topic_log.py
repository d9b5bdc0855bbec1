"""TopicLog: one topic's Delta table as a log that can be read and appended to."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalike import errors
from kafkalike.delta import table_change
from kafkalike.delta.actions import APPEND, TableCommit
from kafkalike.delta.log_cleaner import LogCleaner
from kafkalike.delta.table import Questions
from kafkalike.delta.table_state import CLOSE, FENCE, OPEN, REPLICAS, TableState, end_app
from kafkalike.log.topic.batch_payload import BatchPayload, Payload, append_note
from kafkalike.log.topic.producer_append import SequencedPayload, recalled
from kafkalike.log.topic.record_rules import codec_for
from kafkalike.log.topic.tailed_topic import TailedTopic, TopicContext
from kafkalike.log.topic.topic_commits import append_refusal, find_commit, find_write, names_of
from kafkalike.model import faults
from kafkalike.model.appends.producer_sequences import ProducerSequences
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.concurrency import OnError
from kafkalike.model.metrics import Histogram
from kafkalike.model.record_batch import SEALED, Appended, RecordBatch, TxnId
from kafkalike.model.segments import plan_offsets
from kafkalike.model.topic import TopicInfo
from kafkalike.storage.scheduler import NOW, Pace

if TYPE_CHECKING:
    from kafkalike.log.topic.column_batch import ColumnBatch
    from kafkalike.log.topic.topic_group_commit import TopicGroupCommit


PATIENCE_SECONDS: Final = 5.0
"""How long a writer queues behind other writers of its machine before it writes without its turn. A writer may be
stopped while it holds the turn, and only the table's version decides. A large append takes less time, so a working
writer is seldom overtaken and made to write again."""

T = TypeVar("T")


class TopicLog(TailedTopic):
    """The log of one topic, from the topic's creation to its deletion.

    All methods may raise `TopicDeletedError` if the topic is deleted, or deleted and recreated. `append` is
    thread-safe; all other methods belong to one thread.

    Args:
        home: the cluster's files and metadata.
        info: the topic when this log was opened; its id must not change.
        jitter: random number from 0 to 1 for the wait after a conflict.
    """

    def __init__(self, home: TopicContext, info: TopicInfo, *, jitter: Callable[[], float] = random.random) -> None:
        super().__init__(home, info, jitter)
        patience = PATIENCE_SECONDS if self.files.coordination.reach == "machine" else None
        self._turns = table_change.WriteQueue(home.store, info.location, self.clock, patience, self._version)
        self._cleaner = LogCleaner(home.store, info.location, home.helpers, self.clock)
        self._refusal: tuple[Mapping[str, str], str, str | None] | None = None
        self._combined: TopicGroupCommit | None = None
        self._applications = 0
        """Number of applications in the table's state when replicas were last looked for."""
        self._seals: dict[str, int] = {}
        """Epochs of the applications that record replicas."""
        if self.files.scheduler.combines:
            # Imported late because only object stores combine appends.
            from kafkalike.log.topic.topic_group_commit import TopicGroupCommit

            self._combined = TopicGroupCommit(self, self._table, jitter, home.open_appends().of(info.topic_id))

    def append(
        self,
        batch: RecordBatch | ColumnBatch,
        *,
        codec: str = "none",
        timeout_ms: float | None = 120_000,
        txn: TxnId | None = None,
    ) -> Appended:
        """Write the records in one table commit: all of them or none.

        Records of one partition get consecutive offsets in the order of the batch.

        Args:
            batch: at least one record; every partition exists.
            codec: compression, used if the topic's `compression.type` is `producer`.
            timeout_ms: how long to wait for concurrent writers and retry (delivery.timeout.ms); None waits without
                limit.
            txn: makes a retry of the same write idempotent; versions of an application must rise.

        Raises:
            KafkaTimeoutError: concurrent writers held the topic for too long; nothing was written.
            OutOfOrderSequenceNumberError: `txn` is below the application's latest version and was never written, or
                another writer of the application wrote meanwhile.
            KafkaStorageError: the storage refused; nothing was written.
            UnknownOutcomeError: the records may have been written or not.
            MessageSizeTooLargeError, InvalidTimestampError, InvalidRecordError: a record breaks a topic setting;
                nothing was written.
        """
        payload = self._payload(batch)
        return self.append_payload(payload, codec=codec, deadline=Deadline(self.clock, timeout_ms), txn=txn)

    def _payload(self, batch: RecordBatch | ColumnBatch) -> Payload:
        if isinstance(batch, RecordBatch):
            return BatchPayload(batch, self.schemas)
        from kafkalike.log.topic.column_batch import payload_of

        return payload_of(batch, self.schemas, -1 if self._combined is None else self._combined.most_stored)

    def append_payload(self, payload: Payload, *, codec: str, deadline: Deadline, txn: TxnId | None) -> Appended:
        """Number the records of a payload, write and commit them: all of them or none."""
        begun = self.clock.monotonic()
        with OnError(lambda: FAILED.observe(self.clock.monotonic() - begun)):
            appended = self._append(payload, codec, deadline, txn)
        APPENDS.observe(self.clock.monotonic() - begun)
        return appended

    def _append(self, payload: Payload, codec: str, deadline: Deadline, txn: TxnId | None) -> Appended:
        if self._combined is not None:
            # The plan is made where other writers' appends are, too, and perhaps by another process.
            self._check_in_sync()
            appended = self._combined.bring(payload, codec, txn, deadline)
            faults.point("append.after_commit")
            return appended

        ranges: dict[int, range] = {}

        def plan(state: TableState) -> table_change.Change | table_change.Unchanged[Appended]:
            return self._appending(state, payload, codec, txn, ranges)

        with self._turns.awaited(deadline, self._just_seen()):
            landed = self.change(plan, deadline, questions=self._questions)
        if isinstance(landed, table_change.Unchanged):
            return landed.value
        faults.point("append.after_commit")
        self._check_still_in_sync()
        return Appended(version=landed.version, ranges=ranges, append_time_ms=landed.change.time_ms)

    def _appending(
        self, state: TableState, payload: Payload, codec: str, txn: TxnId | None, ranges: dict[int, range]
    ) -> table_change.Change | table_change.Unchanged[Appended]:
        """Plan the version that appends a payload.

        Args:
            state: the table.
            payload: the records.
            codec: used if the topic's `compression.type` is `producer`.
            txn: the write's name.
            ranges: gets the offsets of the records, by partition.
        """
        done = None if txn is None else self.already_appended(txn)
        if done is not None:
            return table_change.Unchanged(done)
        self._check_in_sync()
        info, config, now = self.info, self.config, self.clock.now_ms()
        payload.check(info, config, now)
        if isinstance(payload, SequencedPayload):
            payload.judge(recalled(state, self.files, now), now)
        counts = payload.counts()
        if not counts and txn is None:
            return table_change.Unchanged(Appended(version=state.version, ranges={}, append_time_ms=now))
        # Loops instead of comprehensions, which are calls in Python 3.11: nearly all appends have one partition.
        known: dict[int, int] = {}
        starts: dict[int, int] = {}
        for partition in counts:
            known[partition] = end = state.end(partition)
            starts[partition] = max(end, info.log_start(partition))
        runs = plan_offsets(starts, counts)
        # An earlier plan may have left other ranges.
        ranges.clear()
        ranges.update(sorted(runs.items()))
        requires: list[table_change.Requirement] = [table_change.Still(lambda: self.info is info, "the topic")]
        ends = {p: state.end(p) for p in state.unrecorded} if state.unrecorded else {}
        for partition, run in runs.items():
            requires.append(table_change.EndsAt(partition, known[partition]))
            ends[partition] = run.stop
        txns: dict[str, int] = {}
        for partition in sorted(ends):
            txns[end_app(partition)] = ends[partition]
        if txn is not None:
            requires.append(table_change.LastOf(txn.app_id, state.txns.get(txn.app_id)))
            txns |= names_of(txn, state.txns)
        now_counts = config.log_append_time
        adds = payload.write(self.files, runs, codec=codec_for(config, codec), now_ms=now, now_counts=now_counts)
        faults.point("append.before_commit")
        note = append_note(now, txn, state.txns)
        change = table_change.Change(operation=APPEND, time_ms=now, adds=adds, txns=txns, note=note, requires=requires)
        return payload.record(change, state, runs) if isinstance(payload, SequencedPayload) else change

    def _check_in_sync(self) -> None:
        """Refuse an append before anything is written if too few replicas are in sync.

        Raises:
            NotEnoughReplicasError: fewer than `min.insync.replicas` are in sync.
        """
        wanted = self.config.min_isr
        if wanted <= 1 or self._home.in_sync(self.info) >= wanted:
            return
        # The setting may have been lowered since the last look.
        self.refresh_info()
        if (there := self._home.in_sync(self.info)) < (wanted := self.config.min_isr):
            raise errors.NotEnoughReplicasError(f"{self.info.name}: {_few(there, wanted)}; nothing was written")

    def _check_still_in_sync(self) -> None:
        """Report that replicas fell out of sync during an append.

        Raises:
            NotEnoughReplicasAfterAppendError: fewer than `min.insync.replicas` are left in sync, or it is unknown how
                many.
        """
        try:
            wanted = self.config.min_isr
            there = wanted if wanted <= 1 else self._home.in_sync(self.info)
        except (errors.KafkaError, OSError) as cause:
            # A producer retries errors of some of these classes, and would write the records twice.
            raise errors.NotEnoughReplicasAfterAppendError(
                f"{self.info.name}: the records were written, and it is unknown how many replicas have them: {cause}"
            ) from cause
        if there < wanted:
            raise errors.NotEnoughReplicasAfterAppendError(
                f"{self.info.name}: the records were written, and {_few(there, wanted)}"
            )

    @contextlib.contextmanager
    def exclusive(self, deadline: Deadline) -> Iterator[None]:
        """Hold the write queue of the table, or give up waiting for it after `PATIENCE_SECONDS`; see `WriteQueue`."""
        with self._turns.awaited(deadline, self._just_seen()):
            yield

    def _version(self) -> int:
        self.refresh_table()
        return self._table.state.version

    def _just_seen(self) -> int | None:
        """Return the table's version if this log read others' commits a moment ago, so that few are left to read."""
        return self._table.state.version if self._table.seen_within(table_change.NEW_SECONDS) else None

    def _questions(self) -> list[Callable[[], object]]:
        """Return the storage requests of `ready_to_append`, to be made in parallel."""
        return [*self._home.metadata.questions()[:1], *self._table.questions()]

    def producer_sequences(self, now_ms: int) -> ProducerSequences:
        """Return what idempotent producers have written, as of the last look; see `recalled`."""
        with self._table.mutex:
            return recalled(self._table.state, self.files, now_ms)

    def look_for_append(self) -> None:
        """Look at everything an append must have seen, as `change_for_append` does; errors as in `ready_to_append`."""
        looked = SYSTEM_CLOCK.monotonic()
        if self.files.scheduler.combines:
            self.files.scheduler.beside(self._questions())
        self.ready_to_append(Pace(since=looked) if self.files.scheduler.combines else NOW)

    def change_for_append(
        self, plan: table_change.Plan[T], deadline: Deadline
    ) -> table_change.Landed | table_change.Unchanged[T]:
        """Change the topic's table; the plan may be made from known state while the look is in progress."""
        return self.change(plan, deadline, questions=self._questions)

    def change(
        self,
        plan: table_change.Plan[T],
        deadline: Deadline,
        discard: Callable[[table_change.Change], None] | None = None,
        questions: Questions | None = None,
    ) -> table_change.Landed | table_change.Unchanged[T]:
        """Change the topic's table; see `Table.change`. Appends and maintenance call it within `exclusive`."""
        landed = self._table.change(plan, deadline, self.ready_to_append, discard, questions)
        if isinstance(landed, table_change.Landed) and landed.version % self._cleaner.interval == 0:
            self._cleaner.after_commit(landed, self._table.known)
        return landed

    def fence(self, deadline: Deadline) -> None:
        """Make every writer with written data files plan again and write new ones; see `Table.fence`."""
        with self.exclusive(deadline):
            self._table.fence(deadline)

    def apply_foreign_writes(self, deadline: Deadline) -> bool:
        """Close the table to foreign writers or open it to them, as `kafkalike.foreign.writes` says.

        Args:
            deadline: until when to try.

        Returns:
            True if the table's protocol was changed.

        Raises:
            MirrorTopicError, LogCorruptError, UnsupportedVersionError: see `ready_to_append`.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: see `Table.change`; call it again.
        """

        def plan(state: TableState) -> table_change.Change | table_change.Unchanged[None]:
            info, closed = self.info, self.config.closed
            if state.closed == closed:
                return table_change.Unchanged(None)
            operation = CLOSE if closed else OPEN
            requires = [table_change.Still(lambda: self.info is info, "the topic")]
            return table_change.Change(
                operation=operation, time_ms=self.clock.now_ms(), closes=closed, requires=requires
            )

        changed = False
        # The setting is in another table and may have changed meanwhile, so check until nothing is left to do.
        while True:
            with self.exclusive(deadline):
                if isinstance(self.change(plan, deadline), table_change.Unchanged):
                    return changed
            changed = True

    def seal(self, application: str, deadline: Deadline, also: Mapping[str, int] | None = None) -> None:
        """Commit an empty version that every writer meets before its next one: it takes the number they would use.

        Args:
            application: Delta application that records the commit, so that it is made once. `SEALED` ends all appends.
            deadline: until when to try.
            also: versions of other Delta applications to record.

        Raises:
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: see `Table.change`.
        """

        def plan(state: TableState) -> table_change.Change | table_change.Unchanged[None]:
            if application in state.txns:
                return table_change.Unchanged(None)
            return table_change.Change(
                operation=FENCE, time_ms=self.clock.now_ms(), txns={application: 1, **(also or {})}
            )

        with self.exclusive(deadline):
            self._table.change(plan, deadline)

    def ready_to_append(self, pace: Pace = NOW) -> None:
        """Refresh, and refuse a table that a foreign writer has replaced, or whose log end has moved back.

        Raises:
            MirrorTopicError: the topic is a read-only copy.
            LogCorruptError: an append would assign offsets a second time.
            UnsupportedVersionError: the table has a property or a column rule that kafkalike does not honor.
        """
        self.look_anew(pace)
        self.check_appendable()

    def check_appendable(self) -> None:
        """Make the checks of `ready_to_append` on the state of the last look; raises the same errors."""
        state = self._table.state
        self._look_after_seals(state.txns)
        self.info.check_own()
        if SEALED in state.txns:
            # A producer waits for the new partitions, and looks for them.
            raise errors.NotLeaderForPartitionError(
                f"topic {self.info.name!r} is being repartitioned; nothing was written. Try again; if that does "
                "not help, call repartition again, which was interrupted"
            )
        self._table.durable = self.config.flush
        refusal = self._append_refusal(state)
        if refusal is not None:
            raise errors.UnsupportedVersionError(f"{self.info.name}: nothing is written to {self.files.uri}: {refusal}")
        rewound = state.rewound
        if rewound is not None:
            raise errors.LogCorruptError(
                f"{self.info.name}: {rewound.operation} at version {rewound.version} took records back; "
                "appending would give their offsets to other records. Delete the topic and create it again, or restore "
                "the table to the version before that operation and copy its records to a new topic"
            )

    def _look_after_seals(self, txns: Mapping[str, int]) -> None:
        """If the table got replicas, look at the metadata again, which tell clients of one root so."""
        if len(txns) == self._applications and self._seals.items() <= txns.items():
            return
        seals = {name: epoch for name, epoch in txns.items() if name.startswith(REPLICAS)}
        if seals:
            self.refresh_info()
        self._applications, self._seals = len(txns), seals

    def _append_refusal(self, state: TableState) -> str | None:
        """Return `append_refusal`, computed once for each of the table's metadata, which are never changed in place."""
        known, properties, schema = self._refusal, state.properties, state.schema
        if known is None or known[0] is not properties or known[1] is not schema:
            known = self._refusal = (properties, schema, append_refusal(properties, schema))
        return known[2]

    def check_removable(self) -> None:
        """Refuse a table whose files may not be removed, before any work; see `Table.check_removable`.

        Raises:
            PolicyViolationError: names the property that forbids it.
        """
        self._table.check_removable()

    def foreign_rules(self) -> list[str]:
        """Return the demands of foreign writers on the table that appends or maintenance do not honor, as messages."""
        state = self._table.state
        found = (self._append_refusal(state), state.removal_refusal)
        return [refusal for refusal in found if refusal is not None]

    @property
    def is_closed_as_set(self) -> bool:
        """True if, at the last look, the table was as open to foreign writers as `kafkalike.foreign.writes` says."""
        return self._table.state.closed == self.config.closed

    def clean_log(self) -> bool:
        """Keep the table's log short; see `LogCleaner.clean`. Maintenance calls it after a look."""
        return self._cleaner.clean(self.info.table_id, self._table.state)

    # --- recognizing writes --------------------------------------------------------------------

    def already_appended(self, txn: TxnId | None) -> Appended | None:
        """Return the earlier write of the same `TxnId`, if the table has it.

        Its offsets are known while the table's log still holds the commit; later they are empty.

        Raises:
            OutOfOrderSequenceNumberError: the application has written a higher version, and nothing shows that it wrote
                this one: its counter was reset, or two jobs share a name. Or a version above `after` exists.
        """
        return None if txn is None else find_write(self.info.name, self.files, self._table.state, txn)

    def txn_version(self, app_id: str) -> int | None:
        """Return the latest version that an application has written, as of the last `refresh`; None if it never has."""
        return self._table.state.txns.get(app_id)

    def apps(self, prefix: str) -> list[str]:
        """Return the names with a prefix of all applications that have written, as of the last `refresh`, sorted."""
        return sorted(app for app in self._table.state.txns if app.startswith(prefix))

    def find_commit(self, wanted: Callable[[TableCommit], bool]) -> TableCommit | None:
        """Return the newest matching commit that the log still holds."""
        return find_commit(self.files, wanted)


def _few(there: int, wanted: int) -> str:
    return f"{there} {'replica is' if there == 1 else 'replicas are'} in sync, and min.insync.replicas={wanted}"


SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Histogram bounds: from a commit on a local disk to an append that waited for its timeout."""

APPENDS: Final = Histogram(SECONDS)
"""Seconds of successful appends, waits for other writers included."""

FAILED: Final = Histogram(SECONDS)
"""Seconds of appends that raised an error."""
