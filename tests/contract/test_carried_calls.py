"""Calls of several roots that one thread makes one after the other, and calls that are made before they are wanted."""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from kafkalike.storage.bounded import calls as bounded
from kafkalike.storage.bounded import foreseen
from kafkalike.storage.bounded.calls import MOST, BoundedCalls, mine
from kafkalike.storage.bounded.carried import NAME, carry
from kafkalike.storage.bounded.foreseen import Ahead, foresee, foreseeing


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Set when the storages answer again."""
    event = threading.Event()
    yield event
    event.set()


class Asked:
    """Roots by name, and what was asked of them, in order."""

    def __init__(self, *names: str) -> None:
        self.roots = {name: BoundedCalls(f"/{name}", 0.05) for name in names}
        self.seen: list[str] = []

    def ask(self, name: str) -> str:
        def work() -> str:
            self.seen.append(name)
            return name

        return self.roots[name].call(work, key=name)

    def ahead(self, name: str, answer: object = None) -> Ahead:
        def work() -> object:
            self.seen.append(name)
            return answer

        return Ahead(self.roots[name], name, work)


def test_calls_of_several_roots_are_made_by_one_other_thread() -> None:
    a, b = BoundedCalls("/a"), BoundedCalls("/b")

    made = carry(lambda: [a.call(threading.get_ident), b.call(threading.get_ident), threading.get_ident()])

    assert len(set(made)) == 1
    assert made[0] != threading.get_ident()


def test_what_is_raised_comes_to_who_waits() -> None:
    a = BoundedCalls("/a")

    with pytest.raises(FileNotFoundError):
        carry(lambda: a.call(lambda: os.stat("/there/is/no/such/file")))  # noqa: PTH116

    assert carry(lambda: a.call(lambda: 7)) == 7


def test_one_that_hangs_is_given_up_and_nothing_after_it_is_asked(stuck: threading.Event) -> None:
    asked = Asked("a", "b", "c")

    def work() -> None:
        asked.ask("a")
        asked.roots["b"].call(stuck.wait)
        asked.ask("c")

    with pytest.raises(TimeoutError, match="no answer"):
        carry(work)
    stuck.set()
    while asked.roots["b"].hangs:
        threading.Event().wait(0.001)

    assert carry(lambda: asked.ask("c")) == "c"
    assert asked.seen == ["a", "c"]


def test_only_the_root_that_hangs_is_taken_for_one_that_does(stuck: threading.Event) -> None:
    asked = Asked("a", "b", "c")

    with pytest.raises(TimeoutError):
        carry(lambda: [asked.ask("a"), asked.roots["b"].call(stuck.wait), asked.ask("c")])

    assert [name for name, calls in asked.roots.items() if calls.hangs] == ["b"]
    assert carry(lambda: [asked.ask("a"), asked.ask("c")]) == ["a", "c"]
    with pytest.raises(TimeoutError):
        carry(lambda: asked.ask("b"))


@pytest.mark.slow
def test_roots_that_hang_are_all_known_after_one_wait(stuck: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one is asked while the first one is waited for, and nobody waits for it again."""
    first, second = bounded.calls_of("/hangs/first"), bounded.calls_of("/hangs/second")
    first.seconds = second.seconds = bounded.SUSPECT_SECONDS + 0.2
    monkeypatch.setattr(os.path, "lexists", lambda path: "second" in str(path) and stuck.wait())

    with pytest.raises(TimeoutError):
        carry(lambda: first.call(stuck.wait))
    asked: list[str] = []
    while not second.hangs:
        threading.Event().wait(0.001)
    with pytest.raises(TimeoutError):
        carry(lambda: second.call(lambda: asked.append("second")))

    assert not asked


def test_few_threads_hang(stuck: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "RETRY_SECONDS", 0.0)
    calls = BoundedCalls("/few", 0.001)
    before = _threads()

    for _ in range(2 * MOST):
        with pytest.raises(TimeoutError):
            carry(lambda: calls.call(stuck.wait))

    assert _threads() - before <= MOST


def _threads() -> int:
    return len([thread for thread in threading.enumerate() if thread.name == NAME])


def test_an_interrupted_caller_has_nothing_more_asked(stuck: threading.Event) -> None:
    asked = Asked("a", "b")
    ended = threading.Event()

    def interrupt() -> None:
        _thread.interrupt_main()
        stuck.wait()

    def work() -> None:
        try:
            asked.roots["a"].call(interrupt)
            asked.ask("b")
        finally:
            ended.set()

    asked.roots["a"].seconds = 60
    with pytest.raises(KeyboardInterrupt):
        carry(work)
    stuck.set()
    ended.wait()

    assert not asked.seen
    assert not asked.roots["a"].hangs


