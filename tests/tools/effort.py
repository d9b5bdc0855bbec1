"""Effort: how long a test may search in, a number of examples out.

| KAFKALIKE_TESTS | who sets it | how many examples |
| --- | --- | --- |
| `mutants` | `make mutants` | fewer than few: most faults show in any of them |
| `quick` | `make check` | few |
| `usual` | nobody, and so `make test` has it | a tenth of all |
| `all` | `make test-all`, `make soak` | all |

A long trial tries other seeds, in pieces: KAFKALIKE_SEEDS=2000-4000 is those from 2000 to 3999.
"""

import os

NAME = "KAFKALIKE_TESTS"
LEVELS = ("mutants", "quick", "usual", "all")
FEWEST = 10
"""Examples below which a search shows too little."""
SHARE = 10
"""`make test` tries one of so many: what it tries is the same each time in CI, so more of it would show little more."""


def _level() -> str:
    found = os.environ.get(NAME, "usual")
    if found not in LEVELS:
        message = f"{NAME} is {found!r}; it may be one of {', '.join(LEVELS)}"
        raise ValueError(message)
    return found


LEVEL = _level()
"""How much this run tries."""


def examples(everything: int, quick: int, level: str = LEVEL) -> int:
    """How many examples this run tries; or, where `quick` is the larger number, how far apart they are.

    Args:
        everything: of `make test-all`.
        quick: of `make check`.
        level: how much this run tries.

    Returns:
        What `make test` tries lies between the two.
    """
    if level == "mutants" and everything >= quick:
        return min(quick, max(quick // 4, FEWEST))
    if level in {"mutants", "quick"}:
        return quick
    if level == "all":
        return everything
    return max(quick, everything // SHARE) if everything >= quick else min(quick, everything * SHARE)


def seeds(everything: int, quick: int) -> range:
    """Which seeds this run tries."""
    asked = os.environ.get("KAFKALIKE_SEEDS")
    if asked is None:
        return range(examples(everything, quick))
    first, _, end = asked.partition("-")
    return range(int(first), int(end))
