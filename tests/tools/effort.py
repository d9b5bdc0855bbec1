"""Effort: how long a test may search in, a number of examples out.

`make check` sets KAFKALIKE_TESTS=quick and tries few examples; `make test` tries all of them. `make mutants` sets
KAFKALIKE_TESTS=mutants, and tries still fewer: most faults show in any of them.
A long trial tries other seeds, in pieces: KAFKALIKE_SEEDS=2000-4000 is those from 2000 to 3999.
"""

import os

NAME = "KAFKALIKE_TESTS"


def _asked() -> str:
    found = os.environ.get(NAME, "all")
    if found not in {"all", "quick", "mutants"}:
        message = f"{NAME} is {found!r}; it may be 'quick', 'mutants' or 'all'"
        raise ValueError(message)
    return found


EFFORT = _asked()
"""What this run is for."""

FEWEST = 10
"""Examples below which a search shows too little."""

QUICK = EFFORT != "all"
"""Whether this run tries few examples."""


def examples(everything: int, quick: int) -> int:
    """How many examples this run tries."""
    if EFFORT == "mutants":
        return min(quick, max(quick // 4, FEWEST))
    return quick if QUICK else everything


def seeds(everything: int, quick: int) -> range:
    """Which seeds this run tries."""
    asked = os.environ.get("KAFKALIKE_SEEDS")
    if asked is None:
        return range(examples(everything, quick))
    first, _, end = asked.partition("-")
    return range(int(first), int(end))
