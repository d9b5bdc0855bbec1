"""Notes: what maintenance runs and transactions note in the history of a topic's table."""

from __future__ import annotations

from typing import Any, Final

from kafkalike.delta.actions import append_info
from kafkalike.model.record_batch import TRANSACTIONS

WORK_KEY: Final = "maintenance"
"""Key, in a commit's user metadata, of what maintenance did: a key of `OPERATIONS`."""

RUN_KEY: Final = "run"
"""Key of the id of the maintenance run."""

OPERATIONS: Final = {
    "retention": "DELETE",
    "merge": "OPTIMIZE",
    "compaction": "REWRITE",
    "restore": "CLONE",
    "fork": "CLONE",
    "forked": "FORKED",
    "forget": "REWRITE",
    "undo": "REWRITE",
}
"""What the table's history calls them."""


def maintenance_of(user_metadata: str | None) -> dict[str, Any]:
    """What maintenance wrote into a commit's user metadata; empty when the commit is not its own."""
    info = append_info(user_metadata)
    return info if WORK_KEY in info else {}


def transaction_of(user_metadata: str | None) -> int | None:
    """Number of the decision that a commit brought into the topic; None for one that brought none."""
    match append_info(user_metadata).get("txn"):
        case [app, int() as number] if app == TRANSACTIONS:
            return number
    return None
