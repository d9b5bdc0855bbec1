"""Compiled packages: the zips that Spark starts its Python from hold bytecode, and the modules stay what they are."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts.compile_packages import with_bytecode


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "code.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("deep/__init__.py", "")
        made.writestr("deep/answer.py", "VALUE = 42\n")
        made.writestr("deep/data.txt", "as it was")
    return path


def imported(archive: Path) -> str:
    """What a fresh process finds in the zip."""
    look = "import deep.answer as m; print(m.VALUE, m.__file__.rpartition('.')[2])"
    return subprocess.run(
        [sys.executable, "-c", look], env={"PYTHONPATH": str(archive)}, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_zip_of_modules_is_imported_from_bytecode(archive: Path, tmp_path: Path) -> None:
    """Sources and other files are still there."""
    assert imported(archive) == "42 py"

    assert with_bytecode(archive, tmp_path)

    assert imported(archive) == "42 pyc"
    with zipfile.ZipFile(archive) as made:
        assert made.read("deep/answer.py") == b"VALUE = 42\n"
        assert made.read("deep/data.txt") == b"as it was"


def test_installed_bytecode_is_taken_only_for_the_same_source(archive: Path, tmp_path: Path) -> None:
    """Another version of the package may be installed."""
    installed = tmp_path / "deep" / "answer.py"
    installed.parent.mkdir()
    installed.write_text("VALUE = 41\n")
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(installed)], check=True)

    with_bytecode(archive, tmp_path)

    assert imported(archive) == "42 pyc"


def test_a_zip_with_bytecode_is_left_alone(archive: Path, tmp_path: Path) -> None:
    """Setup may run again."""
    with_bytecode(archive, tmp_path)
    before = archive.read_bytes()

    assert not with_bytecode(archive, tmp_path)
    assert archive.read_bytes() == before


def test_a_zip_that_cannot_be_compiled_stays_as_it_is(archive: Path, tmp_path: Path) -> None:
    """Its modules ran before, so they run on."""
    with zipfile.ZipFile(archive, "a") as made:
        made.writestr("deep/wrong.py", "def")
    before = archive.read_bytes()

    with pytest.raises(SyntaxError):
        with_bytecode(archive, tmp_path)

    assert archive.read_bytes() == before
    assert list(tmp_path.glob("code.*")) == [archive]
