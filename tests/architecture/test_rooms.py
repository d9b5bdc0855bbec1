"""`make rooms` and `make pictures`: the list of files and the pictures are what their sources say."""

import re
from pathlib import Path

import pytest

from scripts import pictures, rooms

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
        {"spark", "log", "storage"},
    )

    assert drawn.splitlines() == [
        "@startuml",
        "!include theme.iuml",
        "!pragma layout smetana",
        "rectangle spark",
        "rectangle log",
        "rectangle storage",
        "spark --> log",
        "log --> storage",
        "@enduml",
    ]


def test_pictures_are_drawn_from_their_sources() -> None:
    assert [source.name for source in pictures.stale()] == [], "run make pictures"


def test_picture_of_a_changed_source_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in pictures.SOURCES.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with (tmp_path / "append.puml").open("a") as source:
        source.write("' changed\n")
    (tmp_path / "poll.svg").unlink()
    monkeypatch.setattr(pictures, "SOURCES", tmp_path)

    assert [source.name for source in pictures.stale()] == ["append.puml", "poll.puml"]


def test_layers_name_each_room_of_the_package() -> None:
    placed = {room for layer in rooms.layers() for room in layer}

    assert set(rooms.modules()) <= placed
