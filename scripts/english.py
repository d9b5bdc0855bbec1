"""English: count patterns of unidiomatic English in docs, docstrings and messages; the count must not rise.

    python -m scripts.english [--list PATTERN] [--limit N] [--check | --record] [ROOT]

`--check` ends with 1 when the count is above its limit in `scripts/limits.json`; `make lint` runs it. `--record` lowers
the limit to today's count. The rate per 1,000 words is printed, too, and is no limit: it rises when clean text is cut.
A match is a hint, not a verdict: read the places with `--list`.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from scripts import ratchet

ROOT: Final = Path(__file__).parents[1]

VERBS: Final = (
    "has is was waits? reads? writes? asks? comes? gets? may knows? opens? looks? loads? finds? sends? would cannot"
    " needs? wants? uses? makes? takes? holds?"
)
"""After `who` they make a person of a process."""

PATTERNS: Final = {
    "a noun clause at the start (What, Who, Where …)": (
        r"(?m)(?:^|(?<=[.;:] ))(?:What|Who|Whoever|Where|Whether|That which)\b(?![^.\n]*\?)"
    ),
    "a noun clause inside (what is, what it has …)": (
        r"\b(?<!about )what (?:is|was|has|have|had|it|they|comes|came|becomes|others|somebody|nobody|one)\b"
    ),
    "who, of a process": (
        r"(?:^|[.;:,(] |\b(?:and|so|for|to|of|than|by) )[Ww]ho (?:" + "|".join(VERBS.split()) + r")\b"
    ),
    "is no X, are no X": r"\b(?:is|are|was|were|be) no (?!longer|more\b|doubt|such thing)[a-z]+",
    "anew, by now, for ever, till": r"\b(?:anew|by now|for ever|till)\b",
    "begin again, go on, go out, are gone": (
        r"\b(?:begin again|begins again|goes? on\b|went on\b|go out\b|goes out\b|are gone\b|is gone\b)"
    ),
    "is to be, are to be": r"\b(?:is|are|was|were) to be\b",
    "is said, says so": r"\b(?:is|are|was|were) said\b|\bsays so\b",
    "so many, so much, so long as a quantity": r"\b(?:so many|so much|so long a|so short a|so often)\b",
    "one that, those that, ones that": r"\b(?:[Oo]ne|[Tt]hose|ones) (?:that|which|of)\b",
    "also where, also when, also if": r"\balso (?:when|where|if|those|one)\b",
    "he or his for a process": r"\b(?:he|his|him)\b",
}
"""Regular expressions by name, for all texts."""

DOCSTRING_PATTERNS: Final = {
    "a docstring of three words or fewer": r"\A\W*(?:\w+\W*){1,3}\Z",
    "a docstring that points at a neighbor (The same …, See …, As …)": (
        r"\A(?:The same\b|See\b|As (?:in|for|there|above)\b)"
    ),
}
"""Patterns that only docstrings are searched for."""

CODE_BLOCK: Final = re.compile(r"```.*?```", re.DOTALL)

LOG_CALLS: Final = frozenset({"debug", "info", "warning", "error", "exception"})


class Text(NamedTuple):
    """A text that people read."""

    kind: str
    """`docs`, `docstrings`, `comments` or `messages`."""
    place: str
    text: str


def texts(root: Path) -> Iterator[Text]:
    """Yield the lines of pages without their code blocks, docstrings, comments, and strings of errors and log calls."""
    for page in [*sorted(root.glob("docs/**/*.md")), *sorted(root.glob("*.md"))]:
        prose = CODE_BLOCK.sub(lambda block: "\n" * block.group().count("\n"), page.read_text(encoding="utf-8"))
        for number, line in enumerate(prose.splitlines(), 1):
            if line.strip():
                yield Text("docs", f"{page.relative_to(root)}:{number}", line)
    for file in sorted(root.glob("kafkalike/**/*.py")):
        source, name = file.read_text(encoding="utf-8"), str(file.relative_to(root))
        for node in ast.walk(ast.parse(source)):
            yield from _texts_of(node, name)
        yield from _comments(source, name)


def _comments(source: str, file: str) -> Iterator[Text]:
    """Yield the comments; lines that follow each other are one text."""
    first = last = 0
    lines: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if lines and token.start[0] != last + 1:
            yield Text("comments", f"{file}:{first}", " ".join(lines))
            lines = []
        first, last = first if lines else token.start[0], token.start[0]
        lines.append(token.string.lstrip("# "))
    if lines:
        yield Text("comments", f"{file}:{first}", " ".join(lines))


def _texts_of(node: ast.AST, file: str) -> Iterator[Text]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        yield Text("docstrings", f"{file}:{node.lineno}", node.value.value)
    elif isinstance(node, ast.Raise) or (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_CALLS
    ):
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and " " in part.value:
                yield Text("messages", f"{file}:{part.lineno}", part.value)


def matches(found: Sequence[Text]) -> dict[str, list[Text]]:
    """Return the texts of each pattern, once for each match."""
    every = {name: (pattern, {"docs", "docstrings", "comments", "messages"}) for name, pattern in PATTERNS.items()}
    every |= {name: (pattern, {"docstrings"}) for name, pattern in DOCSTRING_PATTERNS.items()}
    return {
        name: [text for text in found if text.kind in kinds for _ in re.finditer(pattern, text.text)]
        for name, (pattern, kinds) in every.items()
    }


def main() -> int:
    """Print the counts, then compare or record their sum."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--list", metavar="PATTERN", help="show places of the patterns whose name contains this")
    parser.add_argument("--limit", type=int, default=40, help="how many places to show of each pattern")
    ratchet.add_options(parser)
    options = parser.parse_args()
    found = list(texts(options.root.resolve()))
    counts = matches(found)
    for name, places in counts.items():
        print(f"{name:64s} {len(places):>6,}")
        if options.list and options.list in name:
            for text in places[: options.limit]:
                print(f"  {text.place}: {text.text.strip()[:140]}")
    words = sum(len(text.text.split()) for text in found)
    total = sum(map(len, counts.values()))
    figures = {"unidiomatic phrases": total}
    print(f"{total:,} phrases, {1000 * total / max(1, words):.1f} per 1,000 of {words:,} words")
    return ratchet.settle("english", figures, options)


if __name__ == "__main__":
    sys.exit(main())
