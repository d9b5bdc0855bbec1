"""The program that plays many histories still finds the modules that it needs."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "tools" / "many_histories.py"


@pytest.mark.parametrize("world", ["replicas", "voters"])
def test_histories_are_played_outside_of_pytest(world: str) -> None:
    """It loads the pure modules alone, so that PyPy, which has none of our packages, can run it."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(PROGRAM), world, "10", "13"], capture_output=True, text=True, check=False
    )

    assert done.stdout.startswith("3 played, 0 broken"), done.stdout + done.stderr
