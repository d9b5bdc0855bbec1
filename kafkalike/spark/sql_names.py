"""SQL names: texts and names in, SQL literals and identifiers out."""

from __future__ import annotations


def literal(text: str) -> str:
    """A text as a SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quoted(name: str) -> str:
    """A name as a SQL identifier."""
    return "`" + name.replace("`", "``") + "`"
