"""What a session has staged of a transaction, interrupted anywhere: a topic without a file cannot be brought in."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from kafkalike.log.transactions.driver import Held
from kafkalike.log.transactions.open_transaction import OpenTransaction, Staged
from kafkalike.model.transactions.values import Attempt, StagedFile, Topic

TOPIC = Topic("t", "id")
ATTEMPT = Attempt(1, 0, 1)
STAGED = Staged(StagedFile("0", 1, 2), Counter({0: 2}))
LAST = 200
"""More instructions than taking over a file has."""


def interrupted_at(instruction: int, transaction: OpenTransaction) -> bool:
    """Take over a file, with an interrupt before one of the instructions; whether it came to that."""
    left = instruction

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        del argument
        if frame.f_code is not OpenTransaction.note.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        transaction.note(TOPIC, 0, STAGED)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_a_file_is_taken_over_or_is_not() -> None:
    outcomes: list[int] = []
    for instruction in range(LAST):
        transaction = OpenTransaction(ATTEMPT, 0.0, Held(attempt=ATTEMPT))
        came = interrupted_at(instruction, transaction)
        parts = transaction.parts() if transaction.takes("batches", TOPIC) else ()
        assert all(part.files for part in parts), f"interrupted before instruction {instruction}"
        outcomes.append(len(parts))
        if not came:
            break
    else:
        pytest.fail("it has more instructions than were tried")

    assert sorted(set(outcomes)) == [0, 1]
    assert outcomes == sorted(outcomes)
