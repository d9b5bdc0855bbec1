"""Blocks: a page and a heading in, the language and text of the code blocks below it out."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def blocks(heading: str | None, page: str = "README.md") -> list[tuple[str, str]]:
    """Language and text of the code blocks below a heading; None for the whole page."""
    text = (PROJECT / page).read_text()
    section = text if heading is None else text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^```(\w+)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