def test_what_is_given_up_does_nothing_when_its_call_ends_after_all(stuck: threading.Event) -> None:
    a, done, ended = BoundedCalls("/a", 0.05), list[int](), threading.Event()

    def work() -> None:
        try:
            a.call(stuck.wait)
            done.append(1)
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        carry(work)
    stuck.set()
    ended.wait()

    assert not done


def test_what_is_given_up_asks_nothing_as_it_ends(stuck: threading.Event) -> None:
    asked = Asked("a", "b")
    ended = threading.Event()

    def work() -> None:
        try:
            asked.roots["a"].call(stuck.wait)
        finally:
            try:
                asked.ask("b")
            finally:
                ended.set()

    with pytest.raises(TimeoutError):
        carry(work)
    stuck.set()
    ended.wait()

    assert not asked.seen


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    calls = BoundedCalls("/forked")
    assert carry(lambda: calls.call(lambda: 7)) == 7

    child = os.fork()
    if child == 0:
        answer = 0
        try:
            answer = carry(lambda: calls.call(lambda: 7))
        finally:
            os._exit(answer)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


# --- calls that are made ahead ---------------------------------------------------------------


def within(asked: Asked, names: str, work: Callable[[], object]) -> list[str]:
    """What was asked when each of the names had been made ahead, and then something was done."""
    foreseeing(work, lambda: [asked.ahead(name) for name in names])
    return asked.seen


def test_an_answer_counts_for_the_next_call_if_that_was_foreseen() -> None:
    asked, answers = Asked("a", "b"), list[object]()

    within(asked, "ab", lambda: answers.extend([asked.ask("a"), asked.ask("b"), asked.ask("b")]))

    assert asked.seen == ["a", "b", "b"]
    assert answers == [None, None, "b"]


def test_after_a_call_that_was_not_foreseen_no_answer_counts() -> None:
    asked = Asked("a", "b", "c")

    assert within(asked, "ab", lambda: [asked.ask("c"), asked.ask("a"), asked.ask("b")]) == list("abcab")


def test_after_something_that_was_carried_out_no_answer_counts() -> None:
    """It may have changed what was seen."""
    asked = Asked("a", "b")

    assert within(asked, "ab", lambda: [carry(lambda: asked.ask("b")), asked.ask("a")]) == list("abba")


def test_no_answer_counts_for_another_thread() -> None:
    asked = Asked("a", "b")

    def by_another() -> None:
        other = threading.Thread(target=lambda: asked.ask("a"))
        other.start()
        other.join()

    assert within(asked, "ab", by_another) == list("aba")


def test_no_answer_counts_for_another_root() -> None:
    asked = Asked("a", "b")
    made: list[str] = []

    foreseeing(
        lambda: asked.roots["b"].call(lambda: made.append("b"), key="a"), lambda: [asked.ahead("a"), asked.ahead("a")]
    )

    assert made == ["b"]


def test_no_answer_counts_afterwards() -> None:
    asked = Asked("a", "b")

    within(asked, "ab", lambda: None)
    asked.ask("a")

    assert asked.seen == ["a", "b", "a"]
    assert mine.foreseen is None


def test_no_answer_counts_after_an_interrupt() -> None:
    asked = Asked("a", "b")

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        within(asked, "ab", interrupted)
    asked.ask("a")

    assert asked.seen == ["a", "b", "a"]


def test_no_old_answer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may be stopped before it uses them."""
    monkeypatch.setattr(foreseen, "FRESH_SECONDS", 0.0)
    asked = Asked("a", "b")

    assert within(asked, "ab", lambda: [asked.ask("a"), asked.ask("b")]) == list("abab")


def test_nothing_is_foreseen_behind_news() -> None:
    asked = Asked("a", "b")

    foreseeing(lambda: asked.ask("a"), lambda: [asked.ahead("a", "news"), asked.ahead("b")])

    assert asked.seen == ["a"]


def test_what_was_answered_before_one_that_hangs_counts(stuck: threading.Event) -> None:
    asked = Asked("a", "b", "c")
    hanging = Ahead(asked.roots["b"], "b", stuck.wait)
    answers: list[object] = []

    def work() -> None:
        answers.append(asked.ask("a"))
        with pytest.raises(TimeoutError):
            asked.ask("b")
        answers.append(asked.ask("c"))

    foreseeing(work, lambda: [asked.ahead("a"), hanging, asked.ahead("c")])

    assert asked.seen == ["a", "c"]
    assert answers == [None, "c"]


def test_outside_nothing_is_made_ahead() -> None:
    asked = Asked("a", "b")

    foresee([asked.ahead("a"), asked.ahead("b")])

    assert not asked.seen
