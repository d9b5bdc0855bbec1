"""`make rooms`: the picture in docs/architecture.md and the list of files are what the source says."""

import re
from pathlib import Path

from scripts import rooms

ROOT = Path(__file__).parents[2]


def test_pages_are_what_the_source_says() -> None:
    stale = [page.name for page, text in rooms.pages().items() if page.read_text(encoding="utf-8") != text]

    assert stale == [], "run make rooms"


def test_list_of_files_has_each_module_once() -> None:
    """A module without a docstring would be missing; only `__init__` files may have none."""
    text = (ROOT / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    there = {
        path.relative_to(ROOT / "kafkalike").as_posix()
        for path in (ROOT / "kafkalike").rglob("*.py")
        if "__pycache__" not in path.parts and path != ROOT / "kafkalike" / "__init__.py"
    }

    assert len(listed) == len(set(listed))
    assert {name for name in there.symmetric_difference(listed) if not name.endswith("__init__.py")} == set()


def test_picture_leaves_out_an_arrow_that_a_longer_way_says() -> None:
    drawn = rooms.picture(
        [["spark"], ["log"], ["storage"]],
        {("spark", "log"), ("log", "storage"), ("spark", "storage")},
        {"spark": 3, "log": 2, "storage": 1},
    )

    assert drawn.splitlines() == [
        "```mermaid",
        "flowchart TD",
        '    spark["spark · 3"]',
        '    log["log · 2"]',
        '    storage["storage · 1"]',
        "    spark --> log",
        "    log --> storage",
        "```",
    ]


def test_layers_name_each_room_of_the_package() -> None:
    placed = {room for layer in rooms.layers() for room in layer}

    assert set(rooms.modules()) <= placed
