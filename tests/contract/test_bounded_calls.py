"""Calls of a storage that may hang for ever: their callers wait for a while, and few threads hang."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from kafkalike.storage.bounded import calls as bounded
from kafkalike.storage.bounded.calls import MOST, BoundedCalls, calls_of


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Set when the storage answers again."""
    event = threading.Event()
    yield event
    event.set()


def hang(calls: BoundedCalls, until: threading.Event) -> None:
    with pytest.raises(TimeoutError, match="no answer"):
        calls.call(until.wait)


def test_what_a_call_returns_and_raises_comes_to_its_caller() -> None:
    calls = BoundedCalls("/x")

    assert calls.call(lambda: 7) == 7
    with pytest.raises(FileNotFoundError):
        calls.call(lambda: open("/there/is/no/such/file"))  # noqa: PTH123, SIM115
    assert not calls.hangs


def test_one_that_hangs_is_given_up_and_others_are_refused_at_once(stuck: threading.Event) -> None:
    calls = BoundedCalls("/x", 0.05)
    hang(calls, stuck)
    asked: list[int] = []

    for _ in range(50):
        with pytest.raises(TimeoutError):
            calls.call(lambda: asked.append(1))

    assert calls.hangs
    assert not asked


def test_it_is_asked_again_when_what_hung_has_ended(stuck: threading.Event) -> None:
    calls = BoundedCalls("/x", 0.05)
    ended = threading.Event()

    def hang() -> None:
        stuck.wait()
        ended.set()

    with pytest.raises(TimeoutError):
        calls.call(hang)
    stuck.set()
    ended.wait()

    while calls.hangs:
        threading.Event().wait(0.001)

    assert calls.call(lambda: 7) == 7


def test_one_that_hangs_for_ever_keeps_nobody_out_once_others_are_answered(
    stuck: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "RETRY_SECONDS", 0.0)
    calls = BoundedCalls("/x", 0.05)
    hang(calls, stuck)

    assert calls.call(lambda: 7) == 7
    assert not calls.hangs


def test_few_threads_hang(stuck: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "RETRY_SECONDS", 0.0)
    calls = BoundedCalls("/of few threads", 0.01)

    for _ in range(5 * MOST):
        hang(calls, stuck)

    assert len([thread for thread in threading.enumerate() if thread.name.endswith(calls.uri)]) <= MOST


@pytest.mark.slow
def test_what_nobody_has_open_is_not_asked_when_another_one_hangs(stuck: threading.Event) -> None:
    """A process that opened many clusters, one after another, starts no thread for each of them."""
    closed = [calls_of(f"/closed/{n}") for n in range(20)]
    opened = calls_of("/open")
    del closed

    hang(BoundedCalls("/x", bounded.SUSPECT_SECONDS), stuck)

    names = {thread.name for thread in threading.enumerate()}
    assert f"kafkalike calls of {opened.uri}" in names
    assert not [name for name in names if "/closed/" in name]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_makes_its_calls_in_threads_of_its_own() -> None:
    calls = calls_of("/forked")
    assert calls.call(lambda: 7) == 7

    child = os.fork()
    if child == 0:
        answer = 0
        try:
            answer = calls.call(lambda: 7)
        finally:
            os._exit(answer)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.slow
def test_one_that_goes_on_part_by_part_is_waited_for() -> None:
    calls = BoundedCalls("/x", 1.0)

    def long() -> int:
        for _ in range(13):
            threading.Event().wait(0.1)
            bounded.go_on()
        return 7

    assert calls.call(long) == 7


def test_calls_of_a_call_are_made_at_once() -> None:
    calls = BoundedCalls("/x", 5)

    assert calls.call(lambda: calls.call(threading.get_ident) == threading.get_ident())
