"""Rooms: draw the packages of kafkalike and list their files, from what the source says.

    python -m scripts.rooms [--check]

Writes `docs/pictures/rooms.puml`, which `make pictures` draws, and `docs/reference/files.md`: for each room its modules
with the first sentence of their docstrings. With `--check` nothing is written; the exit code is 1 if a file is out of
date. The layers themselves are checked by import-linter (`pyproject.toml`).
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).parents[1]
PICTURE: Final = ROOT / "docs" / "pictures" / "rooms.puml"
NOT_DRAWN: Final = {"__main__", "version"}
"""Modules of a few lines, left out of the picture."""
INDEX: Final = ROOT / "docs" / "reference" / "files.md"


def layers() -> list[list[str]]:
    """The rooms from the top, those that may not import each other side by side, as import-linter has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    rooms = next(contract for contract in contracts["contracts"] if contract["name"] == "The rooms")
    return [[name.strip(" ()") for name in layer.split("|")] for layer in rooms["layers"]]


def room_imports() -> set[tuple[str, str]]:
    """Pairs of rooms of which the first imports the second; imports for types and inside functions count."""
    sys.path.insert(0, str(ROOT))
    graph = grimp.build_graph("kafkalike", cache_dir=None, exclude_type_checking_imports=False)
    pairs = {(a, b) for a in graph.modules for b in graph.find_modules_directly_imported_by(a)}
    rooms = {(_room(a), _room(b)) for a, b in pairs}
    return {(a, b) for a, b in rooms if a and b and a != b}


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def picture(order: list[list[str]], imports: set[tuple[str, str]], known: Collection[str]) -> str:
    """Return the PlantUML source of the rooms, without arrows that a path over other rooms implies."""
    rooms = [room for layer in order for room in layer if room in known]
    lines = ["@startuml", "!include theme.iuml", "!pragma layout smetana"]
    lines += [f"rectangle {room}" for room in rooms]
    lines += [
        f"{a} --> {b}"
        for a in rooms
        for b in rooms
        if (a, b) in imports and not any((a, c) in imports and _leads(imports, c, b) for c in rooms if c != b)
    ]
    return "\n".join([*lines, "@enduml", ""])


def _leads(imports: set[tuple[str, str]], start: str, end: str) -> bool:
    return (start, end) in imports or any(_leads(imports, b, end) for a, b in imports if a == start)


def modules() -> dict[str, list[Path]]:
    """The files of each room, in order."""
    found: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "kafkalike").rglob("*.py")):
        room = path.relative_to(ROOT / "kafkalike").with_suffix("").parts[0]
        if "__pycache__" not in path.parts and room != "__init__":
            found.setdefault(room, []).append(path)
    return found


def sentence(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split())
    first, stop, _ = text.partition(". ")
    return (first + stop).strip()


def index(order: list[list[str]], files: Mapping[str, list[Path]]) -> str:
    """The page of all files."""
    return "\n".join(_index(order, files)) + "\n"


def _index(order: list[list[str]], files: Mapping[str, list[Path]]) -> Iterator[str]:
    yield "# Files of the package"
    yield ""
    yield "`make rooms` writes this page from the docstrings of the modules."
    yield "[Architecture](../architecture.md) explains the rooms."
    for room in (room for layer in order for room in layer if room in files):
        yield ""
        yield f"## {room}"
        yield ""
        yield "| file | contents |"
        yield "|---|---|"
        for path in files[room]:
            said = sentence(path).replace("|", "\\|")
            if said:
                yield f"| `{path.relative_to(ROOT / 'kafkalike')}` | {said} |"


def pages() -> dict[Path, str]:
    """Return the text of each file that this script writes."""
    order, files = layers(), modules()
    drawn = picture(order, room_imports(), files.keys() - NOT_DRAWN)
    return {PICTURE: drawn, INDEX: index(order, files)}


def main() -> int:
    """Write or check the pages; return the exit code."""
    parser = argparse.ArgumentParser(description="Draw the rooms of kafkalike and list their files.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    given = parser.parse_args()
    made = pages().items()
    stale = [(page, text) for page, text in made if not page.is_file() or page.read_text(encoding="utf-8") != text]
    for page, text in stale:
        if given.check:
            print(f"{page.relative_to(ROOT)} is out of date: run make rooms", file=sys.stderr)
        else:
            page.parent.mkdir(exist_ok=True)
            page.write_text(text, encoding="utf-8")
    return 1 if stale and given.check else 0


if __name__ == "__main__":
    sys.exit(main())
