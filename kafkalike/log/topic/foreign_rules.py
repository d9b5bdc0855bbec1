"""Foreign rules: how a topic's table treats what other Delta writers ask for, and what they have done to its records.

Our tables are of Delta writer version 2, which asks a writer to honour `delta.appendOnly` (`Table.change` does) and
`delta.invariants`. A table that asks for something that this package does not do is refused by name: nothing that a
user has set is ignored. A foreign change of records is warned of as it arrives.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kafkalike.delta.actions import Add, TableCommit
from kafkalike.delta.table_state import TableState

FORGETS: Final = "delta.setTransactionRetentionDuration"
_CONSTRAINT: Final = "delta.constraints."
_COLUMN_RULES: Final = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generated value",
    "delta.identity.start": "an identity",
}


def append_refusal(properties: Mapping[str, str], schema: str) -> str | None:
    """Why nothing may be appended to a table; None when it asks for nothing unusual.

    Args:
        properties: the table's configuration.
        schema: its Delta schema, as JSON.
    """
    if FORGETS in properties:
        return (
            f"the table property {FORGETS}={properties[FORGETS]} lets Delta forget which writes it has (`txn_id`, "
            "streams' batches, log ends), so that they could be written twice; take it away: "
            f"ALTER TABLE … UNSET TBLPROPERTIES ('{FORGETS}')"
        )
    checks = sorted(name.removeprefix(_CONSTRAINT) for name in properties if name.startswith(_CONSTRAINT))
    if checks:
        return f"it has CHECK constraints ({', '.join(checks)}), which kafkalike does not check; drop them"
    for column, what in _rules_of(schema):
        return f"its column {column} has {what}, which kafkalike does not check; take it away"
    return None


def _rules_of(schema: str) -> Iterator[tuple[str, str]]:
    """Columns that have a rule, with what it is."""
    # Parsing takes longer than the looking.
    if not any(name in schema for name in _COLUMN_RULES):
        return
    yield from _rules_below(json.loads(schema), "")


def _rules_below(kind: Any, above: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - Delta's types
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        name = f"{above}{field['name']}"
        for key in _COLUMN_RULES.keys() & (field.get("metadata") or {}).keys():
            yield name, _COLUMN_RULES[key]
        yield from _rules_below(field["type"], f"{name}.")
    for part in ("elementType", "keyType", "valueType"):
        yield from _rules_below(kind.get(part), above)


_log = logging.getLogger(__name__)


def foreign_change(commit: TableCommit) -> str | None:
    """What a foreign writer has done to records; None where it is a change of ours, or one that leaves them alone.

    Files that are only rewritten (`dataChange=false`, as by OPTIMIZE) leave them alone.
    """
    added = [add for add in commit.adds if add.data_change]
    if commit.append_id is not None or not (added or commit.taken):
        return None
    acts = [f"{verb} {_files(files)}" for verb, files in (("took out", commit.taken), ("added", added)) if files]
    then = (
        "records that were read before may be others now, or gone"
        if commit.taken
        else "nothing has checked their offsets and times"
    )
    return (
        f"table version {commit.version} is a foreign writer's ({commit.operation} by {commit.engine}): it "
        f"{' and '.join(acts)}, so {then}; see `kafkalike verify` and `kafkalike history`"
    )


def _files(files: Sequence[Add]) -> str:
    known = sorted({add.partition for add in files if add.partition is not None})
    where = f" of partition{'s' if len(known) > 1 else ''} {', '.join(map(str, known))}" if known else ""
    return f"{len(files)} file{'s' if len(files) > 1 else ''}{where}"


class ForeignWarnings:
    """Warns of foreign changes as they arrive, once each.

    Args:
        topic: whose table it is, by name.
    """

    def __init__(self, topic: Callable[[], str]) -> None:
        self._topic = topic

    def on_load(self, state: TableState) -> None:
        """Nothing: who begins anew has read nothing before."""

    def on_commit(self, commit: TableCommit) -> None:
        """Warn if somebody else has changed records."""
        change = foreign_change(commit)
        if change is not None:
            _log.warning("topic %s: %s", self._topic(), change)
