"""Sender: batches of the buffer in, appends to topics and settled outcomes out; one thread per producer."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Final, Protocol, cast

from kafkalike.clock import Clock
from kafkalike.config.producer import ProducerConfig
from kafkalike.errors import (
    KafkaError,
    KafkaTimeoutError,
    TopicDeletedError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.port import Appended, Cluster, TopicLog
from kafkalike.log.validate import RECORD_ERRORS, refused_rows
from kafkalike.producer.buffer import Batch, Buffer, TopicQueue
from kafkalike.producer.metrics import Metrics
from kafkalike.producer.routing import Router

logger = logging.getLogger(__name__)

EXIT_SECONDS: Final = 30.0
"""How long the interpreter's exit waits for a producer that nobody closed. kafka-python waits 1 s; a Spark append
needs more."""

LAST_APPEND_SECONDS: Final = 5.0
"""How long a producer that is closed by force waits for the append under way: killing a thread inside native code can
bring the whole process down with `terminate called`."""

UNKNOWN_ID: Final = "(not known)"
"""In place of an append's id, where the error did not come from the log."""


class _Engines(Protocol):
    """A cluster that can be told how to write."""

    def log(self, name: str, engine: str) -> TopicLog:
        """Open the log of a topic."""
        ...


class Sender:
    """Appends what the buffer gives out, one batch after the other, and settles its outcome.

    A batch that failed for a passing reason goes back to the head of its topic's queue, so order is kept; other
    topics get their turn while it waits. Its thread is a daemon; the interpreter's exit waits for it.

    Args:
        cluster: where the topics are.
        config: the producer's settings.
        buffer: where batches come from.
        router: chooses partitions.
        clock: time.
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig, buffer: Buffer, router: Router, clock: Clock) -> None:
        self.metrics = Metrics()
        self._cluster = cluster
        self._config = config
        self._buffer = buffer
        self._router = router
        self._clock = clock
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"{config.client_id}-sender", daemon=True)

    # --- from outside --------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. Once."""
        self._thread.start()
        self._buffer.sender = self._thread.ident or 0
        atexit.register(self._at_exit)

    def close(self, timeout: float | None) -> bool:
        """Send what is queued, then end the thread.

        Args:
            timeout: seconds; None without end. What is not sent then fails with `KafkaTimeoutError`; an append that is
                under way is waited for a little longer, since its outcome would be unknown.

        Returns:
            Whether everything got its outcome from the log.
        """
        self._buffer.close()
        if threading.current_thread() is self._thread:
            return True
        self._thread.join(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))
        if not self._thread.is_alive():
            self._cluster.settle(timeout)
            return True
        left = self._buffer.empty()
        self._fail(left, KafkaTimeoutError(f"the producer was closed after {timeout} s; the record was not written"))
        self._thread.join(LAST_APPEND_SECONDS)
        return not left

    def _at_exit(self) -> None:
        # A child process has a copy of the producer, but not its thread.
        if os.getpid() == self._pid:
            self.close(EXIT_SECONDS)

    # --- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        buffer = self._buffer
        job: tuple[TopicQueue, Batch] | None = None
        try:
            while (job := buffer.take()) is not None:
                self._deliver(*job)
        finally:
            # Nothing is left but after SystemExit in a callback or the like. Nobody must wait for it for ever.
            buffer.close()
            left = buffer.empty()
            if job is not None and not job[1].outcome.done and job[1] not in left:
                self._fail([job[1]], UnknownOutcomeError("append of a thread that was ended", UNKNOWN_ID))
            self._fail(left, KafkaError("the producer's thread was ended; the record was not written"))
            atexit.unregister(self._at_exit)

    def _deliver(self, queue: TopicQueue, batch: Batch) -> None:
        """Append a batch, and settle it or put it back."""
        if not batch.rows and batch.records is None:  # an interrupted send
            self._settle(batch, {}, None)
            return
        try:
            log = self._prepare(queue, batch)
            done = self._append(log, batch)
        except TopicDeletedError as error:
            self._fail([batch, *self._buffer.retire(queue)], error)
        except RECORD_ERRORS as error:
            self._separate(queue, batch, error)
        except KafkaError as error:
            self._try_again_or_fail(queue, batch, error)
        except Exception as cause:
            logger.exception("producer %s: preparing an append to %r failed", self._config.client_id, queue.name)
            unwritten = KafkaError(f"{queue.name}: nothing was written: {cause!r}")
            unwritten.__cause__ = cause
            self._fail([batch], unwritten)
        else:
            self._settle(batch, done.ranges, done.append_time_ms if log.config.log_append_time else None)

    def _prepare(self, queue: TopicQueue, batch: Batch) -> TopicLog:
        """The topic's log as it is now, with all records of the batch routed."""
        now = self._clock.monotonic()
        if batch.records is None:
            self.metrics.queued((now - batch.born) * 1000)
        if now >= self._expiry(batch):
            raise KafkaTimeoutError(f"{queue.name}: no append began within {self._delivery()}")
        log = self._current_log(queue)
        self._router.route(batch.columns(), log.info.num_partitions)
        return log

    def _current_log(self, queue: TopicQueue) -> TopicLog:
        log = queue.log
        try:
            if log is None:
                log = queue.log = self._open(queue.name)
            else:
                log.refresh()
        except TopicDeletedError:
            raise
        except UnknownTopicOrPartitionError as cause:
            raise TopicDeletedError(queue.name, queue.topic_id, None) from cause
        if log.info.topic_id != queue.topic_id:
            raise TopicDeletedError(queue.name, queue.topic_id, log.info.topic_id)
        queue.looked_at = self._clock.monotonic()
        if log.info.num_partitions != queue.num_partitions:
            queue.learn(log.info, queue.looked_at)
        return log

    def _open(self, topic: str) -> TopicLog:
        engine = self._config.append_engine
        return self._cluster.log(topic) if engine == "auto" else cast("_Engines", self._cluster).log(topic, engine)

    def _append(self, log: TopicLog, batch: Batch) -> Appended:
        records = batch.sendable()
        start = self._clock.monotonic()
        left_ms = (self._expiry(batch) - start) * 1000
        try:
            done = log.append(
                records, codec=self._config.codec, timeout_ms=min(left_ms, self._config.request_timeout_ms)
            )
        except KafkaError:
            raise
        except Exception as cause:
            # Nothing that the log says of itself, so nothing can be said of the write.
            logger.exception("producer %s: an append to %r failed", self._config.client_id, log.info.name)
            raise UnknownOutcomeError(f"append to {log.info.name!r} ({cause!r})", UNKNOWN_ID) from cause
        self.metrics.appended(log.info.name, len(records), batch.sent_size(), (self._clock.monotonic() - start) * 1000)
        return done

    # --- outcomes ------------------------------------------------------------------------------

    def _separate(self, queue: TopicQueue, batch: Batch, error: KafkaError) -> None:
        """Take the records that the topic does not allow out of a batch, so that only they fail."""
        log = queue.log
        found = {} if log is None else refused_rows(batch.columns(), log.info, log.config, self._clock.now_ms())
        if found.keys() <= batch.refused.keys():
            # The settings or the time changed meanwhile: once more with all, but not for ever.
            if batch.puzzled:
                self._fail([batch], error)
                return
            batch.puzzled = True
        batch.refused = found
        if len(found) == len(batch.columns()):
            self._settle(batch, {}, None)
        else:
            self._buffer.put_back(queue, batch, self._clock.monotonic())

    def _try_again_or_fail(self, queue: TopicQueue, batch: Batch, error: KafkaError) -> None:
        """Put a batch back when it may help and there is time; never when its outcome is unknown."""
        again = self._clock.monotonic() + self._config.retry_backoff_ms / 1000
        if not error.retriable or batch.retries >= self._config.retries:
            self._fail([batch], error)
        elif again >= self._expiry(batch):
            late = KafkaTimeoutError(f"not written within {self._delivery()} and {batch.retries} retries: {error}")
            late.__cause__ = error
            self._fail([batch], late)
        else:
            batch.retries += 1
            self.metrics.of_topic(queue.name).retried += len(batch.columns())
            logger.info("producer %s: %s; trying again", self._config.client_id, error)
            self._buffer.put_back(queue, batch, again)

    def _expiry(self, batch: Batch) -> float:
        return batch.born + self._config.delivery_timeout_ms / 1000

    def _delivery(self) -> str:
        return f"delivery_timeout_ms={self._config.delivery_timeout_ms:g}"

    def _settle(self, batch: Batch, ranges: Mapping[int, range], append_time_ms: int | None) -> None:
        """Tell where the records are, and that the refused ones are nowhere."""
        topic = batch.outcome.topic
        if batch.refused:
            self.metrics.of_topic(topic).failed += len(batch.refused)
            self._say_failed(topic, len(batch.refused), next(iter(batch.refused.values())))
        partitions = batch.columns().partitions if batch.records is not None else ()
        self._buffer.release(batch)
        batch.outcome.succeed(partitions, ranges, append_time_ms, batch.refused)
        self._buffer.forget(batch)

    def _fail(self, batches: Iterable[Batch], error: KafkaError) -> None:
        """Tell that no record of these batches is written, or that nobody knows."""
        for batch in batches:
            topic = batch.outcome.topic
            records = len(batch.rows) if batch.records is None else len(batch.records)
            self.metrics.of_topic(topic).failed += records
            self._say_failed(topic, records, error)
            self._buffer.release(batch)
            batch.outcome.fail(error, batch.refused)
            self._buffer.forget(batch)

    def _say_failed(self, topic: str, records: int, error: Exception) -> None:
        # With acks=0 no future tells it.
        level = logging.ERROR if self._config.acks == 0 else logging.WARNING
        logger.log(level, "producer %s: %d records to %r failed: %s", self._config.client_id, records, topic, error)
