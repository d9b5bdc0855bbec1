"""KafkaProducer over a log that fails, waits or is slow: retries, deadlines, full buffers, the end."""

import gc
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.errors import (
    IllegalStateError,
    KafkaError,
    KafkaStorageError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    TopicDeletedError,
    UnknownOutcomeError,
)
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.model.config.topic_config import TopicConfig
from kafkalike.model.metrics import ProducerMetrics
from kafkalike.model.record_batch import Appended, RecordBatch
from kafkalike.producer import FutureRecordMetadata, KafkaProducer
from kafkalike.producer.record_accumulator import RecordAccumulator
from tests.tools.producers import producers, raiser

REFUSED = KafkaStorageError("the disk is full")


class FaultyCluster:
    """A cluster in memory whose appends do what a test says before they are made."""

    def __init__(self) -> None:
        self.inner = MemoryCluster()
        self.faults: dict[str, deque[Callable[[], object]]] = {}
        """By topic, what the next appends do first; one that raises is not made."""
        self.opening: deque[Exception] = deque()
        """What opening a log raises."""
        self.batches: list[tuple[str, list[bytes | None]]] = []
        """Values of every append that was tried."""
        self.after: deque[Callable[[], object]] = deque()
        """What the logs do when they are first asked for their settings after an append."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def log(self, name: str, *, since: float = float("inf")) -> "FaultyLog":
        """Open a log."""
        del since
        if self.opening:
            raise self.opening.popleft()
        return FaultyLog(self, self.inner.log(name))

    def fail(self, topic: str, *errors: Exception) -> None:
        """Let the next appends fail."""
        self.faults.setdefault(topic, deque()).extend(raiser(error) for error in errors)

    def hold(self, topic: str, error: Exception | None = None) -> tuple[threading.Event, threading.Event]:
        """Let the next append wait: tells when it has begun, and goes on, or fails, when it is told."""
        begun, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            begun.set()
            assert go_on.wait(60)
            if error is not None:
                raise error

        self.faults.setdefault(topic, deque()).append(wait)
        return begun, go_on

    def values(self, topic: str) -> list[bytes | None]:
        """What the one partition of a topic holds."""
        log = self.inner.log(topic)
        chunk = log.reader(0, 0).read(1 << 30)
        return [] if chunk is None else chunk.columns().values


class FaultyLog:
    """A log of a `FaultyCluster`."""

    def __init__(self, cluster: FaultyCluster, inner: TopicLog) -> None:
        self.cluster = cluster
        self.inner = inner
        self.appended = False

    @property
    def config(self) -> TopicConfig:
        """After an append, do first what the test says."""
        if self.appended and self.cluster.after:
            self.cluster.after.popleft()()
        return self.inner.config

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def append(self, batch: RecordBatch, **options: Any) -> Appended:
        """Do what the test says, then append."""
        name = self.inner.info.name
        self.cluster.batches.append((name, list(batch.values)))
        faults = self.cluster.faults.get(name)
        if faults:
            faults.popleft()()
        done = self.inner.append(batch, **options)
        self.appended = True
        return done


@pytest.fixture
def cluster() -> FaultyCluster:
    """A cluster with the topics `orders` and `clicks`, of one partition each."""
    made = FaultyCluster()
    made.create_topic("orders", 1, {})
    made.create_topic("clicks", 1, {})
    return made


@pytest.fixture
def make(cluster: FaultyCluster) -> Iterator[Callable[..., KafkaProducer]]:
    """Makes producers that are closed after the test."""
    with producers(cluster, retry_backoff_ms=0) as make:
        yield make


def _numbered(start: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def metric(producer: KafkaProducer, name: str) -> float:
    """A number of `producer-metrics`."""
    groups = producer.metrics()
    assert groups is not None
    number: float = groups["producer-metrics"][name]
    return number


def held_back(
    cluster: FaultyCluster, producer: KafkaProducer, values: list[bytes], error: Exception | None = None
) -> tuple[list[FutureRecordMetadata], threading.Event]:
    """Send a first record whose append waits, and may then fail, and others, which are queued behind it."""
    begun, go_on = cluster.hold("orders", error)
    first = producer.send("orders", b"first")
    assert begun.wait(30)
    return [first, *(producer.send("orders", value) for value in values)], go_on


# --- batches --------------------------------------------------------------------------------------


def test_what_is_sent_during_an_append_goes_with_the_next(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """Batches grow with the load, without any linger time."""
    producer = make()

    _, go_on = held_back(cluster, producer, [b"a", b"b", b"c"])
    go_on.set()
    producer.flush(30)

    assert cluster.batches == [("orders", [b"first"]), ("orders", [b"a", b"b", b"c"])]


def test_a_lingering_record_waits_for_others(cluster: FaultyCluster, make: Callable[..., KafkaProducer]) -> None:
    """One append carries what came within the linger time."""
    producer = make(clock=ManualClock(), linger_ms=1000)

    for value in (b"a", b"b"):
        producer.send("orders", value)
    producer.flush(30)

    assert cluster.batches == [("orders", [b"a", b"b"])]


def test_a_full_batch_does_not_linger(make: Callable[..., KafkaProducer]) -> None:
    """batch_size ends the wait, though the clock stands still."""
    producer = make(clock=ManualClock(), linger_ms=1000, batch_size=300)

    sent = [producer.send("orders", b"v" * 100) for _ in range(2)]

    assert sent[-1].get(30).offset == 1


def test_topics_take_turns(cluster: FaultyCluster, make: Callable[..., KafkaProducer]) -> None:
    """A busy topic does not shut another one out."""
    producer = make()

    _, go_on = held_back(cluster, producer, [b"a"])
    producer.send("clicks", b"x")
    go_on.set()
    producer.flush(30)

    assert [topic for topic, _ in cluster.batches] == ["orders", "orders", "clicks"]


# --- retries --------------------------------------------------------------------------------------


def test_a_refused_batch_is_sent_again_before_what_came_after_it(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """Order is kept over retries, and nothing is doubled."""
    producer = make()

    sent, go_on = held_back(cluster, producer, _numbered(0, 30), REFUSED)
    cluster.fail("orders", REFUSED)
    go_on.set()

    assert [f.get(30).offset for f in sent] == list(range(31))
    assert cluster.values("orders") == [b"first", *_numbered(0, 30)]
    assert metric(producer, "record-retry-total") == 2


def test_without_retries_the_first_error_counts(cluster: FaultyCluster, make: Callable[..., KafkaProducer]) -> None:
    """The error itself is the future's."""
    cluster.fail("orders", REFUSED)
    producer = make(retries=0)

    sent = producer.send("orders", b"v")

    with pytest.raises(KafkaStorageError, match="disk is full"):
        sent.get(30)
    assert len(cluster.batches) == 1


