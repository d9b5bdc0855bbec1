"""What is committed runs anywhere: no file names this machine's folders or anybody's package index."""

import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

# Name and top-level domain apart, so that this file does not hold what it forbids.
INDEXES = {
    "pypi": "org",
    "pythonhosted": "org",
    "maven": "org",
    "npmjs": "(org|com)",
    "crates": "io",
    "debian": "org",
    "golang": "org",
}
INDEX_HOST = re.compile("|".join(rf"\b{name}\.{tld}\b" for name, tld in INDEXES.items()))
HOMES = ("work", "root", "home", "Users")
# A path's start: at the beginning of a word, not behind a scheme, a variable or another folder.
MACHINE_PATH = re.compile(rf"""(?:^|(?<=[\s"'`(=:,]))/(?:{"|".join(HOMES)})/\w""", re.MULTILINE)


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return [path for name in listed.stdout.split("\0") if name and (path := REPOSITORY / name).is_file()]


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="ignore")


@pytest.mark.slow
def test_no_tracked_file_names_a_package_index() -> None:
    found = {path.name: match[0] for path in tracked_files() if (match := INDEX_HOST.search(text(path)))}

    assert found == {}


@pytest.mark.slow
def test_no_tracked_file_names_a_folder_of_one_machine() -> None:
    found = {path.name: match[0] for path in tracked_files() if (match := MACHINE_PATH.search(text(path)))}

    assert found == {}


def test_no_tracked_file_names_the_checkout() -> None:
    here = str(REPOSITORY)

    assert [path.name for path in tracked_files() if here in text(path)] == []


@pytest.mark.parametrize("folder", HOMES)
def test_a_machine_path_is_seen(folder: str) -> None:
    assert MACHINE_PATH.search(f'open("/{folder}/x")')


@pytest.mark.parametrize("words", ["s3a://bucket/log", "./work/x", "$HOME/x", "rows/work/hour"])
def test_another_path_is_let_pass(words: str) -> None:
    assert MACHINE_PATH.search(words) is None
