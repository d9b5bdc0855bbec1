"""Foreseen: calls that a thread is about to make, one after the other, made before as one; see `carried`.

An answer counts for the very next call of the thread, if that is the one that was foreseen, and all others are
forgotten when it is not. So all is as if the thread had made each call itself, and had slept for a moment after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.storage.bounded.calls import BoundedCalls, mine
from kafkalike.storage.bounded.carried import carry

T = TypeVar("T")

FRESH_SECONDS: Final = 1.0
"""How old an answer may be: a process may be stopped before it uses it."""


class Ahead(NamedTuple):
    """A call that is about to be made."""

    calls: BoundedCalls
    """Whose."""
    key: Hashable
    """What it asks for."""
    work: Callable[[], object]
    """The call. It only reads."""
    is_news: Callable[[Any], bool] = lambda answer: answer is not None
    """Whether an answer has something to tell, so that nobody knows what is asked next."""


def size_key(uri: str, name: str) -> Hashable:
    """What the call asks for that asks for a file's size."""
    return "size", uri, name


class Foreseen:
    """Answers that one thread has already. Only that thread uses it."""

    def __init__(self) -> None:
        self._answers: deque[tuple[BoundedCalls, Hashable, object, float]] = deque()
        self.planned: Callable[[], Sequence[Ahead]] = tuple
        """Calls that are to be made when the thread has its turn, once."""
        self.is_done = False
        """Whether they were."""

    def take(self, calls: BoundedCalls, key: Hashable) -> tuple[Any, ...]:
        """The answer to the call that is made now, in a tuple; an empty one where it was not foreseen."""
        if not self._answers:
            return ()
        whose, wanted, answer, asked = self._answers.popleft()
        if whose is calls and wanted == key and SYSTEM_CLOCK.monotonic() - asked < FRESH_SECONDS:
            return (answer,)
        self._answers.clear()
        return ()

    def forget(self) -> None:
        """Forget all of them."""
        self._answers.clear()

    def ask(self, calls: Sequence[Ahead]) -> None:
        """Make calls, up to the first that fails or has something to tell: what comes after it is not foreseen."""
        self._answers.clear()
        for whose, key, work, is_news in calls:
            asked = SYSTEM_CLOCK.monotonic()
            try:
                answer = whose.call(work)
            except Exception:  # noqa: BLE001 - it is asked again, by who wants to know
                return
            self._answers.append((whose, key, answer, asked))
            if is_news(answer):
                return


def _here() -> Foreseen | None:
    """Of this thread."""
    return cast("Foreseen | None", mine.foreseen)


def foreseeing(
    work: Callable[[], T], calls: Callable[[], Sequence[Ahead]] | None = None, *, by_turn: bool = False
) -> T:
    """Do something in which calls are foreseen; nothing of that stays, however it ends.

    Args:
        work: what is done.
        calls: those that it makes first; None: it is not known.
        by_turn: they are made when it has its turn; see `planned`.
    """
    known = _here()
    if known is not None or mine.task is not None:
        if known is not None and calls is not None:
            if not known.is_done:
                foresee(calls())
            # Else they are those that were made with the turn.
            known.is_done = False
        return work()
    try:
        try:
            known = Foreseen()
            mine.foreseen = known
            if calls is not None and by_turn:
                known.planned = calls
            elif calls is not None:
                foresee(calls())
            return work()
        finally:
            mine.foreseen = None
    finally:
        # An interrupt may have come in between.
        mine.foreseen = None


def asker() -> Callable[[Sequence[Ahead]], None]:
    """What makes calls ahead for this thread, to be used in what it has carried out."""
    known = _here()
    return _ask_nothing if known is None else known.ask


def _ask_nothing(calls: Sequence[Ahead]) -> None:
    del calls


def planned() -> Callable[[], None] | None:
    """What makes the calls that are to be made when this thread has its turn, in what it has carried out; None: none.

    They are those that are known before that; if others have written meanwhile, the first answer says so.
    """
    known = _here()
    if known is None:
        return None
    calls, known.planned = known.planned(), tuple
    if not calls:
        return None

    def ask() -> None:
        known.ask(calls)
        known.is_done = True

    return ask


def foresee(calls: Sequence[Ahead]) -> None:
    """Make calls that this thread is about to make, if that is of use: several of them, within `foreseeing`."""
    known = _here()
    if known is None or not calls[1:]:
        return
    try:
        carry(lambda: known.ask(calls))
    except OSError:
        # One hangs. What was asked before it counts.
        return
