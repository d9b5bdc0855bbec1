"""Foreign rules: a table's properties and columns in; what a foreign writer has asked for that we do not honour, out.

Our tables are of Delta writer version 2, which asks a writer to honour `delta.appendOnly` (`Table.change` does) and
`delta.invariants`. A table that asks for something that this package does not do is refused by name: nothing that a
user has set is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

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
