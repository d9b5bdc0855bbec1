"""Sender: appends the accumulator's batches to topics and settles their results, in one thread per producer.

A transactional producer stages its batches, and its commit appends them. The interpreter's exit writes the records of
producers that were not closed.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - cannot be imported for the first time while the interpreter exits
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalike import errors
from kafkalike.errors.kafka_error import foreign_errors
from kafkalike.log.topic.record_rules import RECORD_ERRORS, refused_rows
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.concurrency import Latch, ReportErrors, report
from kafkalike.model.config.producer_config import ProducerConfig
from kafkalike.model.metrics import ProducerMetrics
from kafkalike.model.record_batch import Appended, RecordBatch
from kafkalike.producer.producer_batch import JoinedBatch, PartitionRouter, ProducerBatch, TopicQueue, parts_of
from kafkalike.producer.record_accumulator import RecordAccumulator

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.column_batch import ColumnBatch
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.producer.transaction_manager import TransactionManager


logger = logging.getLogger(__name__)

LAST_APPEND_SECONDS: Final = 5.0
"""How long a forced close waits for the running append, which it cannot stop."""

UNKNOWN_ID: Final = "(not known)"
"""Placeholder for an append's id, if the error did not come from the log."""


class Sender:
    """Appends the buffer's batches, one after the other, and settles their outcomes.

    After a retriable error, a batch returns to the head of its topic's queue, so order is kept; other topics get their
    turn while it waits.

    Its thread is a daemon, so that the interpreter first waits for the program's own threads, which may still send;
    then `end_all` sends the rest. The interpreter must not end before the thread: a thread inside native code
    at that moment crashes the process (SIGSEGV, `terminate called`).

    Args:
        cluster: the cluster of the topics.
        config: the producer's settings.
        buffer: source of the batches.
        router: chooses partitions.
        clock: time.
        transactions: stages batches, for a producer with a `transactional_id`.
    """

    def __init__(  # noqa: PLR0917 - the parts of one producer, once
        self,
        cluster: Cluster,
        config: ProducerConfig,
        buffer: RecordAccumulator,
        router: PartitionRouter,
        clock: Clock,
        transactions: TransactionManager | None = None,
    ) -> None:
        self.metrics = ProducerMetrics()
        self._cluster = cluster
        self._config = config
        self._buffer = buffer
        self._router = router
        self._clock = clock
        self._codec = config.codec
        self._delivery_seconds = config.delivery_timeout_ms / 1000
        self._limit = f"delivery_timeout_ms={config.delivery_timeout_ms:g}"
        self._transactions = transactions
        self._logs = OpenLogs(cluster, buffer, clock)
        self.pid = os.getpid()
        self.ended = Latch()
        """Opened at the end of the thread; `Thread.join` is not safe here, see `Latch`."""
        self._thread = threading.Thread(target=self._run, name=f"{config.client_id}-sender", daemon=True)

    # --- from outside --------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. Call it once."""
        self._thread.start()
        self._buffer.sender = self._thread.ident or 0

    def close(self, timeout: float | None) -> bool:
        """Send the queued records, then end the thread. After an interrupt, call it again to wait.

        Args:
            timeout: seconds; None waits without end. Records that are not sent in time fail with `KafkaTimeoutError`. A
                running append is waited for a little longer, because its outcome would be unknown.

        Returns:
            Whether the log decided the outcome of every record.
        """
        self._buffer.close()
        if threading.current_thread() is self._thread:
            return True
        if self.ended.wait(timeout):
            self._cluster.settle(timeout)
            return True
        late = errors.KafkaTimeoutError(f"the producer was closed after {timeout} s; the record was not written")
        in_time = self.abandon(late)
        self.ended.wait(LAST_APPEND_SECONDS)
        return in_time

    def abandon(self, error: errors.KafkaError) -> bool:
        """Fail the queued records, but leave a running append alone.

        Returns:
            Whether the queue was empty.
        """
        found: list[ProducerBatch] = []
        done = Latch()

        def work() -> None:
            found.extend(self._buffer.empty())
            try:
                self._fail(found, error)
            finally:
                done.open()

        # In a thread, because an interrupt here between the two steps would leave futures unsettled.
        try:
            threading.Thread(target=work, name=f"{self._config.client_id}-abandon", daemon=True).start()
        except RuntimeError:  # no thread can be started, at the interpreter's end for instance
            work()
        done.wait()
        return not found

    def stop_taking(self) -> None:
        """Reject all further records."""
        self._buffer.close()

    # --- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        buffer = self._buffer
        buffer.sender = threading.get_ident()  # `start` may have been interrupted before it said so
        job: tuple[TopicQueue, ProducerBatch] | None = None
        ALIVE.add(self)
        try:
            while (job := buffer.take()) is not None:
                self._deliver(*job)
        finally:
            try:
                # Batches are only left after SystemExit in a callback or the like. Their waiting threads must not block
                # forever.
                buffer.close()
                left = buffer.empty()
                under_way: Sequence[ProducerBatch] = () if job is None else parts_of(job[1])
                ended = errors.UnknownOutcomeError("append of a thread that was ended", UNKNOWN_ID)
                self._fail([part for part in under_way if not part.outcome.done and part not in left], ended)
                self._fail(left, errors.KafkaError("the producer's thread was ended; the record was not written"))
            finally:
                ALIVE.discard(self)
                self.ended.open()

    def _deliver(self, queue: TopicQueue, batch: ProducerBatch) -> None:
        """Append or stage a batch, and settle it or return it to the queue."""
        if not (batch.fields or len(batch)):  # an interrupted send
            self._settle(batch, {}, None)
            return
        refusal = None if self._transactions is None else self._transactions.refusal()
        if refusal is not None:
            self._fail([batch], refusal)
            return
        try:
            with foreign_errors(partial(self._unwritten, queue.name)):
                log = self._prepare(queue, batch)
                records = batch.sendable()
            # Apart from the preparation: from here on, no unexpected error says that nothing was written.
            done = self._append(log, batch, records)
        except errors.NotEnoughReplicasAfterAppendError as error:
            # The records are written: a retry would duplicate them.
            self._fail([batch], error)
        except errors.TopicDeletedError as error:
            if self._logs.follow(queue):
                for part in reversed(parts_of(batch)):
                    self._buffer.put_back(queue, part, self._clock.monotonic())
            else:
                self._fail([batch, *self._buffer.retire(queue)], error)
        except RECORD_ERRORS as error:
            self._separate(queue, batch, error)
        except errors.KafkaError as error:
            self._try_again_or_fail(queue, batch, error)
        else:
            self._finish(log, batch, done)

    def _finish(self, log: TopicLog, batch: ProducerBatch, done: Appended | None) -> None:
        """Settle a batch that was appended or staged. Its records are there, so no error returns it to the queue."""
        if done is None:
            self._settle(batch, None, None)
            return
        try:
            append_time_ms = done.append_time_ms if log.config.log_append_time else None
        except Exception as cause:  # noqa: BLE001 - also an error that a retry would follow
            self._fail([batch], self._unknown_outcome(log.info.name, cause))
            return
        self._settle(batch, done.ranges, append_time_ms)

    def _prepare(self, queue: TopicQueue, batch: ProducerBatch) -> TopicLog:
        """Return the topic's current log, after routing all records of the batch."""
        now = self._clock.monotonic()
        if batch.records is None:
            self.metrics.queued((now - batch.born) * 1000)
        if now >= batch.born + self._delivery_seconds:
            raise errors.KafkaTimeoutError(f"{queue.name}: no append began within {self._limit}; nothing was written")
        log = self._logs.current(queue)
        if batch.topic_id != log.info.topic_id:
            self._router.follow(batch, log.info)
        self._router.route(batch.columns(), log.info.num_partitions)
        return log

    def _append(self, log: TopicLog, batch: ProducerBatch, records: RecordBatch | ColumnBatch) -> Appended | None:
        """Write a batch; None if it was staged, because the transaction's commit returns its offsets."""
        topic = log.info.name
        with foreign_errors(partial(self._unknown_outcome, topic)):
            start = self._clock.monotonic()
            timeout_ms = min((batch.born + self._delivery_seconds - start) * 1000, self._config.request_timeout_ms)
            done: Appended | None = None
            if self._transactions is None:
                done = log.append(records, codec=self._codec, timeout_ms=timeout_ms)
            else:
                rows = records if isinstance(records, RecordBatch) else records.records()
                self._transactions.stage(log, rows, self._codec, timeout_ms)
        # The records are there, whatever goes wrong with the numbers.
        with ReportErrors(logger, "producer %s: an append to %r was not counted", self._config.client_id, topic):
            took_ms = (self._clock.monotonic() - start) * 1000
            self.metrics.appended(topic, len(records.partitions), batch.sent_size(), took_ms)
        return done

    def _unwritten(self, topic: str, cause: Exception) -> errors.KafkaError:
        """Make the error of an append that did not begin."""
        self._report(logging.ERROR, "preparing an append to %r failed", topic, error=cause)
        return errors.KafkaError(f"{topic}: nothing was written: {cause!r}")

    def _unknown_outcome(self, topic: str, cause: Exception) -> errors.UnknownOutcomeError:
        """Make the error of an append that ended with an unexpected exception."""
        self._report(logging.ERROR, "an append to %r failed", topic, error=cause)
        return errors.UnknownOutcomeError(f"append to {topic!r} ({cause!r})", UNKNOWN_ID)

    def _report(self, level: int, text: str, *args: object, error: Exception | None = None) -> None:
        report(logger, level, f"producer %s: {text}", self._config.client_id, *args, error=error)

    # --- outcomes ------------------------------------------------------------------------------

    def _separate(self, queue: TopicQueue, batch: ProducerBatch, error: errors.KafkaError) -> None:
        """Remove the records that the topic rejects from a batch, so that only they fail.

        A batch of columns has one outcome: it fails as a whole.
        """
        if isinstance(batch, JoinedBatch):
            # Each part on its own: then only parts with such records fail.
            for part in reversed(batch.parts):
                part.alone = True
                self._buffer.put_back(queue, part, self._clock.monotonic())
            return
        log, records = queue.log, batch.columns()
        if not isinstance(records, RecordBatch):
            self._fail([batch], error)
            return
        found: dict[int, errors.KafkaError] = {}
        if log is not None:
            found = refused_rows(records, log.info, log.config, self._clock.now_ms(), log.schemas)
        if found.keys() <= batch.refused.keys():
            # The settings or the time changed meanwhile: retry once with all records.
            if batch.puzzled:
                self._fail([batch], error)
                return
            batch.puzzled = True
        batch.refused = found
        if len(found) == len(records):
            self._settle(batch, {}, None)
        else:
            self._buffer.put_back(queue, batch, self._clock.monotonic())

    def _try_again_or_fail(self, queue: TopicQueue, batch: ProducerBatch, error: errors.KafkaError) -> None:
        """Retry a batch if that may help and there is time; never if its outcome is unknown."""
        if isinstance(batch, JoinedBatch):
            for part in reversed(batch.parts):
                self._try_again_or_fail(queue, part, error)
            return
        again = self._clock.monotonic() + self._config.retry_backoff_ms / 1000
        if not error.retriable or batch.retries >= self._config.retries:
            self._fail([batch], error)
        elif again >= batch.born + self._delivery_seconds:
            late = errors.KafkaTimeoutError(f"not written within {self._limit} and {batch.retries} retries: {error}")
            late.__cause__ = error
            self._fail([batch], late)
        else:
            batch.retries += 1
            self.metrics.of_topic(queue.name).retried += len(batch.columns())
            self._report(logging.INFO, "%s; retrying", error)
            self._buffer.put_back(queue, batch, again)

    def _settle(self, batch: ProducerBatch, ranges: Mapping[int, range] | None, append_time_ms: int | None) -> None:
        """Complete the futures with their offsets, and with errors for rejected records."""
        if isinstance(batch, JoinedBatch):
            for part, own in batch.shares(ranges or {}):
                self._settle(part, own, append_time_ms)
            return
        topic = batch.outcome.topic
        if batch.refused:
            self.metrics.of_topic(topic).failed += len(batch.refused)
            self._say_failed(topic, len(batch.refused), next(iter(batch.refused.values())))
        partitions = batch.records.partitions if isinstance(batch.records, RecordBatch) else ()
        self._buffer.release(batch)
        batch.outcome.succeed(partitions, ranges, append_time_ms, batch.refused)
        self._buffer.forget(batch)

    def _fail(self, batches: Iterable[ProducerBatch], error: Exception) -> None:
        """Complete the futures with the error: not written, or unknown."""
        for batch in (part for given in batches for part in parts_of(given)):
            topic = batch.outcome.topic
            records = len(batch)
            self.metrics.of_topic(topic).failed += records
            self._say_failed(topic, records, error)
            self._buffer.release(batch)
            batch.outcome.fail(error, batch.refused)
            self._buffer.forget(batch)

    def _say_failed(self, topic: str, records: int, error: Exception) -> None:
        if self._transactions is not None:
            self._transactions.failed(error)
        # With acks=0, only the log reports it.
        level = logging.ERROR if self._config.acks == 0 else logging.WARNING
        self._report(level, "%d records to %r failed: %s", records, topic, error)


