"""What a session has staged of a transaction, interrupted anywhere: a topic without a file cannot be brought in."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from kafkalike.log.transactions.effect_runner import HeldTransaction
from kafkalike.log.transactions.session import SessionTransaction, Staged
from kafkalike.model.transactions.transactional_id import StagedFile, TopicLife, TransactionAttempt
from tests.tools.interrupts import interrupted_at

TOPIC = TopicLife("t", "id")
ATTEMPT = TransactionAttempt(1, 0, 1)
STAGED = Staged(StagedFile("0", 1, 2), Counter({0: 2}))
LAST = 200
"""More instructions than taking over a file has."""


def test_a_file_is_taken_over_or_is_not() -> None:
    outcomes: list[int] = []
    for instruction in range(LAST):
        transaction = SessionTransaction(ATTEMPT, 0.0, HeldTransaction(attempt=ATTEMPT))
        code = SessionTransaction.note.__code__
        came = interrupted_at([code], instruction, partial(transaction.note, TOPIC, 0, STAGED))
        parts = transaction.parts() if transaction.takes("batches", TOPIC) else ()
        assert all(part.files for part in parts), f"interrupted before instruction {instruction}"
        outcomes.append(len(parts))
        if came is None:
            break
    else:
        pytest.fail("it has more instructions than were tried")

    assert sorted(set(outcomes)) == [0, 1]
    assert outcomes == sorted(outcomes)
