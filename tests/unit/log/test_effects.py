"""The runner of effects: answers and failures reach the protocol where it stands, and everything else ends the run."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from kafkalike.model.effects import Effect, run


@dataclass(frozen=True, slots=True)
class Ask(Effect[int]):
    """Ask for a number."""

    name: str


class RefusedError(Exception):
    """A failure that protocols are told of."""


class OtherError(Exception):
    """One that they are not told of."""


def adding(*names: str) -> Generator[Ask, Any, int]:
    """Add the answers; one that is refused counts as 100."""
    total = 0
    for name in names:
        try:
            total += yield from Ask(name)
        except RefusedError:
            total += 100
    return total


def test_run_sends_each_answer_and_returns_the_result() -> None:
    asked: list[str] = []

    def handle(effect: Ask) -> int:
        asked.append(effect.name)
        return len(effect.name)

    assert run(adding("a", "bb", "ccc"), handle, RefusedError) == 6
    assert asked == ["a", "bb", "ccc"]


def test_run_of_a_protocol_without_effects_returns_its_result() -> None:
    assert run(adding(), lambda _: 1, RefusedError) == 0


def test_failure_is_thrown_in_where_the_protocol_stands() -> None:
    def handle(effect: Ask) -> int:
        if effect.name == "b":
            raise RefusedError
        return 1

    assert run(adding("a", "b", "c"), handle, RefusedError) == 102


def test_other_error_ends_the_run_and_the_protocol_sees_nothing_of_it() -> None:
    left: list[str] = []

    def protocol() -> Generator[Ask, Any, None]:
        try:
            yield from Ask("a")
        except OtherError:
            left.append("told")

    def handle(_: Ask) -> int:
        raise OtherError

    with pytest.raises(OtherError):
        run(protocol(), handle, RefusedError)
    assert left == []


def test_failure_that_the_protocol_does_not_catch_is_raised_by_the_run() -> None:
    def protocol() -> Generator[Ask, Any, int]:
        return (yield from Ask("a"))

    def handle(_: Ask) -> int:
        raise RefusedError("no")

    with pytest.raises(RefusedError, match="no"):
        run(protocol(), handle, RefusedError)


def test_stop_iteration_of_a_handler_is_no_end_of_the_protocol() -> None:
    """Else a handler that runs out of something would end a protocol half-way, as if it were through."""

    def handle(_: Ask) -> int:
        raise StopIteration(7)

    with pytest.raises(StopIteration):
        run(adding("a"), handle, RefusedError)


def test_effect_of_a_nested_protocol_is_asked_for_in_its_order() -> None:
    asked: list[str] = []

    def outer() -> Generator[Ask, Any, int]:
        first = yield from Ask("first")
        inner = yield from adding("a", "b")
        last = yield from Ask("last")
        return first + inner + last

    def handle(effect: Ask) -> int:
        asked.append(effect.name)
        return len(asked)

    assert run(outer(), handle, RefusedError) == 1 + 2 + 3 + 4
    assert asked == ["first", "a", "b", "last"]
