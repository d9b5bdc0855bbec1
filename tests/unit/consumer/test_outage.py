"""Whether a poll goes on while a storage gives no answer."""

import errno
import logging

import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.consumer.poll_loop import WARN_SECONDS, TransientErrors
from kafkalike.errors import KafkaError, KafkaStorageError, KafkaTimeoutError, LogCorruptError


def failed(number: int, kind: type[KafkaError] = KafkaStorageError, *, between: bool = False) -> KafkaError:
    """What a look raises where a request ended so."""
    error: KafkaError = kind("cannot be read")
    cause: Exception = OSError(number, "error sending request")
    if between:
        middle = KafkaStorageError("in between")
        middle.__cause__ = cause
        cause = middle
    error.__cause__ = cause
    return error


SILENT = failed(errno.ETIMEDOUT)


@pytest.mark.parametrize(
    ("error", "bears"),
    [
        pytest.param(SILENT, True, id="silent"),
        pytest.param(failed(errno.ETIMEDOUT, between=True), True, id="timed-out-between"),
        (KafkaTimeoutError("others of this process were written until time ran out; nothing was written"), True),
        pytest.param(failed(errno.EIO), False, id="input-output-error"),
        pytest.param(failed(errno.EACCES), False, id="no-access"),
        (failed(errno.ETIMEDOUT, LogCorruptError), False),
        (KafkaStorageError("without a reason"), False),
    ],
)
def test_only_what_may_be_asked_again_and_gave_no_answer_is_borne(
    clock: ManualClock,
    error: KafkaError,
    bears: bool,  # noqa: FBT001
) -> None:
    """A broken disk, a refusal and damage are told at once."""
    assert TransientErrors(clock, 60_000).is_transient(error, clock.monotonic()) is bears


def test_a_silence_is_borne_until_a_look_begins_after_its_time(clock: ManualClock) -> None:
    """Looks of 20 s: the one that begins after a minute is the last."""
    outage = TransientErrors(clock, 60_000)

    borne = []
    for _ in range(4):
        begun = clock.monotonic()
        clock.sleep(20)
        borne.append(outage.is_transient(SILENT, begun))

    assert borne == [True, True, True, False]


def test_an_answer_ends_a_silence(clock: ManualClock) -> None:
    outage = TransientErrors(clock, 60_000)
    for _ in range(5):
        begun = clock.monotonic()
        clock.sleep(50)
        assert outage.is_transient(SILENT, begun)
        outage.over()


def test_the_log_says_every_half_minute_why_nothing_comes(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    outage = TransientErrors(clock, 600_000)
    with caplog.at_level(logging.WARNING):
        for _ in range(6):
            outage.is_transient(SILENT, clock.monotonic())
            clock.sleep(WARN_SECONDS / 2)

    assert [record.getMessage() for record in caplog.records] == [
        f"the storage has given no answer for {seconds} s: cannot be read; polls return nothing"
        for seconds in (0, 30, 60)
    ]
