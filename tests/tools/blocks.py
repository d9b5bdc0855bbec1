"""Blocks: a page and a heading in, the language and text of the code blocks below it out.

A comment of HTML in the line before a block says why it is not run with its page: `<!-- not run: REASON -->`, or
`<!-- run by: FILE -->` where another test does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>not run|run by): (?P<said>.+?) -->\n+)?"
    r"(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^(?P=indent)```",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of a page."""

    language: str
    text: str
    not_run: str = ""
    """Why nothing runs it."""
    run_by: str = ""
    """The test that runs it in place of its page's."""


def blocks(heading: str | None, page: str = "README.md") -> list[tuple[str, str]]:
    """Language and text of the code blocks below a heading; None for the whole page."""
    return [(block.language, block.text) for block in all_blocks(page, heading)]


def all_blocks(page: str, heading: str | None = None) -> list[Block]:
    """The code blocks of a page, or below one of its headings, with what their marks say."""
    text = (PROJECT / page).read_text()
    section = text if heading is None else _below(text, heading)
    return [
        Block(
            language=found["language"],
            text=re.sub(f"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
            not_run=found["said"] if found["mark"] == "not run" else "",
            run_by=found["said"] if found["mark"] == "run by" else "",
        )
        for found in _BLOCK.finditer(section)
    ]


def _below(text: str, heading: str) -> str:
    """The section of a heading, up to the next one of its level or above."""
    marks, rest = re.split(rf"^(##+) {re.escape(heading)}\n", text, maxsplit=1, flags=re.MULTILINE)[1:]
    return re.split(rf"^#{{2,{len(marks)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]
