"""A thread that writes others' changes, too, is interrupted: none of them waits for ever, the next ones go on."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import pytest

from kafkalike.delta.group_commit.control_group_commit import PendingChange, SharedChanges
from kafkalike.errors import UnknownOutcomeError
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from tests.tools.interrupts import Case, sweep

OTHERS: Final = 3
SOON: Final = 10.0
"""Seconds: far less than the changes may take by their deadlines."""


class OneWritesForAll(Case):
    """The thread that is interrupted has others waiting; the first attempt at one of them leaves it for another."""

    def __init__(self) -> None:
        self.written: Counter[int] = Counter()
        self.shared: SharedChanges[int] = SharedChanges(self.write, lambda units: min(2, len(units)))
        self.found: dict[int, BaseException | None] = {}
        self.others = [threading.Thread(target=self.bring, args=(number,), daemon=True) for number in range(OTHERS)]
        self.left = {1}

    def write(self, taken: Sequence[PendingChange[int]]) -> None:
        if not self.others[0].is_alive() and not self.found:
            for thread in self.others:
                thread.start()
            while len(self.shared._waiting) < OTHERS:
                SYSTEM_CLOCK.sleep(0.0001)
        for each in taken:
            if each.unit in self.left:
                self.left.remove(each.unit)
                continue
            self.written[each.unit] += 1
            each.settle()

    def bring(self, number: int) -> None:
        try:
            self.shared.bring(number, Deadline(SYSTEM_CLOCK, 600_000))
        except BaseException as cause:  # noqa: BLE001 - also what was raised as an interrupt
            self.found[number] = cause
        else:
            self.found[number] = None

    def operate(self) -> None:
        self.shared.bring(100, Deadline(SYSTEM_CLOCK, 600_000))

    def judge(self) -> Iterable[str]:
        next_one = threading.Thread(target=self.bring, args=(200,), daemon=True)
        next_one.start()
        next_one.join(SOON)
        begun = [thread for thread in self.others if thread.ident is not None]
        for thread in begun:
            thread.join(SOON)
        if any(thread.is_alive() for thread in [next_one, *begun]):
            yield "somebody waits for ever"
            return
        if self.found.get(200, self) is not None:
            yield f"the next one came to {self.found.get(200)!r}"
        for number, told in self.found.items():
            if told is None and self.written[number] != 1:
                yield f"{number} was written {self.written[number]} times"
            if told is not None and not isinstance(told, UnknownOutcomeError):
                yield f"{number} came to {told!r}"
        if max(self.written.values()) > 1:
            yield f"written twice: {self.written}"
        if self.shared._waiting:
            yield "something is left"

    def close(self) -> None:
        pass


@pytest.mark.slow
def test_an_interrupt_at_any_line_leaves_nobody_waiting() -> None:
    found = sweep(OneWritesForAll, each=0, within="group_commit/control_group_commit.py")

    assert not found.wrong, str(found)
    assert found.raised > 0