def test_retries_are_counted(cluster: FaultyCluster, make: Callable[..., KafkaProducer]) -> None:
    """Two retries are three appends."""
    cluster.fail("orders", *[REFUSED] * 5)
    producer = make(retries=2)

    sent = producer.send("orders", b"v")

    with pytest.raises(KafkaStorageError):
        sent.get(30)
    assert len(cluster.batches) == 3


def test_retries_end_with_the_delivery_timeout(cluster: FaultyCluster, make: Callable[..., KafkaProducer]) -> None:
    """The time counts from send, and the last error is the cause."""
    clock = ManualClock()

    def slow_and_refused() -> None:
        clock.sleep(0.4)
        raise REFUSED

    cluster.faults["orders"] = deque([slow_and_refused] * 9)
    producer = make(clock=clock, delivery_timeout_ms=1000, request_timeout_ms=1000)

    sent = producer.send("orders", b"v")

    with pytest.raises(KafkaTimeoutError, match="delivery_timeout_ms=1000"):
        sent.get(30)
    assert sent.exception is not None
    assert sent.exception.__cause__ is REFUSED
    assert len(cluster.batches) == 3


def test_a_record_that_waited_too_long_is_not_written(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """Records queued behind a slow append expire as well."""
    clock = ManualClock()
    producer = make(clock=clock, delivery_timeout_ms=1000, request_timeout_ms=1000)

    (first, late), go_on = held_back(cluster, producer, [b"late"])
    clock.sleep(2)
    go_on.set()

    assert first.get(30).offset == 0
    with pytest.raises(KafkaTimeoutError, match="no append began"):
        late.get(30)
    assert cluster.values("orders") == [b"first"]


def test_other_topics_are_served_while_one_waits_for_its_retry(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """The back-off of one topic, endless on this clock, does not hold up another."""
    cluster.fail("orders", REFUSED)
    clock = ManualClock()
    producer = make(clock=clock, retry_backoff_ms=100)

    waiting = producer.send("orders", b"v")
    other = producer.send("clicks", b"x").get(30)

    assert other.offset == 0
    assert not waiting.is_done
    clock.sleep(0.1)
    producer.flush(30)
    assert waiting.get(30).offset == 0


def test_an_unknown_outcome_is_never_tried_again(cluster: FaultyCluster, make: Callable[..., KafkaProducer]) -> None:
    """A second try could double the record."""
    cluster.fail("orders", UnknownOutcomeError("append", "id-1"))
    producer = make()

    sent = producer.send("orders", b"v")

    with pytest.raises(UnknownOutcomeError, match="id-1"):
        sent.get(30)
    assert len(cluster.batches) == 1


def test_an_unforeseen_error_of_an_append_is_an_unknown_outcome(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """What the log does not explain is not taken for a refusal, and the producer lives on."""
    cluster.fail("orders", ZeroDivisionError("a bug"))
    producer = make()

    sent = producer.send("orders", b"v")

    with pytest.raises(UnknownOutcomeError, match="a bug"):
        sent.get(30)
    assert producer.send("orders", b"w").get(30).offset == 0


def test_an_unforeseen_error_before_the_append_wrote_nothing(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """Opening the log is no write, so the outcome is known."""
    cluster.opening.append(ZeroDivisionError("a bug"))
    producer = make()

    sent = producer.send("orders", b"v")

    with pytest.raises(KafkaError, match="nothing was written"):
        sent.get(30)
    assert producer.send("orders", b"w").get(30).offset == 0


def test_a_record_that_is_there_succeeds_although_its_metrics_fail(
    cluster: FaultyCluster,
    make: Callable[..., KafkaProducer],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An error after the commit neither says that nothing was written nor sends the record again."""
    monkeypatch.setattr(ProducerMetrics, "appended", lambda *_: 1 / 0)
    producer = make()

    sent = producer.send("orders", b"v")

    assert sent.get(30).offset == 0
    assert producer.send("orders", b"w").get(30).offset == 1
    assert cluster.values("orders") == [b"v", b"w"]
    assert "an append to 'orders' was not counted" in caplog.text


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), REFUSED], ids=["foreign", "retriable"])
def test_an_error_between_the_commit_and_the_future_is_an_unknown_outcome(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer], error: Exception
) -> None:
    """A retry would double the record, so even a retriable error causes none; the producer lives on."""
    cluster.after.append(raiser(error))
    producer = make()

    sent = producer.send("orders", b"v")

    with pytest.raises(UnknownOutcomeError, match="orders"):
        sent.get(30)
    assert producer.send("orders", b"w").get(30).offset == 1
    assert cluster.values("orders") == [b"v", b"w"]


def test_a_log_filter_that_fails_does_not_turn_an_unknown_outcome_into_nothing_written(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer], caplog: pytest.LogCaptureFixture
) -> None:
    """Filters of the program run in the sender; no thread waits for ever because of one."""
    del caplog
    cluster.fail("orders", ZeroDivisionError("a bug"))
    producer = make()
    logger = logging.getLogger("kafkalike.producer.sender")
    logger.addFilter(_failing_filter)
    try:
        sent = producer.send("orders", b"v")
        with pytest.raises(UnknownOutcomeError, match="a bug"):
            sent.get(30)
        assert producer.send("orders", b"w").get(30).offset == 0
    finally:
        logger.removeFilter(_failing_filter)


def _failing_filter(_: logging.LogRecord) -> bool:
    raise LookupError("a bug of the filter")


@given(
    st.lists(
        st.sampled_from([None, REFUSED, UnknownOutcomeError("append", "1"), ZeroDivisionError("bug")]), max_size=8
    ),
    st.lists(st.integers(1, 5), min_size=1, max_size=8),
)
def test_the_log_holds_what_the_futures_promise(faults: list[Exception | None], bursts: list[int]) -> None:
    """Under any faults: what succeeded is there once, in order, at its offset; what failed is not there."""
    cluster = FaultyCluster()
    cluster.create_topic("orders", 1, {})
    cluster.faults["orders"] = deque(raiser(fault) if fault else lambda: None for fault in faults)
    sent: list[tuple[bytes, FutureRecordMetadata]] = []

    with KafkaProducer(bootstrap_servers=cluster, retry_backoff_ms=0) as producer:
        for burst in bursts:
            sent += [(value, producer.send("orders", value)) for value in _numbered(len(sent), burst)]
            producer.flush(30)

    promised = [(value, future.get().offset) for value, future in sent if future.succeeded()]
    assert [value for value, _ in promised] == cluster.values("orders")
    assert [offset for _, offset in promised] == list(range(len(promised)))


def test_a_refusal_that_no_record_explains_is_not_repeated_for_ever(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """Settings may have changed in between, so it is tried once more."""
    cluster.fail("orders", *[MessageSizeTooLargeError("too large")] * 5)
    producer = make()

    sent = producer.send("orders", b"v")

    with pytest.raises(MessageSizeTooLargeError):
        sent.get(30)
    assert len(cluster.batches) == 2


def test_everything_that_is_queued_for_a_deleted_topic_fails(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """The batch under way, and those behind it."""
    producer = make()
    sent, go_on = held_back(cluster, producer, [b"a", b"b"])

    cluster.delete_topic("orders")
    go_on.set()
    producer.flush(30)

    assert [type(f.exception) for f in sent] == [TopicDeletedError] * 3


# --- memory ---------------------------------------------------------------------------------------


def test_a_full_buffer_blocks_send_until_there_is_room(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """The sending thread goes on when the append under way is done."""
    producer = make(buffer_memory=200)
    _, go_on = held_back(cluster, producer, [b"v"])
    sent: list[FutureRecordMetadata] = []
    blocked = threading.Thread(target=lambda: sent.append(producer.send("orders", b"x" * 50)))

    blocked.start()
    go_on.set()
    blocked.join(30)

    assert sent[0].get(30).offset == 2


def test_a_buffer_that_stays_full_is_a_timeout(cluster: FaultyCluster, make: Callable[..., KafkaProducer]) -> None:
    """The error names both limits."""
    producer = make(buffer_memory=200, max_block_ms=0)
    _, go_on = held_back(cluster, producer, [b"v"])

    with pytest.raises(KafkaTimeoutError, match=r"max_block_ms=0.*buffer_memory=200"):
        producer.send("orders", b"x" * 50)
    go_on.set()


def test_nobody_lingers_while_somebody_waits_for_room(make: Callable[..., KafkaProducer]) -> None:
    """A buffer full of lingering records is sent, though the clock stands still."""
    producer = make(clock=ManualClock(), linger_ms=10_000, buffer_memory=200)

    sent = [producer.send("orders", b"v" * 50) for _ in range(5)]
    producer.flush(30)

    assert [f.get().offset for f in sent] == list(range(5))


def test_those_who_wait_for_room_get_it_in_turn() -> None:
    """Small records do not keep a large one waiting for ever."""
    clock = ManualClock()
    buffer = RecordAccumulator(limit=100, linger=0, batch_size=1, max_block_ms=60_000, clock=clock)
    cluster = MemoryCluster(clock=clock)
    queue = buffer.queue(cluster.create_topic("orders", 1, {}))
    row = (0, None, b"v", 0, None)
    buffer.add(queue, row, 60)
    large = threading.Thread(target=buffer.add, args=(queue, row, 90), daemon=True)
    small = threading.Thread(target=buffer.add, args=(queue, row, 30), daemon=True)
    for number, thread in enumerate((large, small), start=1):
        thread.start()
        while len(buffer._line) < number:
            clock.sleep(0)

    first = buffer.take()
    assert first is not None
    buffer.release(first[1])
    large.join(30)

    assert (buffer.used, small.is_alive()) == (90, True)
    second = buffer.take()
    assert second is not None
    buffer.release(second[1])
    small.join(30)
    assert buffer.used == 30


def test_a_topic_that_is_gone_takes_no_records() -> None:
    """Its name is looked up again instead."""
    clock = ManualClock()
    buffer = RecordAccumulator(limit=100, linger=0, batch_size=1, max_block_ms=0, clock=clock)
    queue = buffer.queue(MemoryCluster(clock=clock).create_topic("orders", 1, {}))

    buffer.retire(queue)

    assert buffer.add(queue, (0, None, b"v", 0, None), 10) is None
    assert "orders" not in buffer.queues


def test_a_record_larger_than_the_buffer_is_refused(make: Callable[..., KafkaProducer]) -> None:
    """It would wait for ever."""
    producer = make(buffer_memory=200)

    with pytest.raises(MessageSizeTooLargeError, match="buffer_memory=200"):
        producer.send("orders", b"v" * 200)


def test_memory_is_given_back(make: Callable[..., KafkaProducer]) -> None:
    """After a flush the whole buffer is there again, bad records and all."""
    producer = make()

    for size in (10, 1000, 20_000):
        producer.send("orders", b"v" * size)
    producer.flush(30)

    assert metric(producer, "buffer-available-bytes") == 33_554_432


# --- callbacks ------------------------------------------------------------------------------------


def test_callbacks_have_run_when_flush_returns(cluster: FaultyCluster, make: Callable[..., KafkaProducer]) -> None:
    """A program may count on what its callbacks did."""
    producer = make()
    seen: list[int] = []

    for number in range(100):
        producer.send("orders", b"%d" % number).add_callback(lambda done: seen.append(done.offset))
    producer.flush(30)

    assert seen == list(range(100))


def test_a_callback_that_fails_does_not_end_the_producer(
    make: Callable[..., KafkaProducer], caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the next record is sent."""
    producer = make()

    producer.send("orders", b"v").add_callback(lambda _: 1 / 0)
    producer.flush(30)

    assert producer.send("orders", b"w").get(30).offset == 1
    assert "ZeroDivisionError" in caplog.text


def test_a_callback_may_send_though_the_buffer_is_full(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """It must not wait for the thread it runs in."""
    producer = make(buffer_memory=200, max_block_ms=0)
    (first, _), go_on = held_back(cluster, producer, [b"v" * 50])
    again: list[FutureRecordMetadata] = []
    first.add_callback(lambda _: again.append(producer.send("clicks", b"x" * 100)))

    go_on.set()
    first.get(30)

    assert again[0].get(30).offset == 0


@pytest.mark.parametrize("waiting", ["get", "flush"])
def test_a_callback_must_not_wait_for_the_thread_it_runs_in(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer], waiting: str
) -> None:
    """It is told so instead of hanging."""
    producer = make()
    (first, second), go_on = held_back(cluster, producer, [b"v"])
    errors: list[Exception] = []

    def callback(_: object) -> None:
        try:
            second.get() if waiting == "get" else producer.flush()
        except IllegalStateError as error:
            errors.append(error)

    first.add_callback(callback)
    go_on.set()
    producer.flush(30)

    assert len(errors) == 1


def test_a_callback_may_close_the_producer(make: Callable[..., KafkaProducer]) -> None:
    """What is queued is still sent."""
    producer = make()

    producer.send("orders", b"v").add_callback(lambda _: producer.close())
    producer.flush(30)

    with pytest.raises(IllegalStateError, match="closed"):
        producer.send("orders", b"w")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_a_thread_that_was_ended(cluster: FaultyCluster, make: Callable[..., KafkaProducer]) -> None:
    """A callback that raises SystemExit ends the sender; what was queued fails instead of hanging."""
    producer = make(client_id="ended")
    (thread,) = [t for t in threading.enumerate() if t.name == "ended-sender"]
    (first, second), go_on = held_back(cluster, producer, [b"v"])
    first.add_callback(lambda _: (_ for _ in ()).throw(SystemExit))

    go_on.set()

    with pytest.raises(KafkaError, match="not written"):
        second.get(30)
    # Or pytest would report the exception to another test.
    thread.join(30)


# --- the end --------------------------------------------------------------------------------------


def test_flush_gives_up_after_its_timeout(cluster: FaultyCluster, make: Callable[..., KafkaProducer]) -> None:
    """The records stay queued."""
    producer = make()
    (_, later), go_on = held_back(cluster, producer, [b"v"])

    with pytest.raises(KafkaTimeoutError, match="still in progress"):
        producer.flush(0.001)
    go_on.set()

    assert later.get(30).offset == 1


def test_close_sends_what_is_queued(cluster: FaultyCluster, make: Callable[..., KafkaProducer]) -> None:
    """Lingering records too."""
    producer = make(clock=ManualClock(), linger_ms=10_000)
    sent = producer.send("orders", b"v")

    producer.close(30)

    assert sent.get(0).offset == 0


def test_a_forced_close_fails_what_is_queued(cluster: FaultyCluster, make: Callable[..., KafkaProducer]) -> None:
    """The append under way is let through, so that its outcome is known."""
    producer = make()
    (first, second), go_on = held_back(cluster, producer, [b"v"])
    second.add_errback(lambda _: go_on.set())

    producer.close(0)

    with pytest.raises(KafkaTimeoutError, match="not written"):
        second.get(0)
    assert first.get(30).offset == 0
    assert cluster.values("orders") == [b"first"]


def test_a_send_that_waits_for_room_hears_of_the_close(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """It does not wait until max_block_ms is over."""
    producer = make(buffer_memory=200)
    _, go_on = held_back(cluster, producer, [b"v"])
    errors: list[Exception] = []

    def send() -> None:
        try:
            producer.send("orders", b"x" * 100)
        except IllegalStateError as error:
            errors.append(error)

    blocked = threading.Thread(target=send)
    blocked.start()
    closing = threading.Thread(target=producer.close)
    closing.start()
    blocked.join(30)
    go_on.set()
    closing.join(30)

    assert len(errors) == 1


@pytest.mark.slow
def test_a_forgotten_producer_sends_what_is_queued(cluster: FaultyCluster) -> None:
    """Collecting it ends its thread, but loses nothing."""
    producer = KafkaProducer(bootstrap_servers=cluster, client_id="forgotten", clock=ManualClock(), linger_ms=10_000)
    sent = producer.send("orders", b"v")
    (thread,) = [t for t in threading.enumerate() if t.name == "forgotten-sender"]

    del producer
    gc.collect()
    thread.join(30)

    assert sent.get(0).offset == 0


def test_a_fork_leaves_the_producer_behind(make: Callable[..., KafkaProducer]) -> None:
    """The child is told, can close and exit, and does not hang."""
    producer = make()
    producer.send("orders", b"v").get(30)

    child = os.fork()
    if child == 0:
        try:
            producer.send("orders", b"w")
        except IllegalStateError as error:
            producer.flush()
            producer.close()
            os._exit(0 if "fork" in str(error) else 1)
        os._exit(2)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert producer.send("orders", b"x").get(30).offset == 1
