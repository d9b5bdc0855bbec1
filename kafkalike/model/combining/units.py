"""Units: changes of a control table that wait together in; the rows of all that hold, and which these are, out.

A unit is what one caller wants written at once: the offsets of a commit, a group's new roster, or the rows of several
kinds that must not be torn apart. It sees the state with all units before it, so its rule is looked at where its rows
will stand, whoever writes them. It holds as a whole, or leaves no row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from kafkalike.model.row_value import ControlState

S = TypeVar("S", bound=ControlState)
R = TypeVar("R")

Unit = Callable[[S], Sequence[R]]
"""Makes rows of a state, numbered from the one after its last on; none where nothing is to be written. It raises what
refuses it. It may be called several times."""

MOST_UNITS: Final = 256
"""Units that wait in one file at most."""


@dataclass(frozen=True, slots=True)
class InTurn(Generic[R]):
    """Rows of many units, in one order."""

    rows: Sequence[R]
    runs: Sequence[dict[int, range]]
    """For each part: the numbers of the rows of those of its units that hold, by the unit's place in it. A unit that is
    missing here was refused."""


def in_turn(state: S, parts: Sequence[Sequence[Unit[S, Any]]]) -> InTurn[Any]:
    """Let units make their rows, one after the other.

    Args:
        state: what the first one sees.
        parts: units that wait together, by those who put them there; in order.
    """
    rows: list[Any] = []
    runs: list[dict[int, range]] = []
    for units in parts:
        held: dict[int, range] = {}
        for nth, unit in enumerate(units):
            try:
                made = list(unit(state))
                after = state.applied(made)
            except Exception:  # noqa: BLE001, S112 - whatever refuses it: its own caller asks it again, and is told
                continue
            held[nth] = range(state.seq + 1, after.seq + 1)
            rows += made
            state = after
        runs.append(held)
    return InTurn(rows, runs)
