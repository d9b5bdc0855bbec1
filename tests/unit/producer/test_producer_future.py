"""Futures: outcomes of a batch as outcomes of its records."""

import threading

import pytest

from kafkalike.errors import KafkaStorageError, KafkaTimeoutError, UnknownOutcomeError
from kafkalike.model.structs import RecordMetadata, TopicPartition
from kafkalike.producer.future import BatchResult, FutureRecordMetadata

SIZES = (3, 5, -1)


def futures(outcome: BatchResult, count: int) -> list[FutureRecordMetadata]:
    """The futures of the first records of a batch, with timestamps 100, 101 …"""
    return [FutureRecordMetadata(outcome, row, 100 + row, SIZES) for row in range(count)]


class Target:
    """What a future is chained to."""

    def __init__(self) -> None:
        self.got: list[object] = []

    def success(self, value: object) -> None:
        """Take a value."""
        self.got.append(value)

    def failure(self, e: Exception) -> None:
        """Take an error."""
        self.got.append(e)


def test_each_record_gets_the_next_offset_of_its_partition() -> None:
    """Offsets go by the order of the records in their partition."""
    outcome = BatchResult("orders", 0)
    sent = futures(outcome, 4)

    outcome.succeed([1, 0, 1, 1], {0: range(7, 8), 1: range(40, 43)})

    assert [(f.get().partition, f.get().offset) for f in sent] == [(1, 40), (0, 7), (1, 41), (1, 42)]


def test_metadata_has_the_form_of_kafka_python() -> None:
    """All nine fields, in order."""
    outcome = BatchResult("orders", 0)
    sent = futures(outcome, 1)[0]

    outcome.succeed([2], {2: range(9, 10)})

    assert sent.get() == RecordMetadata("orders", 2, TopicPartition("orders", 2), 9, 100, None, 3, 5, -1)


def test_a_refused_record_takes_no_offset() -> None:
    """The records beside a bad one are written without a gap."""
    outcome = BatchResult("orders", 0)
    sent = futures(outcome, 3)
    bad = KafkaStorageError("bad")

    outcome.succeed([0, 0, 0], {0: range(5, 7)}, None, {1: bad})

    assert [f.exception for f in sent] == [None, bad, None]
    assert [f.value.offset for f in sent if f.value is not None] == [5, 6]


def test_the_time_of_the_append_wins_in_a_topic_with_append_time() -> None:
    """The metadata says what the log says."""
    outcome = BatchResult("orders", 0)
    sent = futures(outcome, 1)[0]

    outcome.succeed([0], {0: range(1)}, append_time_ms=777)

    assert sent.get().timestamp == 777


def test_an_unsettled_record_has_neither_value_nor_error() -> None:
    """Questions before the outcome are answered, not waited for."""
    sent = futures(BatchResult("orders", 0), 1)[0]

    assert [sent.is_done, sent.succeeded(), sent.failed(), sent.retriable()] == [False] * 4
    assert sent.value is None
    assert sent.exception is None


def test_get_says_when_it_has_waited_long_enough() -> None:
    """The record may still be written later."""
    sent = futures(BatchResult("orders", 0), 1)[0]

    with pytest.raises(KafkaTimeoutError, match="still in progress"):
        sent.get(timeout=0.001)


@pytest.mark.parametrize(
    ("error", "retriable"), [(KafkaStorageError("x"), True), (UnknownOutcomeError("x", "1"), False)]
)
def test_only_an_error_that_wrote_nothing_is_retriable(error: Exception, retriable: object) -> None:
    """Sending again after an unknown outcome could double the record."""
    outcome = BatchResult("orders", 0)
    sent = futures(outcome, 1)[0]

    outcome.fail(error)

    assert sent.failed()
    assert sent.retriable() is retriable
    with pytest.raises(type(error)):
        sent.get()


def test_an_error_that_is_raised_often_does_not_grow() -> None:
    """One error stands for a whole batch."""
    outcome = BatchResult("orders", 0)
    sent = futures(outcome, 50)
    outcome.fail(KafkaStorageError("x"))

    for future in sent:
        with pytest.raises(KafkaStorageError):
            future.get()

    trace = sent[0].exception.__traceback__ if sent[0].exception else None
    length = 0
    while trace is not None:
        trace, length = trace.tb_next, length + 1
    assert length <= 2


def test_callbacks_run_in_the_order_of_the_records_and_then_as_added() -> None:
    """Not in the order in which they were added to different records."""
    outcome = BatchResult("orders", 0)
    first, second = futures(outcome, 2)
    ran: list[str] = []
    second.add_callback(lambda _: ran.append("second"))
    first.add_callback(lambda _: ran.append("first"))
    first.add_callback(lambda _: ran.append("first again"))

    outcome.succeed([0, 0], {0: range(2)})

    assert ran == ["first", "first again", "second"]


def test_a_callback_gets_its_arguments_and_then_the_metadata() -> None:
    """As functools.partial would call it."""
    outcome = BatchResult("orders", 0)
    sent = futures(outcome, 1)[0]
    got: list[object] = []
    sent.add_callback(lambda *args, **named: got.append((args, named)), "a", b="c")

    outcome.succeed([0], {0: range(1)})

    assert got == [(("a", sent.get()), {"b": "c"})]


def test_a_callback_added_late_runs_at_once() -> None:
    """No outcome is missed."""
    outcome = BatchResult("orders", 0)
    sent = futures(outcome, 1)[0]
    outcome.succeed([0], {0: range(1)})
    got: list[object] = []

    sent.add_callback(got.append).add_errback(got.append).add_both(got.append)

    assert got == [sent.get(), sent.get()]


def test_an_errback_gets_the_error() -> None:
    """And callbacks for success do not run."""
    outcome = BatchResult("orders", 0)
    sent = futures(outcome, 1)[0]
    got: list[object] = []
    sent.add_callback(got.append).add_errback(got.append)
    error = KafkaStorageError("x")

    outcome.fail(error)

    assert got == [error]


def test_an_error_in_a_callback_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The callbacks behind it still run."""
    outcome = BatchResult("orders", 0)
    first, second = futures(outcome, 2)
    got: list[object] = []
    first.add_callback(lambda _: 1 / 0)
    second.add_callback(got.append)

    outcome.succeed([0, 0], {0: range(2)})

    assert got == [second.get()]
    assert "ZeroDivisionError" in caplog.text


def test_a_chained_future_gets_the_same_outcome() -> None:
    """Success and failure are both passed on."""
    good, bad, target = BatchResult("orders", 0), BatchResult("orders", 0), Target()
    one, other = futures(good, 1)[0].chain(target), futures(bad, 1)[0].chain(target)

    good.succeed([0], {0: range(1)})
    bad.fail(KafkaStorageError("x"))

    assert target.got == [one.get(), other.exception]


def test_threads_that_wait_are_woken_after_the_callbacks() -> None:
    """Whoever comes back from get finds the callbacks' work done."""
    outcome = BatchResult("orders", 0)
    sent = futures(outcome, 1)[0]
    seen: list[str] = []
    sent.add_callback(lambda _: seen.append("callback"))
    waiter = threading.Thread(target=lambda: seen.append(f"offset {sent.get(30).offset}"))
    waiter.start()

    outcome.succeed([0], {0: range(1)})
    waiter.join(30)

    assert seen[0] == "callback"
    assert seen[1:] == ["offset 0"]