JUST_SECONDS: Final = 1.0
"""Maximum age of the metadata for opening a log, because its first append looks again."""

MAX_OPEN_LOGS: Final = 256
"""Number of open logs of a producer: the least recently used ones are closed, except those with queued records."""


class OpenLogs:
    """The logs that a producer writes to. Belongs to the sender.

    Args:
        cluster: the cluster of the topics.
        buffer: the buffer of the records.
        clock: time.
    """

    def __init__(self, cluster: Cluster, buffer: RecordAccumulator, clock: Clock) -> None:
        self._cluster = cluster
        self._buffer = buffer
        self._clock = clock
        self._used: OrderedDict[TopicQueue, None] = OrderedDict()
        """Topics with an open log, the most recently used one last."""
        self._latest: TopicQueue | None = None
        """The most recently used topic."""

    def current(self, queue: TopicQueue) -> TopicLog:
        """Return the current log of a topic.

        Raises:
            TopicDeletedError: this life of the topic is over.
            KafkaError: the log cannot be opened or refreshed.
        """
        log = queue.log
        try:
            if log is None:
                log = queue.log = self._cluster.log(queue.name, since=SYSTEM_CLOCK.monotonic() - JUST_SECONDS)
            else:
                # The append refreshes the table itself.
                log.refresh_info(waiting=True)
            if queue is not self._latest:
                self._note(queue)
                self._latest = queue
        except errors.TopicDeletedError:
            raise
        except errors.UnknownTopicOrPartitionError as cause:
            raise errors.TopicDeletedError(queue.name, queue.topic_id, None) from cause
        if log.info.topic_id != queue.topic_id:
            raise errors.TopicDeletedError(queue.name, queue.topic_id, log.info.topic_id)
        queue.looked_at = self._clock.monotonic()
        if log.info.num_partitions != queue.num_partitions:
            queue.learn(log.info, queue.looked_at)
        return log

    def follow(self, queue: TopicQueue) -> bool:
        """Go on with the topic into which a topic was repartitioned; return False if it was deleted."""
        info = self._cluster.metadata.state.topics.get(queue.name)
        if info is None or (info.topic_id != queue.topic_id and info.partitions_as(queue.topic_id) is None):
            return False
        self._buffer.queue(info)
        queue.log = None
        return not queue.gone

    def _note(self, queue: TopicQueue) -> None:
        """Mark a topic's log as used, and close the least recently used ones."""
        self._used[queue] = None
        self._used.move_to_end(queue)
        excess = len(self._used) - MAX_OPEN_LOGS
        for old in list(self._used)[: max(0, excess)]:
            if old is not queue and (old.gone or self._buffer.drop_idle(old)):
                old.log = None
                del self._used[old]


EXIT_SECONDS: Final = 30.0
"""Time for the interpreter's exit to send the queued records of producers that were not closed, or whose `close` was
interrupted. kafka-python waits 1 s; a slow disk needs more. The running append always ends first."""

ALIVE: Final[set[Sender]] = set()
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
                    sender.abandon(errors.KafkaTimeoutError("the interpreter ended; the record was not written"))
                for sender in senders:
                    sender.ended.wait()
        except (KeyboardInterrupt, SystemExit):
            in_time = False


# Registered twice: if an interrupt hits the first call outside its `try`, the second one does the work.
atexit.register(end_all)
atexit.register(end_all)
