"""A lock that is interrupted before any of its instructions is free afterwards, whoever still has the interrupt."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.storage import table_lock
from kafkalike.storage.table_lock import Flock, TableLock
from tests.tools.interrupts import interrupted_at

LAST = 2_000
"""More instructions than taking a lock and letting it go has."""

CODES = [
    TableLock.held.__wrapped__.__code__,  # type: ignore[attr-defined]
    *(vars(TableLock)[name].__code__ for name in ("_acquire", "_free", "_take", "_try", "_let_go")),
    *(vars(Flock)[name].__code__ for name in ("take", "_lock", "free")),
    table_lock._free.__code__,
]


def hold(folder: Path) -> None:
    with TableLock(str(folder), "t").held(Deadline(SYSTEM_CLOCK, 5_000)):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("existing", [False, True], ids=["new lock", "existing lock"])
def test_a_lock_that_was_interrupted_is_free(tmp_path: Path, *, existing: bool) -> None:
    """Its traceback keeps what the lock has opened, so no garbage collection lets it go."""
    if existing:
        hold(tmp_path)
    kept: list[BaseException] = []
    for instruction in range(LAST):
        folder = tmp_path if existing else tmp_path / str(instruction)
        interrupt = interrupted_at(CODES, instruction, lambda folder=folder: hold(folder))  # type: ignore[misc]
        if interrupt is None:
            break
        kept.append(interrupt)
        with TableLock(str(folder), "t").held(Deadline(SYSTEM_CLOCK, 0)):
            pass
    else:
        pytest.fail("it has more instructions than were tried")

    assert len(kept) > 100
