"""The script behind `make graph` finds what is out of order."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "import_graph.py"

SOUND = {
    "connect": "from kafkalike.log.topic.reader import x",
    "topic.reader": "import kafkalike.delta.table\nimport kafkalike.storage.local",
    "table.table": "from kafkalike.storage import local",
    "store.local": "",
    "staged.commit": "from kafkalike.log.topic import reader",
    "upkeep.merge": "from kafkalike.log.topic import reader",
}
"""Modules of `kafkalike.log` and what they import."""


def graph(root: Path, modules: dict[str, str]) -> tuple[int, str, list[str]]:
    """Exit code, table and complaints for a package of these modules."""
    for name, source in modules.items():
        file = root.joinpath("kafkalike", "log", *name.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{source}\n", encoding="utf-8")
    for folder in {file.parent for file in root.rglob("*.py")} | {root / "kafkalike"}:
        (folder / "__init__.py").touch()
    done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr.splitlines()


def test_folders_that_import_downwards_only_are_in_order(tmp_path: Path) -> None:
    """Four levels: connect, topic, table, store; the others stand beside."""
    code, printed, complaints = graph(tmp_path, SOUND)

    assert complaints == []
    assert code == 0
    assert "modules 6 on 4 levels, imports 6" in printed
    assert "folders 6 on 4 levels, imports 6" in printed


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        (
            "topic.names",
            "def late() -> None:\n    import kafkalike.log.topic.reader",
            "circle: kafkalike.log.topic.names, kafkalike.log.topic.reader",
        ),
        (
            "store.local",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import kafkalike.delta.state",
            "up: kafkalike.storage.local imports kafkalike.delta.state",
        ),
        (
            "upkeep.merge",
            "import kafkalike.spark.staged.commit",
            "up: kafkalike.maintenance.upkeep.merge imports kafkalike.spark.staged.commit",
        ),
        (
            "topic.reader",
            "import kafkalike.log.cellar.box\nimport kafkalike.log.topic.names",
            "up: kafkalike.log.topic.reader imports kafkalike.log.cellar.box",
        ),
    ],
    ids=["circle", "up-in-types-only", "beside", "unknown-folder"],
)
def test_a_planted_flaw_is_named(tmp_path: Path, module: str, source: str, complaint: str) -> None:
    """Imports in functions and those for types count like others."""
    more = {"topic.names": "", "table.state": "", "cellar.box": ""}
    if module == "topic.names":
        more["topic.reader"] = "import kafkalike.log.topic.names"

    code, _, complaints = graph(tmp_path, {**SOUND, **more, module: source})

    assert complaints == [complaint]
    assert code == 1


def test_a_folder_of_more_than_25_modules_is_named(tmp_path: Path) -> None:
    """Nobody finds anything in it."""
    many = {f"store.part{number}": "" for number in range(25)}

    code, _, complaints = graph(tmp_path, {**SOUND, **many})

    assert complaints == ["folder: store has 26 modules, not 25 at most"]
    assert code == 1


def test_a_folder_in_a_folder_is_counted_by_itself(tmp_path: Path) -> None:
    """Whoever opens one of them sees no more than that."""
    many = {f"store.a{number}": "" for number in range(24)} | {f"store.deep.b{number}": "" for number in range(25)}

    code, printed, complaints = graph(tmp_path, SOUND | many)

    assert (code, complaints) == (0, [])
    assert "largest folder 25" in printed


@pytest.mark.slow
def test_the_picture_goes_between_its_marks_and_leaves_out_what_another_way_says(tmp_path: Path) -> None:
    """`topic` leads to `table`, and `table` to `store`; an arrow from `topic` to `store` would say nothing new."""
    graph(tmp_path, SOUND)
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- folders: written by `make graph` -->\nold\n<!-- end of folders -->\nafter\n", encoding="utf-8"
    )

    subprocess.run([sys.executable, SCRIPT, tmp_path, "--picture", page], capture_output=True, check=True)

    lines = [line.strip() for line in page.read_text(encoding="utf-8").splitlines()]
    assert lines[0] == "before"
    assert lines[-1] == "after"
    assert "old" not in lines
    assert {line for line in lines if "-->" in line and "folders" not in line} == {
        "staged --> topic",
        "table --> store",
        "top --> topic",
        "topic --> table",
        "upkeep --> topic",
    }
