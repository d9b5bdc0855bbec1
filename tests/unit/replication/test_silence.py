"""CircuitBreaker: who asks a storage that gives no answer is refused at once, until it answers."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.storage.impatient_client import RETRY_SECONDS, CircuitBreaker
from kafkalike.storage.port import NotStoredError


class Storage:
    """A storage that answers or not, and a thread that does what it is given when a test says so."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.answers = True
        self.asked = 0
        self.given: list[Callable[[], None]] = []
        self.silence = CircuitBreaker("s3://b/log", self.ask, self.begin, self.clock)

    def ask(self) -> None:
        self.asked += 1
        self.request()

    def request(self, seconds: float = 1.0) -> None:
        """One that nobody refuses."""
        began = self.clock.monotonic()
        self.clock.sleep(seconds)
        if self.answers:
            self.silence.heard()
        else:
            self.silence.missed(began)
            raise TimeoutError(errno.ETIMEDOUT, "no answer")

    def begin(self, call: Callable[[], None]) -> object:
        self.given.append(call)
        return call

    def go_silent(self) -> None:
        self.answers = False
        with pytest.raises(TimeoutError):
            self.request()


def test_nobody_is_refused_before_a_request_got_no_answer() -> None:
    storage = Storage()

    storage.silence.check()
    storage.request()
    storage.silence.check()

    assert storage.silence.seconds() == 0
    assert not storage.given


def test_after_it_others_are_refused_and_what_is_not_sent_is_not_stored() -> None:
    storage = Storage()
    storage.go_silent()

    with pytest.raises(TimeoutError, match="gives no answer"):
        storage.silence.check()
    with pytest.raises(NotStoredError):
        storage.silence.check(conditional=True)

    assert storage.silence.seconds() == 1


def test_one_thread_asks_now_and_then_and_its_answer_lets_all_through() -> None:
    storage = Storage()
    storage.go_silent()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            storage.silence.check()
    assert not storage.given
    storage.clock.sleep(RETRY_SECONDS)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            storage.silence.check()
    assert len(storage.given) == 1

    storage.given.pop()()
    storage.clock.sleep(RETRY_SECONDS)
    with pytest.raises(TimeoutError):
        storage.silence.check()
    storage.answers = True
    storage.given.pop()()

    storage.silence.check()
    assert storage.asked == 2
    assert storage.silence.seconds() == 0


def test_an_answer_to_a_later_request_counts_more_than_an_earlier_silence() -> None:
    storage = Storage()
    began = storage.clock.monotonic()
    storage.request()

    storage.silence.missed(began)

    storage.silence.check()


def test_where_no_thread_can_be_had_it_is_asked_by_the_next_one() -> None:
    storage = Storage()
    silence = CircuitBreaker("s3://b/log", storage.ask, lambda _: None, storage.clock)
    silence.missed(0.5)
    storage.clock.sleep(1)

    for _ in range(2):
        with pytest.raises(TimeoutError):
            silence.check()
        storage.clock.sleep(RETRY_SECONDS)

    assert storage.asked == 0


def test_who_must_know_asks_in_his_own_thread() -> None:
    storage = Storage()
    storage.silence.ask_again()
    assert storage.asked == 0
    storage.go_silent()
    storage.silence.ask_again()
    assert storage.silence.seconds() > 0

    storage.answers = True
    storage.silence.ask_again()

    storage.silence.check()
    assert storage.asked == 2
