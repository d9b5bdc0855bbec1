"""Wheels: built from the source tree, and programs that run without anything that leads to the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.tools.blocks import PROJECT

BESIDE = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
"""A search path with the programs of this environment."""


def clean(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment without a trace of the repository's.

    Args:
        more: what it has besides.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "VIRTUAL"))}
    return {**own, **(more or {})}


def ran(*command: str | Path, folder: Path, more: Mapping[str, str] | None = None, seconds: float = 300) -> str:
    """What a program prints that must end well, without anything that leads to the repository.

    Args:
        command: the program and what it is told.
        folder: where it runs.
        more: of its environment.
        seconds: how long it may take.
    """
    done = subprocess.run(
        command, cwd=folder, env=clean(more), capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def built(folder: Path) -> Path:
    """The wheel of the source tree, built into a folder."""
    ran(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, folder=PROJECT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def interpreter(version: str) -> Path | None:
    """A Python of a minor version on this machine, from the search path or pyenv's folder; None where there is none."""
    places = [shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places += [str(place) for place in sorted(pyenv.glob(f"versions/{version}.*/bin/python"))]
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    for place in filter(None, places):
        # pyenv's stand-ins lie in the search path also where they lead nowhere.
        done = subprocess.run([place, "-c", asked], capture_output=True, text=True, env=clean(), check=False)
        if done.stdout.strip() == version:
            return Path(place)
    return None
