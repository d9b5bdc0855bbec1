"""Each long trial is run by a target of the Makefile: what nobody runs shows nothing."""

import re
from pathlib import Path

import pytest

from scripts import mutants
from tests.tools.interrupts import PRODUCER
from tests.tools.kinds import ABOVE_THE_LOG

PROJECT = Path(__file__).parents[2]
MARK = "pytest.mark." + "soak"


def targets() -> set[str]:
    """Files and folders of tests that a command of the Makefile selects by the mark `soak`."""
    text = (PROJECT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = [line for line in text.splitlines() if re.search(r"-m (soak|\"soak or not soak\")", line)]
    return {word for line in commands for word in line.split() if word.startswith("tests/")}


def test_each_long_trial_is_run_by_a_target() -> None:
    trials = [path for path in (PROJECT / "tests").rglob("test_*.py") if MARK in path.read_text(encoding="utf-8")]

    chosen = [PROJECT / target for target in targets()]
    left_out = {
        str(path.relative_to(PROJECT))
        for path in trials
        if not any(path == target or target in path.parents for target in chosen)
    }

    assert all(target.exists() for target in chosen)
    assert left_out == set()


def test_files_whose_cases_over_three_roots_only_test_all_runs_are_there() -> None:
    files = {path.stem for path in (PROJECT / "tests" / "contract").rglob("test_*.py")}

    assert files >= ABOVE_THE_LOG
    assert '-m "not soak and not objects"' in (PROJECT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("part", mutants.PARTS)
def test_modules_and_tests_of_each_part_of_the_mutants_are_there(part: str) -> None:
    named = [*mutants.PARTS[part].modules, *mutants.PARTS[part].tests]

    assert [name for name in named if not any(PROJECT.glob(name))] == []


def test_code_that_is_interrupted_line_by_line_is_there() -> None:
    assert [place for place in PRODUCER if not (PROJECT / place).exists()] == []
