"""Copiers in transactions under a storm, and a checker that judges what they, snapshots and the group's offsets saw.

Four copiers of one group are killed, stopped past their session and their timeout, replaced under the same
transactional id while they are stopped, and leave; maintenance runs beside them, and aborts what hangs.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tools.copiers import STORM, Copying

COPIERS = 4
SOAK_SECONDS = 600


@pytest.fixture
def copying_of(root: str, tmp_path: Path) -> Iterator[Callable[[str, int], Copying]]:
    """Makes a pipeline, and ends its processes."""
    made: list[Copying] = []

    def make(strategy: str, seed: int) -> Copying:
        made.append(Copying(root, tmp_path, strategy, seed))
        return made[-1]

    yield make
    for one in made:
        one.end()


def run(copying: Copying, seconds: float, look_every: float) -> None:
    """Let them all work for so long at least, then wait for the end of the input, and judge."""
    with copying.beside(look_every):
        copying.start(*(f"t{number}" for number in range(COPIERS)))
        begun = time.monotonic()
        while time.monotonic() - begun < seconds or not set(STORM) <= set(copying.done):
            time.sleep(copying.chance.uniform(0.2, 1.2))
            copying.storm()
    copying.drained()

    report = copying.verdict()
    print(  # noqa: T201 - for who runs it by hand
        f"\n{time.monotonic() - begun:.0f} s, {report['events']} events, transactions {report['transactions']}, "
        f"{report['snapshots']} snapshots, {report['counts']}, {dict(copying.done)}, problems {copying.problems[:5]}"
    )
    assert report["transactions"]["ok"] > 20
    assert report["snapshots"] > 3


@pytest.mark.timeout(300)
def test_a_pipeline_under_a_storm_copies_each_record_once(copying_of: Callable[[str, int], Copying]) -> None:
    run(copying_of("range", 1), 6, 0.5)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_a_pipeline_under_a_long_storm(copying_of: Callable[[str, int], Copying], strategy: str) -> None:
    run(copying_of(strategy, 2), SOAK_SECONDS, 4)
