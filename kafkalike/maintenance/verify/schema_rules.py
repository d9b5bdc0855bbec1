"""Schema rules: rows of the schemas' table in, findings out; nothing is read here."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalike.maintenance.verify.findings import Finding
from kafkalike.model.schemas.registry_state import RegistryState
from kafkalike.model.schemas.schema_rows import SchemaRow


def check_schema_rows(rows: Iterable[SchemaRow]) -> list[Finding]:
    """Rows must be numbered once each, ids belong to one schema for ever, and what a schema refers to must be there.

    Args:
        rows: what the table still has, in `seq` order.

    Raises:
        UnsupportedVersionError, LogCorruptError: a row cannot be read, or contradicts another one.
    """
    found = []
    last_seq = 0
    rows = list(rows)
    for row in rows:
        if row.seq <= last_seq:
            message = f"row {row.seq} of the schemas' table follows row {last_seq}: two writers did not see each other"
            found.append(Finding(kind="schema-sequence", message=message))
        last_seq = max(last_seq, row.seq)
    state = RegistryState().applied(rows)
    for (subject, version), ids in sorted(state.referrers.items()):
        if state.registered(subject, version, deleted=True) is None:
            numbers = ", ".join(map(str, sorted(ids)))
            message = (
                f"schemas refer to version {version} of subject {subject!r}, which is not there: records with id "
                f"{numbers} cannot be read"
            )
            found.append(Finding(kind="schema-reference", message=message))
    return found
